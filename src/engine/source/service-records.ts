import { DateTime } from "luxon";
import type {
  Alarm,
  Gateway,
  Host,
  ServiceHealth,
  Site,
  System,
  Tag,
  TagValue,
  TokenInfo,
} from "../../core/model/building.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { printableLine } from "../../core/values/printable-text.ts";
import { maskSecrets } from "../../core/values/secret-masking.ts";
import { isRecord, printableText } from "./reply.ts";

/** Usual form of history times. Days 29 to 31 need `Date.parse`, because not every month has them. */
const USUAL_UTC_TIME_PATTERN = /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\dZ$/;
const ANY_DAY_UTC_TIME_PATTERN = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/;
const USUAL_OFFSET_TIME_PATTERN =
  /^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d[+-]([01]\d|2[0-3]):[0-5]\d$/;
const UTC_OFFSET_PATTERN = /T.*(Z|[+-]\d\d(:?\d\d)?)(\[[\w/+-]+\])?$/;
/** Longest text that is parsed as a time: parsing 200,000 characters would take a minute. */
const TIME_TEXT_LENGTH_MAX = 200;
const LEAP_SECOND = /^(.*T\d\d:?\d\d:?)60/;

/** Converts ISO 8601 into UTC with milliseconds. Other text, and times without an offset, stay as they are. */
export function normalizeTime(raw: string) {
  if (USUAL_UTC_TIME_PATTERN.test(raw)) return { text: `${raw.slice(0, 19)}.000Z`, isTime: true };
  if (ANY_DAY_UTC_TIME_PATTERN.test(raw)) {
    const utcMs = Date.parse(raw);
    const utcText = `${raw.slice(0, 19)}.000Z`;
    if (!Number.isNaN(utcMs) && isoUtc(utcMs) === utcText) return { text: utcText, isTime: true };
  }
  if (USUAL_OFFSET_TIME_PATTERN.test(raw)) return { text: isoUtc(Date.parse(raw)), isTime: true };
  if (raw.length > TIME_TEXT_LENGTH_MAX) return { text: raw, isTime: false };
  const upperCase = raw.trim().replace(/[a-z](?![^[]*\])/g, (letter) => letter.toUpperCase());
  const isoTime = upperCase.replace(/^(\d{4}-\d\d-\d\d) +(?=\d\d:)/, "$1T").replace(/ +(?=(Z|[+-]\d\d:?\d\d)$)/, "");
  const isLeapSecond = LEAP_SECOND.test(isoTime);
  const parsedTime = DateTime.fromISO(isLeapSecond ? isoTime.replace(LEAP_SECOND, "$159") : isoTime, { zone: "utc" });
  if (!parsedTime.isValid) return { text: raw, isTime: false };
  if (!UTC_OFFSET_PATTERN.test(isoTime)) return { text: raw, isTime: true };
  const timeMs = isLeapSecond ? parsedTime.startOf("second").toMillis() + 1000 : parsedTime.toMillis();
  return { text: isoUtc(timeMs), isTime: true };
}

/** Formats a time for a history request: full seconds and a trailing `Z`. Null if it is not ISO 8601 in UTC. */
export function formatRequestTime(iso: string): string | null {
  if (!/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(iso)) return null;
  const isoTimeMs = Date.parse(iso);
  const timeText = iso.slice(0, 19);
  return !Number.isNaN(isoTimeMs) && isoUtc(isoTimeMs).startsWith(timeText) ? `${timeText}Z` : null;
}

export type CountUnusualField = (field: string, occurrences?: number) => void;

const RECORD_TEXT_LENGTH_MAX = 10_000;

/** Replaces lone surrogates, which UTF-8 cannot store, and masks secrets that the service echoes. */
export function cleanRecordText(text: string): string {
  return maskSecrets(text.slice(0, RECORD_TEXT_LENGTH_MAX)).toWellFormed();
}

function parseRecordId(id: unknown): string | null {
  const idText = Number.isSafeInteger(id) ? String(id) : id;
  return typeof idText === "string" && idText.length > 0 && idText.length <= 255 ? cleanRecordText(idText) : null;
}

function parseNumericId(id: unknown): number | null {
  if (typeof id === "string") return /^\d{1,15}$/.test(id) ? Number(id) : null;
  return Number.isSafeInteger(id) ? (id as number) : null;
}

export function hasUnsafeId(record: unknown): boolean {
  if (!isRecord(record)) return false;
  const { id } = record;
  return typeof id === "string" && /^\d+$/.test(id) && !Number.isSafeInteger(Number(id));
}

const USUAL_TIME_PATTERN = /^[\d-]{10}T[\d:.]{8,12}(Z|[+-][\d:]{4,5})?$/;

/** Reads fields of a record: counts a field of the wrong type and returns the empty value of the right type. */
class FieldReader {
  readonly #record: Readonly<Record<string, unknown>>;
  readonly #name: string;
  readonly #countUnusualField: CountUnusualField;
  constructor(record: unknown, recordName: string, countUnusualField: CountUnusualField) {
    this.#record = isRecord(record) ? record : {};
    this.#name = recordName;
    this.#countUnusualField = countUnusualField;
  }

  readText(field: string): string {
    const value = this.#record[field];
    return typeof value === "string" ? cleanRecordText(value) : this.#countAndReturn(field, "");
  }

  readTextOrNull(field: string): string | null {
    if (this.#isEmpty(field)) return null;
    return typeof this.#record[field] === "string" ? this.readText(field) : this.#countAndReturn(field, null);
  }

  readWord(field: string, usualValues: readonly string[]): string {
    const fieldText = this.readText(field);
    if (typeof this.#record[field] === "string" && !usualValues.includes(this.#record[field]))
      this.#countUnusualField(`${this.#name}.${field}`);
    return fieldText;
  }

  readNumberOrNull(field: string): number | null {
    const value = this.#record[field];
    if (this.#isEmpty(field)) return null;
    return typeof value === "number" && Number.isFinite(value) ? value : this.#countAndReturn(field, null);
  }

  readId(field: string): number {
    return parseNumericId(this.#record[field]) ?? this.#countAndReturn(field, 0);
  }

  readFlag(field: string, fallback: boolean): boolean {
    return parseBooleanField(this.#record[field]) ?? this.#countAndReturn(field, fallback);
  }

  readFlagOrNull(field: string): boolean | null {
    const value = this.#record[field];
    return value === null ? null : (parseBooleanField(value) ?? this.#countAndReturn(field, null));
  }

  readTime(field: string): { readonly text: string; readonly raw: string } {
    const value = this.#record[field];
    return typeof value === "string"
      ? this.#parsedTime(field, value)
      : this.#countAndReturn(field, { text: "", raw: "" });
  }

  /** Returns null for text that is no time: an invalid `resolved_at` must not resolve an alarm. */
  readTimeOrNull(field: string): { readonly text: string | null; readonly raw: string | null } {
    const value = this.#record[field];
    if (this.#isEmpty(field) || value === "") return { text: null, raw: null };
    if (typeof value !== "string") return this.#countAndReturn(field, { text: null, raw: null });
    const { text, raw, known } = this.#parsedTime(field, value);
    return { text: known ? text : null, raw };
  }

  readNested(field: string): FieldReader {
    return new FieldReader(this.#record[field], `${this.#name}.${field}`, this.#countUnusualField);
  }

  /** Returns null for an object without a numeric id, such as the empty array that PHP writes for `{}`. */
  readNestedOrNull(field: string): FieldReader | null {
    const value = this.#record[field];
    return isRecord(value) && parseNumericId(value.id) !== null ? this.readNested(field) : null;
  }

  #isEmpty(field: string): boolean {
    return this.#record[field] === undefined || this.#record[field] === null;
  }

  #parsedTime(field: string, value: string) {
    const raw = USUAL_TIME_PATTERN.test(value) ? value : cleanRecordText(value);
    const { text, isTime } = normalizeTime(raw);
    if (!isTime) this.#countUnusualField(`${this.#name}.${field}`);
    return { text, raw, known: isTime };
  }

  #countAndReturn<T>(field: string, fallback: T): T {
    this.#countUnusualField(`${this.#name}.${field}`);
    return fallback;
  }
}

function parseBooleanField(value: unknown): boolean | undefined {
  if (value === 0 || value === 1) return value === 1;
  return typeof value === "boolean" ? value : undefined;
}

/** Accepts lists as PHP writes them: `{}` if empty, or an object with numbers as names. */
export function parseRecordList(value: unknown): readonly unknown[] | null {
  if (Array.isArray(value)) return value;
  if (!isRecord(value)) return null;
  return Object.keys(value).every((name) => /^(0|[1-9]\d{0,8})$/.test(name)) ? Object.values(value) : null;
}

/** Number as JSON writes it, not " 21.5", "21,5", "0x10", "+1", "1." or "". */
const JSON_NUMBER_PATTERN = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
const QUOTED_LENGTH_MAX = 60;
const QUOTED_MEMBERS_MAX = 3;

/** Accepts numbers in texts, as PHP prints decimals. Returns undefined for unreadable values. */
export function parseTagValue(raw: unknown): TagValue | undefined {
  if (raw === null || typeof raw === "boolean") return raw;
  return parseNumericValue(raw);
}

export function parseNumericValue(raw: unknown): number | undefined {
  const number = typeof raw === "string" && JSON_NUMBER_PATTERN.test(raw) ? Number(raw) : raw;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

export function quoteRawValue(raw: unknown): string {
  if (typeof raw === "number" && Number.isFinite(raw)) return String(raw);
  if (raw === undefined) return "missing";
  if (typeof raw === "number") return "a number beyond every bound";
  if (raw === null) return "null";
  const text = printableLine(printableText(shortenRawValue(raw)));
  const shortValueText = text.length > QUOTED_LENGTH_MAX ? `${text.slice(0, QUOTED_LENGTH_MAX).toWellFormed()}…` : text;
  if (typeof raw === "string") return `the text "${shortValueText}"`;
  if (typeof raw === "boolean") return shortValueText;
  return `${Array.isArray(raw) ? "the list" : "the object"} ${shortValueText}`;
}

function shortenRawValue(raw: unknown): unknown {
  if (Array.isArray(raw)) return raw.slice(0, QUOTED_MEMBERS_MAX);
  return isRecord(raw) ? Object.fromEntries(Object.entries(raw).slice(0, QUOTED_MEMBERS_MAX)) : raw;
}

/** Parses a record; returns null if it has no usable id. Other faulty fields become empty values. */
export type RecordParser<T> = (record: unknown) => T | null;

const ALARM_STATUSES = ["active", "resolved"];
const ALARM_PRIORITIES = ["A", "B", "C"];
const ALL_TOKEN_ABILITIES = ["read:alarms", "read:tags", "write:tags", "read:gateways", "read:hosts", "read:systems"];
const WILDCARD_ABILITY = "*";

export function createRecordParsers(countUnusualField: CountUnusualField) {
  function makeAttributesParser<T>(name: string, parse: (id: string, attributes: FieldReader) => T): RecordParser<T> {
    return (record) => {
      const id = isRecord(record) ? parseRecordId(record.id) : null;
      return id === null
        ? null
        : parse(id, new FieldReader((record as { attributes?: unknown }).attributes, name, countUnusualField));
    };
  }

  const parseSiteRecord: RecordParser<Site> = (record) => {
    const id = isRecord(record) ? parseNumericId(record.id) : null;
    return id === null
      ? null
      : { id, displayName: new FieldReader(record, "site", countUnusualField).readText("display_name") };
  };
  return {
    site: parseSiteRecord,
    /** An alarm without a site belongs to the requested site. */
    alarm: (siteId: number | undefined) =>
      makeAttributesParser("alarm", (id, attributes) => parseAlarm(id, attributes, siteId)),
    tag: makeAttributesParser("tag", parseTag),
    gateway: makeAttributesParser("gateway", parseGateway),
    host: makeAttributesParser("host", parseHost),
    system: makeAttributesParser("system", parseSystem),
    tokenInfo: (data: unknown) => parseTokenInfo(data, parseSiteRecord, countUnusualField),
  };
}

function parseIdAndDisplayName(fields: FieldReader): Site {
  return { id: fields.readId("id"), displayName: fields.readText("display_name") };
}

function parseAlarm(id: string, attributes: FieldReader, siteId: number | undefined): Alarm {
  const site = parseIdAndDisplayName(attributes.readNested("site"));
  const alarmTrigger = attributes.readNested("trigger");
  const triggerTime = attributes.readTime("triggered_at");
  const resolutionTime = attributes.readTimeOrNull("resolved_at");
  const lastActiveEvent = attributes.readNestedOrNull("last_active_event");
  return {
    id,
    site: site.id === 0 && siteId !== undefined ? { ...site, id: siteId } : site,
    trigger: {
      ...parseIdAndDisplayName(alarmTrigger),
      description: alarmTrigger.readTextOrNull("description"),
      priority: alarmTrigger.readWord("priority", ALARM_PRIORITIES),
      enabled: alarmTrigger.readFlag("enabled", true),
    },
    status: attributes.readWord("status", ALARM_STATUSES),
    source: attributes.readText("source"),
    description: attributes.readText("description"),
    triggeredAt: triggerTime.text,
    triggeredAtRaw: triggerTime.raw,
    resolvedAt: resolutionTime.text,
    resolvedAtRaw: resolutionTime.raw,
    recoveringUntil: attributes.readTimeOrNull("recovering_until").text,
    acknowledged: attributes.readFlag("acknowledged", false),
    acknowledgedBy: attributes.readTextOrNull("acknowledged_by"),
    acknowledgedMessage: attributes.readTextOrNull("acknowledged_message"),
    acknowledgedAt: attributes.readTimeOrNull("acknowledged_at").text,
    lastActiveEvent: lastActiveEvent && {
      id: lastActiveEvent.readId("id"),
      source: lastActiveEvent.readText("source"),
      type: lastActiveEvent.readText("type"),
      triggeredOn: lastActiveEvent.readText("triggered_on"),
      value: lastActiveEvent.readNumberOrNull("value"),
      textlistValue: lastActiveEvent.readTextOrNull("textlist_value"),
      triggeredAt: lastActiveEvent.readTime("triggered_at").text,
    },
  };
}

function parseTag(id: string, attributes: FieldReader): Tag {
  return {
    id,
    displayName: attributes.readText("display_name"),
    description: attributes.readTextOrNull("description"),
    unit: attributes.readTextOrNull("unit"),
  };
}

function parseGateway(id: string, attributes: FieldReader): Gateway {
  return {
    id,
    displayName: attributes.readText("display_name"),
    online: attributes.readFlagOrNull("online"),
    version: attributes.readTextOrNull("version"),
    hardware: attributes.readTextOrNull("hardware"),
    ipAddress: attributes.readTextOrNull("ip_address"),
    location: attributes.readTextOrNull("location"),
  };
}

function parseHost(id: string, attributes: FieldReader): Host {
  const hostGateway = attributes.readNestedOrNull("gateway");
  return {
    id,
    displayName: attributes.readText("display_name"),
    description: attributes.readTextOrNull("description"),
    type: attributes.readTextOrNull("type"),
    modelName: attributes.readTextOrNull("model_name"),
    ip: attributes.readTextOrNull("ip"),
    macAddress: attributes.readTextOrNull("mac_address"),
    gateway: hostGateway && parseIdAndDisplayName(hostGateway),
  };
}

function parseSystem(id: string, attributes: FieldReader): System {
  return {
    id,
    code: attributes.readText("code"),
    displayName: attributes.readText("display_name"),
    discipline: attributes.readTextOrNull("discipline"),
    description: attributes.readTextOrNull("description"),
    location: attributes.readTextOrNull("location"),
    manufacturer: attributes.readTextOrNull("manufacturer"),
    installedYear: attributes.readNumberOrNull("installed_year"),
    maintenanceNotes: attributes.readTextOrNull("maintenance_notes"),
    datapointsCount: attributes.readNumberOrNull("datapoints_count"),
  };
}

function parseTokenInfo(
  data: unknown,
  parseSite: RecordParser<Site>,
  countUnusualField: CountUnusualField,
): TokenInfo | null {
  const token = isRecord(data) && isRecord(data.token) ? data.token : {};
  const tokenAbilities = parseRecordList(token.abilities);
  const tokenSites = parseRecordList(token.sites)
    ?.filter((record) => !hasUnsafeId(record))
    .map(parseSite);
  const isTextAbility = (ability: unknown) => typeof ability === "string";
  if (!tokenAbilities?.every(isTextAbility) || !tokenSites?.every((site) => site !== null)) return null;
  const tokenInfoFields = new FieldReader(data, "me", countUnusualField);
  const userFields = tokenInfoFields.readNested("user");
  return {
    user: { id: userFields.readId("id"), name: userFields.readText("name"), email: userFields.readText("email") },
    name: tokenInfoFields.readNested("token").readText("name"),
    abilities: tokenAbilities.includes(WILDCARD_ABILITY) ? ALL_TOKEN_ABILITIES : tokenAbilities.map(maskSecrets),
    expiresAt: tokenInfoFields.readNested("token").readTimeOrNull("expires_at").text,
    sites: tokenSites,
  };
}

export function parseHealth(body: unknown, countUnusualField: CountUnusualField): ServiceHealth {
  const status = isRecord(body) ? body.status : undefined;
  if (typeof status !== "string" || status === "" || status.length > 100) return { status: "unhealthy", time: null };
  return {
    status: maskSecrets(status),
    time: new FieldReader(body, "health", countUnusualField).readTimeOrNull("timestamp").text,
  };
}

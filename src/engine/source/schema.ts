import type { Alarm, Gateway, Health, Host, Site, System, Tag, TokenInfo } from "../../core/model/building.ts";
import { masked } from "../../core/values/masking.ts";
import { isRecord } from "./reply.ts";
import { Fields, isBeyondNumbers, listIn, type Note, numericId, recordId } from "./wire.ts";

/**
 * Parses a record of the interface ("Resources and their fields") into a type of `core/model/building.ts`. Returns null
 * for a record without a usable id. Every other fault becomes the emptiest value that invents nothing: no text, not
 * acknowledged, neither online nor offline.
 */
export type RecordParser<T> = (record: unknown) => T | null;

const STATUSES = ["active", "resolved"];
const PRIORITIES = ["A", "B", "C"];
/** Every ability that the interface names (Authentication). */
const ABILITIES = ["read:alarms", "read:tags", "write:tags", "read:gateways", "read:hosts", "read:systems"];
/** Ability of a token without a list of its own, as Laravel writes it. */
const EVERY_ABILITY = "*";

/** The parsers of all records, which count unusual fields through `note`. */
export function recordParsers(note: Note) {
  function withAttributes<T>(name: string, parse: (id: string, attributes: Fields) => T): RecordParser<T> {
    return (record) => {
      const id = isRecord(record) ? recordId(record.id) : null;
      return id === null ? null : parse(id, new Fields((record as { attributes?: unknown }).attributes, name, note));
    };
  }

  const site: RecordParser<Site> = (record) => {
    const id = isRecord(record) ? numericId(record.id) : null;
    return id === null ? null : { id, displayName: new Fields(record, "site", note).text("display_name") };
  };

  return {
    site,
    /** Parser for the list of one site, or of all sites. An alarm without a site belongs to the requested site. */
    alarm: (siteId: number | undefined) =>
      withAttributes("alarm", (id, attributes) => parseAlarm(id, attributes, siteId)),
    tag: withAttributes("tag", parseTag),
    gateway: withAttributes("gateway", parseGateway),
    host: withAttributes("host", parseHost),
    system: withAttributes("system", parseSystem),
    tokenInfo: (data: unknown) => parseTokenInfo(data, site, note),
  };
}

function parseReference(fields: Fields): Site {
  return { id: fields.id("id"), displayName: fields.text("display_name") };
}

function parseAlarm(id: string, attributes: Fields, siteId: number | undefined): Alarm {
  const site = parseReference(attributes.inside("site"));
  const trigger = attributes.inside("trigger");
  const triggeredAt = attributes.time("triggered_at");
  const resolvedAt = attributes.timeOrNull("resolved_at");
  const activity = attributes.insideOrNull("last_active_event");
  return {
    id,
    site: site.id === 0 && siteId !== undefined ? { ...site, id: siteId } : site,
    trigger: {
      ...parseReference(trigger),
      description: trigger.textOrNull("description"),
      priority: trigger.word("priority", PRIORITIES),
      enabled: trigger.flag("enabled", true),
    },
    status: attributes.word("status", STATUSES),
    source: attributes.text("source"),
    description: attributes.text("description"),
    triggeredAt: triggeredAt.text,
    triggeredAtRaw: triggeredAt.raw,
    resolvedAt: resolvedAt.text,
    resolvedAtRaw: resolvedAt.raw,
    recoveringUntil: attributes.timeOrNull("recovering_until").text,
    acknowledged: attributes.flag("acknowledged", false),
    acknowledgedBy: attributes.textOrNull("acknowledged_by"),
    acknowledgedMessage: attributes.textOrNull("acknowledged_message"),
    acknowledgedAt: attributes.timeOrNull("acknowledged_at").text,
    lastActiveEvent: activity && {
      id: activity.id("id"),
      source: activity.text("source"),
      type: activity.text("type"),
      triggeredOn: activity.text("triggered_on"),
      value: activity.numberOrNull("value"),
      textlistValue: activity.textOrNull("textlist_value"),
      triggeredAt: activity.time("triggered_at").text,
    },
  };
}

function parseTag(id: string, attributes: Fields): Tag {
  return {
    id,
    displayName: attributes.text("display_name"),
    description: attributes.textOrNull("description"),
    unit: attributes.textOrNull("unit"),
  };
}

function parseGateway(id: string, attributes: Fields): Gateway {
  return {
    id,
    displayName: attributes.text("display_name"),
    online: attributes.flagOrNull("online"),
    version: attributes.textOrNull("version"),
    hardware: attributes.textOrNull("hardware"),
    ipAddress: attributes.textOrNull("ip_address"),
    location: attributes.textOrNull("location"),
  };
}

function parseHost(id: string, attributes: Fields): Host {
  const gateway = attributes.insideOrNull("gateway");
  return {
    id,
    displayName: attributes.text("display_name"),
    description: attributes.textOrNull("description"),
    type: attributes.textOrNull("type"),
    modelName: attributes.textOrNull("model_name"),
    ip: attributes.textOrNull("ip"),
    macAddress: attributes.textOrNull("mac_address"),
    gateway: gateway && parseReference(gateway),
  };
}

function parseSystem(id: string, attributes: Fields): System {
  return {
    id,
    code: attributes.text("code"),
    displayName: attributes.text("display_name"),
    discipline: attributes.textOrNull("discipline"),
    description: attributes.textOrNull("description"),
    location: attributes.textOrNull("location"),
    manufacturer: attributes.textOrNull("manufacturer"),
    installedYear: attributes.numberOrNull("installed_year"),
    maintenanceNotes: attributes.textOrNull("maintenance_notes"),
    datapointsCount: attributes.numberOrNull("datapoints_count"),
  };
}

/** Returns null without readable abilities and sites: a token that seems to have lost them would stop half of the worker. */
function parseTokenInfo(data: unknown, parseSite: RecordParser<Site>, note: Note): TokenInfo | null {
  const token = isRecord(data) && isRecord(data.token) ? data.token : {};
  const abilities = listIn(token.abilities);
  const sites = listIn(token.sites)
    ?.filter((record) => !isBeyondNumbers(record))
    .map(parseSite);
  const isText = (ability: unknown) => typeof ability === "string";
  if (!abilities?.every(isText) || !sites?.every((site) => site !== null)) return null;
  const fields = new Fields(data, "me", note);
  const user = fields.inside("user");
  return {
    user: { id: user.id("id"), name: user.text("name"), email: user.text("email") },
    name: fields.inside("token").text("name"),
    abilities: abilities.includes(EVERY_ABILITY) ? ABILITIES : abilities.map(masked),
    expiresAt: fields.inside("token").timeOrNull("expires_at").text,
    sites,
  };
}

/** Parses the body of the health check, which only informs. A body without a usable status means `unhealthy`. */
export function parseHealth(body: unknown, note: Note): Health {
  const status = isRecord(body) ? body.status : undefined;
  if (typeof status !== "string" || status === "" || status.length > 100) return { status: "unhealthy", time: null };
  return { status: masked(status), time: new Fields(body, "health", note).timeOrNull("timestamp").text };
}

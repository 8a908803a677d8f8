import { z } from "zod";
import type {
  Alarm,
  AlarmActivity,
  Gateway,
  Health,
  Host,
  Site,
  System,
  Tag,
  TokenInfo,
} from "../../core/model/building.ts";
import { masked } from "../../core/values/masking.ts";
import { parseAlarmFast } from "./parse-alarm.ts";
import { isRecord } from "./reply.ts";
import {
  type Fields,
  fields,
  isBeyondNumbers,
  listIn,
  type Note,
  NumericId,
  PRIORITIES,
  RecordId,
  STATUSES,
} from "./wire.ts";

/**
 * The records of the interface ("Resources and their fields"), turned into the nouns of src/core/model/building.ts.
 *
 * The reader is tolerant (src/engine/source/wire.ts): new members are let go, unknown words are kept and counted, nulls in
 * places that should have none become the emptiest value that invents nothing: no text, not acknowledged, neither
 * online nor offline. A record without a usable id fails, and its whole page with it, because a listing that cannot
 * be counted is no snapshot. A page of alarms goes on without such a record, and says so (src/engine/source/pages.ts).
 */
export type RecordSchemas = { readonly [name in keyof Listed]: RecordSchema<Listed[name]> } & {
  readonly tokenInfo: RecordSchema<TokenInfo>;
  /** Schema for the list of one site, or of all sites. */
  alarm(askedSiteId: number | undefined): RecordSchema<Alarm>;
};

/** Record types of all lists except alarms. */
interface Listed {
  readonly site: Site;
  readonly tag: Tag;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
}

export interface RecordSchema<T> {
  safeParse(record: unknown): z.ZodSafeParseResult<T>;
}

const ignoreNote: Note = () => undefined;
/** Whom to tell of what is unusual, for the time of one record: nothing is waited for while it is read. */
let currentNote = ignoreNote;

/** One set for all sources, each made when it is first needed: 200 sets take 57 MiB. */
const field = fields((name) => currentNote(name));
const SHARED = {
  site: once(() => siteSchema(field)),
  alarm: once(() => alarmSchema(field)),
  tag: once(() => tagSchema(field)),
  gateway: once(() => gatewaySchema(field)),
  host: once(() => hostSchema(field)),
  system: once(() => systemSchema(field)),
  tokenInfo: once(() => tokenInfoSchema(field)),
  health: once(() => healthSchema(field)),
};

function once<T>(make: () => T): () => T {
  let made: T | undefined;
  return () => {
    made ??= make();
    return made;
  };
}

export function recordSchemas(note: Note): RecordSchemas {
  const noting = <T>(schema: () => z.ZodType<T>): RecordSchema<T> => ({
    safeParse: (record) => parsedBy(schema(), record, note),
  });
  const alarm = noting(SHARED.alarm);
  return {
    site: noting(SHARED.site),
    tag: noting(SHARED.tag),
    gateway: noting(SHARED.gateway),
    host: noting(SHARED.host),
    system: noting(SHARED.system),
    tokenInfo: noting(SHARED.tokenInfo),
    alarm: (askedSiteId) => ({
      safeParse(record) {
        const read = alarm.safeParse(record);
        // The service was asked for one site only, so an alarm that does not say its site belongs to that one.
        if (!read.success || read.data.site.id !== 0 || askedSiteId === undefined) return read;
        const { site } = read.data;
        return { ...read, data: { ...read.data, site: { ...site, id: askedSiteId } } };
      },
    }),
  };
}

function parsedBy<T>(schema: z.ZodType<T>, record: unknown, note: Note): z.ZodSafeParseResult<T> {
  currentNote = note;
  try {
    return schema.safeParse(record);
  } finally {
    currentNote = ignoreNote;
  }
}

/** Makes of a record what src/core/model/building.ts says; null for one without a usable id. */
export type Reader<T> = (record: unknown) => T | null;

export type Readers = { readonly [name in keyof Listed]: Reader<Listed[name]> } & {
  alarm(askedSiteId: number | undefined): Reader<Alarm>;
};

/** Readers of list records. Alarms take the fast path of `parse-alarm.ts` first. */
export function recordReaders(schemas: RecordSchemas): Readers {
  return {
    site: readerOf(schemas.site),
    tag: readerOf(schemas.tag),
    gateway: readerOf(schemas.gateway),
    host: readerOf(schemas.host),
    system: readerOf(schemas.system),
    alarm: (siteId) => readerOf(schemas.alarm(siteId), (record) => parseAlarmFast(record, siteId)),
  };
}

function readerOf<T>(schema: RecordSchema<T>, fast: Reader<T> = () => null): Reader<T> {
  return (record) => {
    const seen = fast(record);
    if (seen !== null) return seen;
    const read = schema.safeParse(record);
    return read.success ? read.data : null;
  };
}

function siteSchema(field: Fields) {
  return z
    .object({ id: NumericId, display_name: field.text("site.display_name") })
    .transform(({ id, display_name }): Site => ({ id, displayName: display_name }));
}

/** A site or gateway inside another record, where a missing one must not cost the record. */
function reference(field: Fields, name: string) {
  return field
    .inside({ id: field.id(`${name}.id`), display_name: field.text(`${name}.display_name`) })
    .transform(({ id, display_name }) => ({ id, displayName: display_name }));
}

function alarmSchema(field: Fields) {
  const attributes = field.inside({
    site: reference(field, "alarm.site"),
    trigger: field.inside({
      id: field.id("alarm.trigger.id"),
      display_name: field.text("alarm.trigger.display_name"),
      description: field.textOrNull("alarm.trigger.description"),
      priority: field.word("alarm.trigger.priority", PRIORITIES),
      enabled: field.flag("alarm.trigger.enabled", true),
    }),
    status: field.word("alarm.status", STATUSES),
    source: field.text("alarm.source"),
    description: field.text("alarm.description"),
    triggered_at: field.time("alarm.triggered_at"),
    resolved_at: field.timeOrNull("alarm.resolved_at"),
    recovering_until: field.timeOrNull("alarm.recovering_until"),
    acknowledged: field.flag("alarm.acknowledged", false),
    acknowledged_by: field.textOrNull("alarm.acknowledged_by"),
    acknowledged_message: field.textOrNull("alarm.acknowledged_message"),
    acknowledged_at: field.timeOrNull("alarm.acknowledged_at"),
    last_active_event: activitySchema(field),
  });
  return z.object({ id: RecordId, attributes }).transform(
    ({ id, attributes: parsed }): Alarm => ({
      id,
      site: parsed.site,
      trigger: {
        id: parsed.trigger.id,
        displayName: parsed.trigger.display_name,
        description: parsed.trigger.description,
        priority: parsed.trigger.priority,
        enabled: parsed.trigger.enabled,
      },
      status: parsed.status,
      source: parsed.source,
      description: parsed.description,
      triggeredAt: parsed.triggered_at.text,
      triggeredAtRaw: parsed.triggered_at.raw,
      resolvedAt: parsed.resolved_at.text,
      resolvedAtRaw: parsed.resolved_at.raw,
      recoveringUntil: parsed.recovering_until.text,
      acknowledged: parsed.acknowledged,
      acknowledgedBy: parsed.acknowledged_by,
      acknowledgedMessage: parsed.acknowledged_message,
      acknowledgedAt: parsed.acknowledged_at.text,
      lastActiveEvent: parsed.last_active_event,
    }),
  );
}

function activitySchema(field: Fields) {
  return z
    .object({
      // Without its id it says nothing: an empty object, or the empty array that PHP makes of one.
      id: NumericId,
      source: field.text("alarm.last_active_event.source"),
      type: field.text("alarm.last_active_event.type"),
      triggered_on: field.text("alarm.last_active_event.triggered_on"),
      value: field.numberOrNull("alarm.last_active_event.value"),
      textlist_value: field.textOrNull("alarm.last_active_event.textlist_value"),
      triggered_at: field.time("alarm.last_active_event.triggered_at"),
    })
    .transform(
      (parsed): AlarmActivity => ({
        id: parsed.id,
        source: parsed.source,
        type: parsed.type,
        triggeredOn: parsed.triggered_on,
        value: parsed.value,
        textlistValue: parsed.textlist_value,
        triggeredAt: parsed.triggered_at.text,
      }),
    )
    .nullable()
    .catch(null);
}

function tagSchema(field: Fields) {
  return z.object({ id: RecordId, attributes: tagAttributes(field) }).transform(
    ({ id, attributes }): Tag => ({
      id,
      displayName: attributes.display_name,
      description: attributes.description,
      unit: attributes.unit,
    }),
  );
}

function tagAttributes(field: Fields) {
  return field.inside({
    display_name: field.text("tag.display_name"),
    description: field.textOrNull("tag.description"),
    unit: field.textOrNull("tag.unit"),
  });
}

function gatewaySchema(field: Fields) {
  const attributes = field.inside({
    display_name: field.text("gateway.display_name"),
    online: field.flagOrNull("gateway.online"),
    version: field.textOrNull("gateway.version"),
    hardware: field.textOrNull("gateway.hardware"),
    ip_address: field.textOrNull("gateway.ip_address"),
    location: field.textOrNull("gateway.location"),
  });
  return z.object({ id: RecordId, attributes }).transform(
    ({ id, attributes: parsed }): Gateway => ({
      id,
      displayName: parsed.display_name,
      online: parsed.online,
      version: parsed.version,
      hardware: parsed.hardware,
      ipAddress: parsed.ip_address,
      location: parsed.location,
    }),
  );
}

function hostSchema(field: Fields) {
  const gateway = z
    .object({ id: NumericId, display_name: field.text("host.gateway.display_name") })
    .transform(({ id, display_name }) => ({ id, displayName: display_name }))
    .nullable()
    .catch(null);
  const attributes = field.inside({
    display_name: field.text("host.display_name"),
    description: field.textOrNull("host.description"),
    type: field.textOrNull("host.type"),
    model_name: field.textOrNull("host.model_name"),
    ip: field.textOrNull("host.ip"),
    mac_address: field.textOrNull("host.mac_address"),
    gateway,
  });
  return z.object({ id: RecordId, attributes }).transform(
    ({ id, attributes: parsed }): Host => ({
      id,
      displayName: parsed.display_name,
      description: parsed.description,
      type: parsed.type,
      modelName: parsed.model_name,
      ip: parsed.ip,
      macAddress: parsed.mac_address,
      gateway: parsed.gateway,
    }),
  );
}

function systemSchema(field: Fields) {
  const attributes = field.inside({
    code: field.text("system.code"),
    display_name: field.text("system.display_name"),
    discipline: field.textOrNull("system.discipline"),
    description: field.textOrNull("system.description"),
    location: field.textOrNull("system.location"),
    manufacturer: field.textOrNull("system.manufacturer"),
    installed_year: field.numberOrNull("system.installed_year"),
    maintenance_notes: field.textOrNull("system.maintenance_notes"),
    datapoints_count: field.numberOrNull("system.datapoints_count"),
  });
  return z.object({ id: RecordId, attributes }).transform(
    ({ id, attributes: parsed }): System => ({
      id,
      code: parsed.code,
      displayName: parsed.display_name,
      discipline: parsed.discipline,
      description: parsed.description,
      location: parsed.location,
      manufacturer: parsed.manufacturer,
      installedYear: parsed.installed_year,
      maintenanceNotes: parsed.maintenance_notes,
      datapointsCount: parsed.datapoints_count,
    }),
  );
}

/** Every ability that the interface names (Authentication). */
const ABILITIES = ["read:alarms", "read:tags", "write:tags", "read:gateways", "read:hosts", "read:systems"] as const;

/** The usual framework's word for a token that was given no narrower list of abilities. */
const EVERY_ABILITY = "*";

/** Abilities and sites are strict: a token that seems to have lost them freezes half of the worker. */
function tokenInfoSchema(field: Fields) {
  return z
    .object({
      user: field.inside({
        id: field.id("me.user.id"),
        name: field.text("me.user.name"),
        email: field.text("me.user.email"),
      }),
      token: z.object({
        name: field.text("me.token.name"),
        abilities: field.list(z.string().transform(masked)),
        expires_at: field.timeOrNull("me.token.expires_at"),
        sites: z.preprocess(
          (value) => listIn(value)?.filter((record) => !isBeyondNumbers(record)) ?? value,
          z.array(siteSchema(field)),
        ),
      }),
    })
    .transform(
      ({ user, token }): TokenInfo => ({
        user,
        name: token.name,
        abilities: token.abilities.includes(EVERY_ABILITY) ? ABILITIES : token.abilities,
        expiresAt: token.expires_at.text,
        sites: token.sites,
      }),
    );
}

function healthSchema(field: Fields) {
  return z.object({
    status: z.string().min(1).max(100).transform(masked),
    timestamp: field.timeOrNull("health.timestamp"),
  });
}

/** The health check has no envelope. What says nothing usable is `unhealthy`: it is a hint and never gates anything. */
export function healthIn(body: unknown, note: Note): Health {
  if (!isRecord(body)) return { status: "unhealthy", time: null };
  const parsed = parsedBy(SHARED.health(), body, note);
  if (!parsed.success) return { status: "unhealthy", time: null };
  return { status: parsed.data.status, time: parsed.data.timestamp.text };
}

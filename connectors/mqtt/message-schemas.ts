import { z } from "zod";
import type { Alarm, Gateway, Host, Site, System, Tag } from "../../src/core/model/building.ts";
import { COMMAND_OUTCOMES } from "../../src/core/model/command-event-data.ts";
import { EVENT_KINDS } from "../../src/core/model/event.ts";
import { STALE_REASONS } from "../../src/core/model/tag-event-data.ts";

// Schemas of all published messages. Only `npm run reference` and tests use them; the sink does not validate.

const Text = z.string();
const NullableText = Text.nullable();
const Time = Text.meta({ description: "ISO 8601." });
const Measurement = z.number().meta({ description: "Always with a decimal point, such as `20.0`." });
const Value = z.union([Measurement, z.boolean()]).nullable();
const EventId = Text.meta({ description: "Id of the event. A message that is sent again has the same id." });
const Source = NullableText.meta({ description: "Name of the source; null for Plenum itself." });
const SiteId = NullableText.meta({ description: "The service's number of the site; null without a site." });
const ValueType = z.enum(["number", "boolean"]).nullable();

const nullableTexts = <Name extends string>(...names: readonly Name[]) =>
  Object.fromEntries(names.map((name) => [name, NullableText])) as Record<Name, typeof NullableText>;

const SERIES_FIELDS = {
  unit: NullableText,
  name: Text,
  tag: Text,
  source: Source,
  site: SiteId,
  resolution: z.enum(["5m", "1h", "1d", "1w", "1mo"]),
  timeZone: Text,
};

const SiteObject = z.strictObject({ id: z.number(), displayName: Text }) satisfies z.ZodType<Site>;

const TagObject = z.strictObject({
  id: Text,
  displayName: Text,
  ...nullableTexts("description", "unit", "alias", "path", "unitCode"),
}) satisfies z.ZodType<{ [Field in keyof Required<Tag>]: Required<Tag>[Field] | null }>;

const GatewayObject = z.strictObject({
  id: Text,
  displayName: Text,
  online: z.boolean().nullable(),
  ...nullableTexts("version", "hardware", "ipAddress", "location"),
}) satisfies z.ZodType<Gateway>;

const HostObject = z.strictObject({
  id: Text,
  displayName: Text,
  ...nullableTexts("description", "type", "modelName", "ip", "macAddress"),
  gateway: z.strictObject({ id: z.number(), displayName: Text }).nullable(),
}) satisfies z.ZodType<Host>;

const SystemObject = z.strictObject({
  id: Text,
  code: Text,
  displayName: Text,
  ...nullableTexts("discipline", "description", "location", "manufacturer"),
  installedYear: z.number().nullable(),
  maintenanceNotes: NullableText,
  datapointsCount: z.number().nullable(),
}) satisfies z.ZodType<System>;

const AlarmObject = z.strictObject({
  id: Text,
  site: SiteObject,
  trigger: z.strictObject({
    id: z.number(),
    displayName: Text,
    description: NullableText,
    priority: Text,
    enabled: z.boolean(),
  }),
  status: Text,
  source: Text,
  description: Text,
  triggeredAt: Time,
  triggeredAtRaw: Text,
  ...nullableTexts("resolvedAt", "resolvedAtRaw", "recoveringUntil"),
  acknowledged: z.boolean(),
  ...nullableTexts("acknowledgedBy", "acknowledgedMessage", "acknowledgedAt"),
  lastActiveEvent: z
    .strictObject({
      id: z.number(),
      source: Text,
      type: Text,
      triggeredOn: Text,
      value: z.number().nullable(),
      textlistValue: NullableText,
      triggeredAt: Time,
    })
    .nullable(),
}) satisfies z.ZodType<Alarm>;

/** Creates the schema of a message about an event; its description is the topic in the default layout. */
const defineMessage = <Fields extends z.ZodRawShape>(topic: string, fields: Fields) =>
  z.strictObject({ ts: Time, ...fields, id: EventId }).meta({ description: topic });

const defineInventoryMessage = <O extends z.ZodType>(topic: string, object: O) => defineMessage(topic, { object });

const MESSAGE_SCHEMAS = {
  value: defineMessage("{prefix}/{source}/{site}/tag/{id}/value", {
    ts: Time.meta({ description: "Time of the value, UTC." }),
    value: Value.meta({ description: "Null unless the quality is `good` or `uncertain`." }),
    quality: z.enum(["good", "uncertain", "bad", "stale"]),
    unit: NullableText,
    name: Text,
    alias: NullableText.meta({ description: "Alias from the names file." }),
    description: NullableText,
    tag: Text.meta({ description: "The service's number of the tag." }),
    source: Source,
    site: SiteId,
    lastGoodValue: Value.meta({ description: "The last value that was not null." }),
    lastGoodTime: NullableText.meta({ description: "Time of `lastGoodValue`, UTC." }),
    staleReason: z.enum(STALE_REASONS).nullable().meta({ description: "Null unless the quality is `stale`." }),
    behindGateway: NullableText.meta({ description: "Id of the offline gateway that explains a missing value." }),
    typeBefore: ValueType.meta({ description: "Expected type, while the type is in doubt; else null." }),
    typeNow: ValueType.meta({ description: "Type of this value, while the type is in doubt; else null." }),
    latencyMs: z.number(),
  }),
  history: defineMessage("{prefix}/{source}/{site}/tag/{id}/history/{resolution}", {
    ...SERIES_FIELDS,
    origin: z.enum(["live", "backfill"]),
    revised: z.boolean(),
    points: z.array(z.strictObject({ time: Time, value: Value })),
  }),
  total: defineMessage("{prefix}/{source}/{site}/tag/{id}/total/{resolution}", {
    ...SERIES_FIELDS,
    from: Time,
    to: Time,
    total: Measurement.nullable(),
    reset: z.boolean(),
  }),
  systems: defineMessage("{prefix}/{source}/{site}/tag/{id}/systems", {
    systems: z.array(z.strictObject({ id: Text, code: Text, displayName: Text })),
  }),
  accepted: defineMessage("{prefix}/{source}/{site}/tag/{id}/accepted", {
    commandId: Text,
    tagId: Text,
    requested: Value,
    waitMs: z.number(),
    messageRequests: z.number(),
    messageSeconds: z.number(),
    expiresAt: Time,
    forMs: z.number().nullable(),
    needsSecond: z.boolean(),
    correlation: NullableText,
  }),
  result: defineMessage("{prefix}/{source}/{site}/tag/{id}/result", {
    commandId: Text,
    tagId: NullableText,
    outcome: z.enum(COMMAND_OUTCOMES),
    reason: NullableText,
    message: Text,
    requested: Value,
    before: Value,
    readBack: Value,
    rehearsal: z.boolean(),
    correlation: NullableText,
  }),
  "not-restored": defineMessage("{prefix}/{source}/{site}/tag/{id}/not-restored", {
    commandId: Text,
    tagId: Text,
    inForce: Value,
    since: Time,
    wanted: Value,
    dueAt: Time,
    reason: Text,
    message: Text,
  }),
  "site-inventory": defineInventoryMessage("{prefix}/{source}/{site}/site/{id}/inventory", SiteObject),
  "gateway-inventory": defineInventoryMessage("{prefix}/{source}/{site}/gateway/{id}/inventory", GatewayObject),
  "host-inventory": defineInventoryMessage("{prefix}/{source}/{site}/host/{id}/inventory", HostObject),
  "system-inventory": defineInventoryMessage("{prefix}/{source}/{site}/system/{id}/inventory", SystemObject),
  "tag-inventory": defineInventoryMessage("{prefix}/{source}/{site}/tag/{id}/inventory", TagObject),
  "gateway-state": defineMessage("{prefix}/{source}/{site}/gateway/{id}/state", {
    online: z.boolean().nullable(),
    name: Text,
    hosts: z
      .array(z.strictObject({ id: Text, displayName: Text }))
      .readonly()
      .nullable()
      .meta({ description: "Hosts behind the gateway when it went online or offline; else null." }),
    wholeSite: z
      .boolean()
      .nullable()
      .meta({ description: "True when the site has no other gateway; null like `hosts`." }),
  }),
  "site-status": defineMessage("{prefix}/{source}/{site}/status", {
    status: z.enum(["online", "degraded", "offline"]),
    reason: NullableText.meta({ description: "Why, for a person; null while the site is online." }),
    since: Time.meta({ description: "Time since when the site has this status, UTC." }),
    site: Text,
    name: Text,
  }),
  "alarm-state": defineMessage("{prefix}/{source}/{site}/alarm/{id}/state", {
    status: Text,
    priority: Text,
    acknowledged: z.boolean(),
    event: Text.meta({ description: "Kind of the last event of the alarm." }),
    inScope: z.boolean().meta({ description: "False when the token no longer shows the alarm." }),
    episode: Text,
    late: z.boolean(),
    behindGateway: NullableText,
    alarm: AlarmObject,
  }),
  event: z
    .strictObject({
      specversion: z.literal("1.0"),
      id: EventId,
      source: Text,
      type: z.enum(EVENT_KINDS),
      subject: Text,
      time: Time,
      siteid: Text.exactOptional(),
      priority: Text.exactOptional(),
      snapshot: z.literal(true).exactOptional(),
      sequence: Text.exactOptional(),
      sequenceepoch: Text.exactOptional(),
      datacontenttype: z.literal("application/json"),
      data: z.looseObject({}).meta({ description: "Data of the kind: docs/reference/events.md." }),
    })
    .meta({ description: "{prefix}/{source}/{site}/event/{kind of event}, as a CloudEvent" }),
  "worker-status": z
    .strictObject({
      status: z.enum(["online", "offline"]),
      reason: NullableText.meta({ description: "Why it is offline: `connection lost` or `stopped`; else null." }),
      since: NullableText.meta({ description: "Start of the connection, UTC; null after an orderly stop." }),
      time: NullableText.meta({ description: "Time of this message, UTC; null in the last will." }),
    })
    .meta({ description: "{prefix}/status and {prefix}/status/commands" }),
  check: z.strictObject({ check: Text, time: Time }).meta({ description: "{prefix}/status/check" }),
} as const;

/** Message with a schema of this name. */
export type MessageOf<Name extends keyof typeof MESSAGE_SCHEMAS> = z.infer<(typeof MESSAGE_SCHEMAS)[Name]>;

/** Returns one JSON schema that every message in JSON matches; `$defs` has a schema for each topic. */
export function buildMessagesSchema(): Readonly<Record<string, unknown>> {
  const definitions = Object.entries<z.ZodType>(MESSAGE_SCHEMAS).map(([name, schema]) => {
    const { $schema: _, ...definition } = z.toJSONSchema(schema);
    return [name, definition] as const;
  });
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "Messages that Plenum publishes in JSON at an MQTT broker",
    description: "The description of each definition is its topic in the default layout.",
    anyOf: definitions.map(([name]) => ({ $ref: `#/$defs/${name}` })),
    $defs: Object.fromEntries(definitions),
  };
}

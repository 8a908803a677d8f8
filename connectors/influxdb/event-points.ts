import { type AlarmEvent, type AnyEvent, type Event, isAlarmEvent } from "../../src/core/model/event.ts";
import {
  buildValueFields,
  type EncodedInfluxLines,
  encodeHistoryLines,
  formatInfluxLine,
  type InfluxPointData,
  parseTimeMs,
} from "./line-protocol.ts";

export interface InfluxPointSettings {
  readonly prefix: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly nameTagsOf?: (event: Event) => Readonly<Record<string, string>>;
}

/** A point without the tags that all points of its event share. `time` is ISO 8601, by default the event's time. */
type InfluxPoint = Pick<InfluxPointData, "measurement" | "tags" | "fields"> & { readonly time?: string };

/** Measurements that may have several points of one series in a millisecond. Each point gets its own nanoseconds. */
const COLLIDING_MEASUREMENTS = new Set(["command_accepted", "command_result", "command_not_restored", "worker_event"]);

/** Encodes an event. The same event always gives the same lines, so a repeated write overwrites its points. */
export function* encodeEventLines(event: Event, settings: InfluxPointSettings): Generator<EncodedInfluxLines> {
  const commonPointTags = {
    ...settings.tags,
    ...settings.nameTagsOf?.(event),
    source: event.source.slice(event.source.lastIndexOf("/") + 1),
    site_id: event.siteid,
  };
  const encodeInfluxPoint = ({ measurement, tags, fields }: InfluxPoint, timeMs: number) =>
    formatInfluxLine({
      measurement: settings.prefix + measurement,
      tags: { ...commonPointTags, ...tags },
      fields,
      timeMs,
      ...(COLLIDING_MEASUREMENTS.has(measurement) ? { distinguishingId: event.id } : {}),
    });
  const anyEvent = event as AnyEvent;
  if (anyEvent.type === "tag-history") {
    yield* encodeHistoryLines(anyEvent, (point) => encodeInfluxPoint(point, 0));
    return;
  }
  const point = buildEventPoint(anyEvent);
  const isReading = anyEvent.type === "tag-value" || anyEvent.type === "tag-total";
  const fields = isReading ? point.fields : { ...point.fields, event_id: event.id };
  yield { text: encodeInfluxPoint({ ...point, fields }, parseTimeMs(point.time ?? event.time)), count: 1 };
}

type KindWithOwnPointBuilder = Exclude<AnyEvent["type"], "tag-history" | (AlarmEvent | InventoryEvent)["type"]>;

function buildEventPoint(event: Exclude<AnyEvent, { type: "tag-history" }>): InfluxPoint {
  if (isAlarmEvent(event)) return buildAlarmPoint(event);
  const pointBuilders: Readonly<Record<string, ((event: never) => InfluxPoint) | undefined>> = POINT_BUILDER_BY_KIND;
  return pointBuilders[event.type]?.(event as never) ?? buildInventoryPoint(event as InventoryEvent);
}

const POINT_BUILDER_BY_KIND: { readonly [Kind in KindWithOwnPointBuilder]: (event: Event<Kind>) => InfluxPoint } = {
  /** An unreadable or stale value has a quality and no value, so it does not pull an average towards 0. */
  "tag-value": ({ data: { tag, value, quality, latencyMs, behindGateway, staleReason, type } }) => ({
    measurement: "tag_value",
    tags: { tag_id: tag.id, alias: tag.alias, unit: tag.unit },
    fields: {
      ...buildValueFields("value", value),
      quality,
      good: quality === "good",
      latency_ms: latencyMs,
      behind_gateway: behindGateway,
      stale_reason: staleReason,
      type_before: type?.before,
      type_now: type?.now,
    },
  }),
  /** The point of a total has the time of the period's start, so a later total overwrites the point. */
  "tag-total": ({ data: { tag, resolution, timeZone, total, reset, from, to } }) => ({
    measurement: "tag_total",
    tags: { tag_id: tag.id, alias: tag.alias, unit: tag.unit, resolution, time_zone: timeZone },
    fields: { ...buildValueFields("value", total), good: total !== null, reset, to },
    time: from,
  }),
  "history-complete": ({ data }) => {
    const measurement = "history_complete";
    const tags = { resolution: data.resolution, time_zone: data.timeZone, total: String(data.total) };
    if ("site" in data) {
      const fields = { ...copyFields(data, "from", "until", "series"), waiting: data.waitingCount };
      return { measurement, tags, fields };
    }
    const fields = copyFields(data, "firstDate", "lastDate", ...DAY_COUNTS);
    return { measurement, tags: { ...tags, tag_id: data.tag.id }, fields };
  },
  /** The point of a `day-sealed` event has the time of the day's start, so a later revision overwrites the point. */
  "day-sealed": ({ time, data }) => ({
    measurement: "day_sealed",
    tags: {},
    fields: { ...copyFields(data, "revision", "revised", "series", ...DAY_COUNTS), sealed_at: time },
    time: `${data.date}T00:00:00Z`,
  }),
  "gateway-online": buildGatewayPoint,
  "gateway-offline": buildGatewayPoint,
  "command-accepted": ({ data }) => ({
    measurement: "command_accepted",
    tags: { tag_id: data.tagId },
    fields: {
      ...copyFields(data, "commandId", "waitMs", "messageRequests", "messageSeconds"),
      ...copyFields(data, "expiresAt", "forMs", "needsSecond"),
      ...buildValueFields("requested", data.requested),
    },
  }),
  "command-result": ({ data }) => ({
    measurement: "command_result",
    tags: { tag_id: data.tagId, outcome: data.outcome, reason: data.reason },
    fields: {
      ...copyFields(data, "commandId", "message", "rehearsal"),
      ...buildValueFields("requested", data.requested),
      ...buildValueFields("before", data.before),
      ...buildValueFields("read_back", data.readBack),
    },
  }),
  "command-not-restored": ({ data }) => ({
    measurement: "command_not_restored",
    tags: { tag_id: data.tagId, reason: data.reason },
    fields: {
      ...copyFields(data, "commandId", "message", "since", "dueAt"),
      ...buildValueFields("in_force", data.inForce),
      ...buildValueFields("wanted", data.wanted),
    },
  }),
  "tag-systems-changed": ({ type, data: { tag, systems, before } }) => ({
    measurement: "inventory_event",
    tags: { type, object: "tag", object_id: tag.id },
    fields: {
      ...copyFields(tag, "displayName", "description", "unit"),
      systems: systems.map((system) => system.id).join(","),
      systems_before: before.join(","),
    },
  }),
  "series-break": ({ data: { tag, what, before, since, systems } }) => ({
    measurement: "series_break",
    tags: { tag_id: tag.id },
    fields: {
      what: what.join(","),
      display_name: tag.displayName,
      display_name_before: before.displayName,
      unit: tag.unit,
      unit_before: before.unit,
      systems: systems?.join(","),
      systems_before: before.systems?.join(","),
      last_before: since.lastBefore,
    },
  }),
  "audit-head": ({ type, data }) => buildWorkerPoint(type, copyFields(data, "records", "head")),
  "silence-started": buildSilencePoint,
  "silence-ended": buildSilencePoint,
  "token-expiring": ({ type, data }) => buildWorkerPoint(type, copyFields(data, "expiresAt", "daysLeft")),
  "source-unavailable": ({ type, data }) => buildWorkerPoint(type, copyFields(data, "reason", "since")),
  "site-status-changed": ({ type, data }) => buildWorkerPoint(type, copyFields(data, "status", "reason", "since")),
  "source-available": ({ type, data }) => buildWorkerPoint(type, { since: data.unavailableSince }),
  "worker-alive": ({ type, data: { intervalSeconds, version, alarmsPolledAt } }) =>
    buildWorkerPoint(type, { interval_s: intervalSeconds, version, alarms_polled_at: alarmsPolledAt }),
  "configuration-changed": ({ type, data: { by, changes, pending } }) => {
    const changedPaths = changes.map(({ path }) => path).join(",");
    return buildWorkerPoint(type, { by, changed: changedPaths, count: changes.length, pending: pending.length });
  },
  "delivery-gap": ({ type, data }) =>
    buildWorkerPoint(type, copyFields(data, "reason", "count", "firstTime", "lastTime"), { sink: data.sink }),
};

type FieldValue = InfluxPointData["fields"][string];

/** Copies properties to fields with the same names in snake case, e.g. `waitMs` to `wait_ms`. */
function copyFields<Name extends string>(data: { readonly [N in Name]?: FieldValue }, ...names: readonly Name[]) {
  const toSnakeCase = (name: string) => name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return Object.fromEntries(names.map((name) => [toSnakeCase(name), data[name]]));
}

const DAY_COUNTS = ["expected", "had", "null", "absent", "refused", "pending", "withoutLog", "notWanted"] as const;

function buildWorkerPoint(type: string, fields: InfluxPoint["fields"], tags?: InfluxPoint["tags"]): InfluxPoint {
  return { measurement: "worker_event", tags: { type, ...tags }, fields };
}

/** The alarm's id is a tag: alarms of one trigger in the same second would otherwise overwrite each other. */
function buildAlarmPoint({ type, data }: AlarmEvent): InfluxPoint {
  const { alarm } = data;
  const { lastActiveEvent, trigger } = alarm;
  const alarmState = findAlarmState(type, alarm.status);
  return {
    measurement: "alarm_event",
    tags: { type, alarm_id: alarm.id, trigger_id: trigger.id, priority: trigger.priority },
    fields: {
      active: alarmState === "active",
      state: alarmState,
      status: alarmState === "vanished" || alarmState === "out-of-scope" ? "unknown" : alarm.status,
      site: alarm.site.displayName,
      trigger: trigger.displayName,
      trigger_description: trigger.description,
      trigger_enabled: trigger.enabled,
      triggered_on: lastActiveEvent?.triggeredOn,
      last_active_at: lastActiveEvent?.triggeredAt,
      description: alarm.description,
      alarm_source: alarm.source,
      value: lastActiveEvent?.value,
      value_text: lastActiveEvent?.textlistValue,
      ...copyFields(alarm, "triggeredAt", "resolvedAt", "recoveringUntil"),
      ...copyFields(alarm, "acknowledged", "acknowledgedBy", "acknowledgedAt", "acknowledgedMessage"),
      initial: "initial" in data ? data.initial : undefined,
      ...copyFields(data, "late", "behindGateway", "episode"),
      tickets: data.tickets?.map(({ sink, ticket }) => (ticket === null ? sink : `${sink} ${ticket}`)).join(", "),
      ...buildChangedValueFields(data),
    },
  };
}

/** Returns the alarm's state. A vanished or invisible alarm still has the status `active`, so it gets its own state. */
function findAlarmState(type: AlarmEvent["type"], status: string): "active" | "resolved" | "vanished" | "out-of-scope" {
  if (type === "alarm-vanished") return "vanished";
  if (type === "alarm-out-of-scope") return "out-of-scope";
  return status === "resolved" ? "resolved" : "active";
}

function buildGatewayPoint({ type, data }: Event<"gateway-online" | "gateway-offline">): InfluxPoint {
  return {
    measurement: "gateway_status",
    tags: { gateway_id: data.gateway.id },
    fields: {
      online: type === "gateway-online",
      ...copyFields(data.gateway, "displayName", "location", "version", "hardware", "ipAddress"),
      hosts: data.hosts.length,
      whole_site: data.wholeSite,
    },
  };
}

function buildSilencePoint({ type, data: { silence, by } }: Event<"silence-started" | "silence-ended">): InfluxPoint {
  const { id, reason, from, to, madeBy, source, site, priorities, name, alarm } = silence;
  return buildWorkerPoint(type, {
    ...{ silence: id, reason, made_by: madeBy, by, since: from, until: to },
    silence_source: source,
    silence_site: site === null ? null : String(site),
    silence_priorities: priorities?.join(","),
    silence_name: name,
    silence_alarm: alarm,
  });
}

type InventoryEvent = Extract<
  AnyEvent,
  { type: `${"site" | "gateway" | "host" | "system" | "tag"}-${"added" | "changed" | "removed"}` }
>;

function buildInventoryPoint({ type, data }: InventoryEvent): InfluxPoint {
  const [object, details] = getInventoryObject(data);
  return {
    measurement: "inventory_event",
    tags: { type, object: type.split("-")[0], object_id: object.id },
    fields: {
      display_name: object.displayName,
      description: "description" in object ? object.description : undefined,
      ...details,
      ...buildChangedValueFields(data),
    },
  };
}

function buildChangedValueFields(data: object): InfluxPoint["fields"] {
  if (!("before" in data)) return {};
  const previousValues = data.before as Readonly<Record<string, unknown>>;
  return { changed: Object.keys(previousValues).join(","), before: JSON.stringify(previousValues) };
}

function getInventoryObject(data: InventoryEvent["data"]) {
  if ("site" in data) return [data.site, {}] as const;
  if ("tag" in data) return [data.tag, copyFields(data.tag, "unit", "alias", "path", "unitCode")] as const;
  if ("gateway" in data) {
    const fields = copyFields(data.gateway, "online", "version", "hardware", "ipAddress", "location");
    return [data.gateway, fields] as const;
  }
  if ("host" in data) {
    const { type, ip, gateway } = data.host;
    const fields = {
      host_type: type,
      ip_address: ip,
      ...copyFields(data.host, "modelName", "macAddress"),
      behind_gateway: gateway === null ? null : String(gateway.id),
      gateway: gateway?.displayName,
    };
    return [data.host, fields] as const;
  }
  const { system } = data;
  const fields = {
    ...copyFields(system, "code", "discipline", "location", "manufacturer"),
    ...copyFields(system, "installedYear", "maintenanceNotes", "datapointsCount"),
  };
  return [system, fields] as const;
}

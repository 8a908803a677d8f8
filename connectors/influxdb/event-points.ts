import { type AlarmEvent, type AnyEvent, type Event, isAlarmEvent } from "../../src/core/model/event.ts";
import type { DayBucketCounts } from "../../src/core/model/history-event-data.ts";
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
  for (const point of anyEvent.type === "silent-sensors" ? buildSensorPoints(anyEvent) : [buildEventPoint(anyEvent)]) {
    const isReading = anyEvent.type === "tag-value" || anyEvent.type === "tag-total";
    const fields = isReading ? point.fields : { ...point.fields, event_id: event.id };
    yield { text: encodeInfluxPoint({ ...point, fields }, parseTimeMs(point.time ?? event.time)), count: 1 };
  }
}

type KindWithOwnPointBuilder = Exclude<
  AnyEvent["type"],
  "tag-history" | "silent-sensors" | (AlarmEvent | InventoryEvent)["type"]
>;

function buildEventPoint(event: Exclude<AnyEvent, { type: "tag-history" | "silent-sensors" }>): InfluxPoint {
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
      const { from, until, series, waitingCount } = data;
      return { measurement, tags, fields: { from, until, series, waiting: waitingCount } };
    }
    const fields = { first_date: data.firstDate, last_date: data.lastDate, ...buildDayCountFields(data) };
    return { measurement, tags: { ...tags, tag_id: data.tag.id }, fields };
  },
  /** The point of a `day-sealed` event has the time of the day's start, so a later revision overwrites the point. */
  "day-sealed": ({ time, data: { date, revision, revised, series, ...account } }) => ({
    measurement: "day_sealed",
    tags: {},
    fields: { revision, revised, series, ...buildDayCountFields(account), sealed_at: time },
    time: `${date}T00:00:00Z`,
  }),
  "gateway-online": buildGatewayPoint,
  "gateway-offline": buildGatewayPoint,
  "command-accepted": ({ data }) => ({
    measurement: "command_accepted",
    tags: { tag_id: data.tagId },
    fields: {
      command_id: data.commandId,
      ...buildValueFields("requested", data.requested),
      wait_ms: data.waitMs,
      message_requests: data.messageRequests,
      message_seconds: data.messageSeconds,
      expires_at: data.expiresAt,
      for_ms: data.forMs,
      needs_second: data.needsSecond,
    },
  }),
  "command-result": ({ data: { tagId, outcome, reason, message, ...data } }) => ({
    measurement: "command_result",
    tags: { tag_id: tagId, outcome, reason },
    fields: {
      command_id: data.commandId,
      message,
      ...buildValueFields("requested", data.requested),
      ...buildValueFields("before", data.before),
      ...buildValueFields("read_back", data.readBack),
      rehearsal: data.rehearsal,
    },
  }),
  "command-not-restored": ({ data: { tagId, reason, message, since, ...data } }) => ({
    measurement: "command_not_restored",
    tags: { tag_id: tagId, reason },
    fields: {
      command_id: data.commandId,
      message,
      ...buildValueFields("in_force", data.inForce),
      ...buildValueFields("wanted", data.wanted),
      since,
      due_at: data.dueAt,
    },
  }),
  "tag-systems-changed": ({ type, data: { tag, systems, before } }) => ({
    measurement: "inventory_event",
    tags: { type, object: "tag", object_id: tag.id },
    fields: {
      display_name: tag.displayName,
      description: tag.description,
      unit: tag.unit,
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
  "audit-head": ({ type, data: { records, head } }) => buildWorkerPoint(type, { records, head }),
  "silence-started": buildSilencePoint,
  "silence-ended": buildSilencePoint,
  "token-expiring": ({ type, data }) =>
    buildWorkerPoint(type, { expires_at: data.expiresAt, days_left: data.daysLeft }),
  "source-unavailable": ({ type, data: { reason, since } }) => buildWorkerPoint(type, { reason, since }),
  "site-status-changed": ({ type, data: { status, reason, since } }) =>
    buildWorkerPoint(type, { status, reason, since }),
  "source-available": ({ type, data }) => buildWorkerPoint(type, { since: data.unavailableSince }),
  "worker-alive": ({ type, data: { intervalSeconds, version, alarmsPolledAt } }) =>
    buildWorkerPoint(type, { interval_s: intervalSeconds, version, alarms_polled_at: alarmsPolledAt }),
  "configuration-changed": ({ type, data: { by, changes, pending } }) => {
    const changedPaths = changes.map(({ path }) => path).join(",");
    return buildWorkerPoint(type, { by, changed: changedPaths, count: changes.length, pending: pending.length });
  },
  "delivery-gap": ({ type, data: { sink, reason, count, firstTime, lastTime } }) =>
    buildWorkerPoint(type, { reason, count, first_time: firstTime, last_time: lastTime }, { sink }),
};

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
      triggered_at: alarm.triggeredAt,
      resolved_at: alarm.resolvedAt,
      recovering_until: alarm.recoveringUntil,
      acknowledged: alarm.acknowledged,
      acknowledged_by: alarm.acknowledgedBy,
      acknowledged_at: alarm.acknowledgedAt,
      acknowledged_message: alarm.acknowledgedMessage,
      late: data.late,
      initial: "initial" in data ? data.initial : undefined,
      behind_gateway: data.behindGateway,
      episode: data.episode,
      tickets: data.tickets?.map(({ sink, ticket }) => (ticket === null ? sink : `${sink} ${ticket}`)).join(", "),
      ...buildChangedValueFields(data),
    },
  };
}

/** An alarm that vanished or left the token's view still has the status `active`, and needs a point that ends it. */
function findAlarmState(type: AlarmEvent["type"], status: string): "active" | "resolved" | "vanished" | "out-of-scope" {
  if (type === "alarm-vanished") return "vanished";
  if (type === "alarm-out-of-scope") return "out-of-scope";
  return status === "resolved" ? "resolved" : "active";
}

function buildGatewayPoint({ type, data }: Event<"gateway-online" | "gateway-offline">): InfluxPoint {
  const { displayName, location, version, hardware, ipAddress } = data.gateway;
  return {
    measurement: "gateway_status",
    tags: { gateway_id: data.gateway.id },
    fields: {
      online: type === "gateway-online",
      display_name: displayName,
      ...{ location, version, hardware },
      ip_address: ipAddress,
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

function* buildSensorPoints({ data }: Event<"silent-sensors">): Generator<InfluxPoint> {
  const { counts, from, judged, parts, tags } = data;
  yield {
    measurement: "silent_sensors",
    tags: { part: String(data.part) },
    fields: {
      ...{ tags, judged, from, parts },
      watched_hours: data.watchedHours,
      never_moved: counts["never-moved"],
      always_null: counts["always-null"],
      log_differs: counts["log-differs"],
      log_clock_off: counts["log-clock-off"],
    },
  };
  for (const { finding, tag, lagMs, message, readings, value, logged, pairs, resolution } of data.findings)
    yield {
      measurement: "silent_sensor",
      tags: { tag_id: tag.id, finding },
      fields: {
        display_name: tag.displayName,
        unit: tag.unit,
        lag_ms: lagMs,
        ...{ message, readings, value, logged, pairs, resolution },
      },
    };
}

function buildDayCountFields(account: DayBucketCounts): InfluxPoint["fields"] {
  const { expected, had, absent, refused, pending } = account;
  const dayBucketCounts = { expected, had, null: account.null, absent, refused, pending };
  return { ...dayBucketCounts, without_log: account.withoutLog, not_wanted: account.notWanted };
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
  if ("tag" in data) {
    const { unit, alias, path, unitCode } = data.tag;
    return [data.tag, { unit, alias, path, unit_code: unitCode }] as const;
  }
  if ("gateway" in data) {
    const { online, version, hardware, ipAddress, location } = data.gateway;
    return [data.gateway, { online, version, hardware, ip_address: ipAddress, location }] as const;
  }
  if ("host" in data) {
    const { type, modelName, ip, macAddress, gateway } = data.host;
    const inventoryObjectFields = {
      host_type: type,
      model_name: modelName,
      ip_address: ip,
      mac_address: macAddress,
      behind_gateway: gateway === null ? null : String(gateway.id),
      gateway: gateway?.displayName,
    };
    return [data.host, inventoryObjectFields] as const;
  }
  const { code, discipline, location, manufacturer, installedYear, maintenanceNotes, datapointsCount } = data.system;
  const inventoryObjectFields = {
    ...{ code, discipline, location, manufacturer },
    installed_year: installedYear,
    maintenance_notes: maintenanceNotes,
    datapoints_count: datapointsCount,
  };
  return [data.system, inventoryObjectFields] as const;
}

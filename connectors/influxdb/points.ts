import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import type { DayAccount } from "../../src/core/model/history-facts.ts";
import { historyLines, type Lines, lineOf, momentOf, type PointParts, valueFields } from "./lines.ts";

export interface PointSettings {
  readonly prefix: string;
  readonly tags: Readonly<Record<string, string>>;
  /** Optional names in addition to ids. */
  readonly namesOf?: (event: Event) => Readonly<Record<string, string>>;
}

/** A point without what all points of an event share. `time` is ISO 8601; the event's time when absent. */
type Parts = Pick<PointParts, "measurement" | "tags" | "fields"> & { readonly time?: string };

/** Measurements whose points may share a series and a millisecond without replacing each other. */
const NEVER_REPLACED = new Set(["command_accepted", "command_result", "command_not_restored", "worker_event"]);

/**
 * Encodes an event. The same event always gives the same lines and timestamps, so a repeated write overwrites. Throws an
 * Error for an event that cannot be a point, such as one without a readable time.
 */
export function* linesOf(event: Event, settings: PointSettings): Generator<Lines> {
  const common = {
    ...settings.tags,
    ...settings.namesOf?.(event),
    source: event.source.slice(event.source.lastIndexOf("/") + 1),
    site_id: event.siteid,
  };
  const encode = ({ measurement, tags, fields }: Parts, timeMs: number) =>
    lineOf({
      measurement: settings.prefix + measurement,
      tags: { ...common, ...tags },
      fields,
      timeMs,
      ...(NEVER_REPLACED.has(measurement) ? { apartBy: event.id } : {}),
    });
  const known = event as AnyEvent;
  if (known.type === "tag-history") {
    yield* historyLines(known, (parts) => encode(parts, 0));
    return;
  }
  for (const parts of known.type === "silent-sensors" ? sensorPoints(known) : [pointOf(known)]) {
    const isReading = known.type === "tag-value" || known.type === "tag-total";
    const fields = isReading ? parts.fields : { ...parts.fields, event_id: event.id };
    yield { text: encode({ ...parts, fields }, momentOf(parts.time ?? event.time)), count: 1 };
  }
}

function pointOf(event: Exclude<AnyEvent, { type: "tag-history" | "silent-sensors" }>): Parts {
  const worker = (fields: Parts["fields"], tags?: Parts["tags"]): Parts => ({
    measurement: "worker_event",
    tags: { type: event.type, ...tags },
    fields,
  });
  switch (event.type) {
    case "tag-value":
      return valuePoint(event.data);
    case "tag-total":
      return totalPoint(event.data);
    case "history-complete":
      return completePoint(event.data);
    case "day-sealed":
      return sealedPoint(event);
    case "alarm-raised":
    case "alarm-resolved":
    case "alarm-acknowledged":
    case "alarm-unacknowledged":
    case "alarm-recovering":
    case "alarm-retriggered":
    case "alarm-changed":
    case "alarm-vanished":
    case "alarm-out-of-scope":
      return alarmPoint(event);
    case "gateway-online":
    case "gateway-offline":
      return gatewayPoint(event);
    case "command-accepted":
      return acceptedPoint(event.data);
    case "command-result":
      return resultPoint(event.data);
    case "command-not-restored":
      return notRestoredPoint(event.data);
    case "tag-systems-changed":
      return tagSystemsPoint(event);
    case "series-break":
      return breakPoint(event.data);
    case "audit-head":
      return worker({ records: event.data.records, head: event.data.head });
    case "silence-started":
    case "silence-ended":
      return worker(silenceFields(event.data));
    case "token-expiring":
      return worker({ expires_at: event.data.expiresAt, days_left: event.data.daysLeft });
    case "source-unavailable":
      return worker({ reason: event.data.reason, since: event.data.since });
    case "source-available":
      return worker({ since: event.data.unavailableSince });
    case "worker-alive": {
      const { intervalSeconds, version, alarmsPolledAt } = event.data;
      return worker({ interval_s: intervalSeconds, version, alarms_polled_at: alarmsPolledAt });
    }
    case "configuration-changed": {
      const { by, changes, pending } = event.data;
      const changed = changes.map(({ path }) => path).join(",");
      return worker({ by, changed, count: changes.length, pending: pending.length });
    }
    case "delivery-gap": {
      const { sink, reason, count, firstTime, lastTime } = event.data;
      return worker({ reason, count, first_time: firstTime, last_time: lastTime }, { sink });
    }
    default:
      return inventoryPoint(event);
  }
}

type Data<K extends AnyEvent["type"]> = Event<K>["data"];

/** Point of a value. An unreadable value has a quality and no value, so it does not pull an average towards 0. */
function valuePoint({ tag, value, quality, latencyMs, behindGateway, type }: Data<"tag-value">): Parts {
  return {
    measurement: "tag_value",
    tags: { tag_id: tag.id, unit: tag.unit },
    fields: {
      ...valueFields("value", value),
      quality,
      good: quality === "good",
      latency_ms: latencyMs,
      behind_gateway: behindGateway,
      type_before: type?.before,
      type_now: type?.now,
    },
  };
}

/** Point of a total, at the start of its period, so that a later total overwrites it. */
function totalPoint({ tag, resolution, timeZone, total, reset, from, to }: Data<"tag-total">): Parts {
  return {
    measurement: "tag_total",
    tags: { tag_id: tag.id, unit: tag.unit, resolution, time_zone: timeZone },
    fields: { ...valueFields("value", total), good: total !== null, reset, to },
    time: from,
  };
}

type AlarmEvent = Extract<AnyEvent, { type: `alarm-${string}` }>;

/**
 * Point of an alarm event. The alarm's id is a tag because a gateway that goes offline raises dozens of alarms of one trigger
 * in the same second, which would otherwise overwrite each other.
 */
function alarmPoint({ type, data }: AlarmEvent): Parts {
  const { alarm } = data;
  const { lastActiveEvent, trigger } = alarm;
  const state = stateOf(type, alarm.status);
  return {
    measurement: "alarm_event",
    tags: { type, alarm_id: alarm.id, trigger_id: trigger.id, priority: trigger.priority },
    fields: {
      active: state === "active",
      state,
      status: state === "vanished" || state === "out-of-scope" ? "unknown" : alarm.status,
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
      ...changesIn(data),
    },
  };
}

/**
 * Known state of an alarm. One that vanished or left the token's view still has the status `active`, and needs a point that
 * ends it. Any status except `resolved` means active, as everywhere in Plenum.
 */
function stateOf(type: AlarmEvent["type"], status: string): "active" | "resolved" | "vanished" | "out-of-scope" {
  if (type === "alarm-vanished") return "vanished";
  if (type === "alarm-out-of-scope") return "out-of-scope";
  return status === "resolved" ? "resolved" : "active";
}

function gatewayPoint({ type, data }: Event<"gateway-online" | "gateway-offline">): Parts {
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

function acceptedPoint({ tagId, commandId, requested, ...data }: Data<"command-accepted">): Parts {
  return {
    measurement: "command_accepted",
    tags: { tag_id: tagId },
    fields: {
      command_id: commandId,
      ...valueFields("requested", requested),
      wait_ms: data.waitMs,
      expires_at: data.expiresAt,
      for_ms: data.forMs,
      needs_second: data.needsSecond,
    },
  };
}

function resultPoint({ tagId, outcome, reason, commandId, message, ...data }: Data<"command-result">): Parts {
  return {
    measurement: "command_result",
    tags: { tag_id: tagId, outcome, reason },
    fields: {
      command_id: commandId,
      message,
      ...valueFields("requested", data.requested),
      ...valueFields("before", data.before),
      ...valueFields("read_back", data.readBack),
      rehearsal: data.rehearsal,
    },
  };
}

function notRestoredPoint({ tagId, reason, commandId, message, ...data }: Data<"command-not-restored">): Parts {
  return {
    measurement: "command_not_restored",
    tags: { tag_id: tagId, reason },
    fields: {
      command_id: commandId,
      message,
      ...valueFields("in_force", data.inForce),
      ...valueFields("wanted", data.wanted),
      since: data.since,
      due_at: data.dueAt,
    },
  };
}

function silenceFields({ silence, by }: Data<"silence-started" | "silence-ended">): Parts["fields"] {
  const { id, reason, from, to, madeBy, source, site, priorities, name, alarm } = silence;
  return {
    ...{ silence: id, reason, made_by: madeBy, by, since: from, until: to },
    silence_source: source,
    silence_site: site === null ? null : String(site),
    silence_priorities: priorities?.join(","),
    silence_name: name,
    silence_alarm: alarm,
  };
}

function tagSystemsPoint({ type, data }: Event<"tag-systems-changed">): Parts {
  const { tag, systems, before } = data;
  return {
    measurement: "inventory_event",
    tags: { type, object: "tag", object_id: tag.id },
    fields: {
      display_name: tag.displayName,
      description: tag.description,
      unit: tag.unit,
      systems: systems.map((system) => system.id).join(","),
      systems_before: before.join(","),
    },
  };
}

/** Point for an annotation in a graph: the series changes here. */
function breakPoint({ tag, what, before, since, systems }: Data<"series-break">): Parts {
  return {
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
  };
}

/** Yields one point for the report, and one for each finding. */
function* sensorPoints({ data }: Event<"silent-sensors">): Generator<Parts> {
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

function completePoint(data: Data<"history-complete">): Parts {
  const measurement = "history_complete";
  const tags = { resolution: data.resolution, time_zone: data.timeZone, total: String(data.total) };
  if ("site" in data) {
    const { from, until, series, waitingCount } = data;
    return { measurement, tags, fields: { from, until, series, waiting: waitingCount } };
  }
  const fields = { first_date: data.firstDate, last_date: data.lastDate, ...accountFields(data) };
  return { measurement, tags: { ...tags, tag_id: data.tag.id }, fields };
}

/** Point of a complete day, at its start, so that a revision overwrites the earlier one. */
function sealedPoint({ time, data }: Event<"day-sealed">): Parts {
  const { date, revision, revised, series } = data;
  return {
    measurement: "day_sealed",
    tags: {},
    fields: { revision, revised, series, ...accountFields(data), sealed_at: time },
    time: `${date}T00:00:00Z`,
  };
}

function accountFields(account: DayAccount): Parts["fields"] {
  const { expected, had, absent, refused, pending } = account;
  const counts = { expected, had, null: account.null, absent, refused, pending };
  return { ...counts, without_log: account.withoutLog, not_wanted: account.notWanted };
}

type InventoryEvent = Extract<
  AnyEvent,
  { type: `${"site" | "gateway" | "host" | "system" | "tag"}-${"added" | "changed" | "removed"}` }
>;

function inventoryPoint({ type, data }: InventoryEvent): Parts {
  const [object, details] = objectIn(data);
  return {
    measurement: "inventory_event",
    tags: { type, object: type.split("-")[0], object_id: object.id },
    fields: {
      display_name: object.displayName,
      description: "description" in object ? object.description : undefined,
      ...details,
      ...changesIn(data),
    },
  };
}

/** Changed field names, and their old values as JSON. */
function changesIn(data: object): Parts["fields"] {
  if (!("before" in data)) return {};
  const before = data.before as Readonly<Record<string, unknown>>;
  return { changed: Object.keys(before).join(","), before: JSON.stringify(before) };
}

/** Returns the object of an inventory event and its details; these are fields, because queries do not select by them. */
function objectIn(data: InventoryEvent["data"]) {
  if ("site" in data) return [data.site, {}] as const;
  if ("tag" in data) return [data.tag, { unit: data.tag.unit }] as const;
  if ("gateway" in data) {
    const { online, version, hardware, ipAddress, location } = data.gateway;
    return [data.gateway, { online, version, hardware, ip_address: ipAddress, location }] as const;
  }
  if ("host" in data) {
    const { type, modelName, ip, macAddress, gateway } = data.host;
    const details = {
      host_type: type,
      model_name: modelName,
      ip_address: ip,
      mac_address: macAddress,
      behind_gateway: gateway === null ? null : String(gateway.id),
      gateway: gateway?.displayName,
    };
    return [data.host, details] as const;
  }
  const { code, discipline, location, manufacturer, installedYear, maintenanceNotes, datapointsCount } = data.system;
  const details = {
    ...{ code, discipline, location, manufacturer },
    installed_year: installedYear,
    maintenance_notes: maintenanceNotes,
    datapoints_count: datapointsCount,
  };
  return [data.system, details] as const;
}

import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import { historyLines, type Lines } from "./history-lines.ts";
import { lineOf, momentOf, type Parts, type PointParts, valueFields } from "./point.ts";
import { breakPoint, completePoint, sealedPoint, sensorPoints, tagSystemsPoint } from "./report-points.ts";

export interface PointSettings {
  readonly prefix: string;
  readonly tags: Readonly<Record<string, string>>;
  /** Optional names in addition to ids. */
  readonly namesOf?: (event: Event) => Readonly<Record<string, string>>;
}

/**
 * Encodes an event. The same event always gives the same lines and timestamps, so a repeated write overwrites.
 * Throws an Error for an event that cannot be a point, such as one without a readable time.
 */
export function* linesOf(event: Event, settings: PointSettings): Generator<Lines> {
  const known = event as AnyEvent;
  if (known.type === "tag-history") yield* historyLines(known, (parts) => lineAt(event, parts, settings, 0));
  else if (known.type === "silent-sensors") {
    const timeMs = momentOf(known.time);
    for (const parts of sensorPoints(known)) yield { text: lineAt(event, parts, settings, timeMs), count: 1 };
  } else {
    const { time, ...parts } = partsOf(known);
    yield { text: lineAt(event, parts, settings, momentOf(time)), count: 1 };
  }
}

function lineAt(event: Event, parts: Omit<Parts, "time">, settings: PointSettings, timeMs: number): string {
  const { measurement, tags, fields, apartBy } = parts;
  const all = { ...ownTags(event, settings), ...tags };
  const own = apartBy === undefined ? {} : { apartBy };
  return lineOf({ measurement: settings.prefix + measurement, tags: all, fields, timeMs, ...own });
}

function ownTags(event: Event, settings: PointSettings): PointParts["tags"] {
  return {
    ...settings.tags,
    ...settings.namesOf?.(event),
    source: event.source.slice(event.source.lastIndexOf("/") + 1),
    site_id: event.siteid,
  };
}

function partsOf(event: Exclude<AnyEvent, { type: "tag-history" | "silent-sensors" }>): Parts {
  switch (event.type) {
    case "tag-value":
      return valuePoint(event);
    case "tag-total":
      return totalPoint(event);
    case "history-complete":
      return completePoint(event);
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
      return acceptedPoint(event);
    case "command-result":
      return commandPoint(event);
    case "command-not-restored":
      return notRestoredPoint(event);
    case "tag-systems-changed":
      return tagSystemsPoint(event);
    case "series-break":
      return breakPoint(event);
    case "audit-head":
    case "silence-started":
    case "silence-ended":
    case "token-expiring":
    case "source-unavailable":
    case "source-available":
    case "worker-alive":
    case "configuration-changed":
    case "delivery-gap":
      return workerPoint(event);
    default:
      return inventoryPoint(event);
  }
}

/**
 * Point of a value. An unreadable value has a quality and no value, so it does not pull an average towards 0.
 */
function valuePoint({ time, data }: Event<"tag-value">): Parts {
  return {
    measurement: "tag_value",
    tags: { tag_id: data.tag.id, unit: data.tag.unit },
    fields: {
      ...valueFields("value", data.value),
      quality: data.quality,
      good: data.quality === "good",
      latency_ms: data.latencyMs,
      behind_gateway: data.behindGateway,
      type_before: data.type?.before,
      type_now: data.type?.now,
    },
    time,
  };
}

/** Point of a total, at the start of its period, so that a later total overwrites it. */
function totalPoint({ data }: Event<"tag-total">): Parts {
  return {
    measurement: "tag_total",
    tags: {
      tag_id: data.tag.id,
      unit: data.tag.unit,
      resolution: data.resolution,
      time_zone: data.timeZone,
    },
    fields: {
      ...valueFields("value", data.total),
      good: data.total !== null,
      reset: data.reset,
      to: data.to,
    },
    time: data.from,
  };
}

type AlarmEvent = Extract<AnyEvent, { type: `alarm-${string}` }>;

/**
 * Point of an alarm event. The alarm's id is a tag because a gateway that goes offline raises dozens of alarms of
 * one trigger in the same second, which would otherwise overwrite each other.
 */
function alarmPoint({ id, type, time, data }: AlarmEvent): Parts {
  const { alarm } = data;
  const state = stateOf(type, alarm.status);
  return {
    measurement: "alarm_event",
    tags: {
      type,
      alarm_id: alarm.id,
      trigger_id: alarm.trigger.id,
      priority: alarm.trigger.priority,
    },
    fields: {
      active: state === "active",
      state,
      status: state === "vanished" || state === "out-of-scope" ? "unknown" : alarm.status,
      site: alarm.site.displayName,
      trigger: alarm.trigger.displayName,
      trigger_description: alarm.trigger.description,
      trigger_enabled: alarm.trigger.enabled,
      triggered_on: alarm.lastActiveEvent?.triggeredOn,
      last_active_at: alarm.lastActiveEvent?.triggeredAt,
      description: alarm.description,
      alarm_source: alarm.source,
      value: alarm.lastActiveEvent?.value,
      value_text: alarm.lastActiveEvent?.textlistValue,
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
      event_id: id,
    },
    time,
  };
}

/**
 * Known state of an alarm. One that vanished or left the token's view still has the status `active`, and needs a
 * point that ends it. Any status except `resolved` means active, as everywhere in Plenum.
 */
function stateOf(type: AlarmEvent["type"], status: string): "active" | "resolved" | "vanished" | "out-of-scope" {
  if (type === "alarm-vanished") return "vanished";
  if (type === "alarm-out-of-scope") return "out-of-scope";
  return status === "resolved" ? "resolved" : "active";
}

function gatewayPoint({ id, type, time, data }: Event<"gateway-online" | "gateway-offline">): Parts {
  const { gateway } = data;
  return {
    measurement: "gateway_status",
    tags: { gateway_id: gateway.id },
    fields: {
      online: type === "gateway-online",
      display_name: gateway.displayName,
      location: gateway.location,
      version: gateway.version,
      hardware: gateway.hardware,
      ip_address: gateway.ipAddress,
      hosts: data.hosts.length,
      whole_site: data.wholeSite,
      event_id: id,
    },
    time,
  };
}

function acceptedPoint({ id, time, data }: Event<"command-accepted">): Parts {
  return {
    measurement: "command_accepted",
    apartBy: id,
    tags: { tag_id: data.tagId },
    fields: {
      command_id: data.commandId,
      ...valueFields("requested", data.requested),
      wait_ms: data.waitMs,
      expires_at: data.expiresAt,
      for_ms: data.forMs,
      needs_second: data.needsSecond,
      event_id: id,
    },
    time,
  };
}

function commandPoint({ id, time, data }: Event<"command-result">): Parts {
  return {
    measurement: "command_result",
    apartBy: id,
    tags: { tag_id: data.tagId, outcome: data.outcome, reason: data.reason },
    fields: {
      command_id: data.commandId,
      message: data.message,
      ...valueFields("requested", data.requested),
      ...valueFields("before", data.before),
      ...valueFields("read_back", data.readBack),
      rehearsal: data.rehearsal,
      event_id: id,
    },
    time,
  };
}

function notRestoredPoint({ id, time, data }: Event<"command-not-restored">): Parts {
  return {
    measurement: "command_not_restored",
    apartBy: id,
    tags: { tag_id: data.tagId, reason: data.reason },
    fields: {
      command_id: data.commandId,
      message: data.message,
      ...valueFields("in_force", data.inForce),
      ...valueFields("wanted", data.wanted),
      since: data.since,
      due_at: data.dueAt,
      event_id: id,
    },
    time,
  };
}

type WorkerEvent = Extract<
  AnyEvent,
  {
    type:
      | "audit-head"
      | "silence-started"
      | "silence-ended"
      | "token-expiring"
      | "source-unavailable"
      | "source-available"
      | "worker-alive"
      | "configuration-changed"
      | "delivery-gap";
  }
>;

function workerPoint(event: WorkerEvent): Parts {
  const common = { measurement: "worker_event", apartBy: event.id, time: event.time };
  const tags = { type: event.type };
  switch (event.type) {
    case "audit-head": {
      const { records, head } = event.data;
      return { ...common, tags, fields: { records, head, event_id: event.id } };
    }
    case "silence-started":
    case "silence-ended": {
      const { silence, by } = event.data;
      const { id, reason, from, to, madeBy, source, site, priorities, name, alarm } = silence;
      const scope = {
        silence_source: source,
        silence_site: site === null ? null : String(site),
        silence_priorities: priorities?.join(","),
        silence_name: name,
        silence_alarm: alarm,
      };
      const span = { since: from, until: to };
      const fields = { silence: id, reason, made_by: madeBy, by, ...span, ...scope, event_id: event.id };
      return { ...common, tags, fields };
    }
    case "token-expiring": {
      const { expiresAt, daysLeft } = event.data;
      return { ...common, tags, fields: { expires_at: expiresAt, days_left: daysLeft, event_id: event.id } };
    }
    case "source-unavailable": {
      const { reason, since } = event.data;
      return { ...common, tags, fields: { reason, since, event_id: event.id } };
    }
    case "source-available":
      return { ...common, tags, fields: { since: event.data.unavailableSince, event_id: event.id } };
    case "worker-alive": {
      const { intervalSeconds, version, alarmsPolledAt } = event.data;
      const fields = { interval_s: intervalSeconds, version, alarms_polled_at: alarmsPolledAt };
      return { ...common, tags, fields: { ...fields, event_id: event.id } };
    }
    case "configuration-changed": {
      const { by, changes, pending } = event.data;
      const changed = changes.map(({ path }) => path).join(",");
      const fields = { by, changed, count: changes.length, pending: pending.length, event_id: event.id };
      return { ...common, tags, fields };
    }
    case "delivery-gap": {
      const { sink, reason, count, firstTime, lastTime } = event.data;
      return {
        ...common,
        tags: { ...tags, sink },
        fields: { reason, count, first_time: firstTime, last_time: lastTime, event_id: event.id },
      };
    }
  }
}

type InventoryEvent = Extract<
  AnyEvent,
  { type: `${"site" | "gateway" | "host" | "system" | "tag"}-${"added" | "changed" | "removed"}` }
>;

function inventoryPoint({ id, type, time, data }: InventoryEvent): Parts {
  const noun = nounOf(data);
  return {
    measurement: "inventory_event",
    tags: { type, object: type.split("-")[0], object_id: noun.id },
    fields: {
      display_name: noun.displayName,
      description: "description" in noun ? noun.description : undefined,
      ...detailsOf(data),
      ...changesIn(data),
      event_id: id,
    },
    time,
  };
}

/** Changed field names, and their old values as JSON. */
function changesIn(data: object): PointParts["fields"] {
  if (!("before" in data)) return {};
  const before = data.before as Readonly<Record<string, unknown>>;
  return { changed: Object.keys(before).join(","), before: JSON.stringify(before) };
}

function nounOf(data: InventoryEvent["data"]) {
  if ("site" in data) return data.site;
  if ("gateway" in data) return data.gateway;
  if ("host" in data) return data.host;
  if ("system" in data) return data.system;
  return data.tag;
}

/** Further details of an object; fields, because queries do not select by them. */
function detailsOf(data: InventoryEvent["data"]): PointParts["fields"] {
  if ("tag" in data) return { unit: data.tag.unit };
  if ("gateway" in data) {
    const { online, version, hardware, ipAddress, location } = data.gateway;
    return { online, version, hardware, ip_address: ipAddress, location };
  }
  if ("host" in data) {
    const { type, modelName, ip, macAddress, gateway } = data.host;
    return {
      host_type: type,
      model_name: modelName,
      ip_address: ip,
      mac_address: macAddress,
      behind_gateway: gateway === null ? null : String(gateway.id),
      gateway: gateway?.displayName,
    };
  }
  if ("system" in data) {
    const { system } = data;
    return {
      code: system.code,
      discipline: system.discipline,
      location: system.location,
      manufacturer: system.manufacturer,
      installed_year: system.installedYear,
      maintenance_notes: system.maintenanceNotes,
      datapoints_count: system.datapointsCount,
    };
  }
  return {};
}

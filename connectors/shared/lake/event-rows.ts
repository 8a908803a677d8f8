import { splitHistoryEvent } from "../../../src/core/codec/history-event.ts";
import { PointReader } from "../../../src/core/codec/history-point-reader.ts";
import type { Alarm, Tag, TagValue } from "../../../src/core/model/building.ts";
import type { AnyEvent, Event, EventData } from "../../../src/core/model/event.ts";
import { type AlarmEvent, eventSourceName, isAlarmEvent } from "../../../src/core/model/event.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import { toUcumCode } from "../../../src/core/values/ucum-code.ts";
import { type Cell, findColumnIndex, type LakeRow, type LakeTable, type RowCells } from "./table-model.ts";
import {
  ALARM_EPISODE_TABLE,
  ALARM_TABLE,
  COMMAND_TABLE,
  DELIVERY_GAP_TABLE,
  GATEWAY_STATE_TABLE,
  GATEWAY_TABLE,
  HISTORY_TABLE,
  HOST_TABLE,
  SITE_TABLE,
  SYSTEM_TABLE,
  TAG_SYSTEM_TABLE,
  TAG_TABLE,
  TAG_VALUE_TABLE,
  TOTAL_TABLE,
  WORKER_EVENT_TABLE,
} from "./tables.ts";

export interface CommittedEvent {
  readonly event: Event;
  /** Position in the event log; 0 for an event built from the stored state, whose `committedAt` is empty. */
  readonly position: number;
  readonly committedAt: string;
}

type CommonEventCells = Readonly<Record<"source" | "site_id" | "event_id" | "position" | "observed_at", Cell>>;

/** Receives a row. Copy the array: the next call reuses the array. */
export type AddLakeRow = (table: LakeTable, row: LakeRow) => void;

/** Maps an event to rows. A snapshot event repeats the stored state, so it adds no row to an append-only table. */
export function emitEventRows({ event, position, committedAt }: CommittedEvent, addRow: AddLakeRow): void {
  const observedMs = parseTimeMs(event.time);
  if (observedMs === null) throw new Error(`The time of ${event.id} is no moment: ${event.time}.`);
  const commonCells: CommonEventCells = {
    source: eventSourceName(event) ?? "",
    site_id: event.siteid ?? null,
    event_id: event.id,
    position,
    observed_at: parseTimeMs(committedAt) ?? observedMs,
  };
  const typedEvent = event as AnyEvent;
  const isSnapshot = event.snapshot === true;
  if (typedEvent.type === "tag-history") {
    if (!isSnapshot) addHistoryRows(typedEvent, commonCells, addRow);
    // Skip stale values, because the table of values must contain readings only.
  } else if (typedEvent.type === "tag-value" && typedEvent.data.quality !== "stale") {
    if (!isSnapshot) addTagValueRow(typedEvent, observedMs, commonCells, addRow);
  } else {
    for (const [table, cells] of buildTableCells(typedEvent, observedMs)) {
      if (!isSnapshot || table.rowPolicy !== "append") addRow(table, buildLakeRow(table, { ...commonCells, ...cells }));
    }
  }
}

function buildTableCells(
  event: AnyEvent,
  observedMs: number,
): readonly (readonly [table: LakeTable, cells: RowCells])[] {
  const isRemovalEvent = event.type.endsWith("-removed");
  const validityCells = {
    valid_from: observedMs,
    valid_to: isRemovalEvent ? observedMs : null,
    is_current: !isRemovalEvent,
  };
  if (isAlarmEvent(event))
    return [
      [ALARM_TABLE, buildAlarmCells(event, observedMs)],
      [ALARM_EPISODE_TABLE, buildAlarmEpisodeCells(event, observedMs)],
    ];
  switch (event.type) {
    case "tag-total":
      return [[TOTAL_TABLE, buildPeriodTotalCells(event.data, observedMs)]];
    case "command-accepted":
    case "command-result":
    case "command-not-restored":
      return [[COMMAND_TABLE, buildCommandCells(event, observedMs)]];
    case "gateway-online":
    case "gateway-offline":
      return [[GATEWAY_STATE_TABLE, buildGatewayStateCells(event, observedMs)]];
    case "gateway-added": {
      const { id, online } = event.data.gateway;
      return [
        [GATEWAY_STATE_TABLE, { gateway_id: id, time: observedMs, online, whole_site: null, hosts: null }],
        [GATEWAY_TABLE, { ...buildGatewayCells(event.data), ...validityCells }],
      ];
    }
    case "gateway-changed":
    case "gateway-removed":
      return [[GATEWAY_TABLE, { ...buildGatewayCells(event.data), ...validityCells }]];
    case "site-added":
    case "site-changed":
    case "site-removed": {
      const { id, displayName } = event.data.site;
      return [[SITE_TABLE, { site_id: String(id), name: displayName, ...validityCells }]];
    }
    case "system-added":
    case "system-changed":
    case "system-removed":
      return [[SYSTEM_TABLE, { ...buildSystemCells(event.data), ...validityCells }]];
    case "tag-added":
    case "tag-changed":
    case "tag-removed":
      return [[TAG_TABLE, { ...buildTagCells(event.data.tag), ...validityCells }]];
    case "tag-systems-changed":
      return buildTagSystemCells(event.data, observedMs).map((cells) => [TAG_SYSTEM_TABLE, cells]);
    case "host-added":
    case "host-changed":
    case "host-removed":
      return [[HOST_TABLE, { ...buildHostCells(event.data), ...validityCells }]];
    case "delivery-gap":
      return [[DELIVERY_GAP_TABLE, buildDeliveryGapCells(event.data, observedMs)]];
    default: {
      const { data, subject, type } = event;
      return [[WORKER_EVENT_TABLE, { event: type, subject, time: observedMs, data: JSON.stringify(data) }]];
    }
  }
}

function buildLakeRow(table: LakeTable, cells: RowCells): Cell[] {
  return table.columns.map(({ name }) => {
    const cell = cells[name];
    if (cell === undefined) throw new Error(`The cell ${name} of ${table.name} is missing.`);
    return cell;
  });
}

/** Returns a time in milliseconds; null for null and for a time without an offset. */
function parseTimeMs(time: string | null): number | null {
  if (time === null || !(time.endsWith("Z") || /[+-]\d\d:?\d\d$/.test(time))) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

const parseUtcOffset = (rawTime: string | null): string | null => /[+-]\d\d:\d\d$/.exec(rawTime ?? "")?.[0] ?? null;

function typedValueCells(columnPrefix: string, value: TagValue): RowCells {
  return {
    [`${columnPrefix}_number`]: typeof value === "number" ? value : null,
    [`${columnPrefix}_boolean`]: typeof value === "boolean" ? value : null,
  };
}

/** Adds the row of a live value without an object of cells by name, which would double the work for most events. */
function addTagValueRow(
  event: Event<"tag-value">,
  observedMs: number,
  commonCells: CommonEventCells,
  addRow: AddLakeRow,
): void {
  const { tag, value, quality, time, latencyMs, behindGateway } = event.data;
  addRow(TAG_VALUE_TABLE, [
    commonCells.source,
    commonCells.site_id,
    tag.id,
    time === event.time ? observedMs : parseTimeMs(time),
    typeof value === "number" ? value : null,
    typeof value === "boolean" ? value : null,
    quality,
    tag.unit,
    toUcumCode(tag.unit),
    latencyMs,
    behindGateway,
    commonCells.observed_at,
    commonCells.event_id,
    commonCells.position,
  ]);
}

const HISTORY_COLUMN_INDEXES = {
  time: findColumnIndex(HISTORY_TABLE, "time"),
  number: findColumnIndex(HISTORY_TABLE, "value_number"),
  boolean: findColumnIndex(HISTORY_TABLE, "value_boolean"),
  quality: findColumnIndex(HISTORY_TABLE, "quality"),
};

/** Adds a row for each point. Refills one row array, because points differ in only four cells. */
function addHistoryRows(event: Event<"tag-history">, commonCells: CommonEventCells, addRow: AddLakeRow): void {
  const { fact, points } = splitHistoryEvent(event);
  const { tag, resolution, timeZone, origin, revised } = fact;
  const row = buildLakeRow(HISTORY_TABLE, {
    ...commonCells,
    tag_id: tag.id,
    resolution,
    time_zone: timeZone,
    time: null,
    ...typedValueCells("value", null),
    quality: "",
    unit: tag.unit,
    unit_ucum: toUcumCode(tag.unit),
    origin,
    revision: revised ? commonCells.observed_at : 0,
  });
  for (const pointReader = new PointReader(points); pointReader.next(); ) {
    const timeMs = Number.isNaN(pointReader.timeMs) ? parseTimeMs(pointReader.time) : pointReader.timeMs;
    // Skip a bucket with an invalid time; the event still contains the bucket.
    if (timeMs === null) continue;
    const value = pointReader.isNotNumber ? (JSON.parse(pointReader.value) as TagValue) : Number(pointReader.value);
    row[HISTORY_COLUMN_INDEXES.time] = timeMs;
    row[HISTORY_COLUMN_INDEXES.number] = typeof value === "number" ? value : null;
    row[HISTORY_COLUMN_INDEXES.boolean] = typeof value === "boolean" ? value : null;
    row[HISTORY_COLUMN_INDEXES.quality] = value === null ? "bad" : "good";
    addRow(HISTORY_TABLE, row);
  }
}

function buildPeriodTotalCells(eventData: EventData["tag-total"], observedMs: number): RowCells {
  const { tag, resolution, timeZone, from, to, total, reset } = eventData;
  return {
    tag_id: tag.id,
    resolution,
    time_zone: timeZone,
    from_time: parseTimeMs(from) ?? observedMs,
    to_time: parseTimeMs(to) ?? observedMs,
    total,
    is_reset: reset,
    unit: tag.unit,
    unit_ucum: toUcumCode(tag.unit),
  };
}

function buildAlarmTriggerCells(alarm: Alarm): RowCells {
  const { trigger } = alarm;
  return {
    alarm_id: alarm.id,
    priority: trigger.priority,
    trigger_id: String(trigger.id),
    trigger_name: trigger.displayName,
    trigger_description: trigger.description,
    alarm_source: alarm.source,
    description: alarm.description,
    triggered_at: parseTimeMs(alarm.triggeredAt),
    triggered_at_raw: alarm.triggeredAtRaw,
    triggered_at_offset: parseUtcOffset(alarm.triggeredAtRaw),
    resolved_at: parseTimeMs(alarm.resolvedAt),
    resolved_at_raw: alarm.resolvedAtRaw,
    resolved_at_offset: parseUtcOffset(alarm.resolvedAtRaw),
    acknowledged: alarm.acknowledged,
    acknowledged_by: alarm.acknowledgedBy,
    acknowledged_message: alarm.acknowledgedMessage,
    acknowledged_at: parseTimeMs(alarm.acknowledgedAt),
  };
}

function buildAlarmCells({ type, data }: AlarmEvent, observedMs: number): RowCells {
  const { alarm, episode, late, behindGateway } = data;
  const lastActiveEvent = alarm.lastActiveEvent;
  return {
    ...buildAlarmTriggerCells(alarm),
    episode,
    event: type,
    time: observedMs,
    status: alarm.status,
    recovering_until: parseTimeMs(alarm.recoveringUntil),
    late,
    initial: "initial" in data && data.initial,
    behind_gateway: behindGateway,
    event_value: lastActiveEvent?.value ?? null,
    event_text: lastActiveEvent?.textlistValue ?? null,
    before: "before" in data ? JSON.stringify(data.before) : null,
  };
}

function buildAlarmEpisodeCells({ type, data }: AlarmEvent, observedMs: number): RowCells {
  const { alarm, episode } = data;
  const alarmState = getAlarmStateAfterEvent(type, alarm);
  const alarmEndMs = alarmState === "resolved" ? (parseTimeMs(alarm.resolvedAt) ?? observedMs) : observedMs;
  return {
    ...buildAlarmTriggerCells(alarm),
    episode,
    state: alarmState,
    raised_at: parseTimeMs(alarm.triggeredAt) ?? 0,
    ended_at: alarmState === "resolved" || alarmState === "vanished" ? alarmEndMs : null,
  };
}

function getAlarmStateAfterEvent(type: AlarmEvent["type"], alarm: Alarm): string {
  if (type === "alarm-vanished") return "vanished";
  if (type === "alarm-out-of-scope") return "out-of-scope";
  return type === "alarm-resolved" || alarm.status === "resolved" ? "resolved" : "active";
}

type CommandEvent = Event<"command-accepted"> | Event<"command-result"> | Event<"command-not-restored">;

function buildCommandCells(event: CommandEvent, observedMs: number): RowCells {
  const { commandId, tagId } = event.data;
  const cells = { time: observedMs, event: event.type, command_id: commandId, tag_id: tagId };
  const emptyCells = { outcome: null, reason: null, message: null, rehearsal: null, expires_at: null };
  switch (event.type) {
    case "command-accepted": {
      const { requested, expiresAt } = event.data;
      const expires_at = parseTimeMs(expiresAt);
      return { ...cells, ...emptyCells, ...commandValueCells(requested, null, null), expires_at };
    }
    case "command-not-restored": {
      const { wanted, inForce, reason, message } = event.data;
      return { ...cells, ...emptyCells, ...commandValueCells(wanted, null, inForce), reason, message };
    }
    case "command-result": {
      const { outcome, reason, message, requested, before, readBack, rehearsal } = event.data;
      const valueCells = commandValueCells(requested, before, readBack);
      return { ...cells, ...valueCells, outcome, reason, message, rehearsal, expires_at: null };
    }
  }
}

const commandValueCells = (requested: TagValue, before: TagValue, readBack: TagValue): RowCells => ({
  ...typedValueCells("requested", requested),
  ...typedValueCells("before", before),
  ...typedValueCells("read_back", readBack),
});

type GatewayStateEvent = Event<"gateway-online"> | Event<"gateway-offline">;

function buildGatewayStateCells({ type, data }: GatewayStateEvent, observedMs: number): RowCells {
  const { gateway, hosts, wholeSite } = data;
  return {
    gateway_id: gateway.id,
    time: observedMs,
    online: type === "gateway-online",
    whole_site: wholeSite,
    hosts: JSON.stringify(hosts.map(({ id, displayName }) => ({ id, name: displayName }))),
  };
}

function buildDeliveryGapCells(eventData: EventData["delivery-gap"], observedMs: number): RowCells {
  const { sink, reason, firstTime, lastTime, count } = eventData;
  const [firstMs, lastMs] = [parseTimeMs(firstTime) ?? observedMs, parseTimeMs(lastTime) ?? observedMs];
  return { sink, reason, first_time: firstMs, last_time: lastMs, count, time: observedMs };
}

export const formatUtcDay = (timeMs: number): string => isoUtc(timeMs).slice(0, 10);

function buildTagCells({ id, displayName, description, unit, alias, path, unitCode }: Tag): RowCells {
  return {
    ...{ tag_id: id, name: displayName, description, unit, unit_ucum: toUcumCode(unit) },
    ...{ alias: alias ?? null, path: path ?? null, unit_code: unitCode ?? null },
  };
}

function buildSystemCells({ system }: EventData["system-added"]): RowCells {
  return {
    system_id: system.id,
    code: system.code,
    name: system.displayName,
    discipline: system.discipline,
    description: system.description,
    location: system.location,
    manufacturer: system.manufacturer,
    installed_year: system.installedYear,
    maintenance_notes: system.maintenanceNotes,
    datapoints_count: system.datapointsCount,
  };
}

/** Returns a row for each current system of the tag and for each system that the tag left. */
function buildTagSystemCells(eventData: EventData["tag-systems-changed"], observedMs: number): readonly RowCells[] {
  const { before, systems, tag } = eventData;
  const currentSystemIds = new Set(systems.map(({ id }) => id));
  return [...currentSystemIds.union(new Set(before))].map((system_id) => {
    const is_current = currentSystemIds.has(system_id);
    const valid_to = is_current ? null : observedMs;
    return { tag_id: tag.id, system_id, is_current, valid_from: observedMs, valid_to };
  });
}

function buildGatewayCells({ gateway }: EventData["gateway-added"]): RowCells {
  return {
    gateway_id: gateway.id,
    name: gateway.displayName,
    version: gateway.version,
    hardware: gateway.hardware,
    ip_address: gateway.ipAddress,
    location: gateway.location,
  };
}

function buildHostCells({ host }: EventData["host-added"]): RowCells {
  return {
    host_id: host.id,
    name: host.displayName,
    description: host.description,
    type: host.type,
    model_name: host.modelName,
    ip: host.ip,
    mac_address: host.macAddress,
    gateway_id: host.gateway === null ? null : String(host.gateway.id),
  };
}

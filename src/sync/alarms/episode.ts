import type { Alarm } from "../../building.ts";

/**
 * One episode is one raise and one end. Its key is the alarm's id and the time of its trigger; where the service
 * gives no time, the id of the last active event stands in.
 */
export function episodeOf(alarm: Alarm): string {
  const start = instant(alarm.triggeredAt);
  if (start !== null) return `${alarm.id}@${new Date(start).toISOString()}`;
  if (alarm.triggeredAt !== "") return `${alarm.id}@${alarm.triggeredAt}`;
  return alarm.lastActiveEvent === null ? alarm.id : `${alarm.id}@event-${alarm.lastActiveEvent.id}`;
}

/**
 * Whether the service itself says that it is over: its word `resolved`, or a time of resolution beside a word that
 * the interface does not name. `active` beside a time of resolution contradicts itself and is not read as resolved.
 */
export function isResolved(alarm: Alarm): boolean {
  if (alarm.status === "resolved") return true;
  if (alarm.status === "active" || alarm.resolvedAt === null) return false;
  const start = instant(alarm.triggeredAt);
  const end = instant(alarm.resolvedAt);
  return start === null || end === null || end >= start;
}

/** True when both say when they were triggered and the first was triggered before the second. */
export function isOlder(first: Alarm, second: Alarm): boolean {
  const a = instant(first.triggeredAt);
  const b = instant(second.triggeredAt);
  return a !== null && b !== null && a < b;
}

/** Milliseconds since 1970 of a time in UTC; null for one whose offset is unknown or that is no time. */
export function instant(time: string | null): number | null {
  if (time === null || !time.endsWith("Z")) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

import type { Alarm } from "../../../core/model/building.ts";

/** Times of alarm records, and how two of them compare. */

/** Milliseconds since 1970 of a time in UTC; null for one whose offset is unknown or that is no time. */
export function instant(time: string | null): number | null {
  if (time === null || !time.endsWith("Z")) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

/** When an alarm was resolved, milliseconds since 1970; a time without an offset is taken for UTC, only for searching. */
export function endOf(alarm: Alarm): number | null {
  const time = alarm.resolvedAt ?? alarm.triggeredAt;
  const known = instant(time) ?? Date.parse(`${time}Z`);
  return Number.isNaN(known) ? null : known;
}

/**
 * The latest time of an alarm that is over, milliseconds since 1970: its end, or its beginning where the end is stated as
 * before it. An end that is written an hour or two early (a wrong offset, a device's own clock) does not make it old.
 */
export function lastTimeOf(alarm: Alarm): number | null {
  const end = endOf(alarm);
  return end === null ? null : later(end, instant(alarm.triggeredAt));
}

/** Whether two times are the same where one of them may have been cut to whole seconds. */
export function areOneTime(a: number, b: number): boolean {
  const isWhole = a % 1_000 === 0 || b % 1_000 === 0;
  return a === b || (isWhole && Math.floor(a / 1_000) === Math.floor(b / 1_000));
}

/** How much later the start of the second record is, in milliseconds; 0 where the two cannot be compared. */
export function shiftBetween(before: Alarm, now: Alarm): number {
  return (instant(now.triggeredAt) ?? 0) - (instant(before.triggeredAt) ?? 0);
}

/** Whether a time is the known one, or the known one moved by so many milliseconds. */
export function isSameMoment(before: string | null, now: string | null, shiftMs: number): boolean {
  if (before === now) return true;
  const [known, shown] = [instant(before), instant(now)];
  return known !== null && shown !== null && shown - known === shiftMs;
}

/** The later of two numbers; the other one where one is null. */
export function later(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.max(one, other);
}

import type { Alarm } from "../../../core/model/building.ts";

export function parseUtcMs(time: string | null): number | null {
  if (time === null || !time.endsWith("Z")) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

/** Returns the end, or else the start. Times without an offset count as UTC. */
export function alarmEndOrStartMs(alarm: Alarm): number | null {
  const time = alarm.resolvedAt ?? alarm.triggeredAt;
  const endOrStartMs = parseUtcMs(time) ?? Date.parse(`${time}Z`);
  return Number.isNaN(endOrStartMs) ? null : endOrStartMs;
}

/** Returns the later of end and start, because a wrong offset may state an end hours before the start. */
export function latestAlarmTimeMs(alarm: Alarm): number | null {
  const end = alarmEndOrStartMs(alarm);
  return end === null ? null : maxOfNumbers(end, parseUtcMs(alarm.triggeredAt));
}

/** True if two times are equal, also when one of the times was cut to whole seconds. */
export function isSameTime(a: number, b: number): boolean {
  const isTimeRounded = a % 1_000 === 0 || b % 1_000 === 0;
  return a === b || (isTimeRounded && Math.floor(a / 1_000) === Math.floor(b / 1_000));
}

export function startShiftMs(before: Alarm, now: Alarm): number {
  return (parseUtcMs(now.triggeredAt) ?? 0) - (parseUtcMs(before.triggeredAt) ?? 0);
}

export function isShiftedTime(before: string | null, now: string | null, shiftMs: number): boolean {
  if (before === now) return true;
  const [known, shown] = [parseUtcMs(before), parseUtcMs(now)];
  return known !== null && shown !== null && shown - known === shiftMs;
}

export function maxOfNumbers(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.max(one, other);
}

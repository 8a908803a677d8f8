import type { Alarm } from "../../../core/model/building.ts";

export function parseUtcMs(time: string | null): number | null {
  if (time === null || !time.endsWith("Z")) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

/** Returns the alarm's end, or its start if it has no end. Times without an offset count as UTC. */
export function alarmEndOrStartMs(alarm: Alarm): number | null {
  const time = alarm.resolvedAt ?? alarm.triggeredAt;
  const endOrStartMs = parseUtcMs(time) ?? Date.parse(`${time}Z`);
  return Number.isNaN(endOrStartMs) ? null : endOrStartMs;
}

/** Returns the later one of the alarm's end and start, because a wrong offset may state an end before the start. */
export function latestAlarmTimeMs(alarm: Alarm): number | null {
  const endOrStartMs = alarmEndOrStartMs(alarm);
  return endOrStartMs === null ? null : maxOfNumbers(endOrStartMs, parseUtcMs(alarm.triggeredAt));
}

/** True if two times are equal, also when one of the times was cut to whole seconds. */
export function isSameTime(a: number, b: number): boolean {
  const isTimeRounded = a % 1_000 === 0 || b % 1_000 === 0;
  return a === b || (isTimeRounded && Math.floor(a / 1_000) === Math.floor(b / 1_000));
}

export function startShiftMs(alarmBefore: Alarm, alarmNow: Alarm): number {
  return (parseUtcMs(alarmNow.triggeredAt) ?? 0) - (parseUtcMs(alarmBefore.triggeredAt) ?? 0);
}

export function isShiftedTime(oldTime: string | null, newTime: string | null, shiftMs: number): boolean {
  if (oldTime === newTime) return true;
  const [oldTimeMs, newTimeMs] = [parseUtcMs(oldTime), parseUtcMs(newTime)];
  return oldTimeMs !== null && newTimeMs !== null && newTimeMs - oldTimeMs === shiftMs;
}

export function maxOfNumbers(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.max(a, b);
}

// Positions are milliseconds on the endless tape that repeats the recording of one site: 0 is the start of the
// first pass, `lengthMs` the start of the second.

export interface Timeline {
  readonly lengthMs: number;
  /** The tape position at a wall time; may be negative before the first pass. */
  positionAt(wallMs: number): number;
  /** The wall time of a position, rounded to whole milliseconds. */
  wallAt(position: number): number;
}

export interface TimelineSetting {
  readonly epochMs: number;
  /** Recorded seconds per second. */
  readonly speed: number;
  /** The position that is reached at the epoch. */
  readonly anchor: number;
  readonly lengthMs: number;
}

export const DAY_MS = 86_400_000;
export const WEEK_MS = 7 * DAY_MS;

export function createTimeline({ epochMs, speed, anchor, lengthMs }: TimelineSetting): Timeline {
  return {
    lengthMs,
    positionAt: (wallMs) => anchor + (wallMs - epochMs) * speed,
    wallAt: (position) => Math.round(epochMs + (position - anchor) / speed),
  };
}

/**
 * A pass lasts whole weeks, so that weekdays keep their meaning in every pass. When the world runs faster than
 * the clock no weekday has a meaning, and whole days keep the silence at the end of a pass short.
 */
export function passLength(recordedMs: number, speed: number): number {
  const unit = speed === 1 ? WEEK_MS : DAY_MS;
  return Math.ceil(recordedMs / unit) * unit;
}

import type { Sequence } from "../../core/model/sequence.ts";
import type { LoggedEvent } from "./store.ts";

/** A crash has no sink get more than so many events once more, by the promise. */
export const IN_FLIGHT = 100;

/** How far a sink is before the disk says so. */
export interface Ahead {
  readonly through: number;
  readonly counted: Sequence | undefined;
}

/** The one of two that is further on. */
export function further(before: Ahead | undefined, now: Ahead): Ahead {
  if (before === undefined) return now;
  const [first, last] = before.through <= now.through ? [before, now] : [now, before];
  return { through: last.through, counted: last.counted ?? first.counted };
}

/** Whether these are the very next events after a position, so that settling them moves the cursor. */
export function followsOn(events: readonly LoggedEvent[], position: number): boolean {
  return (events.at(-1)?.position ?? 0) === position + events.length;
}

/** Milliseconds since 1970 of a time that somebody wrote. */
export function sinceMs(since: string): number {
  const ms = Date.parse(since);
  if (Number.isNaN(ms)) throw new RangeError(`${since} is not a time; write it as 2026-11-02T06:00:00Z.`);
  return ms;
}

import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";

/** A list that lost more than half, and so many at least, is read again for this long before it is believed, milliseconds. */
const DROP_LEAST = 5;
const DROP_BELIEVED_MS = 600_000;

/** Size of a list before, and the number of missing objects now. */
export interface Drop {
  readonly before: number;
  readonly gone: number;
}

/** Whether a list that is much shorter than before is not believed yet: it is read again, for some minutes. */
export function createDropCheck(
  clock: Pick<Clock, "monotonic">,
  log: Pick<Log, "warn">,
): (key: string, drop: Drop, words: object) => boolean {
  /** By key, since when a list has been without most of what it showed, on the monotonic clock. */
  const dropped = new Map<string, number>();
  return (key, { before, gone }, words) => {
    if (gone < DROP_LEAST || gone <= before / 2) {
      dropped.delete(key);
      return false;
    }
    const sinceMs = dropped.get(key) ?? clock.monotonic();
    if (!dropped.has(key)) log.warn(words, "most of a list is gone at once: it is read again");
    dropped.set(key, sinceMs);
    return clock.monotonic() - sinceMs < DROP_BELIEVED_MS;
  };
}

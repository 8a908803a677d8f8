import { type Event, makeEvent } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { StoredGap } from "./store.ts";

/** One gap event per sink and reason in this time; what is lost in between is gathered for the next one. */
export const MERGE_MS = 60 * 60_000;
/** How long told gaps can be looked up. */
export const RETAINED_MS = 90 * 24 * 60 * 60_000;

/** One event that one sink will not get, because it is gone. */
export interface Loss {
  readonly sink: string;
  readonly reason: "age" | "size";
  /** The event's own time. */
  readonly time: string;
}

/** Sums up gaps, one for each sink and reason. */
export function createGapSums() {
  const sums = new Map<string, StoredGap>();
  return {
    add(gaps: readonly StoredGap[]): void {
      for (const gap of gaps) {
        const key = `${gap.reason} ${gap.sink}`;
        const before = sums.get(key);
        sums.set(key, before === undefined ? gap : joined(before, gap));
      }
    },
    report: (): readonly StoredGap[] => [...sums.values()],
  };
}

/** What tells everybody of a gap. */
export function gapEvent(
  { sink, reason, firstTime, lastTime, count }: Omit<StoredGap, "at">,
  nowMs: number,
): Event<"delivery-gap"> {
  return makeEvent({
    type: "delivery-gap",
    source: "/plenum",
    subject: `sink/${sink}`,
    time: isoUtc(nowMs),
    facts: [reason, firstTime, lastTime, count, nowMs],
    data: { sink, reason, firstTime, lastTime, count },
  });
}

/** Losses of one moment as gaps, one for each sink and reason. */
export function summed(losses: readonly Loss[], nowMs: number): readonly StoredGap[] {
  const gaps = new Map<string, StoredGap>();
  for (const { sink, reason, time } of losses) {
    const key = `${reason} ${sink}`;
    const one: StoredGap = { sink, reason, firstTime: time, lastTime: time, count: 1, at: isoUtc(nowMs) };
    const before = gaps.get(key);
    gaps.set(key, before === undefined ? one : joined(before, one));
  }
  return [...gaps.values()];
}

function joined(a: StoredGap, b: StoredGap): StoredGap {
  return {
    ...a,
    firstTime: a.firstTime < b.firstTime ? a.firstTime : b.firstTime,
    lastTime: a.lastTime > b.lastTime ? a.lastTime : b.lastTime,
    count: a.count + b.count,
  };
}

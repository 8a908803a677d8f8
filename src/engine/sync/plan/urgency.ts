import { NEVER_MS, type PlannedTags, type PlanRules } from "./planned.ts";

/**
 * How long a tag may be without its first value before that is due, beside its interval, milliseconds: the first round of
 * 4,000 tags takes 10 minutes of the whole quota, and everything that is new is equally late in it.
 */
const FIRST_ROUND_MS = 600_000;

/**
 * Age as a part of the interval, from which on a tag may ride along for the sake of a later slot: one of 60 s may when
 * it was read 30 s ago, not when it was read 25 s ago.
 */
export const HALF_WAY = 0.5;

/**
 * How urgent each tag is, in columns as the tags themselves, and lent to one plan after the other: a building of 50,000
 * tags is planned twice in each slot, and new objects for all of them would cost more than everything else that the worker
 * does.
 */
export interface Urgencies {
  /** Slots that may still be left out before it is late; 0 = it must go now. */
  readonly slotsLeft: Float64Array;
  /** Slots from one reading to the next. */
  readonly periodSlots: Float64Array;
  /** Age relative to the interval: 1 = due; infinite where it has no value yet. */
  readonly index: Float64Array;
  /** Places of the tags that travel with all others, and of those that are being read. */
  readonly ordinary: Uint32Array;
  readonly comingRound: Uint32Array;
}

/** Some of the tags, by their places. */
export type Places = Uint32Array;

export function urgenciesFor(count: number): Urgencies {
  return {
    slotsLeft: new Float64Array(count),
    periodSlots: new Float64Array(count),
    index: new Float64Array(count),
    ordinary: new Uint32Array(count),
    comingRound: new Uint32Array(count),
  };
}

/** Works out how urgent each tag is, into those columns. */
export function judge(urgencies: Urgencies, tags: PlannedTags, nowMs: number, rules: PlanRules): void {
  const { slotsLeft, periodSlots, index } = urgencies;
  const { count, intervalMs: intervals, lastMs, sinceMs, underWay } = tags;
  const { slotMs, leadMs, jitterMs = leadMs } = rules;
  for (let place = 0; place < count; place++) {
    const intervalMs = intervals[place] as number;
    const readMs = lastMs[place] as number;
    // As if the reply of one that is being read came just now.
    const isAsked = underWay[place] === 1;
    const isNew = !isAsked && readMs === NEVER_MS;
    // What has no value yet rides along in the first round; only where it could not it is due.
    // Only numbers that were just worked out: chosen between one of them and `nowMs`, each was made an object of its own.
    const newMs = Math.max(0, nowMs - (sinceMs[place] as number) - FIRST_ROUND_MS);
    const ageMs = isAsked ? 0 : isNew ? newMs : nowMs - readMs;
    periodSlots[place] = Math.max(1, Math.floor((intervalMs - jitterMs) / slotMs));
    slotsLeft[place] = Math.max(0, Math.floor((intervalMs - leadMs - ageMs) / slotMs));
    index[place] = isNew ? Number.POSITIVE_INFINITY : ageMs / intervalMs;
  }
}

/** The largest age relative to the interval; 0 where there is no tag. */
export function worstOf(places: Places, { index }: Urgencies): number {
  let worst = 0;
  for (let n = 0; n < places.length; n++) worst = Math.max(worst, index[places[n] as number] as number);
  return worst;
}

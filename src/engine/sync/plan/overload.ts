/**
 * Wishes that exceed the quota are stretched: every class by the same factor, an important one by less, a firm one not
 * at all, as long as the firm ones leave enough for the others. Pure.
 *
 * 800 tags wished every 60 s need 2 requests in each slot of 3 s, so they are read every 126 s, 2.1 times the wish. Where
 * half of them have importance 2, those are read every 107 s (1.78), the others every 153 s (2.55).
 */
export interface Demand {
  readonly name: string;
  /** A tag that is read less often because it keeps failing counts as less than one. */
  readonly tags: number;
  readonly everyMs: number;
  readonly firm: boolean;
  /** 1 = ordinary; a class of importance 2 stretches half as much. */
  readonly importance: number;
}

export interface Overload {
  /** Requests that the wishes need per slot; more than 1 cannot be served. */
  readonly demand: number;
  /** By class name: how many times longer than wished the interval is; 1 where the wish is met. */
  readonly factors: ReadonlyMap<string, number>;
  /** False when the firm classes alone ask for too much and have to stretch as well. */
  readonly firmKept: boolean;
}

/** Share of the slots that a plan may fill, 19.4 of 20 a minute; the rest takes up what integer slots and jitter cost. */
export const PLANNABLE_SHARE = 0.97;

/** Share of the slots that the firm classes may take together, 16 of 20 a minute, so that the others never starve. */
const FIRM_SHARE = 0.8;

/**
 * `share`: the part of the slots that may be planned with, 0.77 where history takes 4 of 20 requests a minute.
 * `replyMs`: milliseconds that a reply takes; with 1,000 a tag wished every 60 s has to be asked for every 59 s.
 */
export function overloadFactor(
  wishes: readonly Demand[],
  slotMs: number,
  size: number,
  share = PLANNABLE_SHARE,
  replyMs = 0,
): Overload {
  const demandAt = (factorOf: (wish: Demand) => number) =>
    wishes.reduce((sum, wish) => sum + slotsPerSlot(wish, factorOf(wish), slotMs, size, replyMs), 0);
  const demand = demandAt(() => 1);
  const firm = wishes.filter((wish) => wish.firm);
  const firmDemand = firm.reduce((sum, wish) => sum + slotsPerSlot(wish, 1, slotMs, size, replyMs), 0);
  const firmKept = firmDemand <= Math.min(FIRM_SHARE, share);
  const factorOf = (wish: Demand, scale: number) =>
    wish.firm && firmKept ? 1 : 1 + (scale - 1) / wish.importance;
  const scale = demand <= share ? 1 : smallestScale((s) => demandAt((wish) => factorOf(wish, s)), share);
  return {
    demand,
    factors: new Map(wishes.map((wish) => [wish.name, factorOf(wish, scale)])),
    firmKept,
  };
}

/**
 * Requests per slot, every place filled, with the interval rounded down to whole slots as the planner must: 400 tags
 * every 60 s, replies of 1 s, slots of 3 s, so every 19 slots, 20 tags a request: 400 / (19 × 20) = 1.05.
 */
export function slotsPerSlot(
  wish: Demand,
  factor: number,
  slotMs: number,
  size: number,
  replyMs = 0,
): number {
  const period = Math.max(1, Math.floor((wish.everyMs * factor - replyMs) / slotMs));
  return wish.tags / (period * size);
}

/** The factor at which the demand, in requests per slot, is within the share; it falls as the factor grows. */
function smallestScale(demandAt: (scale: number) => number, share: number): number {
  let low = 1;
  let high = 2;
  while (demandAt(high) > share && high < 1e6) high *= 2;
  for (let step = 0; step < 40; step++) {
    const middle = (low + high) / 2;
    if (demandAt(middle) > share) low = middle;
    else high = middle;
  }
  return high;
}

/**
 * The interval in milliseconds of a tag that keeps failing: doubled from the third null in a row on, up to ten times.
 * One of 60 s is read after 60, 60, 120, 240, 480, 600 s. A gateway that is offline answers nothing, so its tags are
 * read a tenth as often at once, every 600 s.
 */
export function backedOff(intervalMs: number, nulls: number, gatewayOffline: boolean): number {
  if (gatewayOffline) return intervalMs * 10;
  return nulls < 3 ? intervalMs : intervalMs * Math.min(10, 2 ** (nulls - 2));
}

/**
 * What happens when the wishes exceed the quota: every class stretches by the same factor, an important one by
 * less, a firm one not at all, as long as the firm ones leave room. Pure.
 */
export interface Wish {
  readonly name: string;
  /** A tag that is read less often because it keeps failing counts as less than one. */
  readonly tags: number;
  readonly everyMs: number;
  readonly firm: boolean;
  /** 1 = ordinary; a class of importance 2 stretches half as much. */
  readonly importance: number;
}

export interface Stretch {
  /** Requests that the wishes need per slot; more than 1 cannot be served. */
  readonly demand: number;
  /** By class name: how many times longer than wished the interval is; 1 where the wish is met. */
  readonly factors: ReadonlyMap<string, number>;
  /** False when the firm classes alone ask for too much and have to stretch as well. */
  readonly firmKept: boolean;
}

/** Share of the slots that a plan may fill; the rest takes up what integer slots and jitter cost. */
export const PLANNABLE_SHARE = 0.97;

/** Share that the firm classes may take together, so that the others are never starved. */
const FIRM_SHARE = 0.8;

/**
 * `share`: what part of the slots may be planned with; less than all where history needs some. `replyMs`: how long a
 * reply takes; an interval has to contain it.
 */
export function stretch(
  wishes: readonly Wish[],
  slotMs: number,
  size: number,
  share = PLANNABLE_SHARE,
  replyMs = 0,
): Stretch {
  const demandAt = (factorOf: (wish: Wish) => number) =>
    wishes.reduce((sum, wish) => sum + slotsPerSlot(wish, factorOf(wish), slotMs, size, replyMs), 0);
  const demand = demandAt(() => 1);
  const firm = wishes.filter((wish) => wish.firm);
  const firmDemand = firm.reduce((sum, wish) => sum + slotsPerSlot(wish, 1, slotMs, size, replyMs), 0);
  const firmKept = firmDemand <= Math.min(FIRM_SHARE, share);
  const factorOf = (wish: Wish, scale: number) =>
    wish.firm && firmKept ? 1 : 1 + (scale - 1) / wish.importance;
  const scale = demand <= share ? 1 : smallestScale((s) => demandAt((wish) => factorOf(wish, s)), share);
  return {
    demand,
    factors: new Map(wishes.map((wish) => [wish.name, factorOf(wish, scale)])),
    firmKept,
  };
}

/** Requests per slot, every place filled, with the interval rounded down to whole slots as the planner must. */
export function slotsPerSlot(wish: Wish, factor: number, slotMs: number, size: number, replyMs = 0): number {
  const period = Math.max(1, Math.floor((wish.everyMs * factor - replyMs) / slotMs));
  return wish.tags / (period * size);
}

/** By bisection; the demand falls as the scale grows. */
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
 * The interval of a tag that keeps failing: doubled from the third null in a row on, up to ten times. A gateway
 * that is offline answers nothing, so its tags are only probed.
 */
export function backedOff(intervalMs: number, nulls: number, gatewayOffline: boolean): number {
  if (gatewayOffline) return intervalMs * 10;
  return nulls < 3 ? intervalMs : intervalMs * Math.min(10, 2 ** (nulls - 2));
}

import type { StoredWindow } from "../snapshot.ts";

/**
 * How many values one history request asks for: the service states no limit, so it is learned. Pure.
 *
 * Doubled after two full answers until the first failure, then halved between the best and the worst until they
 * are 3 % apart, then held, with a try of 25 % more after every 200 full answers. A failure at a size that has
 * worked before is most likely not about the size: the history store is down, and what was concluded just before is
 * taken back. From the second in a row on less is asked for, half as much each time, because the service may bear
 * less than it did, or the buckets were emptier than expected when the size was learned; it grows again from what is
 * answered.
 */
export interface WindowLimits {
  /** Never ask for more, whatever the service bears: the values that fit into the largest reply that is read. */
  readonly most: number;
}

/** JSON of one value, its time and what separates it, bytes; a reply that is larger after all is learned from. */
const BYTES_PER_VALUE = 64;

/** The most values that a reply of so many bytes has room for. */
export function valuesIn(bytes: number): number {
  return Math.max(LEAST, Math.floor(bytes / BYTES_PER_VALUE));
}

/** First size: a day of 5-minute values of 20 tags. */
const FIRST = 5_760;
/** Taken for granted: an hour of 5-minute values of 20 tags. */
const LEAST = 240;
const FULL_ANSWERS_TO_GROW = 2;
const FULL_ANSWERS_TO_TRY = 200;
const CLOSE_ENOUGH = 1.03;
const TRY = 1.25;
/** A request this close to the size that was meant teaches something about it. */
const FULL = 0.8;

export const UNKNOWN_WINDOW: StoredWindow = { good: LEAST, bad: null, doubt: null, streak: 0 };

/** Failures in a row, at a size that has worked, before less is asked for. */
const FAILURES_TO_RETREAT = 2;

export function windowValues(window: StoredWindow, { most }: WindowLimits): number {
  const { good, bad, streak } = window;
  if (isRetreating(window)) {
    const halvings = (window.failures ?? 0) - FAILURES_TO_RETREAT + 1;
    return Math.min(most, Math.max(LEAST, Math.floor(good / 2 ** halvings)));
  }
  if (bad === null) {
    const next = good < FIRST ? FIRST : streak >= FULL_ANSWERS_TO_GROW ? good * 2 : good;
    return Math.min(most, next);
  }
  if (bad / good > CLOSE_ENOUGH) return Math.min(most, Math.floor(Math.sqrt(good * bad)));
  return Math.min(most, streak >= FULL_ANSWERS_TO_TRY ? Math.floor(good * TRY) : good);
}

export function answered(window: StoredWindow, values: number, limits: WindowLimits): StoredWindow {
  const settled = window.doubt === null ? window : { ...window, doubt: null };
  const isFull = values >= windowValues(window, limits) * FULL;
  if (isRetreating(window)) {
    // A small answer says that the store is there again, not what it bears.
    return isFull ? { good: Math.min(window.good, values), bad: null, doubt: null, streak: 1 } : settled;
  }
  if (values > window.good) {
    const bad = window.bad !== null && values >= window.bad ? null : window.bad;
    return { good: values, bad, doubt: null, streak: 1 };
  }
  if (!isFull) return settled;
  const { failures: _over, ...rest } = settled;
  return { ...rest, streak: window.streak + 1 };
}

export function failed(window: StoredWindow, values: number): StoredWindow {
  if (values > window.good) {
    const bad = Math.min(values, window.bad ?? values);
    return { ...window, bad, doubt: window.doubt ?? { before: window.bad }, streak: 0 };
  }
  const taken = window.doubt === null ? window : { ...window, bad: window.doubt.before, doubt: null };
  return { ...taken, failures: (window.failures ?? 0) + 1 };
}

function isRetreating(window: StoredWindow): boolean {
  return (window.failures ?? 0) >= FAILURES_TO_RETREAT;
}

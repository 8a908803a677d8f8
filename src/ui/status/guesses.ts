import type { Clock } from "../../core/runtime/clock.ts";

/** Wrong passwords in a row that one address may try at once. */
const FREE_GUESSES = 5;
/** After so long one of them is forgotten, in milliseconds: 5 at once, and then two a minute. */
const FORGET_ONE_MS = 30_000;
/** Wrong passwords of one address that count, so that an attack of hours does not slow the address down for hours. */
const MOST_COUNTED = 10;
/** Delays before a password is checked, in milliseconds. The longest is shorter than the 5 s that the page waits. */
const DELAY_MS = 1_000;
const LONGEST_DELAY_MS = 4_000;
/** Most stored addresses; beyond, the address with the fewest attempts is removed first. */
const MOST_REMEMBERED = 1_000;

/**
 * Wrong passwords by the address that they came from. Only time makes them fewer. A right password in between does not:
 * anybody with an account of lower rank could send one.
 */
export interface Guesses {
  /** Milliseconds until another password may be sent; 0 when it may be now. */
  waitMs(owner: string): number;
  /** Milliseconds by which to delay the check of a password that was sent: 0, then 1,000 to 4,000. */
  delayMs(owner: string): number;
  wrong(owner: string): void;
  /** How many addresses are remembered. */
  remembered(): number;
}

export function createGuesses(clock: Pick<Clock, "monotonic">): Guesses {
  /** When all guesses of an address will be forgotten, by measured time. */
  const forgottenAtMs = new Map<string, number>();

  function makeRoom(nowMs: number): void {
    for (const [owner, atMs] of forgottenAtMs) if (atMs <= nowMs) forgottenAtMs.delete(owner);
    if (forgottenAtMs.size < MOST_REMEMBERED) return;
    const [first] = [...forgottenAtMs].toSorted(([, a], [, b]) => a - b);
    if (first !== undefined) forgottenAtMs.delete(first[0]);
  }

  const waitMs = (owner: string) => {
    // With 5 free ones and 30 s each: a sixth is looked at once less than 120 s are left to forget.
    const leftMs = (forgottenAtMs.get(owner) ?? 0) - clock.monotonic();
    return Math.max(0, leftMs - (FREE_GUESSES - 1) * FORGET_ONE_MS);
  };

  return {
    waitMs,
    delayMs: (owner) => Math.min(LONGEST_DELAY_MS, Math.ceil(waitMs(owner) / FORGET_ONE_MS) * DELAY_MS),
    wrong(owner) {
      const nowMs = clock.monotonic();
      if (!forgottenAtMs.has(owner) && forgottenAtMs.size >= MOST_REMEMBERED) makeRoom(nowMs);
      const laterMs = Math.max(nowMs, forgottenAtMs.get(owner) ?? 0) + FORGET_ONE_MS;
      forgottenAtMs.set(owner, Math.min(laterMs, nowMs + MOST_COUNTED * FORGET_ONE_MS));
    },
    remembered: () => forgottenAtMs.size,
  };
}

import type { Clock } from "../clock.ts";

/** Wrong passwords in a row that one address may try at once. */
const FREE_GUESSES = 5;
/** After so long one of them is forgotten, in milliseconds: 5 at once, and then two a minute. */
const FORGET_ONE_MS = 30_000;
/** Addresses that are remembered; beyond, whoever guessed least is forgotten first. */
const MOST_REMEMBERED = 1_000;

/**
 * Wrong passwords by the address that they came from. Only time makes them fewer: not a right one in between, which
 * whoever has an account of lower rank could send. While there are too many, no password is looked at, so that nothing
 * is learnt from trying on.
 */
export interface Guesses {
  /** Milliseconds until another password is looked at; 0 when it is now. */
  waitMs(owner: string): number;
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

  return {
    waitMs(owner) {
      // With 5 free ones and 30 s each: a sixth is looked at once less than 120 s are left to forget.
      const leftMs = (forgottenAtMs.get(owner) ?? 0) - clock.monotonic();
      return Math.max(0, leftMs - (FREE_GUESSES - 1) * FORGET_ONE_MS);
    },
    wrong(owner) {
      const nowMs = clock.monotonic();
      if (!forgottenAtMs.has(owner) && forgottenAtMs.size >= MOST_REMEMBERED) makeRoom(nowMs);
      forgottenAtMs.set(owner, Math.max(nowMs, forgottenAtMs.get(owner) ?? 0) + FORGET_ONE_MS);
    },
    remembered: () => forgottenAtMs.size,
  };
}

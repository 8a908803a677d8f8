import { createHash, randomBytes, randomInt, timingSafeEqual } from "node:crypto";
import type { Clock } from "../../core/runtime/clock.ts";
import { createGuesses } from "../status/access.ts";

/**
 * Code that a person reads on the terminal to open the setup page. It works for one browser, which gets a key. Any program of this
 * machine may try codes: five at once, then two a minute.
 */
export interface EntryCode {
  /** For the terminal: `K7QM-4XRA`. */
  readonly code: string;
  /** The key; `wait` after too many wrong codes; null for a wrong code, or one that was used. */
  enter(code: string): string | { readonly waitMs: number } | null;
  isKey(key: string | undefined): boolean;
}

/** Without those that look alike. */
const LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/** One book for all: who asks is always this machine. */
const WHOEVER = "this machine";

export function createEntryCode(clock: Pick<Clock, "monotonic">): EntryCode {
  const letters = Array.from({ length: 8 }, () => LETTERS[randomInt(LETTERS.length)]).join("");
  const key = randomBytes(32).toString("base64url");
  const guesses = createGuesses(clock);
  let isUsed = false;
  return {
    code: `${letters.slice(0, 4)}-${letters.slice(4)}`,
    enter(code) {
      const waitMs = guesses.waitMs(WHOEVER);
      if (waitMs > 0) return { waitMs };
      if (!isUsed && isSame(code.toUpperCase().replaceAll(/[^A-Z0-9]/g, ""), letters)) {
        isUsed = true;
        return key;
      }
      guesses.wrong(WHOEVER);
      return null;
    },
    isKey: (given) => isUsed && given !== undefined && isSame(given, key),
  };
}

function isSame(given: string, wanted: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}

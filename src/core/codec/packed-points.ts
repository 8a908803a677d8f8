import { FALSE, type Points, TRUE } from "./points.ts";

/**
 * The points of an event of history as they are stored: where they come regularly an eighth of their JSON, of which a
 * backfill has gigabytes.
 *
 *     1767225600000+300000:21.5,21.6,t,n;7200000:20
 *
 * A group begins with its first moment, in milliseconds: since 1970, or since the point before it. `+` says how long it is
 * from each of its points to the next. Values are numbers as in JSON, and `t`, `f` and `n` for true, false and null. So
 * this is 21.5 at 2026-01-01T00:00:00.000Z, 21.6 five minutes later, and 20 at 02:15.
 */

export const COMMA = 44;
export const COLON = 58;
export const SEMICOLON = 59;
export const PLUS = 43;
export const MINUS = 45;

/** The words of JSON that are no numbers, by the letters that stand for them. */
export const WORDS: Readonly<Record<string, string>> = { t: "true", f: "false", n: "null" };

/** Most bytes of a point: two times of up to 16 characters, a number of 25, and separators. */
export const PACKED_BYTES = 60;

/** The letter of a value that is no number. */
export function letterOf(code: number): string {
  return code === TRUE ? "t" : code === FALSE ? "f" : "n";
}

/** Writes what stands before the values of a series, one after the other. */
export class PackedTimes {
  readonly #points: Points;
  #lastMs = 0;
  #stepMs = Number.NaN;

  constructor(points: Points) {
    this.#points = points;
  }

  /** Writes what comes before the value of a point, and returns what follows it. */
  write(place: number, bytes: Buffer, from: number): number {
    const timeMs = this.#points.timeMs(place);
    const sinceMs = timeMs - this.#lastMs;
    this.#lastMs = timeMs;
    let at = from;
    if (place > 0 && sinceMs === this.#stepMs) {
      bytes[at++] = COMMA;
      return at;
    }
    if (place > 0) bytes[at++] = SEMICOLON;
    at += bytes.write(String(sinceMs), at, "latin1");
    const isLast = place + 1 === this.#points.length;
    this.#stepMs = isLast ? Number.NaN : this.#points.timeMs(place + 1) - timeMs;
    if (!isLast) {
      bytes[at++] = PLUS;
      at += bytes.write(String(this.#stepMs), at, "latin1");
    }
    bytes[at++] = COLON;
    return at;
  }
}

import { FALSE, type Points, TRUE } from "./points.ts";

/**
 * Packed points of a history event. Points at regular times take an eighth of their JSON; a backfill has gigabytes of JSON.
 *
 *     1767225600000+300000:21.5,21.6,t,n;7200000:20
 *
 * A group begins with the time of its first point in milliseconds: since 1970, or since the previous point. `+` is the
 * interval of its points. Values are JSON numbers, or `t`, `f` and `n` for true, false and null. The example is 21.5 at
 * 2026-01-01T00:00:00.000Z, 21.6 five minutes later, true, null, and 20 two hours after the last.
 */

export const COMMA = 44;
export const COLON = 58;
export const SEMICOLON = 59;
export const PLUS = 43;
export const MINUS = 45;

export const WORDS: Readonly<Record<string, string>> = { t: "true", f: "false", n: "null" };

/** Most bytes of a point: two times of up to 16 characters, a number of 25, and separators. */
export const PACKED_BYTES = 60;

export function letterOf(code: number): string {
  return code === TRUE ? "t" : code === FALSE ? "f" : "n";
}

/** Writes separators and times before the values of a series, in order. */
export class PackedTimes {
  readonly #points: Points;
  #lastMs = 0;
  #stepMs = Number.NaN;

  constructor(points: Points) {
    this.#points = points;
  }

  write(index: number, bytes: Buffer, from: number): number {
    const timeMs = this.#points.timeMs(index);
    const sinceMs = timeMs - this.#lastMs;
    this.#lastMs = timeMs;
    let at = from;
    if (index > 0 && sinceMs === this.#stepMs) {
      bytes[at++] = COMMA;
      return at;
    }
    if (index > 0) bytes[at++] = SEMICOLON;
    at += bytes.write(String(sinceMs), at, "latin1");
    const isLast = index + 1 === this.#points.length;
    this.#stepMs = isLast ? Number.NaN : this.#points.timeMs(index + 1) - timeMs;
    if (!isLast) {
      bytes[at++] = PLUS;
      at += bytes.write(String(this.#stepMs), at, "latin1");
    }
    bytes[at++] = COLON;
    return at;
  }
}

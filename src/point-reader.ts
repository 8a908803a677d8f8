import type { Measurement } from "./building.ts";

/**
 * Goes through the points in the text of an event of history (`historyText`), without making an object of each where they stand as they are written here.
 *
 *     for (const reader = new PointReader(points); reader.next(); ) use(reader.timeMs, reader.value);
 */
export class PointReader {
  /** Milliseconds since 1970; NaN where `time` is not in the usual form. */
  timeMs = Number.NaN;
  readonly #text: string;
  #at = 0;
  #timeAt = 0;
  #valueAt = 0;
  #count = 0;
  /** All of them, once one was met that stands otherwise. */
  #parsed: readonly Measurement[] | null = null;
  #date = "";
  #dateMs = Number.NaN;

  constructor(points: string) {
    this.#text = points;
  }

  /** Goes to the next point; false behind the last. */
  next(): boolean {
    if (this.#parsed === null && !this.#isUsual()) {
      if (this.#text.length - this.#at === 1) return false;
      this.#parsed = JSON.parse(this.#text) as readonly Measurement[];
    }
    const other = this.#parsed?.[this.#count];
    if (this.#parsed !== null && other === undefined) return false;
    this.#count++;
    if (other === undefined) return true;
    this.timeMs = Number.NaN;
    return true;
  }

  /** The value as JSON: `21.5`, `true` or `null`. */
  get value(): string {
    const other = this.#parsed?.[this.#count - 1];
    return other === undefined ? this.#text.slice(this.#valueAt, this.#at - 1) : JSON.stringify(other.value);
  }

  /** False where the value is a number and stands in the usual form. */
  get isOther(): boolean {
    return this.#parsed !== null || this.#text.charCodeAt(this.#valueAt) > 57;
  }

  /** Writes the value unless `isOther`, and returns what follows it. */
  writeNumber(into: Buffer, from: number): number {
    const text = this.#text;
    let at = from;
    for (let n = this.#valueAt; n < this.#at - 1; n++) into[at++] = text.charCodeAt(n);
    return at;
  }

  /** The time as it stands there. */
  get time(): string {
    return this.#parsed?.[this.#count - 1]?.time ?? this.#text.slice(this.#timeAt, this.#timeAt + 24);
  }

  /** `,{"time":"2026-01-01T00:00:00.000Z","value":21.5`, and then a brace. */
  #isUsual(): boolean {
    const text = this.#text;
    const timeAt = this.#at + 10;
    const isForm =
      text.startsWith(`{"time":"`, this.#at + 1) &&
      text.startsWith(`","value":`, timeAt + 24) &&
      text.charCodeAt(timeAt + 10) === 84 &&
      text.charCodeAt(timeAt + 23) === 90;
    if (!isForm) return false;
    const valueAt = timeAt + 34;
    const end = text.indexOf("}", valueAt);
    const timeMs = this.#timeMsAt(timeAt);
    if (end < 0 || Number.isNaN(timeMs)) return false;
    this.timeMs = timeMs;
    this.#valueAt = valueAt;
    this.#timeAt = timeAt;
    this.#at = end + 1;
    return true;
  }

  #timeMsAt(at: number): number {
    const text = this.#text;
    if (!text.startsWith(this.#date, at) || this.#date === "") {
      this.#date = text.slice(at, at + 11);
      this.#dateMs = Date.parse(`${this.#date}00:00:00.000Z`);
    }
    const hours = numberAt(text, at + 11, 2);
    const minutes = numberAt(text, at + 14, 2);
    const seconds = numberAt(text, at + 17, 2);
    return this.#dateMs + ((hours * 60 + minutes) * 60 + seconds) * 1_000 + numberAt(text, at + 20, 3);
  }
}

function numberAt(text: string, at: number, digits: number): number {
  let number = 0;
  for (let n = 0; n < digits; n++) {
    const digit = text.charCodeAt(at + n) - 48;
    if (!(digit >= 0 && digit <= 9)) return Number.NaN;
    number = number * 10 + digit;
  }
  return number;
}

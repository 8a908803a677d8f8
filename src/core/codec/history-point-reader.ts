import type { Measurement } from "../model/building.ts";
import { isoUtc } from "../values/iso-utc.ts";
import { COLON_CODE, COMMA_CODE, MINUS_CODE, PLUS_CODE, SEMICOLON_CODE, VALUE_BY_LETTER } from "./points.ts";

/** Reads the points of a history event one by one, from packed text without an object per point, or a JSON list. */
export class PointReader {
  /** Milliseconds since 1970; NaN for points of a JSON list, which have only a time text. */
  timeMs = Number.NaN;
  readonly #text: string;
  #at = 0;
  #valueAt = 0;
  #stepMs = 0;
  #count = 0;
  readonly #listed: readonly Measurement[] | null;

  constructor(points: string) {
    this.#text = points;
    this.#listed = points.startsWith("[") ? (JSON.parse(points) as readonly Measurement[]) : null;
  }

  next(): boolean {
    if (this.#listed !== null) return this.#count++ < this.#listed.length;
    const packedText = this.#text;
    if (this.#at >= packedText.length) return false;
    if (this.#at > 0 && packedText.charCodeAt(this.#at) === COMMA_CODE) {
      this.#at++;
      this.timeMs += this.#stepMs;
    } else {
      this.#beginGroup();
    }
    this.#valueAt = this.#at;
    let index = this.#at;
    // Packed values contain neither a comma nor a semicolon.
    while (index < packedText.length && ![COMMA_CODE, SEMICOLON_CODE].includes(packedText.charCodeAt(index))) index++;
    this.#at = index;
    return true;
  }

  get value(): string {
    if (this.#listed !== null) return JSON.stringify(this.#listed[this.#count - 1]?.value ?? null);
    const packedValue = this.#text.slice(this.#valueAt, this.#at);
    return VALUE_BY_LETTER[packedValue] ?? packedValue;
  }

  /** True if `writeNumber` cannot write the value: it is no number, or the points are a JSON list. */
  get isNotNumber(): boolean {
    return this.#listed !== null || this.#text.charCodeAt(this.#valueAt) > DIGIT_9_CHAR_CODE;
  }

  writeNumber(targetBuffer: Buffer, startOffset: number): number {
    const packedText = this.#text;
    let writeOffset = startOffset;
    for (let n = this.#valueAt; n < this.#at; n++) targetBuffer[writeOffset++] = packedText.charCodeAt(n);
    return writeOffset;
  }

  get time(): string {
    return this.#listed?.[this.#count - 1]?.time ?? isoUtc(this.timeMs);
  }

  #beginGroup(): void {
    const previousPointMs = this.#at === 0 ? 0 : this.timeMs;
    if (this.#at > 0) this.#at++;
    this.timeMs = previousPointMs + this.#integer();
    if (this.#text.charCodeAt(this.#at) === PLUS_CODE) {
      this.#at++;
      this.#stepMs = this.#integer();
    }
    if (this.#text.charCodeAt(this.#at) === COLON_CODE) this.#at++;
  }

  #integer(): number {
    const packedText = this.#text;
    const isNegativeNumber = packedText.charCodeAt(this.#at) === MINUS_CODE;
    let offset = isNegativeNumber ? this.#at + 1 : this.#at;
    let number = 0;
    const digitAt = (index: number) => packedText.charCodeAt(index) - DIGIT_0_CHAR_CODE;
    for (; digitAt(offset) >= 0 && digitAt(offset) <= 9; offset++) number = number * 10 + digitAt(offset);
    this.#at = offset;
    return isNegativeNumber ? -number : number;
  }
}

const DIGIT_0_CHAR_CODE = 48;
const DIGIT_9_CHAR_CODE = 57;

import { type ByteReader, type ByteWriter, LARGEST } from "./bytes.ts";

/**
 * Measured values have few digits behind the point: 21.3 is 213 with one digit. So a column says how many digits all of its
 * values have, and each is a whole number; where that fails they are written as they are.
 */
const MOST_DIGITS = 6;
const AS_THEY_ARE = MOST_DIGITS + 1;
/** Differences of two values are written, so each has to be half as large as what can be. */
const MOST = LARGEST / 4;

/** The fewest digits with which all of the values are written exactly. */
export function digitsOf(values: readonly (number | null)[]): number {
  // All of them each time: what is exact with few digits may be too large with more.
  const areExact = (digits: number) => values.every((value) => value === null || isExact(value, digits));
  let digits = 0;
  while (digits < AS_THEY_ARE && !areExact(digits)) digits += 1;
  return digits;
}

function isExact(value: number, digits: number): boolean {
  const whole = scaled(value, digits);
  return Math.abs(whole) <= MOST && whole / 10 ** digits === value;
}

function scaled(value: number, digits: number): number {
  return Math.round(value * 10 ** digits);
}

/** Writes a value as its difference from the one before; answers what the next is compared with. */
export function writeNumber(writer: ByteWriter, digits: number, value: number | null, before: number): number {
  if (digits === AS_THEY_ARE) {
    writer.whole(value === null ? 0 : 1);
    if (value !== null) writer.float(value);
    return before;
  }
  if (value === null) {
    writer.whole(0);
    return before;
  }
  const whole = scaled(value, digits);
  const change = whole - before;
  writer.whole(1 + (change < 0 ? -2 * change - 1 : 2 * change));
  return whole;
}

export function readNumber(
  reader: ByteReader,
  digits: number,
  before: number,
): { readonly value: number | null; readonly whole: number } {
  const said = reader.whole();
  if (said === 0) return { value: null, whole: before };
  if (digits === AS_THEY_ARE) return { value: reader.float(), whole: before };
  const folded = said - 1;
  const whole = before + (folded % 2 === 0 ? folded / 2 : -(folded + 1) / 2);
  return { value: whole / 10 ** digits, whole };
}

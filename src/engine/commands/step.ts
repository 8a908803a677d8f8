/**
 * Whether two numbers lie further apart than a third, as they are written in decimals: from 0.6 to 1.1 is 0.5, although
 * the nearest binary numbers are 0.5000000000000001 apart. Exact; the numbers are finite.
 */
export function isFurther(from: number, to: number, most: number): boolean {
  const decimals = [from, to, most].map(decimalOf);
  const least = Math.min(...decimals.map(({ exponent }) => exponent));
  const [a = 0n, b = 0n, limit = 0n] = decimals.map(({ digits, exponent }) => digits * 10n ** BigInt(exponent - least));
  return (a > b ? a - b : b - a) > limit;
}

interface Decimal {
  readonly digits: bigint;
  /** Power of ten. */
  readonly exponent: number;
}

/** The shortest decimal number that stands for this one, which is how it was written. */
function decimalOf(value: number): Decimal {
  const [mantissa = "", power = "0"] = value.toString().split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}

/**
 * True when two finite numbers are further apart than `most`, computed exactly in decimals: from 0.6 to 1.1 is 0.5, although
 * the binary numbers are 0.5000000000000001 apart.
 */
export function isFurther(from: number, to: number, most: number): boolean {
  const decimals = [from, to, most].map(decimalOf);
  const least = Math.min(...decimals.map(({ exponent }) => exponent));
  const [a = 0n, b = 0n, limit = 0n] = decimals.map(({ digits, exponent }) => digits * 10n ** BigInt(exponent - least));
  return (a > b ? a - b : b - a) > limit;
}

/** The number as `digits × 10^exponent`, from its shortest decimal form. */
function decimalOf(value: number) {
  const [mantissa = "", power = "0"] = value.toString().split("e");
  const [whole = "", fraction = ""] = mantissa.split(".");
  return { digits: BigInt(whole + fraction), exponent: Number(power) - fraction.length };
}

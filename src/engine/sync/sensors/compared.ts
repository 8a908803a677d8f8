/** A bucket of a log; a boolean as 0 or 1. */
export interface Bucket {
  readonly atMs: number;
  readonly value: number;
}

const MOST_DECIMALS = 6;

/**
 * By how much a live value lies outside of what the log says around its time; 0 where it lies inside. A bucket may be an
 * average, its first value or its last, and the service does not say which: so whatever lies between the bucket and its
 * neighbours is explained, and so is what was lost by rounding: 21.04 against 20.9, 21 and 21.0 is, 21.6 is 0.55 above.
 */
export function compared(live: number, around: readonly Bucket[]): number {
  const values = around.map(({ value }) => value);
  const roundedBy = 0.5 * 10 ** -Math.max(...values.map(decimalsOf));
  const low = Math.min(...values) - roundedBy;
  const high = Math.max(...values) + roundedBy;
  return live > high ? live - high : live < low ? live - low : 0;
}

function decimalsOf(value: number): number {
  for (let decimals = 0; decimals < MOST_DECIMALS; decimals++) {
    const shifted = value * 10 ** decimals;
    if (Math.abs(shifted - Math.round(shifted)) < 1e-6) return decimals;
  }
  return MOST_DECIMALS;
}

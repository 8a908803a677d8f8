/** Inserts a number into the first `count` sorted numbers, in place. */
export function insertSorted(value: number, sorted: Float64Array, count: number): void {
  let index = count;
  for (; index > 0 && (sorted[index - 1] as number) > value; index--) sorted[index] = sorted[index - 1] as number;
  sorted[index] = value;
}

/** Puts a number into its place among the first so many of others, which are in order of size. Works in place. */
export function insertSorted(value: number, sorted: Float64Array, count: number): void {
  let place = count;
  for (; place > 0 && (sorted[place - 1] as number) > value; place--) sorted[place] = sorted[place - 1] as number;
  sorted[place] = value;
}

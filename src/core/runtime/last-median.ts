/** Median of the last numbers, kept sorted: sorting them at each reply took 1 % of the processor time of 20 sources. */
export function createLastMedian(remembered: number) {
  const last = new Float64Array(remembered);
  const sorted = new Float64Array(remembered);
  let next = 0;
  let count = 0;
  return {
    add(value: number): void {
      if (count === remembered) {
        const index = sorted.indexOf(last[next] as number);
        sorted.copyWithin(index, index + 1, count);
        count -= 1;
      }
      last[next] = value;
      next = (next + 1) % remembered;
      insertSorted(value, sorted, count);
      count += 1;
    },
    count: () => count,
    value: (): number | null => (count === 0 ? null : (sorted[Math.floor(count / 2)] as number)),
    forget(): void {
      next = 0;
      count = 0;
    },
  };
}

export function insertSorted(value: number, sorted: Float64Array, count: number): void {
  let index = count;
  for (; index > 0 && (sorted[index - 1] as number) > value; index--) sorted[index] = sorted[index - 1] as number;
  sorted[index] = value;
}

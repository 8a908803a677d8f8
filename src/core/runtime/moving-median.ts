/** Median of the last numbers. The list stays sorted, because sorting it for each response is slow. */
export function createLastMedian(windowSize: number) {
  const lastValues = new Float64Array(windowSize);
  const sortedValues = new Float64Array(windowSize);
  let nextIndex = 0;
  let count = 0;
  return {
    add(value: number): void {
      if (count === windowSize) {
        const index = sortedValues.indexOf(lastValues[nextIndex] as number);
        sortedValues.copyWithin(index, index + 1, count);
        count -= 1;
      }
      lastValues[nextIndex] = value;
      nextIndex = (nextIndex + 1) % windowSize;
      insertSorted(value, sortedValues, count);
      count += 1;
    },
    count: () => count,
    value: (): number | null => (count === 0 ? null : (sortedValues[Math.floor(count / 2)] as number)),
    forget(): void {
      nextIndex = 0;
      count = 0;
    },
  };
}

export function insertSorted(value: number, sorted: Float64Array, count: number): void {
  let index = count;
  for (; index > 0 && (sorted[index - 1] as number) > value; index--) sorted[index] = sorted[index - 1] as number;
  sorted[index] = value;
}

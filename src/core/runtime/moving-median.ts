/** Median of the last numbers. Keeps them sorted, because sorting them for each response is slow. */
export function createMovingMedian(windowSize: number) {
  const windowValues = new Float64Array(windowSize);
  const sortedValues = new Float64Array(windowSize);
  let nextIndex = 0;
  let count = 0;
  return {
    add(value: number): void {
      if (count === windowSize) {
        const oldestValueIndex = sortedValues.indexOf(windowValues[nextIndex] as number);
        sortedValues.copyWithin(oldestValueIndex, oldestValueIndex + 1, count);
        count -= 1;
      }
      windowValues[nextIndex] = value;
      nextIndex = (nextIndex + 1) % windowSize;
      insertSortedNumber(value, sortedValues, count);
      count += 1;
    },
    count: () => count,
    median: (): number | null => (count === 0 ? null : (sortedValues[Math.floor(count / 2)] as number)),
    clear(): void {
      nextIndex = 0;
      count = 0;
    },
  };
}

export function insertSortedNumber(value: number, sorted: Float64Array, count: number): void {
  let index = count;
  for (; index > 0 && (sorted[index - 1] as number) > value; index--) sorted[index] = sorted[index - 1] as number;
  sorted[index] = value;
}

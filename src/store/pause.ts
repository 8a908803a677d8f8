/** Lets everything else have a turn between two slices of long work. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

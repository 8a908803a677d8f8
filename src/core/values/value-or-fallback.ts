/** Returns the result of `compute`, or `fallback` if `compute` throws. */
export function valueOr<T, F>(compute: () => T, fallback: F): T | F {
  try {
    return compute();
  } catch {
    return fallback;
  }
}

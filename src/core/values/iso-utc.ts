/** Cache of the last result, because all values of a response have the same time. */
let lastFormattedTime = { ms: Number.NaN, text: "" };

/** Formats milliseconds since 1970 as ISO 8601 UTC with milliseconds and a trailing `Z`. */
export function isoUtc(ms: number): string {
  if (lastFormattedTime.ms !== ms) lastFormattedTime = { ms, text: new Date(ms).toISOString() };
  return lastFormattedTime.text;
}

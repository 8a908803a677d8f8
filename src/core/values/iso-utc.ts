/** The last result: the 20 values of a response have the same time and share its text. */
let lastIso = { ms: Number.NaN, text: "" };

/** Milliseconds since 1970 as ISO 8601 UTC with milliseconds and a trailing `Z`. */
export function isoUtc(ms: number): string {
  if (lastIso.ms !== ms) lastIso = { ms, text: new Date(ms).toISOString() };
  return lastIso.text;
}

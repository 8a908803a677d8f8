/** What would end a line or confuse a terminal: control characters and the line breaks of Unicode. */
const BREAKS = /[\p{Cc}\u2028\u2029]+/gu;

/** Longest tag value, in UTF-16 units; InfluxDB 3 and VictoriaMetrics bear more, but nobody reads it. */
const MAX_TAG = 256;

/** What most tag values are, and nothing is to be done about. */
const PLAIN = /^[\w.:/-]{1,256}$/;

/** Longest string field, in UTF-16 units: at most 48 kB of UTF-8, below the 64 kB of InfluxDB. */
const MAX_FIELD = 16_000;

/**
 * A tag value that no server misreads; null when nothing is left, because an empty tag breaks the line.
 * A backslash becomes a slash: line protocol has no escape for it, at the end of a value it swallows the separator,
 * and servers disagree about one before a comma.
 */
export function tagText(text: string): string | null {
  if (PLAIN.test(text)) return text;
  const clean = oneLine(text, MAX_TAG).replaceAll("\\", "/").trim();
  return clean === "" ? null : clean;
}

/** A string field on one line: VictoriaMetrics ends a point at a line break even inside quotes. */
export function fieldText(text: string): string {
  return oneLine(text, MAX_FIELD);
}

function oneLine(text: string, max: number): string {
  return text.slice(0, max).toWellFormed().replace(BREAKS, " ");
}

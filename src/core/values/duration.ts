import { z } from "zod";

/** Units with their spellings, from the longest to the shortest. There is no month, because its length varies. */
const DURATION_UNITS = [
  { unit: "y", unitMs: 365 * 86_400_000, spelling: /^(y|yrs?|years?)$/ },
  { unit: "w", unitMs: 7 * 86_400_000, spelling: /^(w|wks?|weeks?)$/ },
  { unit: "d", unitMs: 86_400_000, spelling: /^(d|days?)$/ },
  { unit: "h", unitMs: 3_600_000, spelling: /^(h|hrs?|hours?)$/ },
  { unit: "m", unitMs: 60_000, spelling: /^(m|mins?|minutes?)$/ },
  { unit: "s", unitMs: 1_000, spelling: /^(s|secs?|seconds?)$/ },
  { unit: "ms", unitMs: 1, spelling: /^(ms|msecs?|milliseconds?)$/ },
];
/** Days and shorter units. */
const FORMATTED_UNITS = DURATION_UNITS.slice(2);

const DURATION_PART = /(\d+(?:\.\d+)?) ?([a-zA-Z]+)/g;
const COMPLETE_DURATION_TEXT = /^\d+(\.\d+)? ?[a-zA-Z]+( ?\d+(\.\d+)? ?[a-zA-Z]+)*$/;

/** Parses a text such as `500ms`, `30s`, `90 min`, `24h`, `2w`, `1y` or `1h30m` to milliseconds; null for other text. */
export function parseDuration(text: string): number | null {
  if (!COMPLETE_DURATION_TEXT.test(text)) return null;
  let totalMs = 0;
  for (const [, number = "", unitWord = ""] of text.matchAll(DURATION_PART)) {
    const unitMs = parseDurationUnit(unitWord);
    if (unitMs === undefined) return null;
    totalMs += Number(number) * unitMs;
  }
  return totalMs;
}

/** Milliseconds of a unit. Rejects `M` and `MS`, which may mean months and megaseconds. */
function parseDurationUnit(word: string): number | undefined {
  const lowerCaseWord = word.toLowerCase();
  if (word !== lowerCaseWord && /^ms?$/i.test(word)) return undefined;
  return DURATION_UNITS.find(({ spelling }) => spelling.test(lowerCaseWord))?.unitMs;
}

function describeDurationProblem(text: string): string {
  const duration = text.trim();
  if (/^\d+(\.\d+)?$/.test(duration)) return `Write ${duration}s: a duration needs its unit (ms, s, m, h, d, w or y).`;
  const isoDurationMatch = /^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$/i.exec(duration);
  const durationParts = ["d", "h", "m", "s"].flatMap((unit, n) =>
    isoDurationMatch?.[n + 1] === undefined ? [] : [`${isoDurationMatch[n + 1]}${unit}`],
  );
  if (durationParts.length > 0) return `Write ${durationParts.join("")}.`;
  if (/^\d+,\d+ ?[a-z]+$/i.test(duration)) return `Write ${duration.replace(",", ".")}, with a point.`;
  if (/^-/.test(duration)) return "A duration is not negative; write it as 30s, 5m, 24h or 7d.";
  if (/\d ?(M|mo|mon|months?)$/.test(duration))
    return "Write months as days, such as 30d (and minutes as 5m): they are not all of one length.";
  return "Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y.";
}

/** Formats milliseconds in the largest exact units: 5400000 → `1h30m`. */
export function formatDuration(ms: number): string {
  let remainingMs = Math.round(ms);
  if (remainingMs === 0) return "0s";
  let durationText = "";
  for (const { unit, unitMs } of FORMATTED_UNITS) {
    const unitCount = Math.floor(remainingMs / unitMs);
    if (unitCount > 0) durationText += `${unitCount}${unit}`;
    remainingMs -= unitCount * unitMs;
  }
  return durationText;
}

/** Formats seconds in a readable unit, as the status page does: `90 s`, `2.5 min`. */
export function formatSeconds(seconds: number): string {
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 7_200) return `${Number((seconds / 60).toFixed(1))} min`;
  if (seconds < 172_800) return `${Number((seconds / 3_600).toFixed(1))} h`;
  return `${Number((seconds / 86_400).toFixed(1))} d`;
}

/** A duration in the configuration; milliseconds once parsed. */
export const Duration = z
  .string()
  // zod drops metadata of the complete schema when a default or a check is added to it.
  .meta({ title: "duration", examples: ["30s", "5m", "24h"] })
  .transform((text, context) => {
    const ms = parseDuration(text);
    if (ms !== null) return ms;
    context.addIssue({ code: "custom", message: describeDurationProblem(text) });
    return z.NEVER;
  });

/** Duration from `shortest` to `longest`, e.g. from `1s` to `2m`. */
export function durationBetween(shortest: string, longest: string) {
  const [minMs, maxMs] = [parseDuration(shortest) ?? 0, parseDuration(longest) ?? 0];
  return Duration.refine((ms) => ms >= minMs && ms <= maxMs, `Choose between ${shortest} and ${longest}.`);
}

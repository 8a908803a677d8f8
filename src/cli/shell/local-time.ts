/**
 * Times as people read them: in the zone of this machine, with the distance from it to UTC and how long ago. Everything
 * inside is UTC (ISO 8601), and so is JSON; the terminal puts it into these words when a line is written, so that no
 * command can forget it.
 */

/** A time in UTC as it stands in a text. */
const UTC = /\b\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?Z\b/g;

/** Every time in UTC in a text, put into local words. */
export function withLocalTimes(text: string, nowMs: number): string {
  return text.replace(UTC, (time) => {
    const atMs = Date.parse(time);
    if (Number.isNaN(atMs)) return time;
    const age = ageText(nowMs - atMs);
    return age === null ? localTime(atMs) : `${localTime(atMs)} (${age})`;
  });
}

/** A time in the zone of this machine, such as `2026-11-23 08:52:10 +01:00`. */
export function localTime(atMs: number): string {
  const at = new Date(atMs);
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${date} ${clockTime(atMs)} ${zoneAt(at)}`;
}

/** The time of day alone, such as `08:52:10`. */
export function clockTime(atMs: number): string {
  const at = new Date(atMs);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
}

function zoneAt(at: Date): string {
  const minutes = -at.getTimezoneOffset();
  const far = Math.abs(minutes);
  return `${minutes < 0 ? "-" : "+"}${two(Math.floor(far / 60))}:${two(far % 60)}`;
}

const SECOND_MS = 1_000;
const MINUTE_MS = 60 * SECOND_MS;
const HOUR_MS = 60 * MINUTE_MS;
const DAY_MS = 24 * HOUR_MS;
/** Beyond this the date says more than an age. */
const LONGEST_MS = 60 * DAY_MS;

/** How long ago, or in how long: `3 min ago`, `in 5 days`; null beyond 60 days. */
export function ageText(agoMs: number): string | null {
  const far = Math.abs(agoMs);
  if (far > LONGEST_MS) return null;
  if (far < SECOND_MS) return "now";
  const text = spanWords(far);
  return agoMs > 0 ? `${text} ago` : `in ${text}`;
}

/** A unit is used up to twice the next one, so that nothing is more than half of it wrong. */
function spanWords(ms: number): string {
  if (ms < 2 * MINUTE_MS) return `${Math.floor(ms / SECOND_MS)} s`;
  if (ms < 2 * HOUR_MS) return `${Math.floor(ms / MINUTE_MS)} min`;
  if (ms < 2 * DAY_MS) return `${Math.floor(ms / HOUR_MS)} h`;
  return `${Math.floor(ms / DAY_MS)} days`;
}

function two(number: number): string {
  return String(number).padStart(2, "0");
}

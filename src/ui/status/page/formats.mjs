/** Texts of numbers and times. */

/** The locale `en` would mean American dates, with the month before the day. */
const LOCALE = "en-GB";
const NUMBER_FORMAT = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 3 });
const DECIMAL_FORMAT = new Intl.NumberFormat(LOCALE, { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const SHORT_DATE_FORMAT = new Intl.DateTimeFormat(LOCALE, { day: "numeric", month: "short" });
const HOUR_AND_MINUTE_FORMAT = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit" });
const TIME_OF_DAY_FORMAT = new Intl.DateTimeFormat(LOCALE, { timeStyle: "medium" });
const FULL_TIME_FORMAT = new Intl.DateTimeFormat(LOCALE, { dateStyle: "full", timeStyle: "long" });

export function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "on" : "off";
  return typeof value === "number" ? NUMBER_FORMAT.format(value) : String(value);
}

export const countText = (count, noun) => `${NUMBER_FORMAT.format(count)} ${count === 1 ? noun : `${noun}s`}`;

export function durationText(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** Formats an interval with at most one decimal, such as `2.5 min`. */
export function intervalText(seconds) {
  const [unit, unitSeconds] =
    seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172800 ? ["h", 3600] : ["d", 86400];
  return `${NUMBER_FORMAT.format(Number((seconds / unitSeconds).toFixed(1)))} ${unit}`;
}

export const decimalText = (value) => DECIMAL_FORMAT.format(value);
export const percentText = (share) => `${Math.round(share * 100)} %`;

export function agoText(iso, nowMs) {
  return iso ? `${durationText((nowMs - Date.parse(iso)) / 1000)} ago` : "never";
}

export function untilText(iso, nowMs) {
  const seconds = (Date.parse(iso) - nowMs) / 1000;
  return seconds < 0 ? `${durationText(-seconds)} ago` : `in ${durationText(seconds)}`;
}

export const shortDate = (timeMs) => SHORT_DATE_FORMAT.format(timeMs);
export const hourAndMinute = (timeMs) => HOUR_AND_MINUTE_FORMAT.format(timeMs);

/** Formats a time of day; a time of another day begins with the date. */
export function at(iso, nowMs) {
  const timeMs = Date.parse(iso);
  const timeOfDay = TIME_OF_DAY_FORMAT.format(timeMs);
  return shortDate(timeMs) === shortDate(nowMs) ? timeOfDay : `${shortDate(timeMs)} ${timeOfDay}`;
}

export const fullTimeText = (iso) => FULL_TIME_FORMAT.format(Date.parse(iso));

/** Reason why a counted number may be wrong; null for a reliable number. `what`: noun in the plural. */
export function unreliableCountReason({ state, at: lastReadAt, storedCount }, what, nowMs) {
  if (state === "whole") return null;
  if (state === "part") return `a part of the list cannot be read; there may be more ${what}`;
  if (state === "old") return `${valueText(storedCount)} when last read, ${agoText(lastReadAt, nowMs)}`;
  return state === "off" ? "not read" : "the list was not read yet";
}

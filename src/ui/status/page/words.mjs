import { regionOf, t } from "/language.mjs";

/** Formats numbers and times. */

const formats = new Map();

/** Making a format costs more than using it a thousand times. */
function format(kind, make) {
  const key = `${kind} ${regionOf()}`;
  if (!formats.has(key)) formats.set(key, make(regionOf()));
  return formats.get(key);
}

const number = () => format("number", (region) => new Intl.NumberFormat(region, { maximumFractionDigits: 3 }));
const clock = () => format("clock", (region) => new Intl.DateTimeFormat(region, { timeStyle: "medium" }));
const minute = () =>
  format("minute", (region) => new Intl.DateTimeFormat(region, { hour: "2-digit", minute: "2-digit" }));
const day = () => format("day", (region) => new Intl.DateTimeFormat(region, { day: "numeric", month: "short" }));
const full = () =>
  format("full", (region) => new Intl.DateTimeFormat(region, { dateStyle: "full", timeStyle: "long" }));

export function shown(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? t("on") : t("off");
  return typeof value === "number" ? number().format(value) : String(value);
}

/** `noun` in the singular, as a word of the page. */
export function counted(count, noun) {
  return `${number().format(count)} ${t(count === 1 ? noun : `${noun}s`)}`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} ${t("h")}`;
  return `${Math.round(seconds / 86400)} ${t("days")}`;
}

/** A duration with the precision of an interval; equal to `durationText` of the worker. */
export function lasting(seconds) {
  const [unit, size] =
    seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172800 ? [t("h"), 3600] : ["d", 86400];
  return `${number().format(Number((seconds / size).toFixed(1)))} ${unit}`;
}

export function decimal(value) {
  return format(
    "decimal",
    (region) => new Intl.NumberFormat(region, { minimumFractionDigits: 1, maximumFractionDigits: 1 }),
  ).format(value);
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function ago(iso, now) {
  return iso ? t("{span} ago", { span: span((now - Date.parse(iso)) / 1000) }) : t("never");
}

export function until(iso, now) {
  const seconds = (Date.parse(iso) - now) / 1000;
  return seconds < 0 ? t("{span} ago", { span: span(-seconds) }) : t("in {span}", { span: span(seconds) });
}

/** The time of the reader's own clock, with the day in front when it is not today's. */
export function at(iso, now) {
  const time = new Date(iso);
  const isToday = day().format(time) === day().format(new Date(now));
  return isToday ? clock().format(time) : `${day().format(time)} ${clock().format(time)}`;
}

/** Complete time with day, year and time zone, for a tooltip. */
export const exactly = (iso) => full().format(new Date(iso));
export const dayOf = (ms) => day().format(new Date(ms));
export const minuteOf = (ms) => minute().format(new Date(ms));

/** Note on a number that is not fully known; null otherwise. `what` is in the plural. */
export function doubt({ state, at: read, held }, what, now) {
  switch (state) {
    case "whole":
      return null;
    case "part":
      return t("a part of the list cannot be read; there may be more {what}", { what: t(what) });
    case "old":
      return t("{count} when last read, {ago}", { count: shown(held), ago: ago(read, now) });
    case "off":
      return t("not followed");
    default:
      return t("nothing of the list was read yet");
  }
}

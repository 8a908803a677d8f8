/** How numbers and times are said. */

const number = new Intl.NumberFormat("en", { maximumFractionDigits: 3 });

export function shown(value) {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? number.format(value) : String(value);
}

export function counted(count, noun) {
  return `${number.format(count)} ${noun}${count === 1 ? "" : "s"}`;
}

function span(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} days`;
}

/** A length of time as exact as a wish is written; the same figures as `spanText` of the worker. */
export function lasting(seconds) {
  const [unit, size] =
    seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172800 ? ["h", 3600] : ["d", 86400];
  return `${Number((seconds / size).toFixed(1))} ${unit}`;
}

export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

export function ago(iso, now) {
  return iso ? `${span((now - Date.parse(iso)) / 1000)} ago` : "never";
}

export function until(iso, now) {
  const seconds = (Date.parse(iso) - now) / 1000;
  return seconds < 0 ? `${span(-seconds)} ago` : `in ${span(seconds)}`;
}

const clock = new Intl.DateTimeFormat("en-GB", { timeStyle: "medium" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

/** The time of the reader's own clock, with the day in front when it is not today's. */
export function at(iso, now) {
  const time = new Date(iso);
  const isToday = day.format(time) === day.format(new Date(now));
  return isToday ? clock.format(time) : `${day.format(time)} ${clock.format(time)}`;
}

/** What a person has to know of a number that is not known; null while all of it is. `what` is in the plural. */
export function doubt({ state, at: read, held }, what, now) {
  switch (state) {
    case "whole":
      return null;
    case "part":
      return `a part of the list cannot be read; there may be more ${what}`;
    case "old":
      return `${shown(held)} when last read, ${ago(read, now)}`;
    case "off":
      return "not followed";
    default:
      return "nothing of the list was read yet";
  }
}

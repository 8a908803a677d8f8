/** Texts, numbers and times in the reader's language. The English text is the key; `{name}` is replaced by a value. */

import { html } from "/htm.mjs";

const LANGUAGES = { en: "English", nb: "Norsk" };
const STORAGE_KEY = "plenum.language";
let language = "en";
let translations = {};
/** Region for numbers and times: `en` would put the month before the day. */
let region = "en-GB";
export const currentLanguage = () => language;
export const regionOf = () => region;

/** The language chosen last, otherwise the browser's first supported language. */
function preferredLanguage() {
  let storedLanguage = null;
  try {
    storedLanguage = localStorage.getItem(STORAGE_KEY);
  } catch {
    // The browser stores nothing.
  }
  if (storedLanguage !== null && storedLanguage in LANGUAGES) return storedLanguage;
  for (const each of navigator.languages) {
    const name = each.slice(0, 2).toLowerCase();
    if (["nb", "nn", "no"].includes(name)) return "nb";
    if (name === "en") return "en";
  }
  return "en";
}

/** Loads the translations of a language; by default, of the preferred language. */
export async function loadLanguage(wanted = preferredLanguage()) {
  translations = wanted === "nb" ? (await import("/norwegian.mjs")).NORWEGIAN : {};
  language = wanted;
  region = wanted === "nb" ? "nb-NO" : "en-GB";
  document.documentElement.lang = wanted;
}

export function LanguageButton({ kind, done }) {
  const otherLanguage = language === "en" ? "nb" : "en";
  const switchLanguage = async () => {
    try {
      localStorage.setItem(STORAGE_KEY, otherLanguage);
    } catch {
      // The choice lasts until the page is closed.
    }
    await loadLanguage(otherLanguage);
    done(otherLanguage);
  };
  return html`<button type="button" class=${kind} lang=${otherLanguage} onClick=${switchLanguage}>${LANGUAGES[otherLanguage]}</button>`;
}

/** Translates a text; without a translation it stays English. */
export function t(text, values = {}) {
  return (translations[text] ?? text).replaceAll(/\{(\w+)\}/g, (placeholder, name) =>
    Object.hasOwn(values, name) ? String(values[name]) : placeholder,
  );
}

const formats = new Map();

/** Caches formats: making one costs more than using it a thousand times. */
function format(type, options) {
  const key = `${region} ${JSON.stringify(options)}`;
  if (!formats.has(key)) formats.set(key, new Intl[type](region, options));
  return formats.get(key);
}

const formatNumber = (value) => format("NumberFormat", { maximumFractionDigits: 3 }).format(value);
const formatTime = (date, options) => format("DateTimeFormat", options).format(date);

export function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? t("on") : t("off");
  return typeof value === "number" ? formatNumber(value) : String(value);
}

/** `noun`: in the singular. */
export function countText(count, noun) {
  return `${formatNumber(count)} ${t(count === 1 ? noun : `${noun}s`)}`;
}

export function span(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} ${t("h")}`;
  return `${Math.round(seconds / 86400)} ${t("days")}`;
}

/** An interval, with one decimal; equal to `secondsText` of the worker. */
export function intervalText(seconds) {
  const [unit, size] =
    seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172800 ? [t("h"), 3600] : ["d", 86400];
  return `${formatNumber(Number((seconds / size).toFixed(1)))} ${unit}`;
}

export const decimal = (value) =>
  format("NumberFormat", { minimumFractionDigits: 1, maximumFractionDigits: 1 }).format(value);
export const percent = (share) => `${Math.round(share * 100)} %`;

export function ago(iso, now) {
  return iso ? t("{span} ago", { span: span((now - Date.parse(iso)) / 1000) }) : t("never");
}

export function until(iso, now) {
  const seconds = (Date.parse(iso) - now) / 1000;
  return seconds < 0 ? t("{span} ago", { span: span(-seconds) }) : t("in {span}", { span: span(seconds) });
}

export const dayOf = (ms) => formatTime(ms, { day: "numeric", month: "short" });
export const minuteOf = (ms) => formatTime(ms, { hour: "2-digit", minute: "2-digit" });

/** Time of day, after the date unless it is today. */
export function at(iso, now) {
  const ms = Date.parse(iso);
  const clock = formatTime(ms, { timeStyle: "medium" });
  return dayOf(ms) === dayOf(now) ? clock : `${dayOf(ms)} ${clock}`;
}

export const exactTime = (iso) => formatTime(Date.parse(iso), { dateStyle: "full", timeStyle: "long" });

/** Reason why a number may be wrong; null for a reliable number. `what`: in the plural. */
export function doubtReason({ state, at: read, held }, what, now) {
  switch (state) {
    case "whole":
      return null;
    case "part":
      return t("a part of the list cannot be read; there may be more {what}", { what: t(what) });
    case "old":
      return t("{count} when last read, {ago}", { count: valueText(held), ago: ago(read, now) });
    case "off":
      return t("not read");
    default:
      return t("the list was not read yet");
  }
}

/** Texts, numbers and times in the reader's language. The English text is the key of its translation. */

import { html } from "/htm.mjs";

const LANGUAGE_NAMES = { en: "English", nb: "Norsk" };
const LANGUAGE_BY_CODE = { en: "en", nb: "nb", nn: "nb", no: "nb" };
const LANGUAGE_STORAGE_KEY = "plenum.language";
let language = "en";
let translations = {};
/** Locale of numbers and times. `en` would mean American dates, with the month before the day. */
let region = "en-GB";
export const currentLanguage = () => language;
export const currentRegion = () => region;

/** The language that the reader chose last, otherwise the browser's first supported language. */
function preferredLanguage() {
  let storedLanguage = null;
  try {
    storedLanguage = localStorage.getItem(LANGUAGE_STORAGE_KEY);
  } catch {
    // The browser allows no storage, so use its own language.
  }
  if (storedLanguage !== null && storedLanguage in LANGUAGE_NAMES) return storedLanguage;
  const browserCodes = navigator.languages.map((name) => name.slice(0, 2).toLowerCase());
  return LANGUAGE_BY_CODE[browserCodes.find((code) => Object.hasOwn(LANGUAGE_BY_CODE, code))] ?? "en";
}

export async function loadLanguage(newLanguage = preferredLanguage()) {
  translations = newLanguage === "nb" ? (await import("/norwegian-texts.mjs")).NORWEGIAN : {};
  language = newLanguage;
  region = newLanguage === "nb" ? "nb-NO" : "en-GB";
  document.documentElement.lang = newLanguage;
}

export function LanguageButton({ kind, done }) {
  const otherLanguage = language === "en" ? "nb" : "en";
  const switchLanguage = async () => {
    try {
      localStorage.setItem(LANGUAGE_STORAGE_KEY, otherLanguage);
    } catch {
      // The chosen language lasts until the page is closed.
    }
    await loadLanguage(otherLanguage);
    done(otherLanguage);
  };
  return html`<button type="button" class=${kind} lang=${otherLanguage} onClick=${switchLanguage}>${LANGUAGE_NAMES[otherLanguage]}</button>`;
}

/** `{name}` in a text is replaced by `values.name`. Without a translation, the text stays English. */
export function t(text, values = {}) {
  return (translations[text] ?? text).replaceAll(/\{(\w+)\}/g, (placeholder, name) =>
    Object.hasOwn(values, name) ? String(values[name]) : placeholder,
  );
}

const cachedFormats = new Map();

/** Caches number and time formats, because creating one costs more than using it a thousand times. */
function cachedFormat(type, options) {
  const key = `${region} ${JSON.stringify(options)}`;
  if (!cachedFormats.has(key)) cachedFormats.set(key, new Intl[type](region, options));
  return cachedFormats.get(key);
}

const formatNumber = (value) => cachedFormat("NumberFormat", { maximumFractionDigits: 3 }).format(value);
const formatTime = (date, options) => cachedFormat("DateTimeFormat", options).format(date);

export function valueText(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? t("on") : t("off");
  return typeof value === "number" ? formatNumber(value) : String(value);
}

export const countText = (count, noun) => `${formatNumber(count)} ${t(count === 1 ? noun : `${noun}s`)}`;

export function durationText(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} ${t("h")}`;
  return `${Math.round(seconds / 86400)} ${t("days")}`;
}

/** Formats an interval with at most one decimal, such as `2.5 min`. */
export function intervalText(seconds) {
  const [unit, unitSeconds] =
    seconds < 120 ? ["s", 1] : seconds < 7200 ? ["min", 60] : seconds < 172800 ? [t("h"), 3600] : ["d", 86400];
  return `${formatNumber(Number((seconds / unitSeconds).toFixed(1)))} ${unit}`;
}

export const decimalText = (value) =>
  cachedFormat("NumberFormat", { minimumFractionDigits: 1, maximumFractionDigits: 1 }).format(value);
export const percentText = (share) => `${Math.round(share * 100)} %`;

export function agoText(iso, nowMs) {
  return iso ? t("{span} ago", { span: durationText((nowMs - Date.parse(iso)) / 1000) }) : t("never");
}

export function untilText(iso, nowMs) {
  const seconds = (Date.parse(iso) - nowMs) / 1000;
  return seconds < 0
    ? t("{span} ago", { span: durationText(-seconds) })
    : t("in {span}", { span: durationText(seconds) });
}

export const shortDate = (timeMs) => formatTime(timeMs, { day: "numeric", month: "short" });
export const hourAndMinute = (timeMs) => formatTime(timeMs, { hour: "2-digit", minute: "2-digit" });

/** Formats a time of day; a time of another day begins with the date. */
export function at(iso, nowMs) {
  const timeMs = Date.parse(iso);
  const timeOfDay = formatTime(timeMs, { timeStyle: "medium" });
  return shortDate(timeMs) === shortDate(nowMs) ? timeOfDay : `${shortDate(timeMs)} ${timeOfDay}`;
}

export const fullTimeText = (iso) => formatTime(Date.parse(iso), { dateStyle: "full", timeStyle: "long" });

/** Reason why a counted number may be wrong; null for a reliable number. `what`: noun in the plural. */
export function unreliableCountReason({ state, at: lastReadAt, held }, what, nowMs) {
  if (state === "whole") return null;
  if (state === "part") return t("a part of the list cannot be read; there may be more {what}", { what: t(what) });
  if (state === "old")
    return t("{count} when last read, {ago}", { count: valueText(held), ago: agoText(lastReadAt, nowMs) });
  return state === "off" ? t("not read") : t("the list was not read yet");
}

import type { TagValue } from "../../core/model/building.ts";
import { printable } from "../../core/values/printable.ts";
import { isRecord, textOf } from "./reply.ts";

/** A number as JSON writes it, and nothing else: not " 21.5", "21,5", "0x10", "+1", "1." or "". */
const JSON_NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
/** Characters of a value that a message shows. */
const SHOWN = 60;
/** Members of a list or object that a message shows. */
const MEMBERS = 3;

/**
 * A value of a tag: a number, a boolean or null (interface, Tag), or a text that is exactly a JSON number, as PHP prints
 * the decimals of a database. Undefined for everything else, which is unreadable: neither null nor absent.
 */
export function tagValueIn(raw: unknown): TagValue | undefined {
  if (raw === null || typeof raw === "boolean") return raw;
  return numberIn(raw);
}

/** A finite number, or the finite number that a text is. */
export function numberIn(raw: unknown): number | undefined {
  const number = typeof raw === "string" && JSON_NUMBER.test(raw) ? Number(raw) : raw;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

/** Describes an unreadable value with the service's own words: `the text "n/a"`. */
export function kindOf(raw: unknown): string {
  if (typeof raw === "number" && Number.isFinite(raw)) return String(raw);
  if (raw === undefined) return "missing";
  if (typeof raw === "number") return "a number beyond every bound";
  if (raw === null) return "null";
  const words = printable(textOf(beginningOf(raw)));
  const shown = words.length > SHOWN ? `${words.slice(0, SHOWN).toWellFormed()}…` : words;
  if (typeof raw === "string") return `the text "${shown}"`;
  if (typeof raw === "boolean") return shown;
  return `${Array.isArray(raw) ? "the list" : "the object"} ${shown}`;
}

/** A few members are enough for a message, and a list may have a quarter of a million. */
function beginningOf(raw: unknown): unknown {
  if (Array.isArray(raw)) return raw.slice(0, MEMBERS);
  return isRecord(raw) ? Object.fromEntries(Object.entries(raw).slice(0, MEMBERS)) : raw;
}

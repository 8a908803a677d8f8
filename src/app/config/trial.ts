import { parseByteSize } from "../../core/values/byte-size.ts";
import { parseDuration } from "../../core/values/duration.ts";

/** A value at a place where it cannot stay. */
export interface Misplaced {
  readonly key: string;
  readonly value: unknown;
  /** Whether a text is what belongs there, or one of what may. */
  readonly acceptsText: boolean;
  /** Returns the schema's complaint if the place had this value; null when it would be valid. */
  readonly complaintWith: (value: unknown) => string | null;
}

/** Suggests a value of the right kind. Only a value that the schema accepts is suggested; null without one. */
export function meantInstead(place: Misplaced): string | null {
  const { value } = place;
  if (typeof value === "string") {
    return instead(place, forText(value, place.key)) ?? leftOut(place, value) ?? asList(place, value);
  }
  if (typeof value === "number" || typeof value === "boolean") return forNumber(place, value);
  if (!Array.isArray(value) || value.length !== 1 || !passes(place, value[0])) return null;
  return `Write ${shown(value[0])}, which is one, not a list.`;
}

function forNumber(place: Misplaced, value: number | boolean): string | null {
  if (value === true && passes(place, undefined)) return "Leave this key out: it is on without it.";
  const truth = value === 1 || value === 0 ? instead(place, [value === 1]) : null;
  return truth ?? asList(place, value) ?? (place.acceptsText ? asText(place, value) : null);
}

/** Words for true and false that YAML 1.1 knew and 1.2 takes for texts. */
const WORDS: ReadonlyMap<string, boolean> = new Map([
  ["yes", true],
  ["y", true],
  ["on", true],
  ["no", false],
  ["n", false],
  ["off", false],
]);

/** Values that a text may mean: a word for true or false, a number in another spelling. */
function forText(text: string, key: string): readonly unknown[] {
  const truth = WORDS.get(text.toLowerCase());
  const [, whole = "", part = ""] = /^(\d+)(?:,(\d+))?$/.exec(text) ?? [];
  const [, percent] = /^(\d+(?:\.\d+)?) ?%$/.exec(text) ?? [];
  return [
    ...(truth === undefined ? [] : [truth]),
    ...(part === "" ? [] : [Number(`${whole}.${part}`)]),
    ...(percent === undefined ? [] : [Number(percent) / 100]),
    ...inUnitOf(key, text),
  ];
}

/** Keys that end in their unit take the number alone. */
function inUnitOf(key: string, text: string): readonly number[] {
  if (key.endsWith("_ms")) return [parseDuration(text)].filter((ms) => ms !== null);
  const bytes = key.endsWith("_mb") ? parseByteSize(text.replace(/([kmgt])b$/i, "$1iB")) : null;
  return bytes === null ? [] : [Math.round(bytes / 1024 ** 2)];
}

function instead(place: Misplaced, candidates: readonly unknown[]): string | null {
  const found = candidates.find((candidate) => passes(place, candidate));
  return found === undefined ? null : `Write ${shown(found)}.`;
}

/** `all` where a list narrows a choice. */
function leftOut(place: Misplaced, text: string): string | null {
  if (!/^(all|any|\*)$/i.test(text)) return null;
  return passes(place, undefined) ? "Leave this key out for all of them." : null;
}

/** Units that a number without one is tried with. */
const UNITS = ["s", "m", "h", "d"];

/** A number or a boolean where a text belongs: in quotes, or as a duration. */
function asText(place: Misplaced, value: number | boolean): string | null {
  const quoted = String(value);
  const complaint = place.complaintWith(quoted);
  if (complaint === null) return `Put this into quotes: "${quoted}".`;
  const units = UNITS.filter((unit) => passes(place, quoted + unit));
  const [first] = units;
  // Neither way: then what its own rule says of the text helps more than which kind it is.
  if (first === undefined) return complaint;
  const last = units.length > 1 ? ` or ${units.at(-1)}` : "";
  const known = `${units.slice(0, Math.max(1, units.length - 1)).join(", ")}${last}`;
  return `Write ${quoted}${first}: a duration needs its unit, here ${known}.`;
}

/** One thing, or several with commas, where a list belongs. */
function asList(place: Misplaced, value: string | number | boolean): string | null {
  const words: readonly unknown[] =
    typeof value === "string"
      ? value
          .replace(/^\[(.*)\]$/, "$1")
          .split(",")
          .map((word) => word.trim())
      : [value];
  if (words.includes("")) return null;
  const numbers = words.map((word) => (/^-?\d+$/.test(String(word)) ? Number(word) : word));
  const lists: (readonly unknown[])[] = [words, numbers, words.map(String)];
  const found = lists.find((list) => passes(place, list));
  return found === undefined ? null : `Write a list: ${shown(found)}.`;
}

function passes({ complaintWith }: Misplaced, value: unknown): boolean {
  return complaintWith(value) === null;
}

/** Plain words that YAML, or somebody who knows its older version, takes for something else. */
const RESERVED = /^(true|false|null|yes|no|on|off)$/i;

/** The value as YAML on one line. */
function shown(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(shown).join(", ")}]`;
  if (typeof value !== "string") return String(value);
  return /^[A-Za-z][\w-]+$/.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value);
}

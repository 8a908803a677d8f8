import type { z } from "zod";
import { parseByteSize } from "../../core/values/byte-size.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { closestWord, formatWordSuggestion } from "../../core/values/spelling-suggestion.ts";
import { knownKeys, optionPaths } from "./schema-lookup.ts";

type AnySchema = z.core.$ZodType;

/** Returns advice about an unknown key as a sentence with a leading space; empty without advice. */
export function adviceForKey(schema: AnySchema, path: readonly PropertyKey[], key: string): string {
  const keysOfSection = knownKeys(schema, path);
  const normalizedKey = key.replaceAll("-", "_").toLowerCase();
  if (keysOfSection.includes(normalizedKey)) return ` Did you mean ${normalizedKey}?`;
  const nearbyPlace = nearbySection(schema, path, key, keysOfSection);
  if (nearbyPlace !== null) return ` It belongs ${nearbyPlace}.`;
  if (closestWord(key, keysOfSection) !== undefined) return formatWordSuggestion(key, keysOfSection);
  const distantSection = sectionsWithKey(schema, key);
  return distantSection === null ? formatWordSuggestion(key, keysOfSection) : ` It belongs under ${distantSection}.`;
}

/** Finds a section with an unknown key nearby: one level down, then one or two levels up. */
function nearbySection(
  schema: AnySchema,
  path: readonly PropertyKey[],
  key: string,
  keysHere: readonly string[],
): string | null {
  const childSection = keysHere.find((each) => knownKeys(schema, [...path, each]).includes(key));
  if (childSection !== undefined) return `under \`${childSection}\``;
  for (const levelsUp of [1, 2]) {
    if (path.length < levelsUp) return null;
    if (knownKeys(schema, path.slice(0, -levelsUp)).includes(key)) return `beside \`${String(path.at(-levelsUp))}\``;
  }
  return null;
}

const pathsBySchema = new WeakMap<AnySchema, readonly string[]>();

function allOptionPaths(schema: AnySchema): readonly string[] {
  const paths = pathsBySchema.get(schema) ?? optionPaths(schema);
  pathsBySchema.set(schema, paths);
  return paths;
}

/** Names the one or two sections that know a key, e.g. `sources.<name>`; otherwise null. */
function sectionsWithKey(schema: AnySchema, key: string): string | null {
  const sectionPaths = allOptionPaths(schema)
    .filter((path) => path.endsWith(`.${key}`) && !path.includes("[]"))
    .map((path) => path.slice(0, -key.length - 1).replaceAll("*", "<name>"));
  const shortestLength = Math.min(...sectionPaths.map((path) => path.split(".").length));
  const shortestPaths = [...new Set(sectionPaths.filter((path) => path.split(".").length === shortestLength))];
  return shortestPaths.length === 0 || shortestPaths.length > 2 ? null : shortestPaths.join(" or ");
}

/** Returns advice if options appear without the user-defined name above them; otherwise null. */
export function adviceForMissingName(section: unknown, options: readonly string[], name: string): string | null {
  if (typeof section !== "object" || section === null || Array.isArray(section)) return null;
  const entry = Object.entries(section).find(([key, value]) => options.includes(key) && !hasKnownKey(value, options));
  if (entry === undefined) return null;
  return `A name of your own is missing above ${entry[0]}: write ${name}: { main: { ${entry[0]}: … } }.`;
}

function hasKnownKey(value: unknown, options: readonly string[]): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).some((key) => options.includes(key));
}

export interface InvalidValue {
  readonly key: string;
  readonly value: unknown;
  readonly acceptsText: boolean;
  readonly complaintWith: (value: unknown) => string | null;
}

export function suggestValue(invalid: InvalidValue): string | null {
  const { value } = invalid;
  if (typeof value === "string") {
    return (
      suggestFirstValid(invalid, possibleMeanings(value, invalid.key)) ??
      suggestOmission(invalid, value) ??
      suggestList(invalid, value)
    );
  }
  if (typeof value === "number" || typeof value === "boolean") return suggestForNumber(invalid, value);
  if (!Array.isArray(value) || value.length !== 1 || !isValidWith(invalid, value[0])) return null;
  return `Write ${formatYaml(value[0])}, which is one, not a list.`;
}

function suggestForNumber(invalid: InvalidValue, value: number | boolean): string | null {
  if (value === true && isValidWith(invalid, undefined)) return "Leave this key out: it is on without it.";
  const booleanAdvice = value === 1 || value === 0 ? suggestFirstValid(invalid, [value === 1]) : null;
  return booleanAdvice ?? suggestList(invalid, value) ?? (invalid.acceptsText ? suggestText(invalid, value) : null);
}

/** Lists values that a text may mean: true or false as in YAML 1.1, or a number in another spelling. */
function possibleMeanings(text: string, key: string): readonly unknown[] {
  const [, integerDigits = "", decimalDigits = ""] = /^(\d+)(?:,(\d+))?$/.exec(text) ?? [];
  const [, percent] = /^(\d+(?:\.\d+)?) ?%$/.exec(text) ?? [];
  return [
    ...(/^(yes|y|on)$/i.test(text) ? [true] : []),
    ...(/^(no|n|off)$/i.test(text) ? [false] : []),
    ...(decimalDigits === "" ? [] : [Number(`${integerDigits}.${decimalDigits}`)]),
    ...(percent === undefined ? [] : [Number(percent) / 100]),
    ...parseInUnit(key, text),
  ];
}

/** Parses a text such as `5s` for a key that ends in its unit, e.g. `_ms`. */
function parseInUnit(key: string, text: string): readonly number[] {
  if (key.endsWith("_ms")) return [parseDuration(text)].filter((ms) => ms !== null);
  const bytes = key.endsWith("_mb") ? parseByteSize(text.replace(/([kmgt])b$/i, "$1iB")) : null;
  return bytes === null ? [] : [Math.round(bytes / 1024 ** 2)];
}

function suggestFirstValid(invalid: InvalidValue, candidates: readonly unknown[]): string | null {
  const validValue = candidates.find((candidate) => isValidWith(invalid, candidate));
  return validValue === undefined ? null : `Write ${formatYaml(validValue)}.`;
}

/** For a list option with the value `all`, suggests to omit the option. */
function suggestOmission(invalid: InvalidValue, text: string): string | null {
  if (!/^(all|any|\*)$/i.test(text)) return null;
  return isValidWith(invalid, undefined) ? "Leave this key out for all of them." : null;
}

const DURATION_UNITS = ["s", "m", "h", "d"];

/** Suggests quotes or a duration, for a number or a boolean where a text belongs. */
function suggestText(invalid: InvalidValue, value: number | boolean): string | null {
  const valueText = String(value);
  const complaint = invalid.complaintWith(valueText);
  if (complaint === null) return `Put this into quotes: "${valueText}".`;
  const validUnits = DURATION_UNITS.filter((unit) => isValidWith(invalid, valueText + unit));
  const [firstUnit] = validUnits;
  if (firstUnit === undefined) return complaint;
  const unitList = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(validUnits);
  return `Write ${valueText}${firstUnit}: a duration needs its unit, here ${unitList}.`;
}

function suggestList(invalid: InvalidValue, value: string | number | boolean): string | null {
  const listItems: readonly unknown[] =
    typeof value === "string"
      ? value
          .replace(/^\[(.*)\]$/, "$1")
          .split(",")
          .map((word) => word.trim())
      : [value];
  if (listItems.includes("")) return null;
  const numbers = listItems.map((word) => (/^-?\d+$/.test(String(word)) ? Number(word) : word));
  const candidateLists: (readonly unknown[])[] = [listItems, numbers, listItems.map(String)];
  const validList = candidateLists.find((list) => isValidWith(invalid, list));
  return validList === undefined ? null : `Write a list: ${formatYaml(validList)}.`;
}

function isValidWith({ complaintWith }: InvalidValue, value: unknown): boolean {
  return complaintWith(value) === null;
}

/** Words that need quotes, because a YAML version reads them as another type. */
const RESERVED_WORD = /^(true|false|null|yes|no|on|off)$/i;

function formatYaml(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(formatYaml).join(", ")}]`;
  if (typeof value !== "string") return String(value);
  return /^[A-Za-z][\w-]+$/.test(value) && !RESERVED_WORD.test(value) ? value : JSON.stringify(value);
}

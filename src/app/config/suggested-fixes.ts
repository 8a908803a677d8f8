import type { z } from "zod";
import { parseByteSize } from "../../core/values/byte-size.ts";
import { parseDuration } from "../../core/values/duration.ts";
import { findClosestWord, formatWordSuggestion } from "../../core/values/spelling-suggestion.ts";
import { allowedKeys, listOptionPaths } from "./schema-lookup.ts";

type AnyZodSchema = z.core.$ZodType;

/** Returns advice about an unknown option key, with a leading space; an empty text if there is no advice. */
export function adviceForUnknownKey(schema: AnyZodSchema, path: readonly PropertyKey[], key: string): string {
  const allowedKeysOfSection = allowedKeys(schema, path);
  const normalizedKey = key.replaceAll("-", "_").toLowerCase();
  if (allowedKeysOfSection.includes(normalizedKey)) return ` Did you mean ${normalizedKey}?`;
  const nearbySectionText = findNearbySection(schema, path, key, allowedKeysOfSection);
  if (nearbySectionText !== null) return ` It belongs ${nearbySectionText}.`;
  if (findClosestWord(key, allowedKeysOfSection) !== undefined) return formatWordSuggestion(key, allowedKeysOfSection);
  const distantSection = findSectionsWithKey(schema, key);
  return distantSection === null
    ? formatWordSuggestion(key, allowedKeysOfSection)
    : ` It belongs under ${distantSection}.`;
}

/** Finds a nearby section that allows the key: one level down, or up to two levels up. */
function findNearbySection(
  schema: AnyZodSchema,
  path: readonly PropertyKey[],
  key: string,
  allowedKeysAtPath: readonly string[],
): string | null {
  const childSectionName = allowedKeysAtPath.find((keyAtPath) =>
    allowedKeys(schema, [...path, keyAtPath]).includes(key),
  );
  if (childSectionName !== undefined) return `under \`${childSectionName}\``;
  for (const levelsUp of [1, 2]) {
    if (path.length < levelsUp) return null;
    if (allowedKeys(schema, path.slice(0, -levelsUp)).includes(key)) return `next to \`${String(path.at(-levelsUp))}\``;
  }
  return null;
}

const optionPathsBySchema = new WeakMap<AnyZodSchema, readonly string[]>();

function listCachedOptionPaths(schema: AnyZodSchema): readonly string[] {
  const optionPaths = optionPathsBySchema.get(schema) ?? listOptionPaths(schema);
  optionPathsBySchema.set(schema, optionPaths);
  return optionPaths;
}

/** Returns the one or two sections that allow a key, e.g. `sources.<name>`; otherwise null. */
function findSectionsWithKey(schema: AnyZodSchema, key: string): string | null {
  const sectionPaths = listCachedOptionPaths(schema)
    .filter((path) => path.endsWith(`.${key}`) && !path.includes("[]"))
    .map((path) => path.slice(0, -key.length - 1).replaceAll("*", "<name>"));
  const shortestPathLength = Math.min(...sectionPaths.map((path) => path.split(".").length));
  const shortestPaths = [...new Set(sectionPaths.filter((path) => path.split(".").length === shortestPathLength))];
  return shortestPaths.length === 0 || shortestPaths.length > 2 ? null : shortestPaths.join(" or ");
}

/** Returns advice if a section, such as `sinks`, contains options instead of names. */
export function adviceForMissingEntryName(section: unknown, options: readonly string[], name: string): string | null {
  if (typeof section !== "object" || section === null || Array.isArray(section)) return null;
  const entry = Object.entries(section).find(([key, value]) => options.includes(key) && !hasKnownKey(value, options));
  if (entry === undefined) return null;
  return `A name of your own is missing above ${entry[0]}: write ${name}: { main: { ${entry[0]}: … } }.`;
}

function hasKnownKey(value: unknown, options: readonly string[]): boolean {
  return typeof value === "object" && value !== null && Object.keys(value).some((key) => options.includes(key));
}

export interface InvalidOptionValue {
  readonly key: string;
  readonly value: unknown;
  readonly acceptsText: boolean;
  readonly findProblemWith: (value: unknown) => string | null;
}

export function suggestOptionValue(invalidOption: InvalidOptionValue): string | null {
  const { value } = invalidOption;
  if (typeof value === "string")
    return (
      suggestFirstValidValue(invalidOption, possibleValuesOfText(value, invalidOption.key)) ??
      suggestOmittingOption(invalidOption, value) ??
      suggestList(invalidOption, value)
    );
  if (typeof value === "number" || typeof value === "boolean") return suggestFixForNumber(invalidOption, value);
  if (!Array.isArray(value) || value.length !== 1 || !isOptionValueValid(invalidOption, value[0])) return null;
  return `Write ${formatYamlValue(value[0])}, which is one, not a list.`;
}

function suggestFixForNumber(invalidOption: InvalidOptionValue, value: number | boolean): string | null {
  if (value === true && isOptionValueValid(invalidOption, undefined)) return "Leave this key out: it is on without it.";
  const booleanAdvice = value === 1 || value === 0 ? suggestFirstValidValue(invalidOption, [value === 1]) : null;
  return (
    booleanAdvice ??
    suggestList(invalidOption, value) ??
    (invalidOption.acceptsText ? suggestAsText(invalidOption, value) : null)
  );
}

/** Lists values that a text may mean: true or false as in YAML 1.1, or a number in another spelling. */
function possibleValuesOfText(text: string, key: string): readonly unknown[] {
  const [, integerDigits = "", decimalDigits = ""] = /^(\d+)(?:,(\d+))?$/.exec(text) ?? [];
  const [, percent] = /^(\d+(?:\.\d+)?) ?%$/.exec(text) ?? [];
  return [
    ...(/^(yes|y|on)$/i.test(text) ? [true] : []),
    ...(/^(no|n|off)$/i.test(text) ? [false] : []),
    ...(decimalDigits === "" ? [] : [Number(`${integerDigits}.${decimalDigits}`)]),
    ...(percent === undefined ? [] : [Number(percent) / 100]),
    ...parseTextInKeyUnit(key, text),
  ];
}

/** Parses a text such as `5s` for an option whose key ends in a unit, e.g. `_ms`. */
function parseTextInKeyUnit(key: string, text: string): readonly number[] {
  if (key.endsWith("_ms")) return [parseDuration(text)].filter((ms) => ms !== null);
  const byteCount = key.endsWith("_mb") ? parseByteSize(text.replace(/([kmgt])b$/i, "$1iB")) : null;
  return byteCount === null ? [] : [Math.round(byteCount / 1024 ** 2)];
}

function suggestFirstValidValue(invalidOption: InvalidOptionValue, candidates: readonly unknown[]): string | null {
  const firstValidValue = candidates.find((candidate) => isOptionValueValid(invalidOption, candidate));
  return firstValidValue === undefined ? null : `Write ${formatYamlValue(firstValidValue)}.`;
}

/** For a list option with the value `all`, suggests to omit the option. */
function suggestOmittingOption(invalidOption: InvalidOptionValue, text: string): string | null {
  if (!/^(all|any|\*)$/i.test(text)) return null;
  return isOptionValueValid(invalidOption, undefined) ? "Leave this key out for all of them." : null;
}

const DURATION_UNITS = ["s", "m", "h", "d"];

/** For a number or a boolean where a text is required, suggests quotes or a duration. */
function suggestAsText(invalidOption: InvalidOptionValue, value: number | boolean): string | null {
  const valueText = String(value);
  const problemWithText = invalidOption.findProblemWith(valueText);
  if (problemWithText === null) return `Put this into quotes: "${valueText}".`;
  const validDurationUnits = DURATION_UNITS.filter((unit) => isOptionValueValid(invalidOption, valueText + unit));
  const [firstUnit] = validDurationUnits;
  if (firstUnit === undefined) return problemWithText;
  const durationUnitsText = new Intl.ListFormat("en-GB", { type: "disjunction" }).format(validDurationUnits);
  return `Write ${valueText}${firstUnit}: a duration needs its unit, here ${durationUnitsText}.`;
}

function suggestList(invalidOption: InvalidOptionValue, value: string | number | boolean): string | null {
  const listItems: readonly unknown[] =
    typeof value === "string"
      ? value
          .replace(/^\[(.*)\]$/, "$1")
          .split(",")
          .map((word) => word.trim())
      : [value];
  if (listItems.includes("")) return null;
  const numericListItems = listItems.map((word) => (/^-?\d+$/.test(String(word)) ? Number(word) : word));
  const candidateListValues: (readonly unknown[])[] = [listItems, numericListItems, listItems.map(String)];
  const firstValidList = candidateListValues.find((list) => isOptionValueValid(invalidOption, list));
  return firstValidList === undefined ? null : `Write a list: ${formatYamlValue(firstValidList)}.`;
}

function isOptionValueValid({ findProblemWith }: InvalidOptionValue, value: unknown): boolean {
  return findProblemWith(value) === null;
}

/** Words that need quotes, because a YAML version reads them as another type. */
const YAML_RESERVED_WORD_PATTERN = /^(true|false|null|yes|no|on|off)$/i;

function formatYamlValue(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(formatYamlValue).join(", ")}]`;
  if (typeof value !== "string") return String(value);
  return /^[A-Za-z][\w-]+$/.test(value) && !YAML_RESERVED_WORD_PATTERN.test(value) ? value : JSON.stringify(value);
}

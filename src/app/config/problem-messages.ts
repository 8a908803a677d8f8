import { z } from "zod";
import { closestWord } from "../../core/values/spelling-suggestion.ts";
import { findDescription, knownKeys } from "./schema-lookup.ts";
import { adviceForKey, suggestValue } from "./suggested-fixes.ts";

export interface ConfigFinding {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly atKey?: boolean;
}

type ZodIssue = z.core.$ZodIssue;

export interface WrittenConfig {
  readonly schema: z.core.$ZodType;
  readonly content: unknown;
  /** True while a suggestion is checked, so that the check makes no suggestions itself. */
  readonly isTrial?: boolean;
}

/** Describes the issues of a schema check: each unknown key separately, and only the closest alternative of a union. */
export function describeIssues(
  written: WrittenConfig,
  issues: readonly ZodIssue[],
  prefix: readonly PropertyKey[] = [],
): ConfigFinding[] {
  return issues.flatMap((issue) => describeIssue(written, issue, [...prefix, ...issue.path]));
}

function describeIssue(
  written: WrittenConfig,
  issue: ZodIssue,
  path: readonly PropertyKey[],
): readonly ConfigFinding[] {
  const value = getValueAt(written.content, path);
  const suggestedFix =
    mayNeedSuggestion(issue, value) && written.isTrial !== true
      ? suggestValue({
          key: String(path.at(-1)),
          value,
          acceptsText: acceptsText(issue),
          complaintWith: (other) => findComplaintAbout(written, path, other),
        })
      : null;
  if (suggestedFix !== null) return [{ path, message: suggestedFix }];
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => {
        const keyAdvice = written.isTrial === true ? "" : adviceForKey(written.schema, path, key);
        return { path: [...path, key], atKey: true, message: `This key is not known here.${keyAdvice}` };
      });
    case "invalid_key":
      return [{ path, atKey: true, message: issue.issues[0]?.message ?? "This name cannot be used." }];
    case "invalid_union":
      return unionFindings(written, issue, path, value);
    case "invalid_value":
      return [{ path, message: choiceMessage(issue.values.map(String), value) }];
    case "invalid_type":
      return [{ path, message: typeMessage(written, issue.expected, path, value) }];
    case "too_small":
    case "too_big":
      return [{ path, message: customMessage(issue) ?? limitMessage(issue, value) }];
    default:
      return [{ path, message: addPeriod(issue.message) }];
  }
}

function mayNeedSuggestion({ code }: ZodIssue, value: unknown): boolean {
  if (code === "custom") return typeof value === "string";
  return ["invalid_type", "invalid_union", "invalid_value"].includes(code);
}

function acceptsText(issue: ZodIssue): boolean {
  if (issue.code === "invalid_type") return issue.expected === "string";
  if (issue.code === "invalid_value") return issue.values.some((value) => typeof value === "string");
  if (issue.code !== "invalid_union") return false;
  return issue.errors.some((branch) => branch.some((each) => each.path.length === 0 && acceptsText(each)));
}

function unionFindings(
  written: WrittenConfig,
  issue: z.core.$ZodIssueInvalidUnion,
  path: readonly PropertyKey[],
  value: unknown,
): readonly ConfigFinding[] {
  const { options } = issue as { options?: readonly unknown[] };
  if (issue.errors.length === 0) return [{ path, message: choiceMessage((options ?? []).map(String), value) }];
  const rankedBranches = issue.errors
    .map((issues) => ({ issues, distance: issueDistance(issues) }))
    .toSorted((a, b) => a.distance - b.distance);
  const closestBranch = rankedBranches[0];
  const schemaMessage = customMessage(issue);
  if (closestBranch === undefined || (schemaMessage !== undefined && closestBranch.distance >= UNLIKELY_DISTANCE)) {
    return [{ path, message: schemaMessage ?? addPeriod(issue.message) }];
  }
  return describeIssues(written, closestBranch.issues, path);
}

const UNLIKELY_DISTANCE = 5;

function issueDistance(issues: readonly ZodIssue[]): number {
  let totalDistance = 0;
  for (const issue of issues) {
    if (issue.code === "unrecognized_keys") totalDistance += UNLIKELY_DISTANCE * issue.keys.length;
    else if (issue.code === "invalid_type" && issue.path.length === 0) totalDistance += 100;
    else totalDistance += issue.code === "invalid_value" ? 2 : 1;
  }
  return totalDistance;
}

function typeMessage(written: WrittenConfig, expected: string, path: readonly PropertyKey[], value: unknown): string {
  if (value === undefined || value === null) {
    const optionDescription = findDescription(written.schema, path);
    if (
      expected === "object" &&
      value === null &&
      written.isTrial !== true &&
      findComplaintAbout(written, path, {}) === null
    ) {
      return "Write {} here where nothing is to be chosen, or its options below it.";
    }
    return `This is needed and missing${optionDescription === undefined ? "." : `: ${addPeriod(lowerFirstLetter(optionDescription))}`}`;
  }
  if ((expected === "number" || expected === "int") && typeof value === "number") return "Write a whole number.";
  if (expected === "object" && written.isTrial !== true) {
    const sectionAdvice = sectionHelp(written, path, value);
    if (sectionAdvice !== null) return sectionAdvice;
  }
  if (expected === "array" && typeof value === "object" && written.isTrial !== true) {
    return findComplaintAbout(written, path, [value]) === null
      ? "Write a list: put a dash in front of the first key, and indent the others below it."
      : "Write a list: each entry begins with a dash, and has its name as `name`.";
  }
  if (expected === "record" && Array.isArray(value)) {
    return "Write a section here, not a list: without dashes, each entry under a name of your own.";
  }
  const expectedKind = EXPECTED_KINDS[expected] ?? expected;
  const shouldDropQuotes = typeof value === "string" && isPlainText(expected, value);
  return `Write ${expectedKind} here${shouldDropQuotes ? ", without quotes" : ""}, not ${kindOfValue(value)}.`;
}

function sectionHelp(written: WrittenConfig, path: readonly PropertyKey[], value: unknown): string | null {
  if (typeof value === "string" && /^[\w-]+:(?!\/\/)\S/.test(value)) {
    return `Put a space behind the colon of \`${value.slice(0, value.indexOf(":"))}\`.`;
  }
  const sectionKeys = knownKeys(written.schema, path);
  if (sectionKeys.length === 0 || path.length === 0) return null;
  const validKeys = sectionKeys.filter((key) => findComplaintAbout(written, path, { [key]: value }) === null);
  if (validKeys.length === 1) return `Write it as a section: { ${validKeys[0]}: … }.`;
  const knownKeysText = sectionKeys.length > 15 ? "" : ` Known are: ${sectionKeys.join(", ")}.`;
  return `Write a section with keys of its own here, not ${kindOfValue(value)}.${knownKeysText}`;
}

/** Checks another value at a path. Returns the problem message; null if the value is valid. */
function findComplaintAbout(written: WrittenConfig, path: readonly PropertyKey[], value: unknown): string | null {
  const content = replaceValueAt(written.content, path, value);
  const issues = z.safeParse(written.schema, content).error?.issues ?? [];
  const findingAtPath = describeIssues({ schema: written.schema, content, isTrial: true }, issues).find((finding) =>
    path.every((step, depth) => finding.path[depth] === step),
  );
  return findingAtPath?.message ?? null;
}

function replaceValueAt(content: unknown, [step, ...rest]: readonly PropertyKey[], value: unknown): unknown {
  if (step === undefined) return value;
  if (typeof content !== "object" || content === null) return content;
  const copy = (Array.isArray(content) ? [...content] : { ...content }) as Record<PropertyKey, unknown>;
  copy[step] = replaceValueAt(copy[step], rest, value);
  return copy;
}

function isPlainText(expected: string, text: string): boolean {
  if (expected === "boolean") return text === "true" || text === "false";
  if (expected !== "number" && expected !== "int") return false;
  return text.trim() !== "" && Number.isFinite(Number(text));
}

const EXPECTED_KINDS: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list such as [a, b]",
  object: "a section with keys of its own",
  record: "a section with names of your own",
};

function kindOfValue(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a section";
  if (typeof value === "boolean") return String(value);
  return typeof value === "string" ? "a text" : `a ${typeof value}`;
}

function limitMessage(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig, value: unknown): string {
  const isMin = issue.code === "too_small";
  const limit = isMin ? issue.minimum : issue.maximum;
  const limitWord = isMin ? (issue.inclusive ? "at least" : "more than") : issue.inclusive ? "at most" : "less than";
  if (issue.origin === "string") return `Write ${limitWord} ${limit} characters.`;
  if (issue.origin === "array" && isMin && limit === 1) return "Write at least one entry, or leave the key out.";
  if (issue.origin === "array") return `Write ${limitWord} ${limit} entries.`;
  if (!isMin && limit === 1 && typeof value === "number" && value <= 100) {
    return `Write a number of ${limitWord} 1: it is a share, so ${value} % are ${value / 100}.`;
  }
  return `Write a number of ${limitWord} ${limit}.`;
}

function customMessage(issue: ZodIssue): string | undefined {
  return /^(Invalid|Too (small|big))/.test(issue.message) ? undefined : addPeriod(issue.message);
}

function choiceMessage(choices: readonly string[], value: unknown): string {
  // Quote texts of digits, because YAML reads them as numbers.
  const quoteDigits = (word: string) => (/^[\d.]+$/.test(word) ? `"${word}"` : word);
  const quotedChoices = choices.map(quoteDigits);
  const list = quotedChoices.length === 1 ? quotedChoices[0] : `one of ${quotedChoices.join(", ")}`;
  if (typeof value !== "string") return `Write ${list}.`;
  const closestChoice = closestWord(value, choices);
  return closestChoice === undefined ? `Write ${list}.` : `Write ${list}. Did you mean ${quoteDigits(closestChoice)}?`;
}

function addPeriod(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function lowerFirstLetter(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

function getValueAt(content: unknown, path: readonly PropertyKey[]): unknown {
  let value = content;
  for (const key of path) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Record<PropertyKey, unknown>)[key];
  }
  return value;
}

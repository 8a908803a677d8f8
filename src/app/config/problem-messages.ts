import { z } from "zod";
import { findClosestWord } from "../../core/values/spelling-suggestion.ts";
import { allowedKeys, findOptionDescription } from "./schema-lookup.ts";
import { adviceForUnknownKey, suggestOptionValue } from "./suggested-fixes.ts";

export interface ConfigFinding {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly isAboutKey?: boolean;
}

type ZodIssue = z.core.$ZodIssue;

export interface CheckedConfig {
  readonly schema: z.core.$ZodType;
  readonly content: unknown;
  /** True while a suggested value is checked; that check makes no further suggestions. */
  readonly isSuggestionCheck?: boolean;
}

/** Converts zod issues into messages. For a union, describes only the closest alternative. */
export function describeZodIssues(
  checkedConfig: CheckedConfig,
  issues: readonly ZodIssue[],
  pathPrefix: readonly PropertyKey[] = [],
): ConfigFinding[] {
  return issues.flatMap((issue) => describeZodIssue(checkedConfig, issue, [...pathPrefix, ...issue.path]));
}

function describeZodIssue(
  checkedConfig: CheckedConfig,
  issue: ZodIssue,
  path: readonly PropertyKey[],
): readonly ConfigFinding[] {
  const valueAtPath = getValueAtPath(checkedConfig.content, path);
  const suggestedFix =
    mayIssueNeedSuggestion(issue, valueAtPath) && checkedConfig.isSuggestionCheck !== true
      ? suggestOptionValue({
          key: String(path.at(-1)),
          value: valueAtPath,
          acceptsText: doesOptionAcceptText(issue),
          findProblemWith: (otherValue) => findProblemWithValue(checkedConfig, path, otherValue),
        })
      : null;
  if (suggestedFix !== null) return [{ path, message: suggestedFix }];
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => {
        const unknownKeyAdvice =
          checkedConfig.isSuggestionCheck === true ? "" : adviceForUnknownKey(checkedConfig.schema, path, key);
        return { path: [...path, key], isAboutKey: true, message: `This key is not known here.${unknownKeyAdvice}` };
      });
    case "invalid_key":
      return [{ path, isAboutKey: true, message: issue.issues[0]?.message ?? "This name cannot be used." }];
    case "invalid_union":
      return describeUnionIssue(checkedConfig, issue, path, valueAtPath);
    case "invalid_value":
      return [{ path, message: formatAllowedChoices(issue.values.map(String), valueAtPath) }];
    case "invalid_type":
      return [{ path, message: formatTypeError(checkedConfig, issue.expected, path, valueAtPath) }];
    case "too_small":
    case "too_big":
      return [{ path, message: findCustomIssueMessage(issue) ?? formatRangeMessage(issue, valueAtPath) }];
    default:
      return [{ path, message: addFullStop(issue.message) }];
  }
}

function mayIssueNeedSuggestion({ code }: ZodIssue, value: unknown): boolean {
  if (code === "custom") return typeof value === "string";
  return ["invalid_type", "invalid_union", "invalid_value"].includes(code);
}

function doesOptionAcceptText(issue: ZodIssue): boolean {
  if (issue.code === "invalid_type") return issue.expected === "string";
  if (issue.code === "invalid_value") return issue.values.some((value) => typeof value === "string");
  if (issue.code !== "invalid_union") return false;
  return issue.errors.some((branchIssues) =>
    branchIssues.some((branchIssue) => branchIssue.path.length === 0 && doesOptionAcceptText(branchIssue)),
  );
}

function describeUnionIssue(
  checkedConfig: CheckedConfig,
  issue: z.core.$ZodIssueInvalidUnion,
  path: readonly PropertyKey[],
  value: unknown,
): readonly ConfigFinding[] {
  const { options } = issue as { options?: readonly unknown[] };
  if (issue.errors.length === 0) return [{ path, message: formatAllowedChoices((options ?? []).map(String), value) }];
  const rankedUnionBranches = issue.errors
    .map((issues) => ({ issues, distance: computeSchemaDistance(issues) }))
    .toSorted((a, b) => a.distance - b.distance);
  const closestBranch = rankedUnionBranches[0];
  const issueMessage = findCustomIssueMessage(issue);
  if (closestBranch === undefined || (issueMessage !== undefined && closestBranch.distance >= UNLIKELY_BRANCH_DISTANCE))
    return [{ path, message: issueMessage ?? addFullStop(issue.message) }];
  return describeZodIssues(checkedConfig, closestBranch.issues, path);
}

const UNLIKELY_BRANCH_DISTANCE = 5;

function computeSchemaDistance(issues: readonly ZodIssue[]): number {
  let totalDistance = 0;
  for (const issue of issues) {
    if (issue.code === "unrecognized_keys") totalDistance += UNLIKELY_BRANCH_DISTANCE * issue.keys.length;
    else if (issue.code === "invalid_type" && issue.path.length === 0) totalDistance += 100;
    else totalDistance += issue.code === "invalid_value" ? 2 : 1;
  }
  return totalDistance;
}

function formatTypeError(
  checkedConfig: CheckedConfig,
  expected: string,
  path: readonly PropertyKey[],
  value: unknown,
): string {
  if (value === undefined || value === null) {
    const optionDescription = findOptionDescription(checkedConfig.schema, path);
    if (
      expected === "object" &&
      value === null &&
      checkedConfig.isSuggestionCheck !== true &&
      findProblemWithValue(checkedConfig, path, {}) === null
    )
      return "Write {} here where nothing is to be chosen, or its options below it.";
    return `This is needed and missing${optionDescription === undefined ? "." : `: ${addFullStop(lowerFirstLetter(optionDescription))}`}`;
  }
  if ((expected === "number" || expected === "int") && typeof value === "number") return "Write a whole number.";
  if (expected === "object" && checkedConfig.isSuggestionCheck !== true) {
    const missingSectionAdvice = findSectionAdvice(checkedConfig, path, value);
    if (missingSectionAdvice !== null) return missingSectionAdvice;
  }
  if (expected === "array" && typeof value === "object" && checkedConfig.isSuggestionCheck !== true)
    return findProblemWithValue(checkedConfig, path, [value]) === null
      ? "Write a list: put a dash in front of the first key, and indent the others below it."
      : "Write a list: each entry begins with a dash, and has its name as `name`.";
  if (expected === "record" && Array.isArray(value))
    return "Write a section here, not a list: without dashes, each entry under a name of your own.";
  const expectedTypeText = EXPECTED_TYPE_TEXTS[expected] ?? expected;
  const shouldDropQuotes = typeof value === "string" && isUnquotedLiteral(expected, value);
  return `Write ${expectedTypeText} here${shouldDropQuotes ? ", without quotes" : ""}, not ${valueTypeText(value)}.`;
}

function findSectionAdvice(checkedConfig: CheckedConfig, path: readonly PropertyKey[], value: unknown): string | null {
  if (typeof value === "string" && /^[\w-]+:(?!\/\/)\S/.test(value))
    return `Put a space behind the colon of \`${value.slice(0, value.indexOf(":"))}\`.`;
  const sectionKeys = allowedKeys(checkedConfig.schema, path);
  if (sectionKeys.length === 0 || path.length === 0) return null;
  const validKeys = sectionKeys.filter((key) => findProblemWithValue(checkedConfig, path, { [key]: value }) === null);
  if (validKeys.length === 1) return `Write it as a section: { ${validKeys[0]}: … }.`;
  const knownKeysText = sectionKeys.length > 15 ? "" : ` Known are: ${sectionKeys.join(", ")}.`;
  return `Write a section with keys of its own here, not ${valueTypeText(value)}.${knownKeysText}`;
}

/** Checks a suggested value of an option. Returns null if the value is valid. */
function findProblemWithValue(
  checkedConfig: CheckedConfig,
  path: readonly PropertyKey[],
  value: unknown,
): string | null {
  const content = replaceValueAtPath(checkedConfig.content, path, value);
  const findingAtPath = describeZodIssues(
    { schema: checkedConfig.schema, content, isSuggestionCheck: true },
    z.safeParse(checkedConfig.schema, content).error?.issues ?? [],
  ).find((finding) => path.every((step, depth) => finding.path[depth] === step));
  return findingAtPath?.message ?? null;
}

function replaceValueAtPath(
  content: unknown,
  [pathStep, ...remainingSteps]: readonly PropertyKey[],
  value: unknown,
): unknown {
  if (pathStep === undefined) return value;
  if (typeof content !== "object" || content === null) return content;
  const changedContent = (Array.isArray(content) ? [...content] : { ...content }) as Record<PropertyKey, unknown>;
  changedContent[pathStep] = replaceValueAtPath(changedContent[pathStep], remainingSteps, value);
  return changedContent;
}

function isUnquotedLiteral(expectedType: string, text: string): boolean {
  if (expectedType === "boolean") return text === "true" || text === "false";
  if (expectedType !== "number" && expectedType !== "int") return false;
  return text.trim() !== "" && Number.isFinite(Number(text));
}

const EXPECTED_TYPE_TEXTS: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list such as [a, b]",
  object: "a section with keys of its own",
  record: "a section with names of your own",
};

function valueTypeText(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a section";
  if (typeof value === "boolean") return String(value);
  return typeof value === "string" ? "a text" : `a ${typeof value}`;
}

function formatRangeMessage(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig, value: unknown): string {
  const isTooLow = issue.code === "too_small";
  const limit = isTooLow ? issue.minimum : issue.maximum;
  const limitText = isTooLow ? (issue.inclusive ? "at least" : "more than") : issue.inclusive ? "at most" : "less than";
  if (issue.origin === "string") return `Write ${limitText} ${limit} characters.`;
  if (issue.origin === "array" && isTooLow && limit === 1) return "Write at least one entry, or leave the key out.";
  if (issue.origin === "array") return `Write ${limitText} ${limit} entries.`;
  if (!isTooLow && limit === 1 && typeof value === "number" && value <= 100)
    return `Write a number of ${limitText} 1: it is a share, so ${value} % are ${value / 100}.`;
  return `Write a number of ${limitText} ${limit}.`;
}

function findCustomIssueMessage(issue: ZodIssue): string | undefined {
  return /^(Invalid|Too (small|big))/.test(issue.message) ? undefined : addFullStop(issue.message);
}

function formatAllowedChoices(choices: readonly string[], value: unknown): string {
  // YAML reads unquoted digits as a number.
  const quoteIfNumeric = (word: string) => (/^[\d.]+$/.test(word) ? `"${word}"` : word);
  const quotedChoices = choices.map(quoteIfNumeric);
  const allowedChoicesText = quotedChoices.length === 1 ? quotedChoices[0] : `one of ${quotedChoices.join(", ")}`;
  if (typeof value !== "string") return `Write ${allowedChoicesText}.`;
  const closestChoice = findClosestWord(value, choices);
  return closestChoice === undefined
    ? `Write ${allowedChoicesText}.`
    : `Write ${allowedChoicesText}. Did you mean ${quoteIfNumeric(closestChoice)}?`;
}

const addFullStop = (text: string): string => (/[.!?]$/.test(text) ? text : `${text}.`);

const lowerFirstLetter = (text: string): string => text.charAt(0).toLowerCase() + text.slice(1);

function getValueAtPath(content: unknown, path: readonly PropertyKey[]): unknown {
  let valueAtPath = content;
  for (const key of path) {
    if (typeof valueAtPath !== "object" || valueAtPath === null || !Object.hasOwn(valueAtPath, key)) return undefined;
    valueAtPath = (valueAtPath as Record<PropertyKey, unknown>)[key];
  }
  return valueAtPath;
}

import { z } from "zod";
import { descriptionOf, knownKeys } from "./schema-walk.ts";
import { suggestion } from "./suggest.ts";

/** What is wrong with one place of a configuration, as a sentence for the person who wrote it. */
export interface Finding {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** True when the key itself is wrong, not its value. */
  readonly atKey?: boolean;
}

type Issue = z.core.$ZodIssue;

interface Written {
  readonly schema: z.core.$ZodType;
  /** What stands in the file, as plain values. */
  readonly content: unknown;
  /** True while a hint is tried out, so that trying it out asks for no hint itself. */
  readonly isTrial?: boolean;
}

/** Every issue of a schema as sentences: one for each unknown key, and one alternative of a union, not all. */
export function findings(
  written: Written,
  issues: readonly Issue[],
  prefix: readonly PropertyKey[] = [],
): Finding[] {
  return issues.flatMap((issue) => describe(written, issue, [...prefix, ...issue.path]));
}

function describe(written: Written, issue: Issue, path: readonly PropertyKey[]): readonly Finding[] {
  const value = valueAt(written.content, path);
  switch (issue.code) {
    case "unrecognized_keys":
      return issue.keys.map((key) => {
        const help = suggestion(key, knownKeys(written.schema, path));
        return { path: [...path, key], atKey: true, message: `This key is not known here.${help}` };
      });
    case "invalid_key":
      return [{ path, atKey: true, message: issue.issues[0]?.message ?? "This name cannot be used." }];
    case "invalid_union":
      return fromUnion(written, issue, path, value);
    case "invalid_value":
      return [{ path, message: oneOf(issue.values.map(String), value) }];
    case "invalid_type":
      return [{ path, message: typeMessage(written, issue.expected, path, value) }];
    case "too_small":
    case "too_big":
      return [{ path, message: ownWords(issue) ?? boundMessage(issue) }];
    default:
      return [{ path, message: ended(issue.message) }];
  }
}

function fromUnion(
  written: Written,
  issue: z.core.$ZodIssueInvalidUnion,
  path: readonly PropertyKey[],
  value: unknown,
): readonly Finding[] {
  const { options } = issue as { options?: readonly unknown[] };
  if (issue.errors.length === 0) return [{ path, message: oneOf((options ?? []).map(String), value) }];
  const ranked = issue.errors
    .map((issues) => ({ issues, distance: distanceOf(issues) }))
    .toSorted((a, b) => a.distance - b.distance);
  const best = ranked[0];
  const own = ownWords(issue);
  if (best === undefined || (own !== undefined && best.distance >= NOT_MEANT)) {
    return [{ path, message: own ?? ended(issue.message) }];
  }
  return findings(written, best.issues, path);
}

/** From here on an alternative of a union is so far from what was written that it cannot have been meant. */
const NOT_MEANT = 5;

function distanceOf(issues: readonly Issue[]): number {
  let distance = 0;
  for (const issue of issues) {
    if (issue.code === "unrecognized_keys") distance += NOT_MEANT * issue.keys.length;
    else if (issue.code === "invalid_type" && issue.path.length === 0) distance += 100;
    else distance += issue.code === "invalid_value" ? 2 : 1;
  }
  return distance;
}

function typeMessage(
  written: Written,
  expected: string,
  path: readonly PropertyKey[],
  value: unknown,
): string {
  if (value === undefined || value === null) {
    const what = descriptionOf(written.schema, path);
    return `This is needed and missing${what === undefined ? "." : `: ${ended(lowerFirst(what))}`}`;
  }
  if (expected === "string" && (typeof value === "number" || typeof value === "boolean"))
    return textMessage(written, path, value);
  if ((expected === "number" || expected === "int") && typeof value === "number")
    return "Write a whole number.";
  const wanted = WANTED[expected] ?? expected;
  const unquoted = typeof value === "string" && isPlainText(expected, value);
  return `Write ${wanted} here${unquoted ? ", without quotes" : ""}, not ${kindOf(value)}.`;
}

/** Units that a number without one is tried with. */
const UNITS = ["s", "m", "h", "d"];

/** A number or a boolean where a text belongs. What the hint says has to be right once it is done. */
function textMessage(written: Written, path: readonly PropertyKey[], value: number | boolean): string {
  const quoted = String(value);
  if (written.isTrial === true) return `Put this into quotes: "${quoted}".`;
  const left = complaintAfter(written, path, quoted);
  if (left === null) return `Put this into quotes: "${quoted}".`;
  const [first, ...others] = UNITS.map((unit) => quoted + unit).filter(
    (each) => complaintAfter(written, path, each) === null,
  );
  if (first === undefined) return left;
  const last = others.pop();
  const all = last === undefined ? first : `${[first, ...others].join(", ")} or ${last}`;
  return `Write a duration with its unit: ${all}.`;
}

/** What would be wrong with a place if something else stood there; null when nothing. */
function complaintAfter(written: Written, path: readonly PropertyKey[], value: string): string | null {
  const content = replaced(written.content, path, value);
  const issues = z.safeParse(written.schema, content).error?.issues ?? [];
  const place = path.map(String).join(".");
  const here = findings({ schema: written.schema, content, isTrial: true }, issues).find(
    (finding) => finding.path.map(String).join(".") === place,
  );
  return here?.message ?? null;
}

function replaced(content: unknown, [step, ...rest]: readonly PropertyKey[], value: string): unknown {
  if (step === undefined) return value;
  if (typeof content !== "object" || content === null) return content;
  const copy = (Array.isArray(content) ? [...content] : { ...content }) as Record<PropertyKey, unknown>;
  copy[step] = replaced(copy[step], rest, value);
  return copy;
}

function isPlainText(expected: string, text: string): boolean {
  if (expected === "boolean") return text === "true" || text === "false";
  if (expected !== "number" && expected !== "int") return false;
  return text.trim() !== "" && Number.isFinite(Number(text));
}

const WANTED: Readonly<Record<string, string>> = {
  string: "a text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "a section with keys of its own",
  record: "a section with names of your own",
};

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return "a list";
  if (typeof value === "object") return "a section";
  if (typeof value === "boolean") return String(value);
  return typeof value === "string" ? "a text" : `a ${typeof value}`;
}

function boundMessage(issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig): string {
  const small = issue.code === "too_small";
  const bound = small ? issue.minimum : issue.maximum;
  const side = small
    ? issue.inclusive
      ? "at least"
      : "more than"
    : issue.inclusive
      ? "at most"
      : "less than";
  if (issue.origin === "string") return `Write ${side} ${bound} characters.`;
  if (issue.origin === "array") return `Write ${side} ${bound} entries.`;
  return `Write a number of ${side} ${bound}.`;
}

/** The message that our own schema gives; undefined when it is zod's. */
function ownWords(issue: Issue): string | undefined {
  return /^(Invalid|Too (small|big))/.test(issue.message) ? undefined : ended(issue.message);
}

function oneOf(words: readonly string[], value: unknown): string {
  const list = words.length === 1 ? words[0] : `one of ${words.join(", ")}`;
  if (typeof value !== "string") return `Write ${list}.`;
  const help = suggestion(value, words);
  return help.startsWith(" Did") ? `Write ${list}.${help}` : `Write ${list}.`;
}

function ended(text: string): string {
  return /[.!?]$/.test(text) ? text : `${text}.`;
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

function valueAt(content: unknown, path: readonly PropertyKey[]): unknown {
  let current = content;
  for (const step of path) {
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, step)) return undefined;
    current = (current as Record<PropertyKey, unknown>)[step];
  }
  return current;
}

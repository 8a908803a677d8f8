import { readFileSync } from "node:fs";
import { isMap, isNode, isPair, isScalar, LineCounter, type Node, parseDocument } from "yaml";
import type { z } from "zod";
import { ConfigError } from "../errors.ts";
import { interpolate } from "./interpolate.ts";
import { closest, knownKeys } from "./suggest.ts";

/** One thing that is wrong, where it stands, and what to do. Lines and columns count from 1. */
export interface ConfigProblem {
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** Dotted path, e.g. `sinks.lake.influxdb.url`; empty for the whole file. */
  readonly path: string;
  readonly message: string;
}

/** All that is wrong with a configuration file, told at once. */
export class ConfigurationError extends ConfigError {
  readonly problems: readonly ConfigProblem[];
  constructor(problems: readonly ConfigProblem[]) {
    super(problems.map(problemLine).join("\n"));
    this.problems = problems;
  }
}

export function problemLine(problem: ConfigProblem): string {
  const place = `${problem.file}:${problem.line}:${problem.column}`;
  return `${place} ${problem.path === "" ? "" : `${problem.path}: `}${problem.message}`;
}

export interface LoadOptions<T extends z.ZodType> {
  readonly schema: T;
  readonly file: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
}

/** Reads, interpolates and validates one YAML file. Throws `ConfigurationError` with every problem found. */
export function loadYaml<T extends z.ZodType>(options: LoadOptions<T>): z.output<T> {
  return parseYaml({ ...options, text: readText(options.file) });
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    const why = code === "ENOENT" ? "does not exist" : `cannot be read (${code})`;
    throw new ConfigError(`The configuration file ${file} ${why}.`, {
      hint: "Name another with --config, or start from config/example.yaml.",
      cause: error,
    });
  }
}

export function parseYaml<T extends z.ZodType>(
  options: LoadOptions<T> & { readonly text: string },
): z.output<T> {
  const { file, schema } = options;
  const lines = new LineCounter();
  const document = parseDocument(options.text, { lineCounter: lines, version: "1.2", prettyErrors: false });
  const at = (offset: number, path: string, message: string): ConfigProblem => {
    const { line, col } = lines.linePos(offset);
    return { file, line, column: col, path, message };
  };

  if (document.errors.length > 0) {
    throw new ConfigurationError(
      document.errors.map((e) => at(e.pos[0], "", `Not valid YAML: ${e.message}`)),
    );
  }
  const unset = interpolate(document, options.environment);
  if (unset.length > 0) {
    throw new ConfigurationError(unset.map((p) => at(p.node.range?.[0] ?? 0, "", p.message)));
  }
  const parsed = schema.safeParse(document.toJS({ maxAliasCount: 100 }) ?? {});
  if (parsed.success) return parsed.data;

  const problems = flatten(parsed.error.issues).map((issue) => {
    const path = issue.key === undefined ? issue.path : [...issue.path, issue.key];
    const offset = offsetOf(document.contents, path, issue.key !== undefined) ?? 0;
    const advice = issue.key === undefined ? "" : suggestion(issue.key, knownKeys(schema, issue.path));
    return at(offset, path.map(String).join("."), `${issue.message}${advice}`);
  });
  throw new ConfigurationError(problems);
}

interface FlatIssue {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  /** The key itself is what is wrong, not its value. */
  readonly key?: string;
}

/** One problem per unknown key, and the nearest alternative of a union instead of "invalid input". */
function flatten(issues: readonly z.core.$ZodIssue[], prefix: readonly PropertyKey[] = []): FlatIssue[] {
  return issues.flatMap((issue): FlatIssue[] => {
    const path = [...prefix, ...issue.path];
    if (issue.code === "unrecognized_keys") {
      return issue.keys.map((key) => ({ path, key, message: "This key is not known here." }));
    }
    if (issue.code === "invalid_union" && issue.errors.length > 0) {
      const deepest = issue.errors.toSorted((a, b) => nearness(b) - nearness(a))[0] ?? [];
      return flatten(deepest, path);
    }
    if (issue.code === "invalid_value" && typeof issue.input === "string") {
      const words = issue.values.map(String);
      return [{ path, message: `${issue.message}.${suggestion(issue.input, words)}` }];
    }
    return [{ path, message: /[.!?]$/.test(issue.message) ? issue.message : `${issue.message}.` }];
  });
}

/** An alternative that got further into the value is the one that was meant. */
function nearness(issues: readonly z.core.$ZodIssue[]): number {
  return Math.max(
    0,
    ...issues.map((issue) => issue.path.length * 10 + (issue.code === "unrecognized_keys" ? 5 : 0)),
  );
}

function suggestion(word: string, words: readonly string[]): string {
  const meant = closest(word, words);
  if (meant !== undefined) return ` Did you mean ${meant}?`;
  return words.length > 0 && words.length <= 25 ? ` Known are: ${words.join(", ")}.` : "";
}

/** Where a path stands in the text: the value, or its key; the nearest parent for what is missing. */
function offsetOf(root: Node | null, path: readonly PropertyKey[], wantKey: boolean): number | undefined {
  let node: Node | null = root;
  let offset = root?.range?.[0];
  for (const [depth, step] of path.entries()) {
    if (isMap(node)) {
      const pair = node.items.find(
        (item) => isPair(item) && isScalar(item.key) && item.key.value === String(step),
      );
      if (pair === undefined) return offset;
      const last = depth === path.length - 1;
      const place = (last && wantKey) || !isNode(pair.value) ? pair.key : pair.value;
      offset = isNode(place) ? place.range?.[0] : offset;
      node = isNode(pair.value) ? pair.value : null;
    } else if (node !== null && "items" in node && typeof step === "number") {
      const item: unknown = (node.items as unknown[])[step];
      if (!isNode(item)) return offset;
      node = item;
      offset = item.range?.[0] ?? offset;
    } else {
      return offset;
    }
  }
  return offset;
}

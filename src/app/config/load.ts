import { readFileSync } from "node:fs";
import { type Document, isMap, LineCounter, parseDocument } from "yaml";
import type { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { PostgresState } from "../../engine/store/state-config.ts";
import { type ConfigProblem, ConfigurationError } from "./config-problems.ts";
import { tokenVariables } from "./contradictory-options.ts";
import { type ConfigFinding, describeIssues, type WrittenConfig } from "./problem-messages.ts";
import { knownKeys } from "./schema-lookup.ts";
import { adviceForMissingName } from "./suggested-fixes.ts";
import {
  aliasOffset,
  findLikelyMistakes,
  findOffset,
  findSyntaxProblems,
  interpolateVariables,
} from "./yaml-variables-and-errors.ts";

export interface LoadOptions<T extends z.ZodType> {
  readonly schema: T;
  readonly file: string;
  readonly environment: ProcessEnv;
}

export function loadYaml<T extends z.ZodType>(options: LoadOptions<T>): z.output<T> {
  return parseYaml({ ...options, text: readText(options.file) });
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError(`The configuration file ${file} ${READ_ERRORS[code ?? ""] ?? `cannot be read (${code})`}.`, {
      hint:
        code === "ENOENT"
          ? "Make one with `plenum init`, or name another with --config."
          : "Name another with --config.",
      cause: error,
    });
  }
}

const READ_ERRORS: Readonly<Record<string, string>> = {
  ENOENT: "does not exist",
  EISDIR: "is a folder",
  EACCES: "may not be read by this user",
};

/** Limit of uses of YAML aliases, because nested aliases could fill the memory. */
const MAX_ALIASES = 100;

export function parseYaml<T extends z.ZodType>(options: LoadOptions<T> & { readonly text: string }): z.output<T> {
  const { file, schema } = options;
  const lineCounter = new LineCounter();
  const document = parseDocument(options.text, { lineCounter: lineCounter, version: "1.2", prettyErrors: false });
  const createProblem = (offset: number, path: readonly PropertyKey[], message: string): ConfigProblem => {
    const { line, col } = lineCounter.linePos(offset);
    return { file, line: Math.max(1, line), column: Math.max(1, col), path: path.map(String).join("."), message };
  };

  if (document.errors.length > 0) {
    const syntaxProblems = findSyntaxProblems(document, options.text);
    throw new ConfigurationError(syntaxProblems.map(({ offset, message }) => createProblem(offset, [], message)));
  }
  const { problems: placeholderProblems, used: usedVariables } = interpolateVariables(document, options.environment);
  const textProblems = [...findLikelyMistakes(document, options.text), ...placeholderProblems];
  const problems = textProblems.map(({ node, path, message }) => createProblem(node.range?.[0] ?? 0, path, message));
  const content = toPlainContent(document, (text, offset) => new ConfigurationError([createProblem(offset, [], text)]));
  if (content === null) {
    throw new ConfigurationError([createProblem(0, [], "The file is empty. Start from config/example.yaml.")]);
  }
  const tokens = tokenVariables(content);
  for (const { name, node, path } of usedVariables) {
    const source = tokens.get(name);
    if (source === undefined) continue;
    const message = `The variable ${name} holds the token of the source ${source}, and only that source may name it: take it out of this text.`;
    problems.push(createProblem(node.range?.[0] ?? 0, path, message));
  }
  const parsedConfig = schema.safeParse(content);
  const prototypeKeys = prototypeFindings(content);
  if (parsedConfig.success && problems.length === 0 && prototypeKeys.length === 0) return parsedConfig.data;

  // The content of a missing variable is unknown, so report no other problem at its path.
  const unresolvedPaths = new Set(problems.map(({ path }) => path));
  const addFinding = ({ path, message, atKey = false }: ConfigFinding) => {
    const problem = createProblem(findOffset(document.contents, path, atKey), path, message);
    if (!unresolvedPaths.has(problem.path)) problems.push(problem);
  };
  for (const finding of relevantFindings({ schema, content }, parsedConfig.error?.issues ?? [])) addFinding(finding);
  const reportedPaths = new Set(problems.map(({ path }) => path));
  for (const finding of prototypeKeys) if (!reportedPaths.has(finding.path.map(String).join("."))) addFinding(finding);
  throw new ConfigurationError(problems.toSorted((a, b) => a.line - b.line || a.column - b.column));
}

/** For a section whose entries lack names, reports only the missing names, because other findings follow from them. */
function relevantFindings(written: WrittenConfig, issues: readonly z.core.$ZodIssue[]): readonly ConfigFinding[] {
  const sections = typeof written.content === "object" ? Object.entries(written.content ?? {}) : [];
  const missingNames = sections.flatMap(([section, entries]): readonly ConfigFinding[] => {
    const message = adviceForMissingName(entries, knownKeys(written.schema, [section, "main"]), section);
    return message === null ? [] : [{ path: [section], atKey: true, message }];
  });
  const otherIssues = issues.filter(({ path }) => !missingNames.some((each) => each.path[0] === path[0]));
  return [...missingNames, ...describeIssues(written, otherIssues)];
}

const PROTOTYPE_KEY = "__proto__";

/** Finds the keys `__proto__`: the schema silently drops them from sections with user-defined names (`sinks`, `headers`). */
function prototypeFindings(content: unknown, path: readonly PropertyKey[] = []): readonly ConfigFinding[] {
  if (typeof content !== "object" || content === null) return [];
  if (Array.isArray(content)) return content.flatMap((entry, n) => prototypeFindings(entry, [...path, n]));
  return Object.entries(content).flatMap(([key, value]) => {
    const keyPath = [...path, key];
    if (key !== PROTOTYPE_KEY) return prototypeFindings(value, keyPath);
    return [{ path: keyPath, atKey: true, message: `Nothing can be called ${PROTOTYPE_KEY}: give it another name.` }];
  });
}

function toPlainContent(document: Document, failure: (message: string, offset: number) => Error): unknown {
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: MAX_ALIASES });
    // Throws if an alias is inside its own anchor, because such a value has no end.
    JSON.stringify(content);
  } catch (error) {
    const { name, message } = error as Error;
    const aliasName = /Unresolved alias.*: (.*)$/.exec(message)?.[1];
    if (name === "ReferenceError" && aliasName !== undefined) {
      const message = `A text that begins with * needs quotes: write "*${aliasName}"; an alias needs its anchor, &${aliasName}, above it.`;
      throw failure(message, aliasOffset(document, aliasName));
    }
    throw failure("The file refers to itself by aliases so often that it cannot be used. Write it out.", 0);
  }
  return content ?? null;
}

export interface StateSection {
  /** Option `state.folder`; null if it is missing or depends on a variable that is not set. */
  readonly folder: string | null;
  readonly isFleet: boolean;
  readonly postgres: PostgresState | null;
}

const UNKNOWN_STATE: StateSection = { folder: null, isFleet: false, postgres: null };

/** Reads only the section `state`. Never throws: a control command must not fail because of the rest of the file. */
export function readStateSection(text: string, environment: ProcessEnv): StateSection {
  try {
    const document = parseDocument(text, { version: "1.2", prettyErrors: false });
    const { problems } = interpolateVariables(document, environment);
    const unsetPaths = problems.map(({ path }) => path.map(String).join("."));
    const stateNode: unknown = isMap(document.contents) ? document.get("state") : null;
    if (!isMap(stateNode)) return UNKNOWN_STATE;
    const { folder, postgres } = stateNode.toJS(document, { maxAliasCount: 100 }) as Readonly<
      Record<"folder" | "postgres", unknown>
    >;
    const isFolderKnown = typeof folder === "string" && folder !== "" && !unsetPaths.includes("state.folder");
    const isPostgresSet = !unsetPaths.some((path) => path.startsWith("state.postgres"));
    const parsedPostgres = PostgresState.safeParse(postgres);
    return {
      folder: isFolderKnown ? folder : null,
      isFleet: stateNode.has("postgres"),
      postgres: isPostgresSet && parsedPostgres.success ? parsedPostgres.data : null,
    };
  } catch {
    return UNKNOWN_STATE;
  }
}

import { readFileSync } from "node:fs";
import { type Document, isMap, LineCounter, parseDocument } from "yaml";
import type { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { PostgresState } from "../../engine/store/state-config.ts";
import { type ConfigProblem, ConfigurationError } from "./config-problems.ts";
import { findTokenVariables } from "./contradictory-options.ts";
import { type CheckedConfig, type ConfigFinding, describeZodIssues } from "./problem-messages.ts";
import { allowedKeys } from "./schema-lookup.ts";
import { adviceForMissingEntryName } from "./suggested-fixes.ts";
import {
  findLikelyYamlMistakes,
  findOptionOffset,
  findYamlAliasOffset,
  findYamlSyntaxProblems,
  interpolateVariables,
} from "./yaml-variables-and-errors.ts";

export interface ConfigLoadOptions<T extends z.ZodType> {
  readonly schema: T;
  readonly file: string;
  readonly environment: ProcessEnv;
}

export function loadYamlConfig<T extends z.ZodType>(options: ConfigLoadOptions<T>): z.output<T> {
  return parseYaml({ ...options, text: readConfigFile(options.file) });
}

function readConfigFile(file: string): string {
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
const MAX_YAML_ALIASES = 100;

export function parseYaml<T extends z.ZodType>(options: ConfigLoadOptions<T> & { readonly text: string }): z.output<T> {
  const { file, schema } = options;
  const lineCounter = new LineCounter();
  const document = parseDocument(options.text, { lineCounter: lineCounter, version: "1.2", prettyErrors: false });
  const createProblem = (offset: number, path: readonly PropertyKey[], message: string): ConfigProblem => {
    const { line, col } = lineCounter.linePos(offset);
    return { file, line: Math.max(1, line), column: Math.max(1, col), path: path.map(String).join("."), message };
  };

  if (document.errors.length > 0) {
    const yamlSyntaxProblems = findYamlSyntaxProblems(document, options.text);
    throw new ConfigurationError(yamlSyntaxProblems.map(({ offset, message }) => createProblem(offset, [], message)));
  }
  const { problems: placeholderProblems, usedVariables } = interpolateVariables(document, options.environment);
  const yamlProblems = [...findLikelyYamlMistakes(document, options.text), ...placeholderProblems];
  const problems = yamlProblems.map(({ node, path, message }) => createProblem(node.range?.[0] ?? 0, path, message));
  const content = toYamlContent(document, (text, offset) => new ConfigurationError([createProblem(offset, [], text)]));
  if (content === null)
    throw new ConfigurationError([createProblem(0, [], "The file is empty. Start from config/example.yaml.")]);
  const sourceByTokenVariable = findTokenVariables(content);
  for (const { name, node, path } of usedVariables) {
    const tokenSource = sourceByTokenVariable.get(name);
    if (tokenSource === undefined) continue;
    const message = `The variable ${name} holds the token of the source ${tokenSource}, and only that source may name it: take it out of this text.`;
    problems.push(createProblem(node.range?.[0] ?? 0, path, message));
  }
  const parsedConfig = schema.safeParse(content);
  const prototypeKeys = findPrototypeKeys(content);
  if (parsedConfig.success && problems.length === 0 && prototypeKeys.length === 0) return parsedConfig.data;

  // Report no other problem of an option whose environment variable is not set.
  const unresolvedOptionPaths = new Set(problems.map(({ path }) => path));
  const addFinding = ({ path, message, isAboutKey = false }: ConfigFinding) => {
    const configProblem = createProblem(findOptionOffset(document.contents, path, isAboutKey), path, message);
    if (!unresolvedOptionPaths.has(configProblem.path)) problems.push(configProblem);
  };
  for (const finding of selectRelevantFindings({ schema, content }, parsedConfig.error?.issues ?? []))
    addFinding(finding);
  const reportedPaths = new Set(problems.map(({ path }) => path));
  for (const finding of prototypeKeys) if (!reportedPaths.has(finding.path.map(String).join("."))) addFinding(finding);
  throw new ConfigurationError(problems.toSorted((a, b) => a.line - b.line || a.column - b.column));
}

/** If the entries of a section lack names, reports no other problems of the section. */
function selectRelevantFindings(
  checkedConfig: CheckedConfig,
  issues: readonly z.core.$ZodIssue[],
): readonly ConfigFinding[] {
  const configSections = typeof checkedConfig.content === "object" ? Object.entries(checkedConfig.content ?? {}) : [];
  const missingNameFindings = configSections.flatMap(([section, entries]): readonly ConfigFinding[] => {
    const message = adviceForMissingEntryName(entries, allowedKeys(checkedConfig.schema, [section, "main"]), section);
    return message === null ? [] : [{ path: [section], isAboutKey: true, message }];
  });
  const otherSchemaIssues = issues.filter(
    ({ path }) => !missingNameFindings.some((finding) => finding.path[0] === path[0]),
  );
  return [...missingNameFindings, ...describeZodIssues(checkedConfig, otherSchemaIssues)];
}

const PROTOTYPE_KEY = "__proto__";

/** Finds keys named `__proto__`, because the schema would drop such keys silently. */
function findPrototypeKeys(content: unknown, path: readonly PropertyKey[] = []): readonly ConfigFinding[] {
  if (typeof content !== "object" || content === null) return [];
  if (Array.isArray(content)) return content.flatMap((entry, n) => findPrototypeKeys(entry, [...path, n]));
  return Object.entries(content).flatMap(([key, value]) => {
    const keyPath = [...path, key];
    if (key !== PROTOTYPE_KEY) return findPrototypeKeys(value, keyPath);
    return [
      { path: keyPath, isAboutKey: true, message: `Nothing can be called ${PROTOTYPE_KEY}: give it another name.` },
    ];
  });
}

function toYamlContent(document: Document, createError: (message: string, offset: number) => Error): unknown {
  let content: unknown;
  try {
    content = document.toJS({ maxAliasCount: MAX_YAML_ALIASES });
    // Throws if an alias is inside its own anchor, because such a value has no end.
    JSON.stringify(content);
  } catch (error) {
    const { name, message } = error as Error;
    const yamlAliasName = /Unresolved alias.*: (.*)$/.exec(message)?.[1];
    if (name === "ReferenceError" && yamlAliasName !== undefined) {
      const message = `A text that begins with * needs quotes: write "*${yamlAliasName}"; an alias needs its anchor, &${yamlAliasName}, above it.`;
      throw createError(message, findYamlAliasOffset(document, yamlAliasName));
    }
    throw createError("The file refers to itself by aliases so often that it cannot be used. Write it out.", 0);
  }
  return content ?? null;
}

export interface StateConfigSection {
  /** Option `state.folder`; null if the option is missing or uses an unset environment variable. */
  readonly folder: string | null;
  readonly isFleet: boolean;
  readonly postgres: PostgresState | null;
}

const UNKNOWN_STATE_SECTION: StateConfigSection = { folder: null, isFleet: false, postgres: null };

/** Reads only the section `state` of the configuration, and never throws. */
export function readStateOptions(text: string, environment: ProcessEnv): StateConfigSection {
  try {
    const document = parseDocument(text, { version: "1.2", prettyErrors: false });
    const { problems } = interpolateVariables(document, environment);
    const unsetOptions = problems.map(({ path }) => path.map(String).join("."));
    const stateYamlNode: unknown = isMap(document.contents) ? document.get("state") : null;
    if (!isMap(stateYamlNode)) return UNKNOWN_STATE_SECTION;
    const { folder, postgres } = stateYamlNode.toJS(document, { maxAliasCount: 100 }) as Readonly<
      Record<"folder" | "postgres", unknown>
    >;
    const isStateFolderKnown = typeof folder === "string" && folder !== "" && !unsetOptions.includes("state.folder");
    const isPostgresStateKnown = !unsetOptions.some((path) => path.startsWith("state.postgres"));
    const parsedPostgresState = PostgresState.safeParse(postgres);
    return {
      folder: isStateFolderKnown ? folder : null,
      isFleet: stateYamlNode.has("postgres"),
      postgres: isPostgresStateKnown && parsedPostgresState.success ? parsedPostgresState.data : null,
    };
  } catch {
    return UNKNOWN_STATE_SECTION;
  }
}

import { readFileSync } from "node:fs";
import {
  type Document,
  isAlias,
  isCollection,
  isMap,
  isNode,
  isPair,
  isScalar,
  LineCounter,
  type Node,
  parse,
  parseDocument,
  type Scalar,
  visit,
  type YAMLParseError,
} from "yaml";
import type { ProcessEnv } from "../../core/runtime/secret.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";

export interface YamlNodeProblem {
  readonly node: Scalar;
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

/** Matches `$${`, a placeholder `${NAME}`, or the beginning of an invalid placeholder. */
const VARIABLE_PLACEHOLDER_PATTERN = /\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([-?])([^}]*))?\}|\$\{/g;

/**
 * Replaces `${NAME}`, `${NAME:-default}` and `${NAME:?what to do}` from the environment; `$${` is a literal `${`. An empty
 * variable counts as unset. A replaced plain scalar is read as YAML again: `port: ${PORT}` gives a number.
 */
export function interpolateVariables(document: Document, environment: ProcessEnv) {
  const yamlProblems: YamlNodeProblem[] = [];
  const usedVariables: (Pick<YamlNodeProblem, "node" | "path"> & { readonly name: string })[] = [];
  visit(document, {
    Scalar(key, node, ancestors) {
      if (key === "key" || !isScalar(node) || typeof node.value !== "string") return;
      if (!node.value.includes("${")) return;
      const addYamlProblem = (message: string) => {
        yamlProblems.push({ node, path: optionPathOfNode(ancestors, node), message });
        return "";
      };
      const replacePlaceholder = (placeholder: string, name?: string, operator?: string, defaultOrAdvice = "") => {
        if (placeholder === "$${") return "${";
        if (name === undefined)
          return addYamlProblem(`Write \${NAME}, \${NAME:-default} or \${NAME:?what to do}; $\${ for a literal \${.`);
        usedVariables.push({ node, path: optionPathOfNode(ancestors, node), name });
        const value = environment[name];
        if (value !== undefined && value !== "") return value;
        if (operator === "-") return defaultOrAdvice;
        const variableAdvice =
          operator === "?" && defaultOrAdvice !== "" ? defaultOrAdvice : `Set it, or write \${${name}:-default}.`;
        return addYamlProblem(`The environment variable ${name} is not set. ${variableAdvice}`);
      };
      const interpolatedText = node.value.replace(VARIABLE_PLACEHOLDER_PATTERN, replacePlaceholder);
      node.value = node.type === "PLAIN" ? parsePlainYamlScalar(interpolatedText) : interpolatedText;
    },
  });
  return { problems: yamlProblems, usedVariables };
}

/** Parses text as a YAML number, boolean or string; never as a list or a section. */
function parsePlainYamlScalar(text: string): unknown {
  const value: unknown = valueOr(() => parse(text), text);
  return typeof value === "object" && value !== null ? text : value;
}

function optionPathOfNode(ancestors: readonly unknown[], node: Node): readonly PropertyKey[] {
  const path: PropertyKey[] = [];
  for (const [depth, ancestor] of ancestors.entries()) {
    const childYamlNode = ancestors[depth + 1] ?? node;
    if (isPair(ancestor)) path.push(isScalar(ancestor.key) ? String(ancestor.key.value) : "");
    else if (isNode(ancestor) && !isMap(ancestor) && "items" in ancestor) {
      path.push((ancestor.items as unknown[]).indexOf(childYamlNode));
    }
  }
  return path;
}

/** Finds valid YAML that is probably a mistake: typographic quotes, and shell or Windows variables. */
export function findLikelyYamlMistakes(document: Document, text: string): readonly YamlNodeProblem[] {
  if (!LIKELY_YAML_MISTAKE_PATTERN.test(text)) return [];
  const yamlProblems: YamlNodeProblem[] = [];
  visit(document, {
    Scalar(key, node, ancestors) {
      if (key === "key" || !isScalar(node) || typeof node.value !== "string") return;
      const message = likelyYamlMistakeMessage(node.value, node.type === "PLAIN");
      if (message !== null) yamlProblems.push({ node, path: optionPathOfNode(ancestors, node), message });
    },
  });
  return yamlProblems;
}

const LIKELY_YAML_MISTAKE_PATTERN = /[“”„‟‘’‚«»]|\$[A-Za-z_]|%[A-Za-z_]\w*%/u;

function likelyYamlMistakeMessage(text: string, isUnquoted: boolean): string | null {
  if (isUnquoted && /^[“”„‟‘’‚«»].*[“”„‟‘’‚«»]$/u.test(text))
    return `These quotes are typographic, so they belong to the text: write straight ones, "…", or none.`;
  const [, name] = /^(?:\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%)$/.exec(text)?.filter(Boolean) ?? [];
  return name === undefined ? null : `A variable of the environment is written with braces: \${${name}}.`;
}

/** Offset of an option in the YAML text; for a missing option, offset of the nearest parent. */
export function findOptionOffset(root: Node | null, path: readonly PropertyKey[], shouldLocateKey: boolean): number {
  let node: Node | null = root;
  let offset = yamlNodeStart(root) ?? 0;
  for (const [depth, pathKey] of path.entries()) {
    if (isMap(node)) {
      const entry = node.items.find(
        (item) => isPair(item) && isScalar(item.key) && String(item.key.value) === String(pathKey),
      );
      if (entry === undefined) return offset;
      const shouldUseKey =
        (depth === path.length - 1 && shouldLocateKey) || !isNode(entry.value) || isEmptyYamlScalar(entry.value);
      // For a section, use the offset of its key, not of its first entry.
      const locatedYamlNode = shouldUseKey || isMap(entry.value) ? entry.key : entry.value;
      offset = yamlNodeStart(locatedYamlNode) ?? offset;
      node = isNode(entry.value) ? entry.value : null;
    } else if (isNode(node) && !isAlias(node) && "items" in node && typeof pathKey === "number") {
      const yamlListItem: unknown = (node.items as unknown[])[pathKey];
      if (!isNode(yamlListItem)) return offset;
      node = yamlListItem;
      offset = yamlNodeStart(yamlListItem) ?? offset;
    } else {
      return offset;
    }
  }
  return offset;
}

const yamlNodeStart = (node: unknown): number | undefined => (isNode(node) ? node.range?.[0] : undefined);

const isEmptyYamlScalar = (node: Node): boolean => isScalar(node) && node.value === null && node.source === "";

/** Returns the location of an option in the configuration file, e.g. `plenum.yaml:12:9`. */
export type LocateOption = (path: readonly PropertyKey[]) => string;

/** Returns only the file name as the location of every option if the file is missing. */
export const locateOptionsInFile = (file: string): LocateOption =>
  valueOr(
    () => locateOptionsInText(file, readFileSync(file, "utf8")),
    () => file,
  );

export function locateOptionsInText(file: string, text: string): LocateOption {
  const lineCounter = new LineCounter();
  const { contents } = parseDocument(text, { lineCounter, version: "1.2" });
  return (path) => {
    const { line, col } = lineCounter.linePos(findOptionOffset(contents, path, false));
    return `${file}:${Math.max(1, line)}:${Math.max(1, col)}`;
  };
}

/** Returns one syntax problem per line, because one mistake causes several parser errors. */
export function findYamlSyntaxProblems(document: Document.Parsed, text: string) {
  const yamlSyntaxProblems = document.errors.map((error) => toYamlSyntaxProblem(document, text, error));
  const lineNumberOf = ({ offset }: { readonly offset: number }) => text.slice(0, offset).split("\n").length;
  return [...Map.groupBy(yamlSyntaxProblems, lineNumberOf).values()].flatMap(([firstProblem]) => firstProblem ?? []);
}

function toYamlSyntaxProblem(document: Document.Parsed, text: string, error: YAMLParseError) {
  const offset = error.pos[0];
  const isMissingQuote = /Missing closing/.test(error.message);
  const isMissingBracket = /must be sufficiently indented and end with/.test(error.message);
  const startOffset = findUnclosedTextStart(document, offset, isMissingQuote);
  if (startOffset === null || !(isMissingQuote || isMissingBracket))
    return { offset, message: yamlSyntaxMessage(error, text) };
  const bracketAdvice = `write ${text[startOffset] === "[" ? "]" : "}"} at its end`;
  const advice = isMissingQuote ? "write another one at the end of the text" : bracketAdvice;
  return { offset: startOffset, message: `This ${text[startOffset]} is not closed: ${advice}.` };
}

const NO_TABS_TEXT = "Indent with spaces; YAML does not allow tabs.";

const YAML_SYNTAX_MESSAGES: Readonly<Partial<Record<YAMLParseError["code"], string>>> = {
  DUPLICATE_KEY: "This key stands here twice; keep one of them.",
  MULTIPLE_DOCS: "The file holds several documents, separated by ---; keep one of them.",
  TAB_AS_INDENT: NO_TABS_TEXT,
  MULTILINE_IMPLICIT_KEY:
    "A colon and a space are missing behind a key: write `key: value`, or `key:` above a section.",
  BLOCK_AS_IMPLICIT_KEY:
    "This value is followed by what looks like another key: indent the next line as the line of this key, or put a value with `: ` in it into quotes.",
  BAD_DQ_ESCAPE: "In double quotes a backslash begins an escape: use single quotes, or write it twice.",
};

function yamlSyntaxMessage({ code, message, pos }: YAMLParseError, text: string): string {
  const character = text[pos[0]] ?? "";
  const knownMessage = YAML_SYNTAX_MESSAGES[code];
  if (knownMessage !== undefined) return knownMessage;
  if (code === "BAD_SCALAR_START") return `A text that begins with ${character} needs quotes: write "${character}…".`;
  if (code === "MISSING_CHAR" && /Comments/.test(message)) return "Put a space in front of the #.";
  if (!["BAD_INDENT", "UNEXPECTED_TOKEN", "MISSING_CHAR"].includes(code)) return `Not valid YAML: ${message}.`;
  if (/alias/.test(message)) return 'A text that begins with * needs quotes: write "*…".';
  if (/indicator|same column|indent/i.test(message))
    return "This line is indented otherwise than those that it belongs to: begin the keys of one section, and the dashes of one list, in the same column.";
  return character === "\t" ? NO_TABS_TEXT : `Not valid YAML: ${message}.`;
}

/** Finds the start of the innermost quoted text, list or map in braces that contains an offset. */
function findUnclosedTextStart(document: Document, offset: number, isMissingQuote: boolean): number | null {
  let innermostNodeStart: number | null = null;
  const checkYamlNode = (node: Node) => {
    const [from, , end] = node.range ?? [0, 0, 0];
    if (from <= offset && offset <= end && from >= (innermostNodeStart ?? 0)) innermostNodeStart = from;
  };
  visit(document, {
    Node(_, node) {
      if (isMissingQuote ? isScalar(node) && /^QUOTE/.test(node.type ?? "") : isCollection(node) && node.flow === true)
        checkYamlNode(node);
    },
  });
  return innermostNodeStart;
}

export function findYamlAliasOffset(document: Document, name: string): number {
  let aliasOffset = 0;
  visit(document, {
    Alias(_, node) {
      if (!isAlias(node) || node.source !== name) return;
      aliasOffset = node.range?.[0] ?? 0;
      return visit.BREAK;
    },
  });
  return aliasOffset;
}

import { type Document, isAlias, isCollection, isScalar, type Node, visit, type YAMLParseError } from "yaml";

/** A YAML syntax error, its location, and what to write. Offsets start at 0. */
export interface SyntaxProblem {
  readonly offset: number;
  readonly message: string;
}

/**
 * The first thing that is wrong in each line, in words of our own: one slip makes the parser stumble several times, and
 * it speaks of flow collections and implicit keys.
 */
export function syntaxProblems(document: Document.Parsed, text: string): readonly SyntaxProblem[] {
  const found = document.errors.map((error) => problemOf(document, text, error));
  const lineOf = ({ offset }: SyntaxProblem) => text.slice(0, offset).split("\n").length;
  return [...Map.groupBy(found, lineOf).values()].flatMap(([first]) => (first === undefined ? [] : [first]));
}

function problemOf(document: Document.Parsed, text: string, error: YAMLParseError): SyntaxProblem {
  const offset = error.pos[0];
  const isQuote = /Missing closing/.test(error.message);
  const opened = openedBefore(document, offset, isQuote);
  if (isQuote && opened !== null) {
    return {
      offset: opened,
      message: `This ${text[opened]} is not closed: write another one at the end of the text.`,
    };
  }
  if (/must be sufficiently indented and end with/.test(error.message) && opened !== null) {
    const end = text[opened] === "[" ? "]" : "}";
    return { offset: opened, message: `This ${text[opened]} is not closed: write ${end} at its end.` };
  }
  return { offset, message: sentence(error, text) };
}

function sentence({ code, message, pos }: YAMLParseError, text: string): string {
  const first = text[pos[0]] ?? "";
  switch (code) {
    case "DUPLICATE_KEY":
      return "This key stands here twice; keep one of them.";
    case "MULTIPLE_DOCS":
      return "The file holds several documents, separated by ---; keep one of them.";
    case "TAB_AS_INDENT":
      return "Indent with spaces; YAML does not allow tabs.";
    case "MULTILINE_IMPLICIT_KEY":
      return "A colon and a space are missing behind a key: write `key: value`, or `key:` above a section.";
    case "BLOCK_AS_IMPLICIT_KEY":
      return "This value is followed by what looks like another key: indent the next line as the line of this key, or put a value with `: ` in it into quotes.";
    case "BAD_INDENT":
    case "UNEXPECTED_TOKEN":
      return unexpected(message, first);
    case "BAD_SCALAR_START":
      return `A text that begins with ${first} needs quotes: write "${first}…".`;
    case "BAD_DQ_ESCAPE":
      return "In double quotes a backslash begins an escape: use single quotes, or write it twice.";
    case "MISSING_CHAR":
      return /Comments/.test(message) ? "Put a space in front of the #." : unexpected(message, first);
    default:
      return `Not valid YAML: ${message}.`;
  }
}

function unexpected(message: string, first: string): string {
  if (/alias/.test(message)) return 'A text that begins with * needs quotes: write "*…".';
  if (/indicator|same column|indent/i.test(message)) {
    return "This line is indented otherwise than those that it belongs to: begin the keys of one section, and the dashes of one list, in the same column.";
  }
  return first === "\t" ? "Indent with spaces; YAML does not allow tabs." : `Not valid YAML: ${message}.`;
}

/** Start of the innermost quoted text, list or section in braces around an offset; null outside. */
function openedBefore(document: Document, offset: number, isQuote: boolean): number | null {
  let opened: number | null = null;
  const look = (node: Node) => {
    const [from, , end] = node.range ?? [0, 0, 0];
    if (from <= offset && offset <= end && from >= (opened ?? 0)) opened = from;
  };
  visit(document, {
    Node(_, node) {
      if (isQuote ? isScalar(node) && /^QUOTE/.test(node.type ?? "") : isCollection(node) && node.flow === true) {
        look(node);
      }
    },
  });
  return opened;
}

/** Offset of an alias without an anchor; 0 when it is not found. */
export function offsetOfAlias(document: Document, name: string): number {
  let offset = 0;
  visit(document, {
    Alias(_, node) {
      if (!isAlias(node) || node.source !== name) return;
      offset = node.range?.[0] ?? 0;
      return visit.BREAK;
    },
  });
  return offset;
}

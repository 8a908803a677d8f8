import { parseAst } from "vitest/node";

/** One small change of a file, of the kind that a slip of the keyboard makes. */
export interface Mutant {
  /** From the root, e.g. `src/engine/commands/gate.ts`. */
  readonly file: string;
  readonly line: number;
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
  /** The changed lines without indentation, joined: how the list of equivalents names a change, whatever moves around it. */
  readonly before: string;
  readonly after: string;
}

/** What is needed of a node of the syntax tree. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [property: string]: unknown;
}

const OPERATORS: Readonly<Record<string, string>> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "+": "-",
  "-": "+",
  "*": "/",
  "/": "*",
  "&&": "||",
  "||": "&&",
};

/** Lines for people are nobody's promise, and a program without them does the same. */
const ASIDE = /^(\w+\.)*log\??\./;

/** All changes of a file, in the order of the text. */
export function mutantsOf(file: string, text: string): readonly Mutant[] {
  const found: Mutant[] = [];
  const change = (start: number, end: number, replacement: string) => {
    const from = text.lastIndexOf("\n", start - 1) + 1;
    const rest = text.indexOf("\n", end);
    const to = rest === -1 ? text.length : rest;
    const after = text.slice(from, start) + replacement + text.slice(end, to);
    const line = text.slice(0, start).split("\n").length;
    const flat = (part: string) => part.replace(/\s+/g, " ").trim();
    const before = flat(text.slice(from, to));
    found.push({ file, line, start, end, replacement, before, after: flat(after) });
  };
  walk(parseAst(text, { lang: "ts" }) as unknown as Node, (node) => {
    if (node.type === "ExpressionStatement" && ASIDE.test(text.slice(node.start, node.end))) return false;
    mutate(node, text, change);
    return true;
  });
  return found.toSorted((a, b) => a.start - b.start || a.end - b.end);
}

type Change = (start: number, end: number, replacement: string) => void;

function mutate(node: Node, text: string, change: Change): void {
  switch (node.type) {
    case "BinaryExpression":
    case "LogicalExpression":
      mutateOperator(node, text, change);
      return;
    case "UnaryExpression":
      if (node.operator === "!") change(node.start, node.start + 1, "");
      return;
    case "Literal":
      if (typeof node.value === "boolean") change(node.start, node.end, String(!node.value));
      if (typeof node.value === "number") {
        change(node.start, node.end, node.value === 0 ? "1" : `(${text.slice(node.start, node.end)} * 2)`);
      }
      return;
    case "MemberExpression": {
      const name = text.slice(node.start, node.end);
      if (name === "Math.max") change(node.start, node.end, "Math.min");
      if (name === "Math.min") change(node.start, node.end, "Math.max");
      return;
    }
    case "ExpressionStatement": {
      const expression = node.expression as Node;
      const called = expression.type === "AwaitExpression" ? (expression.argument as Node) : expression;
      if (called.type === "CallExpression") change(node.start, node.end, ";");
    }
  }
}

function mutateOperator(node: Node, text: string, change: Change): void {
  const left = node.left as Node;
  const right = node.right as Node;
  if (node.operator === "??") change(left.end, node.end, "");
  const operator = String(node.operator);
  const replacement = OPERATORS[operator];
  if (replacement === undefined) return;
  if (operator === "+" && [left, right].some((side) => isText(side))) return;
  // A comment may stand in between, and an operator in the comment.
  const between = text
    .slice(left.end, right.start)
    .replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, (comment) => " ".repeat(comment.length));
  const start = left.end + between.indexOf(operator);
  change(start, start + operator.length, replacement);
}

function isText({ type, value }: Node): boolean {
  return type === "TemplateLiteral" || typeof value === "string";
}

/** Types are no code: of what stands in brackets of types only the value in front is looked at. */
function walk(node: Node, visit: (node: Node) => boolean): void {
  const hasValue = ["TSAsExpression", "TSNonNullExpression", "TSSatisfiesExpression"].includes(node.type);
  if (node.type.startsWith("TS") && !hasValue) return;
  if (node.type === "ImportDeclaration" || node.type === "ExportAllDeclaration") return;
  if (!visit(node)) return;
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (isNode(child)) walk(child, visit);
    }
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && typeof (value as Node).type === "string";
}

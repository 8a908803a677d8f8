import { parseAst } from "vitest/node";

/** One small change of a source file, such as `<` in place of `<=`. */
export interface Mutant {
  /** Path from the root of the repository, e.g. `src/engine/commands/gate.ts`. */
  readonly file: string;
  readonly line: number;
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
  /** The changed lines joined, e.g. `if (a «>= → >» b) c = 2;`. */
  readonly change: string;
}

/** A node of the syntax tree. */
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

/** Statements that write to the log: tests need not notice a missing log line. */
const LOG_STATEMENT = /^(\w+\.)*log\??\./;

/** Returns all mutants of a file, in the order of the text. */
export function findMutants(file: string, text: string): readonly Mutant[] {
  const foundMutants: Mutant[] = [];
  const addMutant = (start: number, end: number, replacement: string) => {
    const lineStart = text.lastIndexOf("\n", start - 1) + 1;
    const lineEnd = text.indexOf("\n", end);
    const to = lineEnd === -1 ? text.length : lineEnd;
    const line = text.slice(0, start).split("\n").length;
    const markedLine = `${text.slice(lineStart, start)}«${text.slice(start, end)} → ${replacement}»${text.slice(end, to)}`;
    foundMutants.push({ file, line, start, end, replacement, change: markedLine.replace(/\s+/g, " ").trim() });
  };
  visitNodes(parseAst(text, { lang: "ts" }) as unknown as Node, (node) => {
    if (node.type === "ExpressionStatement" && LOG_STATEMENT.test(text.slice(node.start, node.end))) return false;
    mutate(node, text, addMutant);
    return true;
  });
  return foundMutants.toSorted((a, b) => a.start - b.start || a.end - b.end);
}

type AddMutant = (start: number, end: number, replacement: string) => void;

function mutate(node: Node, text: string, change: AddMutant): void {
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
      if (typeof node.value === "number")
        change(node.start, node.end, node.value === 0 ? "1" : `(${text.slice(node.start, node.end)} * 2)`);
      return;
    case "MemberExpression": {
      const propertyName = text.slice(node.start, node.end);
      if (propertyName === "Math.max") change(node.start, node.end, "Math.min");
      if (propertyName === "Math.min") change(node.start, node.end, "Math.max");
      return;
    }
    case "ExpressionStatement": {
      const expression = node.expression as Node;
      const called = expression.type === "AwaitExpression" ? (expression.argument as Node) : expression;
      if (called.type === "CallExpression") change(node.start, node.end, ";");
    }
  }
}

function mutateOperator(node: Node, text: string, change: AddMutant): void {
  const leftOperand = node.left as Node;
  const right = node.right as Node;
  if (node.operator === "??") change(leftOperand.end, node.end, "");
  const operator = String(node.operator);
  const replacement = OPERATORS[operator];
  if (replacement === undefined) return;
  if (operator === "+" && [leftOperand, right].some((side) => isText(side))) return;
  // Blank out comments between the operands, which may contain the operator.
  const between = text
    .slice(leftOperand.end, right.start)
    .replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, (comment) => " ".repeat(comment.length));
  const start = leftOperand.end + between.indexOf(operator);
  change(start, start + operator.length, replacement);
}

function isText({ type, value }: Node): boolean {
  return type === "TemplateLiteral" || typeof value === "string";
}

/** Visits all nodes except types and imports; of `value as Type` it visits the value. */
function visitNodes(node: Node, visit: (node: Node) => boolean): void {
  const hasValue = ["TSAsExpression", "TSNonNullExpression", "TSSatisfiesExpression"].includes(node.type);
  if (node.type.startsWith("TS") && !hasValue) return;
  if (node.type === "ImportDeclaration" || node.type === "ExportAllDeclaration") return;
  if (!visit(node)) return;
  for (const value of Object.values(node)) {
    for (const childNode of Array.isArray(value) ? value : [value]) {
      if (isNode(childNode)) visitNodes(childNode, visit);
    }
  }
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && typeof (value as Node).type === "string";
}

import { type Document, isScalar, parse, type Scalar, visit } from "yaml";

/**
 * `${NAME}`, `${NAME:-default}` and `${NAME:?what to do}` in any text of the file are replaced from the
 * environment, before the schema looks at the values. `$${` stands for a literal `${`.
 *
 * A plain scalar that was replaced is read as YAML again, so `port: ${PORT}` gives a number; a quoted one
 * stays text.
 */
export interface InterpolationProblem {
  readonly node: Scalar;
  readonly message: string;
}

const PLACEHOLDER = /\$?\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([-?])([^}]*))?\}/g;

export function interpolate(
  document: Document,
  environment: Readonly<Record<string, string | undefined>>,
): readonly InterpolationProblem[] {
  const problems: InterpolationProblem[] = [];
  visit(document, {
    Scalar(key, node) {
      if (key === "key" || !isScalar(node) || typeof node.value !== "string") return;
      if (!node.value.includes("${")) return;
      const text = node.value.replace(
        PLACEHOLDER,
        (whole, name: string, operator?: string, rest?: string) => {
          if (whole.startsWith("$$")) return whole.slice(1);
          const value = environment[name];
          if (value !== undefined && value !== "") return value;
          if (operator === "-") return rest ?? "";
          const advice = operator === "?" && rest ? rest : `Set it, or write \${${name}:-default}.`;
          problems.push({ node, message: `The environment variable ${name} is not set. ${advice}` });
          return "";
        },
      );
      node.value = node.type === "PLAIN" ? plainValue(text) : text;
    },
  });
  return problems;
}

function plainValue(text: string): unknown {
  try {
    const value: unknown = parse(text);
    return typeof value === "object" && value !== null ? text : value;
  } catch {
    return text;
  }
}

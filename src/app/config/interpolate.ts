import { type Document, isMap, isNode, isPair, isScalar, type Node, parse, type Scalar, visit } from "yaml";

/**
 * `${NAME}`, `${NAME:-default}` and `${NAME:?what to do}` in any text of the file are replaced from the
 * environment, before the schema looks at the values. `$${` stands for a literal `${`. An empty variable counts
 * as one that is not set.
 *
 * A plain scalar that was replaced is read as YAML again, so `port: ${PORT}` gives a number; a quoted one
 * stays text.
 */
export interface InterpolationProblem {
  readonly node: Scalar;
  readonly path: readonly PropertyKey[];
  readonly message: string;
}

export interface Interpolated {
  readonly problems: readonly InterpolationProblem[];
  /** Each variable that the file names, and its location. */
  readonly used: readonly (Pick<InterpolationProblem, "node" | "path"> & { readonly name: string })[];
}

/** `$${`, a whole placeholder, or the beginning of something that was meant to be one. */
const PLACEHOLDER = /\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::([-?])([^}]*))?\}|\$\{/g;

export function interpolate(
  document: Document,
  environment: Readonly<Record<string, string | undefined>>,
): Interpolated {
  const problems: InterpolationProblem[] = [];
  const used: Interpolated["used"][number][] = [];
  visit(document, {
    Scalar(key, node, ancestors) {
      if (key === "key" || !isScalar(node) || typeof node.value !== "string") return;
      if (!node.value.includes("${")) return;
      const complain = (message: string) => {
        problems.push({ node, path: pathOf(ancestors, node), message });
        return "";
      };
      const replace = (found: string, name?: string, operator?: string, rest = "") => {
        if (found === "$${") return "${";
        if (name === undefined) {
          return complain(`Write \${NAME}, \${NAME:-default} or \${NAME:?what to do}; $\${ for a literal \${.`);
        }
        used.push({ node, path: pathOf(ancestors, node), name });
        const value = environment[name];
        if (value !== undefined && value !== "") return value;
        if (operator === "-") return rest;
        const advice = operator === "?" && rest !== "" ? rest : `Set it, or write \${${name}:-default}.`;
        return complain(`The environment variable ${name} is not set. ${advice}`);
      };
      const text = node.value.replace(PLACEHOLDER, replace);
      node.value = node.type === "PLAIN" ? plainValue(text) : text;
    },
  });
  return { problems, used };
}

/** Text that comes from outside can become a number or true, never a list or a section. */
function plainValue(text: string): unknown {
  try {
    const value: unknown = parse(text);
    return typeof value === "object" && value !== null ? text : value;
  } catch {
    return text;
  }
}

export function pathOf(ancestors: readonly unknown[], node: Node): readonly PropertyKey[] {
  const path: PropertyKey[] = [];
  for (const [depth, ancestor] of ancestors.entries()) {
    const next = ancestors[depth + 1] ?? node;
    if (isPair(ancestor)) path.push(isScalar(ancestor.key) ? String(ancestor.key.value) : "");
    else if (isNode(ancestor) && !isMap(ancestor) && "items" in ancestor) {
      path.push((ancestor.items as unknown[]).indexOf(next));
    }
  }
  return path;
}

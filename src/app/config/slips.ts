import { type Document, isScalar, visit } from "yaml";
import { type InterpolationProblem, pathOf } from "./interpolate.ts";

/**
 * Finds valid YAML that is probably a mistake: typographic quotes, and shell or Windows variables, which are not
 * replaced.
 */
export function slips(document: Document, text: string): readonly InterpolationProblem[] {
  if (!SUSPICIOUS.test(text)) return [];
  const problems: InterpolationProblem[] = [];
  visit(document, {
    Scalar(key, node, ancestors) {
      if (key === "key" || !isScalar(node) || typeof node.value !== "string") return;
      const message = slipIn(node.value, node.type === "PLAIN");
      if (message !== null) problems.push({ node, path: pathOf(ancestors, node), message });
    },
  });
  return problems;
}

/** Most files have none of it, and need not be walked. */
const SUSPICIOUS = /[“”„‟‘’‚«»]|\$[A-Za-z_]|%[A-Za-z_]\w*%/u;

function slipIn(text: string, isPlain: boolean): string | null {
  if (isPlain && /^[“”„‟‘’‚«»].*[“”„‟‘’‚«»]$/u.test(text)) {
    return `These quotes are typographic, so they belong to the text: write straight ones, "…", or none.`;
  }
  const [, name] = /^(?:\$([A-Za-z_]\w*)|%([A-Za-z_]\w*)%)$/.exec(text)?.filter(Boolean) ?? [];
  return name === undefined ? null : `A variable of the environment is written with braces: \${${name}}.`;
}

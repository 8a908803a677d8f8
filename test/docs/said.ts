import { readFileSync } from "node:fs";
import { join } from "node:path";
import { files } from "./files.ts";

/** What the program says, to hold documents against: its sources with `…` where a text has something put in. */

const ROOT = join(import.meta.dirname, "../..");

/** At most so many characters stand where a document has `…`. */
const LONGEST_GAP = 120;

const PLACEHOLDER = /\$\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}/g;

const sources = files("{src,connectors}/**/*.ts")
  .filter((file) => !file.startsWith("src/simulator/"))
  .map((file) => readFileSync(join(ROOT, file), "utf8").replaceAll(PLACEHOLDER, "…"));

/** Whether some source has this text, `…` for anything. */
export function isSaid(quote: string): boolean {
  const parts = quote.split("…").map((part) => RegExp.escape(part.trim()));
  const pattern = new RegExp(parts.filter((part) => part !== "").join(`[^\\n]{0,${LONGEST_GAP}}?`));
  return sources.some((text) => pattern.test(text));
}

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { files } from "./files.ts";

/** Texts of the program: its sources with `…` for placeholders. */

const ROOT = join(import.meta.dirname, "../..");

/** Maximum characters for `…` in a quote. */
const LONGEST_GAP = 120;

const PLACEHOLDER = /\$\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}/g;

const sources = files("{src,connectors}/**/*.ts")
  .filter((file) => !file.startsWith("src/simulator/"))
  .map((file) => readFileSync(join(ROOT, file), "utf8").replaceAll(PLACEHOLDER, "…"));

/** Returns whether a source contains this text, where `…` matches anything. */
export function isSaid(quote: string): boolean {
  const parts = quote.split("…").map((part) => RegExp.escape(part.trim()));
  const pattern = new RegExp(parts.filter((part) => part !== "").join(`[^\\n]{0,${LONGEST_GAP}}?`));
  return sources.some((text) => pattern.test(text));
}

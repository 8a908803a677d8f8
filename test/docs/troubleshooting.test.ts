import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { files } from "./markdown.ts";

const ROOT = join(import.meta.dirname, "../..");
const page = readFileSync(join(ROOT, "docs/troubleshooting.md"), "utf8");
const PLACEHOLDER = /\$\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}/g;
const sources = files("{src,connectors}/**/*.ts")
  .filter((file) => !file.startsWith("src/simulator/"))
  .map((file) => readFileSync(join(ROOT, file), "utf8").replaceAll(PLACEHOLDER, "…"));

/** Returns whether a source contains this text, where `…` matches up to 120 characters. */
function isInSources(quote: string): boolean {
  const parts = quote.split("…").map((part) => RegExp.escape(part.trim()));
  const pattern = new RegExp(parts.filter((part) => part !== "").join("[^\\n]{0,120}?"));
  return sources.some((text) => pattern.test(text));
}

/** Returns the quoted first cells of all tables. */
function quotes(text: string): readonly string[] {
  return text.split(/^## /m).flatMap((section) => {
    const rows = section.split("\n").filter((line) => line.startsWith("|"));
    return rows.slice(2).flatMap((row) => /^\| `([^`]+)` \|/.exec(row)?.[1] ?? []);
  });
}

describe("docs/troubleshooting.md", () => {
  test("quotes only messages that exist in the program", () => {
    const foundQuotes = quotes(page);
    expect(foundQuotes.length).toBeGreaterThan(45);
    expect(foundQuotes.filter((quote) => !isInSources(quote))).toEqual([]);
  });

  test("fails the check for a quote that the program does not contain", () => {
    expect(isInSources("The configuration file … cannot be swallowed")).toBe(false);
    expect(isInSources("Another worker uses the state folder")).toBe(true);
  });
});

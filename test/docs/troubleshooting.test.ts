import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { isSaid } from "./said.ts";

const ROOT = join(import.meta.dirname, "../..");
const page = readFileSync(join(ROOT, "docs/troubleshooting.md"), "utf8");

/** Returns the quoted first cells of all tables. */
function quotes(text: string): readonly string[] {
  return text.split(/^## /m).flatMap((section) => {
    const rows = section.split("\n").filter((line) => line.startsWith("|"));
    return rows.slice(2).flatMap((row) => /^\| `([^`]+)` \|/.exec(row)?.[1] ?? []);
  });
}

describe("docs/troubleshooting.md", () => {
  test("quotes only messages that exist in the program", () => {
    const found = quotes(page);
    expect(found.length).toBeGreaterThan(45);
    expect(found.filter((quote) => !isSaid(quote))).toEqual([]);
  });

  test("fails the check for a quote that the program does not contain", () => {
    expect(isSaid("The configuration file … cannot be swallowed")).toBe(false);
    expect(isSaid("Another worker uses the state folder")).toBe(true);
  });
});

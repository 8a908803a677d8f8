import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { EQUIVALENTS } from "./equivalents.ts";
import { findMutants, type Mutant } from "./mutants.ts";
import { listTargetFiles, ROOT, TARGETS } from "./targets.ts";

/** Mutants as `before → after`, of the part that changes only. */
const listChanges = (text: string) => findMutants("x.ts", text).map(({ change }) => change.replace(/^.*«|».*$/g, ""));

describe("mutants of a source file", () => {
  test.each<[string, readonly string[]]>([
    ["const a = b < c;", ["< → <="]],
    ["if (a !== b && !c) d();", ["!== → ===", "&& → ||", "! → ", "d(); → ;"]],
    ["const a = b.c ?? d;", [" ?? d → "]],
    ["const a = Math.max(b, 20);", ["Math.max → Math.min", "20 → (20 * 2)"]],
    ["const a = [0, true];", ["0 → 1", "true → false"]],
    ["const a = b + c - d;", ["+ → -", "- → +"]],
    ["async () => { await a.b(c); };", ["await a.b(c); → ;"]],
    ["const a = (b /* < */ < c) as d;", ["< → <="]],
  ])("of %s change one operator, literal, call or condition each", (text, expected) => {
    expect(listChanges(text).toSorted()).toEqual(expected.toSorted());
  });

  test.each([
    "// a < b",
    "type A<B> = B extends 1 ? true : false;",
    'import a from "1 < 2";',
    'const a = "1 < 2" + `b < c`;',
    'log.warn({ a: b - c, d: true }, "e");',
    'options.log?.warn({ a }, "b");',
  ])("do not exist for types, imports, strings and log lines: %s", (text) => {
    expect(listChanges(text)).toEqual([]);
  });

  test("have the line and offsets of the changed token after characters of several bytes", () => {
    const sourceText = "// × → °C 𝄞\nconst a = 1;\n  if (a >= b) c = 2;\n";
    const mutantFields = findMutants("x.ts", sourceText).map(({ line, start, end, replacement, change }) => [
      line,
      sourceText.slice(start, end),
      replacement,
      change,
    ]);
    expect(mutantFields).toEqual([
      [2, "1", "(1 * 2)", "const a = «1 → (1 * 2)»;"],
      [3, ">=", ">", "if (a «>= → >» b) c = 2;"],
      [3, "2", "(2 * 2)", "if (a >= b) c = «2 → (2 * 2)»;"],
    ]);
  });
});

describe("the targets of mutation tests", () => {
  test("match source files and name existing tests", () => {
    for (const mutationTarget of TARGETS) {
      expect(listTargetFiles(mutationTarget), mutationTarget.name).not.toEqual([]);
      for (const file of mutationTarget.tests) expect(readFileSync(join(ROOT, file), "utf8")).not.toBe("");
    }
  });

  test("contain each mutant that is listed as equivalent", () => {
    const changes = Map.groupBy(TARGETS.flatMap(listTargetFiles).flatMap(allMutantsOf), ({ file }) => file);
    const missingEquivalents = Object.entries(EQUIVALENTS).flatMap(([file, rows]) =>
      rows
        .filter(([part]) => !changes.get(file)?.some(({ change }) => change.includes(part)))
        .map((row) => [file, row]),
    );
    expect(missingEquivalents).toEqual([]);
  });
});

function allMutantsOf(file: string): readonly Mutant[] {
  return findMutants(file, readFileSync(join(ROOT, file), "utf8"));
}

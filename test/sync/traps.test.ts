import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

/** Rows 1 to 42 of README.md in this folder: transport, identity, scope, quota and alarms. */
const ROWS = Array.from({ length: 42 }, (_, index) => index + 1);
const TESTS = fileURLToPath(new URL("..", import.meta.url));

const files = readdirSync(TESTS, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".test.ts"));

/** The traps that the titles of each file name: `trap 7`, `traps 8 and 9`. */
const named = new Map<number, Set<string>>();
for (const file of files) {
  const text = readFileSync(join(TESTS, file), "utf8");
  const titles = [
    ...text.matchAll(/\b(?:describe|test|it)(?:\.(?:each|skipIf)\([\s\S]*?\))?\(\s*["'`]([^"`\n]+)/g),
    // The first of a row that `test.each` makes a title of.
    ...text.matchAll(/^ +\["([^"\n]*\(trap \d+\)[^"\n]*)"/gm),
  ];
  for (const [, title = ""] of titles) {
    for (const [, first, second] of title.matchAll(/traps? (\d+)(?: and (\d+))?/g)) {
      for (const row of [first, second].flatMap((text) => (text === undefined ? [] : [Number(text)]))) {
        named.set(row, (named.get(row) ?? new Set()).add(file));
      }
    }
  }
}

test.each(ROWS)("a test title names trap %i, a known problem of the service", (row) => {
  expect(named.get(row) ?? []).not.toHaveLength(0);
});

const table = readFileSync(join(TESTS, "sync/README.md"), "utf8");
const listed = new Map(
  [...table.matchAll(/^\| (\d+) \| [^|]* \| ([^|]*) \|$/gm)].map(([, row, cell = ""]) => [
    Number(row),
    [...cell.matchAll(/`([^`]+)`/g)].map(([, file]) => file),
  ]),
);

test("the table in README.md lists every trap that a title names, with the files whose titles name the trap", () => {
  const all = [...new Set([...ROWS, ...named.keys(), ...listed.keys()])].sort((a, b) => a - b);
  for (const row of all) expect([row, listed.get(row)]).toEqual([row, [...(named.get(row) ?? [])].sort()]);
});

/** A test.each of rows names the trap inside its table; such a number has to be listed as well. */
test("the table in README.md lists every trap number that a test mentions", () => {
  for (const file of files) {
    const text = readFileSync(join(TESTS, file), "utf8");
    for (const [, first, second] of text.matchAll(/\btraps? (\d+)(?: and (\d+))?/g)) {
      for (const row of [first, second])
        if (row !== undefined)
          expect([file, [...listed.keys()]]).toEqual([file, expect.arrayContaining([Number(row)])]);
    }
  }
});

test("every random test takes its seed from PLENUM_SEED, which test/README.md documents", () => {
  const others = readdirSync(TESTS, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .filter((file) => /process\.env\.(?!PLENUM_SEED\b)\w*SEED\b/.test(readFileSync(join(TESTS, file), "utf8")));
  expect(others).toEqual([]);
  expect(readFileSync(join(TESTS, "README.md"), "utf8")).toContain("PLENUM_SEED");
});

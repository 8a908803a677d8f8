import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

/** Transport and envelope, identity, scope and quota, alarms: the rows of README.md beside this. */
const ROWS = Array.from({ length: 42 }, (_, index) => index + 1);
const TESTS = new URL("..", import.meta.url).pathname;

const files = readdirSync(TESTS, { recursive: true, encoding: "utf8" }).filter((file) =>
  file.endsWith(".test.ts"),
);

/** The traps that the titles of each file name: `trap 7`, `traps 8 and 9`. */
const named = new Map<number, Set<string>>();
for (const file of files) {
  const titles = readFileSync(join(TESTS, file), "utf8").matchAll(
    /\b(?:describe|test|it)(?:\.(?:each|skipIf)\([\s\S]*?\))?\(\s*["'`]([^"`\n]+)/g,
  );
  for (const [, title = ""] of titles) {
    for (const [, first, second] of title.matchAll(/traps? (\d+)(?: and (\d+))?/g)) {
      for (const row of [first, second].flatMap((text) => (text === undefined ? [] : [Number(text)]))) {
        named.set(row, (named.get(row) ?? new Set()).add(file));
      }
    }
  }
}

test.each(ROWS)("row %i is named by the title of a test", (row) => {
  expect(named.get(row) ?? []).not.toHaveLength(0);
});

test("the table in README.md names the files whose tests name the row", () => {
  const table = readFileSync(join(TESTS, "sync/README.md"), "utf8");
  const rows = new Map(
    [...table.matchAll(/^\| (\d+) \| [^|]* \| ([^|]*) \|$/gm)].map(([, row, cell = ""]) => [
      Number(row),
      [...cell.matchAll(/`([^`]+)`/g)].map(([, file]) => file),
    ]),
  );
  for (const row of ROWS) expect([row, rows.get(row)]).toEqual([row, [...(named.get(row) ?? [])].sort()]);
});

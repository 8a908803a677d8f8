import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const TESTS = fileURLToPath(new URL("..", import.meta.url));

/** Rows of the table in README.md: the number of a trap, and the files and titles of its tests. */
const rows = [...readFileSync(join(TESTS, "sync/README.md"), "utf8").matchAll(/^\| (\d+) \| [^|]* \| (.*) \|$/gm)];
const listedTests = rows.flatMap(([, row, tests = ""]) =>
  tests.split(/; (?=`)/).map((test) => [row, ...(/^`(.+)`: (.+)$/.exec(test) ?? []).slice(1)]),
);

test("the table of traps in test/sync/README.md has a row for each number from 1 to 42", () => {
  const numbers = rows.map(([, row]) => Number(row));
  expect(numbers.slice(0, 42)).toEqual(Array.from({ length: 42 }, (_, index) => index + 1));
});

test.each(listedTests)(
  "row %s of the table in sync/README.md: the file %s contains tests titled %s",
  (_row, file = "", title = "") => {
    const text = readFileSync(join(TESTS, file), "utf8");
    expect(title !== "" && [`"${title}`, `\`${title}`].some((start) => text.includes(start))).toBe(true);
  },
);

test("every random test takes its seed from PLENUM_SEED, which test/README.md documents", () => {
  const others = readdirSync(TESTS, { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts"))
    .filter((file) => /process\.env\.(?!PLENUM_SEED\b)\w*SEED\b/.test(readFileSync(join(TESTS, file), "utf8")));
  expect(others).toEqual([]);
  expect(readFileSync(join(TESTS, "README.md"), "utf8")).toContain("PLENUM_SEED");
});

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { EQUIVALENTS } from "./equivalents.ts";
import { mutantsOf } from "./mutants.ts";
import { filesOf, ROOMS, ROOT } from "./rooms.ts";

const afters = (text: string) => mutantsOf("x.ts", text).map(({ after }) => after);

describe("changes", () => {
  test.each<[string, readonly string[]]>([
    ["const a = b < c;", ["const a = b <= c;"]],
    [
      "if (a !== b && !c) d();",
      ["if (a === b && !c) d();", "if (a !== b || !c) d();", "if (a !== b && c) d();", "if (a !== b && !c) ;"],
    ],
    ["const a = b.c ?? d;", ["const a = b.c;"]],
    ["const a = Math.max(b, 20);", ["const a = Math.min(b, 20);", "const a = Math.max(b, (20 * 2));"]],
    ["const a = [0, true];", ["const a = [1, true];", "const a = [0, false];"]],
    ["const a = b + c - d;", ["const a = b - c - d;", "const a = b + c + d;"]],
    ["async () => { await a.b(c); };", ["async () => { ; };"]],
    ["const a = (b /* < */ < c) as d;", ["const a = (b /* < */ <= c) as d;"]],
  ])("%s", (text, expected) => {
    expect(afters(text)).toEqual(expected);
  });

  test.each([
    "// a < b",
    "type A<B> = B extends 1 ? true : false;",
    'import a from "1 < 2";',
    'const a = "1 < 2" + `b < c`;',
    'log.warn({ a: b - c, d: true }, "e");',
    'options.log?.warn({ a }, "b");',
  ])("%s stays as it is", (text) => {
    expect(afters(text)).toEqual([]);
  });

  test("name the line and replace exactly what they say, whatever letters stand before", () => {
    const text = "// × → °C 𝄞\nconst a = 1;\n  if (a >= b) c = 2;\n";
    const changed = mutantsOf("x.ts", text).map(({ line, start, end, replacement, before }) => [
      line,
      text.slice(start, end),
      replacement,
      before,
    ]);
    expect(changed).toEqual([
      [2, "1", "(1 * 2)", "const a = 1;"],
      [3, ">=", ">", "if (a >= b) c = 2;"],
      [3, "2", "(2 * 2)", "if (a >= b) c = 2;"],
    ]);
  });
});

describe("rooms", () => {
  test("have files, and tests that exist", () => {
    for (const room of ROOMS) {
      expect(filesOf(room), room.name).not.toEqual([]);
      for (const file of room.tests) expect(readFileSync(join(ROOT, file), "utf8")).not.toBe("");
    }
  });

  test("every change that counts as equivalent can still be made", () => {
    const all = new Set(
      ROOMS.flatMap(filesOf).flatMap((file) =>
        mutantsOf(file, readFileSync(join(ROOT, file), "utf8")).map(
          ({ before, after }) => `${file}\n${before}\n${after}`,
        ),
      ),
    );
    const gone = EQUIVALENTS.filter(({ file, before, after }) => !all.has(`${file}\n${before}\n${after}`));
    expect(gone).toEqual([]);
  });
});

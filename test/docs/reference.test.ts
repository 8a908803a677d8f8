import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { KINDS } from "#src/event.ts";
import { eventTypes } from "../../tools/reference/event-types.ts";
import { DOCUMENTS } from "../../tools/reference.ts";

const ROOT = join(import.meta.dirname, "../..");

describe("docs/reference", () => {
  test.each(DOCUMENTS)("$file says what is; write it anew with `npm run reference`", async (document) => {
    const text = readFileSync(join(ROOT, document.file), "utf8");
    expect(text === (await document.text()), "npm run reference").toBe(true);
  });
});

describe("what the code says of events", () => {
  const types = eventTypes(ROOT);

  test("has a sentence for every kind", () => {
    expect(types.kinds.map(({ kind }) => kind)).toEqual(KINDS);
    expect(types.kinds.filter(({ about }) => !about.endsWith("."))).toEqual([]);
  });

  test("has words for every field, inside of what is inside too", () => {
    const shapes = [types.envelope, ...types.kinds.flatMap(({ forms }) => forms), ...types.shapes.values()];
    const silent = shapes.flatMap(({ name, fields }) =>
      fields.filter(({ about }) => about === "").map((field) => `${name}.${field.name}`),
    );
    expect(silent).toEqual([]);
    expect(types.shapes.get("AgreedSilence")?.fields.length).toBeGreaterThan(8);
  });
});

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Config } from "#src/config/config.ts";
import { configJsonSchema } from "#src/config/json-schema.ts";
import { optionPaths } from "#src/config/schema-walk.ts";
import { KINDS } from "#src/event.ts";
import { optionAnchor, optionsOf } from "../../tools/reference/configuration.ts";
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

describe("what the schemas say of options", () => {
  const options = optionsOf(configJsonSchema());

  test("has words for every option that can be written, and an address of its own", () => {
    const known = optionPaths(Config);
    const paths = options.map(({ path }) => path);
    // Of a secret the two keys are in its type, and not options of their own.
    const other: Readonly<Record<string, string>> = { file: "env", env: "file" };
    const isOfSecret = (path: string) =>
      /\.(file|env)$/.test(path) && known.includes(path.replace(/\w+$/, (key) => other[key] ?? key));
    expect(known.filter((path) => !isOfSecret(path) && !paths.includes(path))).toEqual([]);
    expect(options.filter(({ about }) => about === "")).toEqual([]);
    expect(new Set(paths.map(optionAnchor)).size).toBe(paths.length);
  });

  test("has defaults and bounds", () => {
    const polite = options.find(({ path }) => path === "sources.*.quota.polite");
    expect(polite).toMatchObject({ default: "`1`", type: "number from 0.05 to 1" });
    const waits = options.find(({ path }) => path === "sinks.*.retry.max");
    expect(waits).toMatchObject({ default: "`5m`", type: "duration" });
  });
});

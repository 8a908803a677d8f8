import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, test } from "vitest";

const LATE = ["@platformatic/kafka", "pg", "hyparquet", "hyparquet-writer", "aws4fetch"];

test("the catalogue of connectors does not import client libraries of single connectors, such as Kafka's", () => {
  const packages = new Map<string, string>();
  const seen = new Set<string>();
  const walk = (file: string) => {
    if (seen.has(file)) return;
    seen.add(file);
    for (const [, isType, from = ""] of readFileSync(file, "utf8").matchAll(
      /^(?:import|export) (type )?[^;]*?from "([^"]+)";/gm,
    )) {
      if (isType !== undefined) continue;
      if (from.startsWith(".")) walk(resolve(dirname(file), from));
      else packages.set(from, file);
    }
  };
  walk(join(import.meta.dirname, "..", "..", "connectors", "catalog.ts"));
  expect([...packages.keys()]).toContain("zod");
  expect(LATE.flatMap((name) => packages.get(name) ?? [])).toEqual([]);
});

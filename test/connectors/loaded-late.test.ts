import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { expect, test } from "vitest";

const LATE_PACKAGES = ["@platformatic/kafka", "pg", "hyparquet", "hyparquet-writer", "aws4fetch"];

test("the catalogue of connectors does not import client libraries of single connectors, such as Kafka's", () => {
  const packages = new Map<string, string>();
  const visitedFiles = new Set<string>();
  const visitImports = (file: string) => {
    if (visitedFiles.has(file)) return;
    visitedFiles.add(file);
    for (const [, isType, from = ""] of readFileSync(file, "utf8").matchAll(
      /^(?:import|export) (type )?[^;]*?from "([^"]+)";/gm,
    )) {
      if (isType !== undefined) continue;
      if (from.startsWith(".")) visitImports(resolve(dirname(file), from));
      else packages.set(from, file);
    }
  };
  visitImports(join(import.meta.dirname, "..", "..", "connectors", "catalog.ts"));
  expect([...packages.keys()]).toContain("zod");
  expect(LATE_PACKAGES.flatMap((name) => packages.get(name) ?? [])).toEqual([]);
});

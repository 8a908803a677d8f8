import { readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { CONNECTOR_NAMES, CONNECTORS } from "#connectors/catalog.ts";

const folder = join(import.meta.dirname, "../../connectors");

interface JsonSchema {
  readonly description?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
}

describe.each(CONNECTOR_NAMES)("connector %s", (name) => {
  const definition = CONNECTORS[name];
  const readme = () => readFileSync(join(folder, name, "README.md"), "utf8");
  const schema = z.toJSONSchema(definition.Config, { io: "input", unrepresentable: "any" }) as JsonSchema;

  test("is in the catalogue under its own name, has a one-sentence summary, and has a sink or commands", () => {
    expect(definition.name).toBe(name);
    expect(definition.summary).toMatch(/^[A-Z].*\.$/);
    expect("sink" in definition || "commands" in definition).toBe(true);
    expect(readFileSync(join(folder, "README.md"), "utf8")).toContain(`(${name}/README.md)`);
  });

  test("explains every configuration option in its README, or links to the reference of its options", () => {
    if (readme().includes(`reference/configuration.md#sinks-${name}-`)) return;
    for (const key of Object.keys(schema.properties ?? {}))
      expect(readme(), `connectors/${name}/README.md does not explain ${key}`).toMatch(new RegExp(`\`${key}[\`.]`));
  });

  test("has a description of every configuration option for editors", () => {
    expect(schema.description).toBeTruthy();
    for (const [key, property] of Object.entries(schema.properties ?? {}))
      expect(property.description, key).toBeTruthy();
  });

  test("accepts every YAML example of its README as a configuration", () => {
    const examples = [...readme().matchAll(/```yaml\n(.*?)```/gs)].map(
      ([, text = ""]) => parse(text) as Record<string, unknown>,
    );
    const blocks = examples.filter((example) => name in example);
    expect(blocks.length).toBeGreaterThan(0);
    for (const block of blocks) {
      const result = (definition.Config as z.ZodType).safeParse(block[name]);
      expect(result.success, result.error?.message).toBe(true);
    }
  });

  test("rejects an unknown option as an error instead of ignoring it", () => {
    const result = (definition.Config as z.ZodType).safeParse({ a_typo: 1 });
    expect(JSON.stringify(result.error?.issues)).toContain("a_typo");
  });
});

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
  visitImports(join(folder, "catalog.ts"));
  expect([...packages.keys()]).toContain("zod");
  expect(LATE_PACKAGES.flatMap((name) => packages.get(name) ?? [])).toEqual([]);
});

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import type { z } from "zod";
import { Config, configJsonSchema } from "#src/app/config/config.ts";
import { listOptionPaths } from "#src/app/config/schema-lookup.ts";
import { buildManualPage } from "#src/cli/manual/man-and-schema-commands.ts";
import { EVENT_KINDS } from "#src/core/model/event.ts";
import { RELEASE_VERSION } from "#src/core/runtime/version.ts";
import { COMMANDS_FILE, commandsIn } from "../../tools/reference/commands.ts";
import { optionAnchor, optionsOf } from "../../tools/reference/configuration.ts";
import { eventTypes } from "../../tools/reference/event-types.ts";
import { describeMetrics } from "../../tools/reference/metrics.ts";
import { DOCUMENTS } from "../../tools/reference.ts";
import { completeProgram } from "../cli/complete-program.ts";
import { startVirtualWorker } from "../virtual-worker.ts";

const ROOT = join(import.meta.dirname, "../..");

describe("generated documents", () => {
  const platformDocuments = DOCUMENTS.filter(({ platform = process.platform }) => platform === process.platform);

  test.each(platformDocuments)("$file is up to date; `npm run reference` writes it", async (document) => {
    const text = readFileSync(join(ROOT, document.file), "utf8");
    expect(text === (await document.text()), "npm run reference").toBe(true);
  });
});

describe("descriptions of events in the code", () => {
  const types = eventTypes(ROOT);

  test("have a sentence for every event kind", () => {
    expect(types.kinds.map(({ kind }) => kind)).toEqual(EVENT_KINDS);
    expect(types.kinds.filter(({ about }) => !about.endsWith("."))).toEqual([]);
  });

  test("have a text for every field, including nested fields", () => {
    const shapes = [types.envelope, ...types.kinds.flatMap(({ forms }) => forms), ...types.shapes.values()];
    const undescribedFields = shapes.flatMap(({ name, fields }) =>
      fields.filter(({ about }) => about === "").map((field) => `${name}.${field.name}`),
    );
    expect(undescribedFields).toEqual([]);
    expect(types.shapes.get("AgreedSilence")?.fields.length).toBeGreaterThan(8);
  });
});

describe("descriptions of options in the schema", () => {
  const options = optionsOf(configJsonSchema());

  test("have a text and a separate link target for every option", () => {
    const knownPaths = listOptionPaths(Config);
    const paths = options.map(({ path }) => path);
    // The keys `file` and `env` of a secret are part of its type, not options.
    const otherKey: Readonly<Record<string, string>> = { file: "env", env: "file" };
    const isOfSecret = (path: string) =>
      /\.(file|env)$/.test(path) && knownPaths.includes(path.replace(/\w+$/, (key) => otherKey[key] ?? key));
    expect(knownPaths.filter((path) => !isOfSecret(path) && !paths.includes(path))).toEqual([]);
    expect(options.filter(({ about }) => about === "")).toEqual([]);
    expect(new Set(paths.map(optionAnchor)).size).toBe(paths.length);
  });

  test("state the default and the bounds of every option that the schema fills in", () => {
    const withoutDefault = options.filter(({ default: said }) => said === "none").map(({ path }) => path);
    expect(pathsWithDefault(Config).filter((path) => withoutDefault.includes(path))).toEqual([]);
    expect(options.find(({ path }) => path === "sinks.*.schedule")?.default).toBe("the connector's");
    const polite = options.find(({ path }) => path === "sources.*.quota.polite");
    expect(polite).toMatchObject({ default: "`1`", type: "number from 0.05 to 1" });
  });
});

test("docs/connections.md names every sink that can use a proxy", () => {
  const [, section = ""] = readFileSync(join(ROOT, "docs/connections.md"), "utf8").split(/^## HTTP proxy$/m);
  const [first = ""] = section.trim().split("\n\n");
  const proxied = listOptionPaths(Config).flatMap((path) => /^sinks\.\*\.(\w+)\.(?:s3\.)?proxy$/.exec(path)?.[1] ?? []);
  const [can = "", cannot = ""] = first.split("(`s3.proxy`).");
  expect(proxied.filter((name) => !can.includes(`\`${name}\``))).toEqual([]);
  expect(proxied.filter((name) => cannot.includes(`\`${name}\``))).toEqual([]);
});

test("the reference lists every exported metric with a help text", async () => {
  const metrics = describeMetrics();
  const harness = await startVirtualWorker({ simulator: {}, source: {}, eventsFolder: null });
  onTestFinished(() => harness.clear());
  const text = await (await fetch(`${harness.worker.statusUrl()}/metrics`)).text();
  const exportedNames = [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name]) => name);
  const knownNames = metrics.map(({ name }) => name);
  expect(exportedNames.length).toBeGreaterThan(20);
  expect(exportedNames.filter((name = "") => !knownNames.includes(name))).toEqual([]);
  expect(metrics.filter(({ help }) => !/^\S.*\.$/.test(help))).toEqual([]);
});

describe("generated documents of the command line", () => {
  test("docs/reference/commands.md has a section for each command", async () => {
    const program = await completeProgram();
    const text = readFileSync(join(ROOT, COMMANDS_FILE), "utf8");
    const sections = [...text.matchAll(/^## (.+)$/gm)].map(([, heading = ""]) => heading);
    const names = [...commandsIn(program)].map(({ name }) => name);
    expect(names.length).toBeGreaterThan(40);
    expect(sections.slice(2)).toEqual(names);
    expect(text).toContain("plenum outbox replay lake --since 2h");
  });

  test("the manual page prints defaults as a user types them", async () => {
    const manual = buildManualPage(await completeProgram(), RELEASE_VERSION).join("\n");
    expect(manual).toContain("Logged history that is fetched (default: 7d).");
    const preset = /default: (?!(now|\d+[a-z]+ ago|[\w./\\-]+)\))/;
    expect(manual.split("\n").filter((line) => preset.test(line))).toEqual([]);
  });
});

interface Definition extends Omit<z.core.$ZodTypeDef, "type"> {
  readonly type: string;
  readonly innerType?: z.core.$ZodType;
  readonly in?: z.core.$ZodType;
  readonly element?: z.core.$ZodType;
  readonly valueType?: z.core.$ZodType;
  readonly options?: readonly z.core.$ZodType[];
  readonly shape?: Readonly<Record<string, z.core.$ZodType>>;
}

/** Returns the paths of all options with a default. */
function pathsWithDefault(schema: z.core.$ZodType, path = ""): readonly string[] {
  const definition = schema._zod.def as unknown as Definition;
  const { type, innerType, in: input, element, valueType, options = [], shape = {} } = definition;
  const at = (key: string) => (path === "" ? key : `${path}.${key}`);
  const innerPaths = (inner: z.core.$ZodType | undefined, where: string) =>
    inner === undefined ? [] : pathsWithDefault(inner, where);
  return [
    ...(type === "default" || type === "prefault" ? [path] : []),
    ...innerPaths(innerType ?? input, path),
    ...innerPaths(element, `${path}[]`),
    ...innerPaths(valueType, at("*")),
    ...options.flatMap((option) => pathsWithDefault(option, path)),
    ...Object.entries(shape).flatMap(([key, value]) => pathsWithDefault(value, at(key))),
  ];
}

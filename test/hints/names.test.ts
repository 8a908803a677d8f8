import { existsSync } from "node:fs";
import { join } from "node:path";
import { Ajv, type ValidateFunction } from "ajv";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { Config, configJsonSchema } from "#src/app/config/config.ts";
import { listOptionPaths } from "#src/app/config/schema-lookup.ts";
import { completeProgram } from "../cli/complete-program.ts";
import { listCommandLines, listHints } from "./source-texts.ts";

/** Everything that a hint names exists: commands and options, configuration keys and values, files. */
const repositoryRoot = join(import.meta.dirname, "../..");
const program = await completeProgram();
const paths = listOptionPaths(Config).map((path) => path.replaceAll("[]", ""));
const lastNames = new Set(paths.flatMap((path) => path.split(".")));

/** The command that a line begins with, however deep; undefined where it is none. */
function findCommand(words: readonly string[], from: Command = program): Command | undefined {
  const subcommand = from.commands.find((each) => each.name() === words[0]);
  if (subcommand === undefined) return from === program ? undefined : from;
  return findCommand(words.slice(1), subcommand);
}

function listOptions(command: Command): ReadonlySet<string> {
  const ownOptions = [...program.options, ...command.options, ...(command.parent?.options ?? [])];
  return new Set(["--help", ...ownOptions.map(({ long }) => long ?? "")]);
}

function listAllOptions(command: Command = program): readonly string[] {
  return [...listOptions(command), ...command.commands.flatMap((each) => listAllOptions(each))];
}

describe("commands in hints", () => {
  const lines = listCommandLines();

  test.each(lines)("the command exists with its options, in $place: plenum $text", ({ text }) => {
    const words = text.split(/\s+/);
    const command = findCommand(words);
    expect(command, "no such command").toBeDefined();
    if (command === undefined) return;
    const isGroup = command.commands.length > 0 && command.registeredArguments.length === 0;
    const operands = words.slice(command.parent === program ? 1 : 2).filter((word) => !word.startsWith("-"));
    if (isGroup) expect(operands, "no such subcommand").toEqual([]);
    for (const word of words.filter((each) => each.startsWith("--"))) {
      expect([...listOptions(command)], `no such option of ${command.name()}`).toContain(word);
    }
  });

  test("an option that a hint names without a command exists", () => {
    const knownOptions = new Set(listAllOptions());
    const unknown = listHints().flatMap(({ location, text }) =>
      [...text.matchAll(/(?<![\w-])--[a-z][a-z-]+/g)]
        .map(([option]) => option)
        .filter((option) => !knownOptions.has(option) && !FOREIGN_OPTIONS.has(option))
        .map((option) => `${location} ${option}`),
    );
    expect(unknown).toEqual([]);
    expect(lines.length).toBeGreaterThan(30);
  });
});

/** Options of `influx bucket create`. */
const FOREIGN_OPTIONS: ReadonlySet<string> = new Set(["--name"]);

/** Words with an underscore or a point that are somebody else's, and whose. */
const FOREIGN_NAMES: Readonly<Record<string, string>> = {
  NODE_OPTIONS: "Node.js",
  "delta.appendOnly": "a property of Delta tables",
};

describe("configuration keys in hints", () => {
  const isKnown = (word: string) => paths.some((path) => path === word || path.endsWith(`.${word}`));

  test.each(listHints())("the keys exist, in $place: $text", ({ text }) => {
    const words = [
      ...text.replaceAll(/https?:\/\/\S+|\S+\.(com|md|yaml|json|example)\b/g, "").matchAll(/\b[a-z]\w*(?:[_.]\w+)+/g),
    ].map(([word]) => word);
    const unknown = words.filter((word) => FOREIGN_NAMES[word] === undefined && !isKnown(word));
    expect(unknown).toEqual([]);
  });

  const ajv = new Ajv({ strict: false, formats: { uri: true, ipv4: true, ipv6: true } });
  const validators = validatorsByName(configJsonSchema());

  test.each(listHints().filter(({ text }) => VALUE.test(text)))(
    "the key accepts the value, in $place: $text",
    ({ text }) => {
      const [, name = "", word = ""] = VALUE.exec(text) ?? [];
      expect([...lastNames]).toContain(name.split(".").at(-1));
      const value = word === "true" || word === "false" ? word === "true" : word;
      const takers = validators.get(name.split(".").at(-1) ?? "") ?? [];
      expect(takers.some((takes) => takes(value))).toBe(true);
    },
  );

  /** Allowed values of each configuration key, at every path. */
  function validatorsByName(schema: unknown): ReadonlyMap<string, readonly ValidateFunction[]> {
    const found = new Map<string, ValidateFunction[]>();
    const { definitions } = schema as { readonly definitions?: object };
    const visitNode = (node: unknown): void => {
      if (typeof node !== "object" || node === null) return;
      const { properties } = node as { readonly properties?: Readonly<Record<string, object>> };
      for (const [name, inner] of Object.entries(properties ?? {})) {
        found.set(name, [...(found.get(name) ?? []), ajv.compile({ ...inner, definitions })]);
      }
      for (const inner of Object.values(node)) visitNode(inner);
    };
    visitNode(schema);
    return found;
  }
});

/** `create: true`, `security: tls`. */
const VALUE = /\b([a-z][a-z_.]*): (true|false|[a-z]+\d?)\b(?! )/;

test("files named in hints exist", () => {
  const missingFiles = listHints().flatMap(({ location, text }) =>
    [...text.matchAll(/\b[\w/-]+\.(?:yaml|md|example)\b(?!\.\w)/g)]
      .map(([file]) => file)
      .filter((file) => !existsSync(join(repositoryRoot, file)))
      .map((file) => `${location} ${file}`),
  );
  expect(missingFiles).toEqual([]);
});

test("the test covers more than 150 hints, and no hint is empty", () => {
  const all = listHints();
  expect(all.length).toBeGreaterThan(150);
  for (const { location, text } of all) expect(text.length, location).toBeGreaterThan(5);
});

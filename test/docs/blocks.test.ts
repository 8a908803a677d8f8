import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/app/config/config.ts";
import { listOptionPaths } from "#src/app/config/schema-lookup.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { completeProgram } from "../cli/complete-program.ts";
import { blocksIn, inlineCodeIn, type Page, pages } from "./markdown.ts";

const ROOT = join(import.meta.dirname, "../..");
const program = await completeProgram();
const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  readonly scripts: Readonly<Record<string, string>>;
};
const LOWER_CASE_WORD = /^[a-z][a-z-]+$/;
const SHELLS = new Set(["sh", "bash", "console", "shell"]);

/** Command lines of a page, with their continuation lines joined. */
function commandLines(page: Page): readonly string[] {
  const blocks = blocksIn(page).filter(({ language }) => SHELLS.has(language));
  const lines = blocks.flatMap(({ text }) => text.replaceAll(/\\\n\s*/g, " ").split("\n"));
  const spans = inlineCodeIn(page).filter((span) => /^(\.\/)?(plenum|npm|npx) /.test(span));
  return [...lines, ...spans].map((line) => line.replace(/^\s*\$ /, "").trim());
}

/** Returns the error in the arguments of a documented `plenum` command, or null. */
function commandComplaint(program: Command, words: readonly string[]): string | null {
  let command = program;
  for (const word of words) {
    if (word === "…" || word === "--" || word.startsWith("#")) break;
    if (word.startsWith("-")) {
      const [name = ""] = word.split(/[=.,;)]/);
      const all = [...command.options, ...program.options];
      const isKnownOption = all.some(({ long, short }) => long === name || short === name);
      if (!isKnownOption && !["--help", "-h"].includes(name)) return `${command.name()} has no option ${name}`;
      continue;
    }
    const subcommand = command.commands.find((each) => each.name() === word);
    if (subcommand !== undefined) command = subcommand;
    else if (command === program) return LOWER_CASE_WORD.test(word) ? `there is no command ${word}` : null;
    else if (command.commands.length > 0 && command.registeredArguments.length === 0 && LOWER_CASE_WORD.test(word))
      return `${command.name()} has no command ${word}`;
  }
  return null;
}

function complaintAbout(line: string): string | null {
  const [, rest] = /(?:^|[\s/&;|(])plenum(?:\.cmd)? ([^|&;()<>]*)/.exec(line.replace(/^sudo -u \S+ /, "")) ?? [];
  if (rest !== undefined && !/^\S*[/.]plenum/.test(rest)) {
    const complaint = commandComplaint(program, rest.trim().split(/\s+/));
    if (complaint !== null) return complaint;
  }
  const [, script] = /\bnpm run (?:-s )?([\w:-]+)/.exec(line) ?? [];
  if (script !== undefined && scripts[script] === undefined) return `there is no script ${script}`;
  const [, path] = /\bvitest (?:run )?((?:test|src)\/[\w./-]+)/.exec(line) ?? [];
  if (path !== undefined && !existsSync(join(ROOT, path))) return `there is no ${path}`;
  return null;
}

describe("commands named in the documents", () => {
  test("exist with their options, scripts and tests", () => {
    const documentedLines = pages.flatMap((page) => commandLines(page).map((line) => ({ file: page.file, line })));
    expect(documentedLines.length).toBeGreaterThan(300);
    const complaints = documentedLines.flatMap(({ file, line }) => {
      const complaint = complaintAbout(line);
      return complaint === null ? [] : [`${file}: ${line}: ${complaint}`];
    });
    expect(complaints).toEqual([]);
  });

  test("are reported when a command, an option or a script does not exist", () => {
    expect(complaintAbout("plenum outbox dead tickets")).toBeNull();
    expect(complaintAbout("plenum outbox burn tickets")).toBe("outbox has no command burn");
    expect(complaintAbout("./plenum plan --faster")).toBe("plan has no option --faster");
    expect(complaintAbout("npm run nothing")).toBe("there is no script nothing");
  });
});

const knownPaths = new Set(listOptionPaths(Config));
/** Paths at which a YAML block may begin: the root, a source, a sink, a connector … */
const BLOCK_PATHS = ["", ...[...knownPaths].flatMap((path) => [path, `${path}[]`, `${path}.*`])].filter(
  (path) => !isFree(path.replace(/(\.\*|\[\])$/, "")),
);

/** Returns unknown paths of a value below a path. */
function unknownBelow(value: unknown, at: string): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((each) => unknownBelow(each, `${at}[]`));
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const path = at === "" ? key : `${at}.${key}`;
    if (knownPaths.has(path)) return unknownBelow(inner, path);
    const namedPath = `${at}.*`;
    const hasNames = [...knownPaths].some((each) => each.startsWith(`${namedPath}.`));
    if (hasNames) return unknownBelow(inner, namedPath);
    return isFree(at) ? [] : [path];
  });
}

/** Sections that accept any keys, such as headers and labels. */
function isFree(path: string): boolean {
  return /(headers|labels|tags|words|fields|body|priority|approvers)$/.test(path);
}

const isPartOfConfiguration = (value: unknown) => BLOCK_PATHS.some((at) => unknownBelow(value, at).length === 0);

describe("YAML blocks in the documents", () => {
  /** Beginnings of files of other programs. */
  const foreignBlocks =
    /^(mqtt:\n {2}sensor:|scrape_configs:|route:|receivers:|apiVersion:|global:|services:|availability:)/m;
  const blocks = pages.flatMap(blocksIn).filter(({ language }) => language === "yaml");
  const isOfSimulator = (file: string) => file.startsWith("src/simulator/");

  test("contain only keys of one section of the schema", () => {
    const plenumBlocks = blocks.filter(({ file, text }) => !foreignBlocks.test(text) && !isOfSimulator(file));
    expect(plenumBlocks.length).toBeGreaterThan(40);
    const invalidBlocks = plenumBlocks.filter(({ text }) => !isPartOfConfiguration(parse(text)));
    expect(invalidBlocks.map(({ file, text }) => `${file}: ${text}`)).toEqual([]);
  });

  test("are valid in a configuration file when the block has complete sections", () => {
    const source = { base_url: "https://bms.example.com", token: { file: "token" }, time_zone: "Europe/Oslo" };
    const broker = { mqtt: { url: "mqtts://broker.example.com" } };
    const sections = blocks
      .filter(({ file, text }) => !foreignBlocks.test(text) && !isOfSimulator(file))
      .map(({ file, text }) => ({ file, value: parse(text) as object }))
      .filter(({ value }) => unknownBelow(value, "").length === 0);
    expect(sections.length).toBeGreaterThan(10);
    for (const { file, value } of sections) {
      const { success, error } = Config.safeParse({ sources: { main: source }, sinks: { broker }, ...value });
      expect(success, `${file}: ${error?.message}`).toBe(true);
    }
  });

  test("configure the simulator without an error in the simulator's documents", () => {
    for (const { text } of blocks.filter(({ file }) => isOfSimulator(file)))
      expect(() => createSimulator(parse(text), { now: () => 0 })).not.toThrow();
  });

  test("are reported when they contain unknown keys", () => {
    expect(isPartOfConfiguration({ proxy: { url: "http://x", username: "y" } })).toBe(true);
    expect(isPartOfConfiguration({ proxy: { adress: "http://x" } })).toBe(false);
    expect(isPartOfConfiguration({ sinks: { lake: { influx: {} } } })).toBe(false);
  });
});

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { Config } from "#src/app/config/config.ts";
import { optionPaths } from "#src/app/config/schema-walk.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { wholeProgram } from "../cli/whole-program.ts";
import { commandComplaint } from "./commands-said.ts";
import { blocksIn, codeSpansIn, type Page, pages } from "./markdown.ts";

/** Whatever the documents tell somebody to type or to write exists. */

const ROOT = join(import.meta.dirname, "../..");
const program = await wholeProgram();
const { scripts } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8")) as {
  readonly scripts: Readonly<Record<string, string>>;
};
const SHELLS = new Set(["sh", "bash", "console", "shell"]);

/** Lines that are typed, with what belongs to one after a backslash. */
function typedIn(page: Page): readonly string[] {
  const blocks = blocksIn(page).filter(({ language }) => SHELLS.has(language));
  const lines = blocks.flatMap(({ text }) => text.replaceAll(/\\\n\s*/g, " ").split("\n"));
  const spans = codeSpansIn(page).filter((span) => /^(\.\/)?(plenum|npm|npx) /.test(span));
  return [...lines, ...spans].map((line) => line.replace(/^\s*\$ /, "").trim());
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

describe("what is typed", () => {
  test("exists: commands with their options, scripts, tests", () => {
    const typed = pages.flatMap((page) => typedIn(page).map((line) => ({ file: page.file, line })));
    expect(typed.length).toBeGreaterThan(300);
    const wrong = typed.flatMap(({ file, line }) => {
      const complaint = complaintAbout(line);
      return complaint === null ? [] : [`${file}: ${line}: ${complaint}`];
    });
    expect(wrong).toEqual([]);
  });

  test("would be noticed where it does not", () => {
    expect(complaintAbout("plenum outbox dead tickets")).toBeNull();
    expect(complaintAbout("plenum outbox burn tickets")).toBe("outbox has no command burn");
    expect(complaintAbout("./plenum plan --faster")).toBe("plan has no option --faster");
    expect(complaintAbout("npm run nothing")).toBe("there is no script nothing");
  });
});

const known = new Set(optionPaths(Config));
/** Where a part of a configuration may begin: nowhere, in a source, in a sink, in a connector … */
const BEGINNINGS = ["", ...[...known].flatMap((path) => [path, `${path}[]`, `${path}.*`])].filter(
  (path) => !isFree(path.replace(/(\.\*|\[\])$/, "")),
);

/** The paths that a part of a file uses, below a beginning. */
function unknownBelow(value: unknown, at: string): readonly string[] {
  if (Array.isArray(value)) return value.flatMap((each) => unknownBelow(each, `${at}[]`));
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const path = at === "" ? key : `${at}.${key}`;
    if (known.has(path)) return unknownBelow(inner, path);
    // A name of one's own.
    const own = `${at}.*`;
    const hasNames = [...known].some((each) => each.startsWith(`${own}.`));
    if (hasNames) return unknownBelow(inner, own);
    return isFree(at) ? [] : [path];
  });
}

/** What takes any keys: headers, labels, words, bodies. */
function isFree(path: string): boolean {
  return /(headers|labels|tags|words|fields|body|priority|approvers)$/.test(path);
}

function isPartOfConfiguration(value: unknown): boolean {
  return BEGINNINGS.some((at) => unknownBelow(value, at).length === 0);
}

describe("YAML", () => {
  /** Files of other programs. */
  const foreign =
    /^(mqtt:\n {2}sensor:|scrape_configs:|route:|receivers:|apiVersion:|global:|services:|availability:)/m;
  const blocks = pages.flatMap(blocksIn).filter(({ language }) => language === "yaml");
  const ofSimulator = (file: string) => file.startsWith("src/simulator/");

  test("has keys that the schema knows, together at one place", () => {
    const ours = blocks.filter(({ file, text }) => !foreign.test(text) && !ofSimulator(file));
    expect(ours.length).toBeGreaterThan(40);
    const wrong = ours.filter(({ text }) => !isPartOfConfiguration(parse(text)));
    expect(wrong.map(({ file, text }) => `${file}: ${text}`)).toEqual([]);
  });

  test("is valid where it is sections of a file", () => {
    const source = {
      base_url: "https://monitoring.example.com",
      token: { file: "token" },
      time_zone: "Europe/Oslo",
    };
    const broker = { mqtt: { url: "mqtts://broker.example.com" } };
    const sections = blocks
      .filter(({ file, text }) => !foreign.test(text) && !ofSimulator(file))
      .map(({ file, text }) => ({ file, value: parse(text) as object }))
      .filter(({ value }) => unknownBelow(value, "").length === 0);
    expect(sections.length).toBeGreaterThan(10);
    for (const { file, value } of sections) {
      const { success, error } = Config.safeParse({ sources: { main: source }, sinks: { broker }, ...value });
      expect(success, `${file}: ${error?.message}`).toBe(true);
    }
  });

  test("of the simulator is what the simulator takes", () => {
    for (const { text } of blocks.filter(({ file }) => ofSimulator(file)))
      expect(() => createSimulator(parse(text), { now: () => 0 })).not.toThrow();
  });

  test("would be noticed where it does not", () => {
    expect(isPartOfConfiguration({ proxy: { url: "http://x", username: "y" } })).toBe(true);
    expect(isPartOfConfiguration({ proxy: { adress: "http://x" } })).toBe(false);
    expect(isPartOfConfiguration({ sinks: { lake: { influx: {} } } })).toBe(false);
  });
});

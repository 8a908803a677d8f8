// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the configuration are the subject.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { CONNECTOR_NAMES } from "#connectors/catalog.ts";
import { Config } from "#src/app/config/config.ts";
import { loadYaml, parseYaml } from "#src/app/config/load.ts";
import { ConfigurationError } from "#src/app/config/problems.ts";
import { effortOf } from "../effort.ts";

const SOURCE = `
sources:
  main:
    base_url: https://monitoring.example.com
    token: { env: TOKEN }
    time_zone: Europe/Oslo
`.trimStart();

type Environment = Readonly<Record<string, string>>;

function parsed(text: string, environment: Environment = {}) {
  return parseYaml({ schema: Config, file: "plenum.yaml", text, environment });
}

function complaints(text: string, environment: Environment = {}): readonly string[] {
  try {
    parsed(text, environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    return (error as Error).message.split("\n");
  }
  return [];
}

describe("a configuration that follows the hint of an error literally", () => {
  const read = (entry: string) => `${SOURCE}    read: [{ name: all, ${entry} }]\n`;
  test.each([
    { what: "a number in place of a duration", text: read("every: 30"), hint: "30s" },
    { what: "a number that would be too short in seconds", text: read("every: 1"), hint: "1m" },
    { what: "a number of days", text: `${SOURCE}state: { max_age: 7 }\n`, hint: null },
    { what: "a number in place of a longest time", text: `${SOURCE}commands: { max_ttl: 120 }\n`, hint: "120s" },
    { what: "a quoted number", text: `${SOURCE}status: { port: "9850" }\n`, hint: "9850" },
    { what: "a quoted boolean", text: `${SOURCE}commands: { enabled: "true" }\n`, hint: "true" },
    { what: "a file name that is a number", text: SOURCE.replace("{ env: TOKEN }", "{ file: 7 }"), hint: '"7"' },
    {
      what: "a tag id without quotes",
      text: `${SOURCE}commands:\n  allow: [{ type: boolean, site_id: 1, tag_id: 10169 }]\n`,
      hint: '"10169"',
    },
    { what: "a mistyped word", text: `${SOURCE}log: { level: wran }\n`, hint: "warn" },
    { what: "a mistyped key", text: `${SOURCE}log: { lvel: warn }\n`, hint: "level" },
  ])("is valid: $what", ({ text, hint }) => {
    const [complaint = "", ...more] = complaints(text);
    expect(more).toEqual([]);
    const said = /(?:quotes: |Write (?=\d)|Did you mean )(.*?)(?:[,:] .*)?[.?]$/.exec(complaint)?.[1];
    const [, line = 0, column = 0] = /^plenum\.yaml:(\d+):(\d+) /.exec(complaint)?.map(Number) ?? [];
    const lines = text.split("\n");
    const after = (lines[line - 1] ?? "").slice(column - 1);
    const wrong = /^"[^"]*"|^[^\s,:}\]]+/.exec(after)?.[0] ?? "";
    const right = said ?? wrong.replaceAll('"', "");
    if (said === undefined && hint !== null) expect(complaint).toMatch(/without quotes/);
    if (hint !== null) expect(right).toBe(hint);
    else expect(said, complaint).toBeDefined();
    lines[line - 1] = (lines[line - 1] ?? "").slice(0, column - 1) + after.replace(wrong, right);
    expect(complaints(lines.join("\n"))).toEqual([]);
  });

  test("is not proposed with other quotes when quotes do not help", () => {
    expect(complaints(`${SOURCE}status: { port: "many" }\n`)).toEqual([
      "plenum.yaml:6:17 status.port: Write a number here, not a text.",
    ]);
    expect(complaints(read("every: true"))).toEqual([
      expect.stringContaining("Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y."),
    ]);
  });
});

describe("a configuration error", () => {
  test.each([
    {
      what: "an unknown key",
      text: `${SOURCE}log: { lvl: info }\n`,
      says: "plenum.yaml:6:8 log.lvl: This key is not known here. Did you mean level?",
    },
    {
      what: "an unknown key without a likely meaning",
      text: `${SOURCE}log: { colour: red }\n`,
      says: "plenum.yaml:6:8 log.colour: This key is not known here. Known are: level.",
    },
    {
      what: "an unknown key deep inside",
      text: `${SOURCE}sinks:\n  a:\n    file: { foldr: x, folder: y }\n`,
      says: "plenum.yaml:8:13 sinks.a.file.foldr: This key is not known here. Did you mean folder?",
    },
    {
      what: "a word that is not an allowed value",
      text: `${SOURCE}log: { level: wran }\n`,
      says: "plenum.yaml:6:15 log.level: Write one of trace, debug, info, warn, error, silent. Did you mean warn?",
    },
    {
      what: "a plain-text secret, which is not repeated",
      text: SOURCE.replace("{ env: TOKEN }", "s3cret-text"),
      says: "plenum.yaml:4:12 sources.main.token: Say where the secret is: {file: path} or {env: NAME}.",
    },
    {
      what: "a secret with a mistyped key",
      text: SOURCE.replace("{ env: TOKEN }", "{ fiel: token.txt }"),
      says: "plenum.yaml:4:5 sources.main.token: Say where the secret is: {file: path} or {env: NAME}.",
    },
    {
      what: "a secret's path of the wrong type",
      text: SOURCE.replace("{ env: TOKEN }", "{ file: 7 }"),
      says: 'plenum.yaml:4:20 sources.main.token.file: Put this into quotes: "7".',
    },
    {
      what: "a missing option, with its purpose",
      text: SOURCE.replace(/ +time_zone.*\n/, ""),
      says: "plenum.yaml:2:3 sources.main.time_zone: This is needed and missing: time zone of the buildings, for days, weeks and months of history.",
    },
    {
      what: "a key without a value",
      text: SOURCE.replace("{ env: TOKEN }", ""),
      says: "plenum.yaml:4:5 sources.main.token: Say where the secret is: {file: path} or {env: NAME}.",
    },
    {
      what: "a list in place of a section",
      text: `${SOURCE}log: [info]\n`,
      says: "plenum.yaml:6:6 log: Write a section with keys of its own here, not a list. Known are: level.",
    },
    {
      what: "a number in quotes",
      text: `${SOURCE}status: { port: "9850" }\n`,
      says: "plenum.yaml:6:17 status.port: Write a number here, without quotes, not a text.",
    },
    {
      what: "a number out of bounds",
      text: `${SOURCE}status: { port: 70000 }\n`,
      says: "plenum.yaml:6:17 status.port: Write a number of at most 65535.",
    },
    {
      what: "a tag id without quotes",
      text: `${SOURCE}commands:\n  allow:\n    - { type: boolean, site_id: 1, tag_id: 10169 }\n`,
      says: 'plenum.yaml:8:44 commands.allow.0.tag_id: Put this into quotes: "10169".',
    },
    {
      what: "a type of tag that does not exist",
      text: `${SOURCE}commands:\n  allow:\n    - { type: numbr, site_id: 1, tag_id: "1" }\n`,
      says: "plenum.yaml:8:15 commands.allow.0.type: Write one of number, boolean. Did you mean number?",
    },
    {
      what: "a tag of an unknown source",
      text: `${SOURCE}commands:\n  allow:\n    - { type: boolean, source: mian, site_id: 1, tag_id: "1" }\n`,
      says: "plenum.yaml:8:32 commands.allow.0.source: Name the source of this tag: main.",
    },
    {
      what: "a command from an unknown sink",
      text: `${SOURCE}commands:\n  allow:\n    - { type: boolean, site_id: 1, tag_id: "1", from: [operater] }\n`,
      says: "plenum.yaml:8:56 commands.allow.0.from.0: There is no sink of this name. Did you mean operator?",
    },
    {
      what: "a sink without a connector",
      text: `${SOURCE}sinks:\n  lake: { from: now }\n`,
      says: `plenum.yaml:7:3 sinks.lake: Say which connector this sink uses: one of ${CONNECTOR_NAMES.join(", ")}, with its options.`,
    },
    {
      what: "a sink with two connectors",
      text: `${SOURCE}sinks:\n  lake:\n    stdout: {}\n    file: { folder: x }\n`,
      says: "plenum.yaml:7:3 sinks.lake: A sink uses one connector, not file and stdout; make it 2 sinks.",
    },
    {
      what: "an unknown kind in a filter",
      text: `${SOURCE}sinks:\n  a: { stdout: {}, filter: { kinds: [alarm-razed] } }\n`,
      says: /^plenum\.yaml:7:38 sinks\.a\.filter\.kinds\.0: No event kind is called alarm-razed\. Did you mean alarm-raised\?/,
    },
    {
      what: "an unknown source in a filter",
      text: `${SOURCE}sinks:\n  a: { stdout: {}, filter: { sources: [mein] } }\n`,
      says: "plenum.yaml:7:40 sinks.a.filter.sources.0: There is no source of this name. Did you mean main?",
    },
    {
      what: "a name that cannot be part of a topic",
      text: `${SOURCE}sinks:\n  My Lake: { stdout: {} }\n`,
      says: "plenum.yaml:7:3 sinks.My Lake: Use up to 64 of a-z, 0-9, _ and -, a letter or digit first.",
    },
    {
      what: "an invalid schedule",
      text: `${SOURCE}    schedules: { alarms: "every minute" }\n`,
      says: /^plenum\.yaml:6:26 sources\.main\.schedules\.alarms: /,
    },
    {
      what: "the same key twice",
      text: `${SOURCE}log: { level: info }\nlog: { level: warn }\n`,
      says: "plenum.yaml:7:1 This key stands here twice; keep one of them.",
    },
    {
      what: "a tab as indentation",
      text: "sources:\n\tmain: {}\n",
      says: "plenum.yaml:2:1 Indent with spaces; YAML does not allow tabs.",
    },
    {
      what: "two YAML documents",
      text: `${SOURCE}---\n${SOURCE}`,
      says: "plenum.yaml:6:1 The file holds several documents, separated by ---; keep one of them.",
    },
    {
      what: "an alias without an anchor",
      text: `${SOURCE}log: *none\n`,
      says: 'plenum.yaml:6:6 A text that begins with * needs quotes: write "*none"; an alias needs its anchor, &none, above it.',
    },
    {
      what: "a key that would reach a prototype",
      text: `${SOURCE}__proto__: { polluted: true }\n`,
      says: /^plenum\.yaml:6:1 __proto__: This key is not known here\./,
    },
    {
      what: "a sink that would be a prototype",
      text: `${SOURCE}sinks:\n  __proto__: { stdout: {} }\n`,
      says: "plenum.yaml:7:3 sinks.__proto__: Nothing can be called __proto__: give it another name.",
    },
    {
      what: "a source that would be a prototype",
      text: `${SOURCE}  "__proto__": { base_url: https://other.example.com }\n`,
      says: "plenum.yaml:6:3 sources.__proto__: Nothing can be called __proto__: give it another name.",
    },
    {
      what: "a header that would be a prototype",
      text: `${SOURCE}sinks:\n  a: { alertmanager: { url: https://x.example.com, headers: { __proto__: x } } }\n`,
      says: "plenum.yaml:7:63 sinks.a.alertmanager.headers.__proto__: Nothing can be called __proto__: give it another name.",
    },
    {
      what: "an option that would be a prototype, in a list",
      text: `${SOURCE}    read:\n      - { name: a, every: 30s, select: { __proto__: {} } }\n`,
      says: /^plenum\.yaml:7:42 sources\.main\.read\.0\.select\.__proto__: This key is not known here\./,
    },
    { what: "an empty file", text: "", says: "plenum.yaml:1:1 The file is empty. Start from config/example.yaml." },
    {
      what: "a file of comments",
      text: "# nothing\n",
      says: "plenum.yaml:1:1 The file is empty. Start from config/example.yaml.",
    },
    {
      what: "a file that contains only text",
      text: "just words\n",
      says: "plenum.yaml:1:1 Write a section with keys of its own here, not a text.",
    },
  ])("states location, path and advice: $what", ({ text, says }) => {
    const lines = complaints(text);
    expect(lines).toHaveLength(1);
    if (typeof says === "string") expect(lines[0]).toBe(says);
    else expect(lines[0]).toMatch(says);
  });

  test("is reported for every mistake from top to bottom, including unset variables", () => {
    const text = `${SOURCE.replace("https://monitoring.example.com", "${URL}")}    spread: 5\nlog: { levl: info }\nstatus: { port: -1 }\n`;
    expect(complaints(text)).toEqual([
      "plenum.yaml:3:15 sources.main.base_url: The environment variable URL is not set. Set it, or write ${URL:-default}.",
      "plenum.yaml:6:13 sources.main.spread: Write 5s: a duration needs its unit, here s, m, h or d.",
      "plenum.yaml:7:8 log.levl: This key is not known here. Did you mean level?",
      "plenum.yaml:8:17 status.port: Write a number of at least 0.",
    ]);
  });
});

describe("YAML aliases", () => {
  test("are accepted when an alias is used a few times", () => {
    const config = parsed(
      `${SOURCE}sinks:\n  a: { stdout: {}, retry: &r { max: 1m } }\n  b: { stdout: {}, retry: *r }\n`,
    );
    expect(config.sinks.b?.retry.max).toBe(60_000);
  });

  test.each([
    [
      "nested aliases that expand to a billion values",
      `a: &a [x, x, x, x, x, x, x, x, x, x]\n${["b", "c", "d", "e", "f", "g", "h"]
        .map((name, n) => `${name}: &${name} [${Array(10).fill(`*${"abcdefg"[n]}`).join(", ")}]`)
        .join("\n")}\n`,
    ],
    ["an alias that contains itself", "a: &a { b: *a }\n"],
  ])("are rejected within 100 ms for %s", async (_what, text) => {
    const effort = await effortOf(() =>
      expect(complaints(text)).toEqual([
        "plenum.yaml:1:1 The file refers to itself by aliases so often that it cannot be used. Write it out.",
      ]),
    );
    expect(effort).toBeLessThan(100);
  });
});

describe("environment variables in the configuration", () => {
  const Any = z.strictObject({ x: z.unknown() });
  const value = (text: string, environment: Environment = {}) =>
    parseYaml({ schema: Any, file: "f.yaml", text: `x: ${text}\n`, environment }).x;

  test.each([
    ["a number without quotes stays a number", "${X}", { X: "8080" }, 8080],
    ["a boolean without quotes stays a boolean", "${X}", { X: "true" }, true],
    ["quoted text stays text", '"${X}"', { X: "8080" }, "8080"],
    ["a placeholder inside a text", "http://${X}:1/", { X: "host" }, "http://host:1/"],
    ["the default for an unset variable", "${X:-7}", {}, 7],
    ["the default for an empty variable", "${X:-7}", { X: "" }, 7],
    ["an empty default", '"${X:-}"', {}, ""],
    ["no default for a set variable", "${X:-7}", { X: "9" }, 9],
    ["an escaped placeholder stays text", '"$${X}"', { X: "9" }, "${X}"],
    ["text that looks like a section stays text", "${X}", { X: "{a: 1}" }, "{a: 1}"],
    ["text that looks like a placeholder is not replaced again", '"${X}"', { X: "${Y}" }, "${Y}"],
  ])("replaces placeholders: %s", (_what, text, environment, expected) => {
    expect(value(text, environment)).toBe(expected);
  });

  test.each([
    ["${X}", "The environment variable X is not set. Set it, or write ${X:-default}."],
    ["${X:?Ask the janitor.}", "The environment variable X is not set. Ask the janitor."],
    ["${X-default}", "Write ${NAME}, ${NAME:-default} or ${NAME:?what to do}; $${ for a literal ${."],
    ['"${"', "Write ${NAME}, ${NAME:-default} or ${NAME:?what to do}; $${ for a literal ${."],
  ])("reports a mistake in the placeholder %s", (text, message) => {
    expect(() => value(text)).toThrow(`f.yaml:1:4 x: ${message}`);
  });
});

describe("loadYaml", () => {
  function folder(): string {
    const path = mkdtempSync(join(tmpdir(), "plenum-config-"));
    onTestFinished(() => rmSync(path, { recursive: true }));
    return path;
  }
  const load = (file: string) => loadYaml({ schema: Config, file, environment: {} });

  test("accepts a byte order mark and Windows line ends, and reports correct locations", () => {
    const file = join(folder(), "plenum.yaml");
    writeFileSync(file, `\uFEFF${SOURCE}log: { level: info }\n`.replaceAll("\n", "\r\n"));
    expect(load(file).log.level).toBe("info");
    writeFileSync(file, `\uFEFF${SOURCE}log: { level: x }\n`.replaceAll("\n", "\r\n"));
    expect(() => load(file)).toThrow(`${file}:6:15 log.level:`);
  });

  test("reports a missing file, and a folder in place of the file", () => {
    const path = folder();
    expect(() => load(join(path, "none.yaml"))).toThrow(/^The configuration file .*none\.yaml does not exist\.$/);
    expect(() => load(path)).toThrow(/^The configuration file .* is a folder\.$/);
  });
});

describe("the default retry schedule of a sink", () => {
  const sink = (text: string) => parsed(`${SOURCE}sinks:\n  a: { ${text} }\n`).sinks.a;

  test("is the schedule of Standard Webhooks for a webhook, unless the configuration has another schedule", () => {
    const webhook = "webhook: { url: https://x.example, unsigned: true }";
    expect(sink(webhook)?.schedule).toEqual([5, 300, 1_800, 7_200, 18_000, 36_000].map((s) => s * 1_000));
    expect(sink(`${webhook}, schedule: [1s, 2s]`)?.schedule).toEqual([1_000, 2_000]);
    expect(sink(`${webhook}, schedule: false`)?.schedule).toBeUndefined();
  });

  test("is unlimited for other connectors", () => {
    expect(sink("stdout: {}")?.schedule).toBeUndefined();
    expect(sink("stdout: {}, schedule: [1s]")?.schedule).toEqual([1_000]);
  });
});

// biome-ignore-all lint/suspicious/noTemplateCurlyInString: placeholders of the configuration are the subject.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { Config } from "#src/app/config/config.ts";
import { ConfigurationError } from "#src/app/config/config-problems.ts";
import { loadYamlConfig, parseYaml } from "#src/app/config/load.ts";
import { effortOf } from "../effort.ts";
import { testFolder } from "../test-resources.ts";
import { SOURCE } from "./configured.ts";

type Environment = Readonly<Record<string, string>>;

function parsed(text: string, environment: Environment = {}) {
  return parseYaml({ schema: Config, file: "plenum.yaml", text, environment });
}

function errorLines(text: string, environment: Environment = {}): readonly string[] {
  try {
    parsed(text, environment);
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigurationError);
    return (error as Error).message.split("\n");
  }
  return [];
}

describe("a configuration that follows the hint of an error literally", () => {
  const withReadClass = (entry: string) => `${SOURCE}    read: [{ name: all, ${entry} }]\n`;
  test.each([
    { what: "a number in place of a duration", text: withReadClass("every: 30"), hint: "30s" },
    { what: "a number that would be too short in seconds", text: withReadClass("every: 1"), hint: "1m" },
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
    const [complaint = "", ...more] = errorLines(text);
    expect(more).toEqual([]);
    const proposedText = /(?:quotes: |Write (?=\d)|Did you mean )(.*?)(?:[,:] .*)?[.?]$/.exec(complaint)?.[1];
    const [, line = 0, column = 0] = /^plenum\.yaml:(\d+):(\d+) /.exec(complaint)?.map(Number) ?? [];
    const textLines = text.split("\n");
    const restOfLine = (textLines[line - 1] ?? "").slice(column - 1);
    const wrongText = /^"[^"]*"|^[^\s,:}\]]+/.exec(restOfLine)?.[0] ?? "";
    const right = proposedText ?? wrongText.replaceAll('"', "");
    if (proposedText === undefined && hint !== null) expect(complaint).toMatch(/without quotes/);
    if (hint !== null) expect(right).toBe(hint);
    else expect(proposedText, complaint).toBeDefined();
    textLines[line - 1] = (textLines[line - 1] ?? "").slice(0, column - 1) + restOfLine.replace(wrongText, right);
    expect(errorLines(textLines.join("\n"))).toEqual([]);
  });

  test("gets no hint about quotes when quotes are not the mistake", () => {
    expect(errorLines(`${SOURCE}status: { port: "many" }\n`)).toEqual([
      "plenum.yaml:6:17 status.port: Write a number here, not a text.",
    ]);
    expect(errorLines(withReadClass("every: true"))).toEqual([
      expect.stringContaining("Write a duration as 500ms, 30s, 5m, 24h, 7d, 2w or 1y."),
    ]);
  });
});

describe("a configuration error", () => {
  test.each([
    [
      "an unknown event kind",
      "sinks:\n  a: { stdout: {}, filter: { kinds: [alarm-razed] } }\n",
      "7:38 sinks.a.filter.kinds.0: No event kind is called alarm-razed. Did you mean alarm-raised?",
    ],
    ["an invalid schedule", '    schedules: { alarms: "every minute" }\n', "6:26 sources.main.schedules.alarms: "],
    [
      "a key that would reach a prototype",
      "__proto__: { polluted: true }\n",
      "6:1 __proto__: This key is not known here.",
    ],
    [
      "an option that would be a prototype",
      "    read:\n      - { name: a, every: 30s, select: { __proto__: {} } }\n",
      "7:42 sources.main.read.0.select.__proto__: This key is not known here.",
    ],
  ])("states location, path and advice: %s", (_what, text, says) => {
    expect(errorLines(SOURCE + text)).toEqual([expect.stringContaining(`plenum.yaml:${says}`)]);
  });

  test("is reported for every mistake from top to bottom, including unset variables", () => {
    const configText = `${SOURCE.replace("https://monitoring.example.com", "${URL}")}    spread: 5\nlog: { levl: info }\nstatus: { port: -1 }\n`;
    expect(errorLines(configText)).toEqual([
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
      expect(errorLines(text)).toEqual([
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
  const load = (file: string) => loadYamlConfig({ schema: Config, file, environment: {} });

  test("accepts a byte order mark and Windows line ends, and reports correct locations", () => {
    const file = join(testFolder("plenum-config"), "plenum.yaml");
    writeFileSync(file, `\uFEFF${SOURCE}log: { level: info }\n`.replaceAll("\n", "\r\n"));
    expect(load(file).log.level).toBe("info");
    writeFileSync(file, `\uFEFF${SOURCE}log: { level: x }\n`.replaceAll("\n", "\r\n"));
    expect(() => load(file)).toThrow(`${file}:6:15 log.level:`);
  });

  test("reports a missing file, and a folder in place of the file", () => {
    const path = testFolder("plenum-config");
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

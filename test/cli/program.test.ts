import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { describe, expect, test } from "vitest";
import { createProgram } from "#src/cli/program.ts";

const program = createProgram(new AbortController().signal, {});

function* commands(parent: Command, path = ""): Generator<readonly [string, Command]> {
  for (const command of parent.commands) {
    const name = `${path}${command.name()}`;
    yield [name, command];
    yield* commands(command, `${name} `);
  }
}
const all = new Map(commands(program));

function helpOf(command: Command): string {
  let text = "";
  command.configureOutput({
    writeOut: (part) => {
      text += part;
    },
  });
  command.outputHelp();
  return text;
}

describe("the help", () => {
  test.each([...all.keys()])(
    "%s: what it does, every argument and option explained, an example near",
    (name) => {
      const command = all.get(name) as Command;
      const help = helpOf(command);
      expect(command.description()).not.toBe("");
      for (const { description } of [...command.options, ...command.registeredArguments]) {
        expect(description, help).not.toBe("");
      }
      // A command of a group is shown by the group's examples.
      const [group = name] = name.split(" ");
      expect(helpOf(all.get(group) as Command)).toMatch(
        new RegExp(`Examples?:\\n(.*\\n)*? +plenum ${group}`),
      );
      expect(help).toContain("--config <file>");
    },
  );

  test("a configuration can be named by the environment", () => {
    const named = createProgram(new AbortController().signal, { PLENUM_CONFIG: "/etc/plenum.yaml" });
    expect(named.opts().config).toBe("/etc/plenum.yaml");
  });

  test("no command takes a secret on the command line, where every user of the machine can read it", () => {
    for (const [name, { options }] of all) {
      for (const { long } of options) expect(long, name).not.toMatch(/token|password|secret/);
    }
  });
});

describe("README.md", () => {
  const readme = readFileSync(join(import.meta.dirname, "../../README.md"), "utf8");
  const table = /## Commands\n([\s\S]*?)\n## /.exec(readme)?.[1] ?? "";
  const rows = [...table.matchAll(/^\| (`.*?) \|(.*)\|$/gm)].map(
    ([, names = "", what = ""]) => [names, what] as const,
  );

  test("names every command, and only those", () => {
    const leading = rows.flatMap(([names]) => [...names.matchAll(/`([^`]+)`/g)].map(([, text = ""]) => text));
    const named = new Set(leading.map((text) => text.split(" ")[0]));
    expect(named).toEqual(new Set(program.commands.map((command) => command.name())));
    for (const text of leading) {
      const words = text.replace(/ <.*/, "");
      expect([...all.keys()], text).toContain(words);
    }
  });

  test("names the commands of the outbox", () => {
    const outbox = rows.find(([names]) => names.includes("`outbox`"))?.join(" ") ?? "";
    for (const name of all.keys()) {
      if (name.startsWith("outbox ")) expect(outbox).toContain(name.slice("outbox ".length));
    }
  });
});

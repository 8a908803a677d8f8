import { type Command, Help } from "commander";
import { describe, expect, test } from "vitest";
import { createProgram } from "#src/cli/command-line-program.ts";
import { importsIn, textOf } from "../structure/imports.ts";
import { completeProgram } from "./complete-program.ts";

const program = await completeProgram();

function* commands(parent: Command, path = ""): Generator<readonly [string, Command]> {
  for (const command of parent.commands) {
    const name = `${path}${command.name()}`;
    yield [name, command];
    yield* commands(command, `${name} `);
  }
}
const all = new Map([...commands(program)].filter(([name]) => name !== "help"));

function helpText(command: Command): string {
  const parts: string[] = [];
  const write = (part: string) => void parts.push(part);
  command.configureOutput({ writeOut: write, writeErr: write });
  command.outputHelp();
  return parts.join("");
}

async function printedFor(words: readonly string[], failure: object): Promise<string> {
  const parts: string[] = [];
  const write = (part: string) => void parts.push(part);
  const request = createProgram(new AbortController().signal, {}).configureOutput({ writeOut: write, writeErr: write });
  for (const command of request.commands) command.copyInheritedSettings(request);
  await expect(request.parseAsync(words, { from: "user" })).rejects.toMatchObject(failure);
  return parts.join("");
}

/** Files and packages that a file imports statically. */
function staticImports(first: string) {
  const loadedFiles = new Set<string>();
  const visitFile = (file: string): void => {
    if (loadedFiles.has(file)) return;
    loadedFiles.add(file);
    const atOnce = textOf(file)
      .replaceAll("import(", "")
      .replaceAll(/^import type [^;]*;/gm, "");
    if (file.endsWith(".ts"))
      for (const each of importsIn(file, atOnce))
        if (each.endsWith(".ts")) visitFile(each);
        else loadedFiles.add(each);
  };
  visitFile(first);
  const all = [...loadedFiles];
  return {
    files: all.filter((each) => each.endsWith(".ts")),
    packages: all.filter((each) => !each.endsWith(".ts") && !each.startsWith("node:")).toSorted(),
  };
}

describe("the help of the command line", () => {
  test.each([...all.keys()])("has a description and an example, and explains every argument and option: %s", (name) => {
    const command = all.get(name) as Command;
    const printedHelp = helpText(command);
    expect(command.description()).not.toBe("");
    for (const { description } of [...command.options, ...command.registeredArguments]) {
      expect(description, printedHelp).not.toBe("");
    }
    const [group = name] = name.split(" ");
    expect(helpText(all.get(group) as Command)).toMatch(new RegExp(`Examples?:\\n(.*\\n)*? +plenum ${group}`));
    expect(printedHelp).toContain("--config <file>");
  });

  test("lists all commands with the arguments that their modules define", () => {
    const listedHelp = helpText(program);
    for (const command of program.commands) {
      const usage = new Help().subcommandTerm(command).replace(" [options]", "");
      const literal = usage.replace(/[[\].]/g, "\\$&");
      expect(listedHelp).toMatch(new RegExp(`^  ${literal} {2,}\\w`, "m"));
    }
  });

  test.each([
    [["help"], /Commands:\n {2}demo/],
    [["help", "read"], /Arguments:\n {2}tag .*tag ids/],
    [["help", "outbox", "dead"], /Arguments:\n {2}sink/],
  ])("is printed for %j", async (words, shown) => {
    expect(await printedFor(words, { exitCode: 0 })).toMatch(shown);
  });

  test("loads only the libraries for the command line and the log", () => {
    const { files, packages } = staticImports("src/cli/start-command-line.ts");
    expect(packages).toEqual(["commander", "pino"]);
    expect(files.length).toBeGreaterThan(5);
  });

  test("plenum status --probe loads no library and few files", () => {
    const { files, packages } = staticImports("src/cli/main.ts");
    expect(packages).toEqual([]);
    expect(files.length).toBeLessThan(12);
  });

  test("PLENUM_CONFIG sets the configuration file", () => {
    const namedProgram = createProgram(new AbortController().signal, { PLENUM_CONFIG: "/etc/plenum.yaml" });
    expect(namedProgram.opts().config).toBe("/etc/plenum.yaml");
  });

  test("no command takes a secret as an argument, because every user of the machine can read arguments", () => {
    for (const [name, { options }] of all) {
      for (const { long } of options) expect(long, name).not.toMatch(/(token|password|secret)(?!-file)/);
    }
  });
});

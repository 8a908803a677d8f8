import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { describeCommands } from "#src/cli/manual/command-tree.ts";
import { buildManualPage } from "#src/cli/manual/man-and-schema-commands.ts";
import { buildCompletionScript } from "#src/cli/manual/shell-completion.ts";
import { EXIT_CODE } from "#src/cli/shell/exit-codes.ts";
import { RELEASE_VERSION } from "#src/core/runtime/version.ts";
import { testFolder } from "../test-resources.ts";
import { wholeProgram } from "./whole-program.ts";

const program = await wholeProgram();
const commandDescriptions = describeCommands(program);
const manual = `${buildManualPage(commandDescriptions, RELEASE_VERSION).join("\n")}\n`;

function isThere(command: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${command}`]).status === 0;
}

test("the manual page lists every exit code", () => {
  expect(buildManualPage(commandDescriptions, RELEASE_VERSION)).toEqual(
    expect.arrayContaining(Object.values(EXIT_CODE).map((code) => `.B ${code}`)),
  );
});

test.skipIf(!isThere("groff"))("groff renders the manual page without a warning", () => {
  const { stderr, stdout } = spawnSync("groff", ["-ww", "-man", "-Tascii", "-P-cbu"], { input: manual });
  expect(stderr.toString()).toBe("");
  const renderedManual = stdout.toString().replaceAll(/\s+/g, " ");
  for (const { path } of commandDescriptions) expect(renderedManual).toContain(`plenum ${path}`.trimEnd());
});

test.skipIf(!isThere("mandoc"))("mandoc finds no error in the manual page", () => {
  const { stdout } = spawnSync("mandoc", ["-T", "lint", "-W", "error"], { input: manual });
  expect(stdout.toString()).toBe("");
});

test.each(["bash", "zsh", "fish"] as const)(
  "the completion script for %s contains every command and every option",
  (shell) => {
    const script = buildCompletionScript(shell, commandDescriptions).join("\n");
    for (const { path, options } of commandDescriptions) {
      expect(script).toContain(path);
      for (const { name } of options) expect(script).toContain(shell === "fish" ? `-l ${name.slice(2)}` : name);
    }
    if (!isThere(shell)) return;
    const folder = testFolder();
    writeFileSync(join(folder, "script"), script);
    const { status, stderr } = spawnSync(shell, ["-n", join(folder, "script")]);
    expect([status, stderr.toString()]).toEqual([0, ""]);
  },
);

function complete(...words: readonly string[]): readonly string[] {
  const script = buildCompletionScript("bash", commandDescriptions).join("\n");
  const line = words.map((word) => `'${word}'`).join(" ");
  const bashScript = `${script}\nplenum() { echo lake scada; }\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _plenum; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", bashScript])
    .toString()
    .split("\n")
    .filter((word) => word !== "");
}

test.skipIf(!isThere("bash"))("bash completes commands, options, choices, and names of the configuration", () => {
  expect(complete("plenum", "expl")).toEqual(["explain"]);
  expect(complete("plenum", "outbox", "re")).toEqual(["resend", "replay", "revive"]);
  expect(complete("plenum", "events", "--fol")).toEqual(["--follow"]);
  expect(complete("plenum", "alarms", "--status", "a")).toEqual(["active", "all"]);
  expect(complete("plenum", "outbox", "replay", "")).toEqual(expect.arrayContaining(["lake", "scada", "--since"]));
  expect(complete("plenum", "sink", "test", "la")).toEqual(["lake"]);
  expect(complete("plenum", "alarms", "--source", "")).toEqual(["lake", "scada"]);
  expect(complete("plenum", "--config", "x.yaml", "status", "--pro")).toEqual(["--probe"]);
});

test.skipIf(!isThere("fish"))("fish completes the subcommands of plenum outbox", () => {
  const script = buildCompletionScript("fish", commandDescriptions).join("\n");
  const fishOutput = execFileSync("fish", ["--no-config", "-c", `${script}\ncomplete -C 'plenum outbox re'`]);
  const offeredWords = fishOutput
    .toString()
    .split("\n")
    .map((line) => line.split("\t")[0]);
  expect(offeredWords.filter((word) => word !== "")).toEqual(["replay", "resend", "revive"]);
});

import { execFileSync, spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { describeCommands } from "#src/cli/manual/command-tree.ts";
import { completionScript } from "#src/cli/manual/completion.ts";
import { buildManualPage } from "#src/cli/manual/man.ts";
import { EXIT_CODE } from "#src/cli/shell/exit.ts";
import { RELEASE_VERSION } from "#src/core/runtime/version.ts";
import { testFolder } from "../test-folder.ts";
import { wholeProgram } from "./whole-program.ts";

const program = await wholeProgram();
const facts = describeCommands(program);
const manual = `${buildManualPage(facts, RELEASE_VERSION).join("\n")}\n`;

function isThere(command: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${command}`]).status === 0;
}

test("the manual page lists every exit code", () => {
  expect(buildManualPage(facts, RELEASE_VERSION)).toEqual(
    expect.arrayContaining(Object.values(EXIT_CODE).map((code) => `.B ${code}`)),
  );
});

test.skipIf(!isThere("groff"))("groff renders the manual page without a warning", () => {
  const { stderr, stdout } = spawnSync("groff", ["-ww", "-man", "-Tascii", "-P-cbu"], { input: manual });
  expect(stderr.toString()).toBe("");
  const shown = stdout.toString().replaceAll(/\s+/g, " ");
  for (const { path } of facts) expect(shown).toContain(`plenum ${path}`.trimEnd());
});

test.skipIf(!isThere("mandoc"))("mandoc finds no error in the manual page", () => {
  const { stdout } = spawnSync("mandoc", ["-T", "lint", "-W", "error"], { input: manual });
  expect(stdout.toString()).toBe("");
});

test.each(["bash", "zsh", "fish"] as const)(
  "the completion script for %s contains every command and every option",
  (shell) => {
    const script = completionScript(shell, facts).join("\n");
    for (const { path, options } of facts) {
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

function offered(...words: readonly string[]): readonly string[] {
  const script = completionScript("bash", facts).join("\n");
  const line = words.map((word) => `'${word}'`).join(" ");
  const asked = `${script}\nplenum() { echo lake scada; }\nCOMP_WORDS=(${line}); COMP_CWORD=${words.length - 1}; _plenum; printf '%s\\n' "\${COMPREPLY[@]}"`;
  return execFileSync("bash", ["-c", asked])
    .toString()
    .split("\n")
    .filter((word) => word !== "");
}

test.skipIf(!isThere("bash"))("bash completes commands, options, choices, and names of the configuration", () => {
  expect(offered("plenum", "expl")).toEqual(["explain"]);
  expect(offered("plenum", "outbox", "re")).toEqual(["resend", "replay", "revive"]);
  expect(offered("plenum", "events", "--fol")).toEqual(["--follow"]);
  expect(offered("plenum", "alarms", "--status", "a")).toEqual(["active", "all"]);
  expect(offered("plenum", "outbox", "replay", "")).toEqual(expect.arrayContaining(["lake", "scada", "--since"]));
  expect(offered("plenum", "sink", "test", "la")).toEqual(["lake"]);
  expect(offered("plenum", "alarms", "--source", "")).toEqual(["lake", "scada"]);
  expect(offered("plenum", "--config", "x.yaml", "status", "--pro")).toEqual(["--probe"]);
});

test.skipIf(!isThere("fish"))("fish offers the commands of a group", () => {
  const script = completionScript("fish", facts).join("\n");
  const answer = execFileSync("fish", ["--no-config", "-c", `${script}\ncomplete -C 'plenum outbox re'`]);
  const words = answer
    .toString()
    .split("\n")
    .map((line) => line.split("\t")[0]);
  expect(words.filter((word) => word !== "")).toEqual(["replay", "resend", "revive"]);
});

import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { buildManualPage } from "#src/cli/manual/man-and-schema-commands.ts";
import { EXIT_CODE } from "#src/cli/shell/exit-codes.ts";
import { RELEASE_VERSION } from "#src/core/runtime/version.ts";
import { commandsIn } from "../../tools/reference/commands.ts";
import { completeProgram } from "./complete-program.ts";

const program = await completeProgram();
const manualLines = buildManualPage(program, RELEASE_VERSION);
const manual = `${manualLines.join("\n")}\n`;

function isThere(command: string): boolean {
  return spawnSync("sh", ["-c", `command -v ${command}`]).status === 0;
}

test("the manual page lists every exit code", () => {
  expect(manualLines).toEqual(expect.arrayContaining(Object.values(EXIT_CODE).map((code) => `.B ${code}`)));
});

test.skipIf(!isThere("groff"))("groff renders the manual page without a warning", () => {
  const { stderr, stdout } = spawnSync("groff", ["-ww", "-man", "-Tascii", "-P-cbu"], { input: manual });
  expect(stderr.toString()).toBe("");
  const renderedManual = stdout.toString().replaceAll(/\s+/g, " ");
  for (const { name } of commandsIn(program)) expect(renderedManual).toContain(`plenum ${name}`);
});

test.skipIf(!isThere("mandoc"))("mandoc finds no error in the manual page", () => {
  const { stdout } = spawnSync("mandoc", ["-T", "lint", "-W", "error"], { input: manual });
  expect(stdout.toString()).toBe("");
});

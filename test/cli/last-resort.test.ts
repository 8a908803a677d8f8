import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";

const MODULE = pathToFileURL(join(import.meta.dirname, "../../src/cli/shell/uncaught-errors.ts")).href;

function run(fault: string) {
  const program = `import { exitOnUncaughtErrors } from ${JSON.stringify(MODULE)}; exitOnUncaughtErrors(); ${fault}; setInterval(() => {}, 1000);`;
  return spawnSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8", timeout: 15_000 });
}

describe("uncaught errors", () => {
  test.each([
    ["an exception", 'setTimeout(() => { throw new Error("mqtt://u:pw@broker fell over"); }, 1)'],
    ["a rejection", 'void Promise.reject(new Error("mqtt://u:pw@broker fell over"))'],
  ])("%s ends the process with a log line and a message, both without credentials", (_what, fault) => {
    const { status, stdout, stderr } = run(fault);
    expect(status).toBe(1);
    expect(stdout).toBe("");
    const [line = "", sentence] = stderr.trimEnd().split("\n");
    expect(JSON.parse(line)).toMatchObject({
      level: 60,
      err: { message: "mqtt://[redacted]@broker fell over" },
      msg: "an uncaught error ends the process",
    });
    expect(sentence).toBe(
      "Plenum has a fault of its own and ends: mqtt://[redacted]@broker fell over. Please report it with the line above; what was committed is safe.",
    );
    expect(stderr).not.toContain("pw");
  });

  test("EPIPE exits with 0, because the reader of the output has closed the pipe", () => {
    const { status, stderr } = run('throw Object.assign(new Error("write EPIPE"), { code: "EPIPE" })');
    expect([status, stderr]).toEqual([0, ""]);
  });
});

import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, test } from "vitest";
import { freePort } from "../real-servers.ts";
import { localHook, servedHarness } from "./plenum.ts";

function readLines(text: string): readonly Record<string, unknown>[] {
  return text
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      let body: Record<string, unknown>;
      try {
        body = JSON.parse(line) as Record<string, unknown>;
      } catch {
        throw new Error(`A line of the log is not JSON: ${line}`);
      }
      // A repeated key would be lost in the object, and the line would be longer.
      expect(line).toHaveLength(JSON.stringify(body).length);
      return body;
    });
}

describe("the log of plenum run", () => {
  test("consists of JSON lines without duplicate keys, even with failures", async () => {
    const { service, cli } = await servedHarness();
    const closedPort = await freePort();
    const from = "beginning";
    cli.configure({
      log: { level: "debug" },
      sinks: {
        files: { file: { folder: "events" }, from },
        broker: { mqtt: { url: `mqtt://127.0.0.1:${closedPort}` }, from },
        lake: { influxdb: { url: `http://127.0.0.1:${closedPort}`, bucket: "b" }, from },
        hook: { webhook: localHook(`http://127.0.0.1:${closedPort}/`), from },
      },
    });
    const worker = await cli.run();
    for (const sink of ["broker", "lake", "hook"]) await worker.waitForOutput(`"sink":"${sink}"`);
    await service.close();
    const { stderr } = await worker.stop();
    const logLines = readLines(stderr);
    expect(logLines.map(({ msg }) => msg)).toEqual(expect.arrayContaining(["started", "Plenum is running", "stopped"]));
    for (const line of logLines)
      expect(line).toMatchObject({ level: expect.any(Number) as number, time: expect.any(String) as string });
  });

  test("contains warnings of Node.js, output of libraries and uncaught errors as JSON lines", () => {
    const at = (file: string) => JSON.stringify(pathToFileURL(join(import.meta.dirname, "../../src", file)).href);
    const program = `
      import { createLog } from ${at("core/runtime/log.ts")};
      import { redirectStandardError, exitOnUncaughtErrors } from ${at("cli/shell/uncaught-errors.ts")};
      exitOnUncaughtErrors();
      redirectStandardError(createLog({ level: "info" }));
      process.emitWarning("mqtt://u:pw@broker leaks", "MaxListenersExceededWarning");
      console.error("a %s of %o", "library", { prints: 1 });
      console.log("to standard output");
      setTimeout(() => { throw new Error("fell over"); }, 20);`;
    const { status, stdout, stderr } = spawnSync(process.execPath, ["--input-type=module", "-e", program], {
      encoding: "utf8",
      timeout: 60_000,
    });
    expect([status, stdout]).toEqual([1, ""]);
    expect(readLines(stderr)).toMatchObject([
      { msg: "a library prints", text: "a library of { prints: 1 }" },
      { msg: "a library prints", text: "to standard output" },
      { msg: "the runtime warns", warning: "MaxListenersExceededWarning", text: "mqtt://[redacted]@broker leaks" },
      { msg: "an uncaught error ends the process", err: { message: "fell over" } },
    ]);
  });
});

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { describe, expect, test } from "vitest";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { type Ended, type Harness, localHook, onlyLine, openHarness, servedHarness } from "./plenum.ts";

const NOWHERE = "http://127.0.0.1:9";

function expectMessage({ code, stderr }: Ended, expected: number, message: string | RegExp): void {
  expect({ code, stderr: onlyLine(stderr) }).toEqual({
    code: expected,
    stderr: typeof message === "string" ? message : expect.stringMatching(message),
  });
}

async function awaitReport(cli: Harness, fits: (report: StatusReport) => boolean): Promise<StatusReport> {
  for (;;) {
    const lastReport = await cli.json<StatusReport>("status");
    if (fits(lastReport)) return lastReport;
  }
}

describe("mistakes in the configuration and the state folder", () => {
  test("reports every mistake of a wrong configuration with its line and exits with code 78", async () => {
    const cli = openHarness(NOWHERE);
    writeFileSync(cli.path("plenum.yaml"), "sources: {}\nlog: { level: loud }\n");
    const { code, stderr, stdout } = await cli.plenum("run");
    expect([code, stdout]).toEqual([78, ""]);
    expect(stderr.split("\n")).toEqual([
      "plenum.yaml:1:1 sources: Name at least one source.",
      "plenum.yaml:2:15 log.level: Write one of trace, debug, info, warn, error, silent.",
      "",
    ]);
  });

  function changeState(cli: Harness, sql: string): void {
    mkdirSync(cli.path("state"), { recursive: true });
    const database = new DatabaseSync(cli.path("state/plenum.db"));
    database.exec(sql);
    database.close();
  }

  test.each<[what: string, (cli: Harness) => unknown, message: string | RegExp]>([
    [
      "a missing configuration file",
      (cli) => rmSync(cli.path("plenum.yaml")),
      "The configuration file plenum.yaml does not exist. Make one with `plenum init`, or name another with --config.",
    ],
    [
      "a status page that other machines can reach without a password",
      (cli) => cli.configure({ status: { host: "0.0.0.0", port: 0 } }),
      /status\.host: An address that others can reach needs both a password and behind_tls_proxy: true\.$/,
    ],
    [
      "a state folder that cannot be created",
      (cli) => cli.configure({ state: { folder: "token/state" } }),
      "The state folder token/state cannot be created (ENOTDIR). Set state.folder to a folder that the worker may write.",
    ],
    [
      "a state file of another program",
      (cli) => changeState(cli, "create table recipes (name text)"),
      /state\/plenum\.db .*(not|no|another|foreign)/i,
    ],
    [
      "a state file of a newer Plenum",
      async (cli) => {
        await cli.plenum("sites");
        changeState(cli, "pragma user_version = 99");
      },
      /newer/,
    ],
  ])("plenum run rejects %s with one sentence and exit code 78", async (_, spoil, message) => {
    const cli = openHarness(NOWHERE);
    await spoil(cli);
    expectMessage(await cli.plenum("run"), 78, message);
  });

  test("rejects a state folder that another worker uses", async () => {
    const { cli } = await servedHarness();
    const firstWorker = await cli.run();
    expectMessage(
      await cli.plenum("run"),
      78,
      "Another worker uses the state folder state. Stop it, or set state.folder to another folder for this one.",
    );
    await firstWorker.stop();
  });
});

describe("unavailable resources", () => {
  test("plenum run rejects a port that is in use", async () => {
    const cli = openHarness(NOWHERE);
    const { port } = await startStubInTest();
    cli.configure({ status: { port } });
    const { code, stderr } = await cli.plenum("run");
    expect([code, stderr]).toEqual([78, expect.stringContaining(`127.0.0.1:${port} is in use by another program.`)]);
    expect(stderr).not.toMatch(/^\s+at /m);
  });

  test("with a rejected token, plenum check exits with code 78, and the worker runs on and reports the rejected token until the token is valid", async () => {
    const { cli } = await servedHarness();
    writeFileSync(cli.path("token"), "wrong-token-0815\n");
    const checkOutput = await cli.plenum("check", "--json");
    expect(checkOutput.code).toBe(78);
    expect(onlyLine(checkOutput.stderr)).toBe("1 of 6 checks did not pass.");
    expect(checkOutput.stdout).toMatch(/"what":"source main","result":"wrong","detail":"[^"]*401/);
    const worker = await cli.run();
    const bad = await awaitReport(cli, ({ sources }) => (sources[0]?.unavailable.length ?? 0) > 0);
    expect(bad.notices[0]).toMatch(/^main is unavailable since 2\S+: unauthenticated: .*Put a valid token where/);
    writeFileSync(cli.path("token"), "simulator-token\n");
    await awaitReport(cli, ({ notices }) => notices.length === 0);
    const { stderr, stdout } = await worker.stop();
    expect(`${stdout}${stderr}${checkOutput.stdout}${checkOutput.stderr}`).not.toContain("wrong-token-0815");
  });

  test("with an unreachable service and sink, plenum check exits with code 75, and the worker keeps running and reports both", async () => {
    const cli = openHarness(NOWHERE);
    cli.configure({ sinks: { hook: { webhook: localHook(`${NOWHERE}/hook`), from: "beginning" } } });
    const checkOutput = await cli.plenum("check", "--json");
    expect(checkOutput.code).toBe(75);
    const results = (JSON.parse(checkOutput.stdout) as { result: string }[]).map(({ result }) => result);
    expect(results.join(" ")).toBe("ok ok ok ok unavailable unavailable");
    const worker = await cli.run();
    const downReport = await awaitReport(cli, ({ notices, sinks }) => notices.length >= 2 && sinks[0]?.problem != null);
    expect(downReport.notices.join("\n")).toMatch(/main.*127\.0\.0\.1:9 could not be asked/);
    expect(downReport.sinks[0]).toMatchObject({ state: "retrying", problem: expect.stringMatching(/ECONNREFUSED/) });
    expect((await cli.plenum("sites")).code).toBe(75);
    await worker.stop();
  });
});

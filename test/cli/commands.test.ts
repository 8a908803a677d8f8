import { describe, expect, test } from "vitest";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { localHook, openHarness, servedHarness, WRITING, waitForInventory } from "./plenum.ts";

function data({ stdout }: { readonly stdout: string }): unknown {
  expect(stdout.endsWith("\n")).toBe(true);
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout);
}

describe("commands without a worker", () => {
  test("print lists, values and history as a table and as JSON", async () => {
    const { service, cli } = await servedHarness();
    const sites = await cli.plenum("sites", "--json");
    expect(data(sites)).toEqual([
      { id: 1, displayName: "Cambridge Estates A" },
      { id: 6, displayName: "Bygg 105 Office" },
    ]);
    expect(sites).toMatchObject({ code: 0 });
    const table = await cli.plenum("read", "10001", "10002");
    expect(table.stdout).toMatch(/^id {5}value +unit +name\n10001 .*\n10002 .*\n$/);
    expect(data(await cli.plenum("read", "10001,10002", "--json"))).toHaveLength(2);
    const history = await cli.plenum("history", "10001", "--from", "6h", "--to", "1h", "--json");
    expect((data(history) as unknown[]).length).toBeGreaterThanOrEqual(4);
    const tagTotal = data(await cli.plenum("history", "10001", "--from", "1d", "--total", "--json"));
    expect(tagTotal).toEqual([{ id: "10001", time: expect.stringMatching(/Z$/), value: expect.any(Number) }]);
    service.simulator.control.raiseAlarm({ siteId: 1 });
    const alarms = data(await cli.plenum("alarms", "--site", "1", "--json")) as readonly { site: object }[];
    expect(alarms.length).toBeGreaterThan(0);
    expect(alarms[0]?.site).toEqual({ id: 1, displayName: "Cambridge Estates A" });
  });

  test("report a missing worker and unknown names", async () => {
    const { cli } = await servedHarness();
    expect(await cli.refusal("write", "10169", "75")).toMatch(/^75 No worker is running .*`plenum run`\.$/);
    expect(await cli.refusal("read", "999999999")).toMatch(/^1 Tag 999999999: .*404/);
    expect((await cli.plenum("staus")).stderr).toContain("Did you mean status?");
  });

  test("plenum simulate serves requests on the address that it prints, until Ctrl-C", async () => {
    const cli = openHarness("http://127.0.0.1:9");
    const simulator = cli.start("simulate", "--port", "0", "--json", "--speed", "60");
    const url = await new Promise<string>((resolve) => {
      const pollTimer = setInterval(() => {
        const line = simulator.printed().split("\n")[0] ?? "";
        if (!line.startsWith("{")) return;
        clearInterval(pollTimer);
        resolve((JSON.parse(line) as { url: string }).url);
      }, 20);
    });
    const health = await fetch(`${url}/api/v1/healthcheck`);
    expect(((await health.json()) as { status: string }).status).toBe("healthy");
    await simulator.stop();
  });
});

describe("commands with a running worker", () => {
  test("list and resend dead letters, write tags and stop all tag writes through the worker", async () => {
    const { service, cli } = await servedHarness();
    const hook = await startStubInTest(() => ({ status: 500 }));
    cli.configure({
      sinks: {
        files: { file: { folder: "events" }, from: "beginning" },
        hook: {
          webhook: localHook(`${hook.url}/hook`),
          from: "beginning",
          schedule: ["1ms"],
          filter: { kinds: ["site-added"] },
        },
      },
      commands: WRITING,
    });
    const worker = await cli.run("--arm-writing");
    expect((await cli.plenum("status", "--probe")).code).toBe(0);
    await expect
      .poll(async () => (data(await cli.plenum("outbox", "dead", "hook", "--json")) as unknown[]).length)
      .toBe(2);
    const letters = data(await cli.plenum("outbox", "dead", "--json")) as { id: number; reason: string }[];
    expect(letters[0]?.reason).toBe(`attempts-exhausted: ${hook.url} answered 500.`);
    const id = String(letters[0]?.id);
    expect(data(await cli.plenum("outbox", "discard", "hook", id, "--json"))).toEqual({ discarded: 1 });
    expect(data(await cli.plenum("outbox", "resend", "hook", "--json"))).toEqual({ resent: 1 });
    const replayed = data(await cli.plenum("outbox", "replay", "files", "--since", "1h", "--json"));
    expect((replayed as { replayed: number }).replayed).toBeGreaterThan(1);
    expect(await cli.refusal("outbox", "resend", "hok")).toBe("78 There is no sink hok; known are: files, hook.");
    const lag = data(await cli.plenum("outbox", "--json")) as { sink: string }[];
    expect(lag.map(({ sink }) => sink)).toEqual(["files", "hook"]);
    const requestsBefore = service.simulator.truth.requests().length;
    expect(data(await cli.plenum("read", "10001", "--json"))).toMatchObject([{ id: "10001" }]);
    expect(data(await cli.plenum("sites", "--json"))).toHaveLength(2);
    expect(service.simulator.truth.requests().length).toBeGreaterThan(requestsBefore);
    expect(await cli.refusal("read", "999999999", "--ask")).toMatch(/^1 Tag 999999999: .*404/);
    const status = data(await cli.plenum("status", "--json")) as StatusReport;
    expect(status.startedAt).toMatch(/Z$/);
    expect(status.commands).toMatchObject({ enabled: true, stopped: false, writable: 1 });
    await waitForInventory(cli);
    const stop = await cli.plenum("writes", "stop");
    expect(stop.code).toBe(0);
    const refusedWrite = await cli.plenum("write", "10169", "75", "--id", "a", "--json");
    expect(refusedWrite.code).toBe(1);
    expect(data(refusedWrite)).toMatchObject({ commandId: "a", outcome: "rejected", reason: "killed" });
    await cli.plenum("writes", "resume");
    const low = await cli.plenum("write", "10169", "12");
    expect([low.code, low.stdout]).toEqual([1, expect.stringContaining("rejected")]);
    const written = await cli.plenum("write", "10169", "75", "--id", "b", "--json");
    expect(data(written)).toMatchObject({ commandId: "b", outcome: "confirmed" });
    expect(written.code).toBe(0);
    const repeatedWrite = await cli.plenum("write", "10169", "76", "--id", "b", "--json");
    expect([repeatedWrite.code, data(repeatedWrite)]).toEqual([1, expect.objectContaining({ outcome: "duplicate" })]);
    expect(service.simulator.truth.writes().map(({ value }) => value)).toEqual([75]);
    expect((await cli.plenum("audit", "verify")).code).toBe(0);
    const { stdout, stderr } = await worker.stop();
    expect(stdout).toBe("");
    expect(`${stdout}${stderr}`).not.toContain("simulator-token");
    expect((await cli.plenum("status", "--probe")).code).toBe(1);
  });
});

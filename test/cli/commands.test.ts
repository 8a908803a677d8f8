import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import type { StatusReport } from "#src/ui/status/report.ts";
import { onlyLine, simulatedServer, workplace } from "./plenum.ts";

async function unwilling(): Promise<{ readonly url: string; readonly origin: string }> {
  const server = createServer((request, response) => {
    request.resume();
    response.writeHead(500).end();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => server.closeAllConnections());
  onTestFinished(() => void server.close());
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { url: `${origin}/hook`, origin };
}

function data({ stdout }: { readonly stdout: string }): unknown {
  expect(stdout.endsWith("\n")).toBe(true);
  expect(stdout.trimEnd().split("\n")).toHaveLength(1);
  return JSON.parse(stdout);
}

describe("commands without a worker", () => {
  test("print lists, values and history as a table and as JSON", async () => {
    const service = await simulatedServer();
    const place = workplace(service.url);
    const sites = await place.plenum("sites", "--json");
    expect(data(sites)).toEqual([
      { id: 1, displayName: "Cambridge Estates A" },
      { id: 6, displayName: "Bygg 105 Office" },
    ]);
    expect(sites).toMatchObject({ code: 0 });

    const table = await place.plenum("read", "10001", "10002");
    expect(table.stdout).toMatch(/^id {5}value +unit +name\n10001 .*\n10002 .*\n$/);
    expect(data(await place.plenum("read", "10001,10002", "--json"))).toHaveLength(2);

    const history = await place.plenum("history", "10001", "--from", "6h", "--to", "1h", "--json");
    expect((data(history) as unknown[]).length).toBeGreaterThanOrEqual(4);
    const total = data(await place.plenum("history", "10001", "--from", "1d", "--total", "--json"));
    expect(total).toEqual([{ id: "10001", time: expect.stringMatching(/Z$/), value: expect.any(Number) }]);

    service.simulator.control.raiseAlarm({ siteId: 1 });
    const alarms = data(await place.plenum("alarms", "--site", "1", "--json")) as readonly { site: object }[];
    expect(alarms.length).toBeGreaterThan(0);
    expect(alarms[0]?.site).toEqual({ id: 1, displayName: "Cambridge Estates A" });
  });

  test("report a missing worker and unknown names", async () => {
    const service = await simulatedServer();
    const place = workplace(service.url);
    const [write, probe, dead, unknown, slip] = [
      await place.plenum("write", "10169", "75"),
      await place.plenum("status", "--probe"),
      await place.plenum("outbox"),
      await place.plenum("read", "999999999"),
      await place.plenum("staus"),
    ];
    expect(write.code).toBe(75);
    expect(onlyLine(write.stderr)).toMatch(/^No worker is running .*`plenum run`\.$/);
    expect([probe.code, onlyLine(probe.stderr)]).toEqual([1, "No worker is running on this state folder."]);
    expect([dead.code, onlyLine(dead.stderr)]).toEqual([
      78,
      "There is no state in state yet. Start the worker first, or name the folder that it uses.",
    ]);
    expect([unknown.code, onlyLine(unknown.stderr)]).toEqual([1, expect.stringMatching(/^Tag 999999999: .*404/)]);
    expect([slip.code, slip.stderr]).toEqual([2, expect.stringContaining("Did you mean status?")]);
  });

  test("`status` prints the state, `audit verify` confirms the log", async () => {
    const service = await simulatedServer();
    const place = workplace(service.url);
    await place.plenum("sites");
    expect(data(await place.plenum("status", "--json"))).toMatchObject({ startedAt: null, commands: null });
    expect((await place.plenum("status")).stdout).toMatch(
      /^No worker is running; this is what the state remembers\.\n/,
    );
    expect(data(await place.plenum("audit", "verify", "--json"))).toMatchObject({
      records: 0,
      brokenAt: null,
    });
  });

  test("`simulate` serves requests on the address that it prints, until Ctrl-C", async () => {
    const place = workplace("http://127.0.0.1:9");
    const simulator = place.start("simulate", "--port", "0", "--json", "--speed", "60");
    const url = await new Promise<string>((resolve) => {
      const look = setInterval(() => {
        const line = simulator.printed().split("\n")[0] ?? "";
        if (!line.startsWith("{")) return;
        clearInterval(look);
        resolve((JSON.parse(line) as { url: string }).url);
      }, 20);
    });
    const health = await fetch(`${url}/api/v1/healthcheck`);
    expect(((await health.json()) as { status: string }).status).toBe("healthy");
    simulator.signal("SIGINT");
    expect((await simulator.ended).code).toBe(0);
  });
});

describe("commands with a running worker", () => {
  test("handle dead letters, writes and the stop through the worker", async () => {
    const service = await simulatedServer();
    const hook = await unwilling();
    const place = workplace(service.url);
    place.configure({
      sinks: {
        files: { file: { folder: "events" }, from: "beginning" },
        hook: {
          webhook: { url: hook.url, unsigned: true, allow_networks: ["127.0.0.0/8"] },
          from: "beginning",
          schedule: ["1ms"],
          filter: { kinds: ["site-added"] },
        },
      },
      commands: {
        enabled: true,
        read_back_after: "100ms",
        allow: [{ type: "number", site_id: 6, tag_id: "10169", min: 60, max: 90, min_interval: "0s" }],
      },
    });
    const worker = place.start("run", "--arm-writing");
    await worker.says("Plenum is running");
    expect((await place.plenum("status", "--probe")).code).toBe(0);

    await expect
      .poll(async () => (data(await place.plenum("outbox", "dead", "hook", "--json")) as unknown[]).length, {
        timeout: 20_000,
      })
      .toBe(2);
    const letters = data(await place.plenum("outbox", "dead", "--json")) as { id: number; reason: string }[];
    expect(letters[0]?.reason).toBe(`attempts-exhausted: ${hook.origin} answered 500.`);
    const id = String(letters[0]?.id);
    expect(data(await place.plenum("outbox", "discard", "hook", id, "--json"))).toEqual({ discarded: 1 });
    expect(data(await place.plenum("outbox", "resend", "hook", "--json"))).toEqual({ resent: 1 });
    const replayed = data(await place.plenum("outbox", "replay", "files", "--since", "1h", "--json"));
    expect((replayed as { replayed: number }).replayed).toBeGreaterThan(1);
    const unknown = await place.plenum("outbox", "resend", "hok");
    expect([unknown.code, onlyLine(unknown.stderr)]).toEqual([78, "There is no sink hok; known are: files, hook."]);
    const lag = data(await place.plenum("outbox", "--json")) as { sink: string }[];
    expect(lag.map(({ sink }) => sink)).toEqual(["files", "hook"]);

    const before = service.simulator.truth.requests().length;
    expect(data(await place.plenum("read", "10001", "--json"))).toMatchObject([{ id: "10001" }]);
    expect(data(await place.plenum("sites", "--json"))).toHaveLength(2);
    expect(service.simulator.truth.requests().length).toBeGreaterThan(before);
    const nothing = await place.plenum("read", "999999999", "--ask");
    expect([nothing.code, onlyLine(nothing.stderr)]).toEqual([1, expect.stringMatching(/^Tag 999999999: .*404/)]);

    const status = data(await place.plenum("status", "--json")) as StatusReport;
    expect(status.startedAt).toMatch(/Z$/);
    expect(status.commands).toMatchObject({ enabled: true, stopped: false, writable: 1 });

    await expect
      .poll(async () => (await place.plenum("status", "--json")).stdout.includes('"tags":null'), {
        timeout: 20_000,
      })
      .toBe(false);
    const stop = await place.plenum("writes", "stop");
    expect(stop.code).toBe(0);
    const refused = await place.plenum("write", "10169", "75", "--id", "a", "--json");
    expect(refused.code).toBe(1);
    expect(data(refused)).toMatchObject({ commandId: "a", outcome: "rejected", reason: "killed" });
    await place.plenum("writes", "resume");
    const low = await place.plenum("write", "10169", "12");
    expect([low.code, low.stdout]).toEqual([1, expect.stringContaining("rejected")]);
    const written = await place.plenum("write", "10169", "75", "--id", "b", "--json");
    expect(data(written)).toMatchObject({ commandId: "b", outcome: "confirmed" });
    expect(written.code).toBe(0);
    const again = await place.plenum("write", "10169", "76", "--id", "b", "--json");
    expect([again.code, data(again)]).toEqual([1, expect.objectContaining({ outcome: "duplicate" })]);
    expect(service.simulator.truth.writes().map(({ value }) => value)).toEqual([75]);
    expect((await place.plenum("audit", "verify")).code).toBe(0);

    worker.signal("SIGINT");
    const { code, stdout, stderr } = await worker.ended;
    expect(code).toBe(0);
    expect(stdout).toBe("");
    expect(`${stdout}${stderr}`).not.toContain("simulator-token");
    expect((await place.plenum("status", "--probe")).code).toBe(1);
  }, 120_000);

  test("show no worker and leave no misleading files after the worker is killed", async () => {
    const service = await simulatedServer();
    const place = workplace(service.url);
    const worker = place.start("run");
    await worker.says("Plenum is running");
    worker.signal("SIGKILL");
    await worker.ended;
    expect((await place.plenum("status", "--probe")).code).toBe(1);
    expect(data(await place.plenum("sites", "--json"))).toHaveLength(2);
    expect((await place.plenum("write", "10169", "75")).code).toBe(75);
  });
});

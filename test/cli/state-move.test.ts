import { execFile } from "node:child_process";
import { realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FLEET_LEASE_TIMING } from "#src/scale/fleet/lease-timing.ts";
import type { StateMoveResult } from "#src/scale/move-to-postgres/move-state.ts";
import { connectTo } from "../query-postgres.ts";
import { absent, programPath, type RealServer, startPostgres } from "../real-servers.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { createTwoSourceState } from "../store/move/two-sources.ts";
import { localHook, onlyLine, openHarness, type Service, simulatedServer } from "./plenum.ts";

describe.skipIf(absent("postgres"))("plenum state move", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.stop());
  const source = { base_url: "http://127.0.0.1:9", token: { file: "token" }, time_zone: "Europe/Oslo" };

  test("plenum state move moves the state and prints row counts, plenum run rejects the moved folder, and a second move changes nothing", async () => {
    const cli = openHarness("http://127.0.0.1:9");
    cli.configure({ sources: { main: source, annex: { ...source, token: cli.token("annex") } } });
    const to = ["--to", `postgresql://postgres@127.0.0.1:${server.port}/postgres?sslmode=disable`];
    expect(await cli.refusal("state", "move", ...to)).toMatch(/^78 There is no state in .*state\./);
    await createTwoSourceState(cli.path("state"));
    const moveOutput = await cli.plenum("state", "move", ...to);
    expect(moveOutput.stderr).toBe("");
    expect(moveOutput.stdout).toMatch(
      /is in 127\.0\.0\.1:\d+\/postgres, schema plenum_state now, for 4 sources: main, annex, /,
    );
    expect(moveOutput.stdout).toMatch(/\n {2}event +106 rows\n {4}main: 86 rows, digest [0-9a-f]{16}\n/);
    expect(moveOutput.stdout).toContain("Next: set state.postgres in the configuration, and start the members");
    expect(moveOutput.code).toBe(0);
    expect(await cli.refusal("run")).toMatch(
      /^78 The state in the folder .* was moved to 127\.0\.0\.1:\d+\/postgres, schema plenum_state at .*\. Set state\.postgres/,
    );
    const repeatedMove = await cli.plenum("state", "move", ...to, "--json");
    expect(JSON.parse(repeatedMove.stdout) as StateMoveResult).toMatchObject({ wasThere: true, tables: [] });
  });

  test("plenum state move uses the database of the configuration and moves the kill switch", async () => {
    const cli = openHarness("http://127.0.0.1:9");
    await createTwoSourceState(cli.path("state"));
    writeFileSync(cli.path("state/WRITES-STOPPED"), "by hand\n");
    const url = `postgresql://postgres@127.0.0.1:${server.port}/postgres?sslmode=disable`;
    cli.configure({
      state: { folder: "state", postgres: { url, schema: "configured" } },
      sinks: { out: { webhook: { url: "http://127.0.0.1:9/", unsigned: true } } },
    });
    expect(await cli.refusal("state", "move", "--schema", "other")).toMatch(/^78 .*Without --to/);
    const moveOutput = await cli.plenum("state", "move");
    expect([moveOutput.stderr, moveOutput.code]).toEqual(["", 0]);
    expect(moveOutput.stdout).toContain("Next: start the members: plenum run.");
    const client = await connectTo(server);
    const { rows } = await client.query("select key, body from configured.fleet_document where key = 'kill-switch'");
    await client.end();
    expect(JSON.parse(rows[0]?.body)).toMatchObject({ by: expect.stringContaining(cli.path("state")) });
  });

  test.each<[string, readonly string[], string]>([
    ["no database", [], "It is not said which database the state is to be moved to."],
    ["an address with a password", ["--to", "postgresql://a:b@db/x"], "--to: Leave the password out of the address"],
    ["an address without TLS", ["--to", "postgresql://a@db/x?sslmode=disable"], "add --allow-plain"],
    ["an unreachable database", ["--to", "postgresql://a@127.0.0.1:9/x?sslmode=disable"], "127.0.0.1:9"],
  ])("`state move` reports one message for the target: %s", async (_, args, message) => {
    const cli = openHarness("http://127.0.0.1:9");
    const { stderr, code } = await cli.plenum("state", "move", ...args);
    expect(onlyLine(stderr)).toContain(message);
    expect([75, 78]).toContain(code);
  });
});

const run = promisify(execFile);

interface ReceivedEvent {
  readonly id: string;
  readonly type: string;
  readonly alarm: string | null;
}

async function receiver() {
  const receivedEvents: ReceivedEvent[] = [];
  let isOpen = true;
  const { url } = await startStubInTest(({ body }) => {
    if (!isOpen) return { status: 503 };
    const { id, type, source, data } = JSON.parse(body.toString());
    const alarm = data.alarm === undefined ? null : `${source} ${data.alarm.id}`;
    receivedEvents.push({ id, type: type.replace(/^.*\./, ""), alarm });
    return { status: 204 };
  });
  return {
    url,
    told: receivedEvents,
    setOpen(open: boolean) {
      isOpen = open;
    },
    counts(type: string): Readonly<Record<string, number>> {
      const counts: Record<string, number> = {};
      for (const each of receivedEvents)
        if (each.type === type && each.alarm !== null) counts[each.alarm] = (counts[each.alarm] ?? 0) + 1;
      return counts;
    },
  };
}

describe.skipIf(absent("postgres"))("a worker's state continues in a fleet and from a backup", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startPostgres();
  });
  afterAll(() => server.stop());

  async function setUp(schema: string) {
    const services = { main: await simulatedServer({ sites: [1] }), annex: await simulatedServer({ sites: [6] }) };
    const hook = await receiver();
    const cli = openHarness(services.main.url);
    const source = (name: string, { url }: Service) => ({
      ...{ base_url: url, token: cli.token(name), time_zone: "Europe/Oslo" },
      schedules: { alarms: "*/2 * * * * *" },
      quota: { list_requests_per_minute: 120 },
      spread: "1s",
      read: [{ name: "all", every: "3s" }],
    });
    const configure = (state: Readonly<Record<string, unknown>>) =>
      cli.configure({
        state,
        sources: { main: source("main", services.main), annex: source("annex", services.annex) },
        sinks: { hook: { webhook: localHook(hook.url), from: "beginning" } },
      });
    const url = `postgresql://postgres@127.0.0.1:${server.port}/postgres?sslmode=disable`;
    const start = () => cli.run();
    const inFolder = () => configure({ folder: "state" });
    const inDatabase = () => configure({ folder: "state", postgres: { url, schema } });
    const raise = (which: keyof typeof services): string => {
      const id = services[which].simulator.control.raiseAlarm({ siteId: which === "main" ? 1 : 6 });
      return `/sources/${which} ${id}`;
    };
    const resolve = (which: keyof typeof services, alarm: string) =>
      services[which].simulator.control.resolveAlarm(alarm.split(" ")[1] ?? "");
    const awaitEvent = (type: string, id: string) => expect.poll(() => hook.counts(type)[id] ?? 0).toBeGreaterThan(0);
    const withinQuota = () => {
      for (const { simulator } of Object.values(services)) {
        expect(simulator.truth.busiestMinute()).toBeLessThanOrEqual(20);
        expect(simulator.truth.requests().filter(({ limit }) => limit === "refused")).toEqual([]);
      }
    };
    return { cli, hook, started: start, inFolder, inDatabase, raise, resolve, heard: awaitEvent, withinQuota };
  }

  test("a member delivers pending events once and stays within the quota after the state was moved to its database", async () => {
    const { cli, hook, started, inFolder, inDatabase, raise, resolve, heard, withinQuota } = await setUp("moved");
    inFolder();
    const worker = await started();
    const [known, other] = [raise("main"), raise("annex")];
    await heard("alarm-raised", known);
    await heard("alarm-raised", other);
    hook.setOpen(false);
    const [pending, pendingToo] = [raise("main"), raise("annex")];
    for (const alarm of [pending, pendingToo]) {
      const [source = "", id] = alarm.split(" ");
      const sourceFilter = ["--source", source.replace("/sources/", ""), "--kind", "alarm-raised"];
      const committed = async () => (await cli.plenum("events", "--json", ...sourceFilter)).stdout;
      await expect.poll(committed).toContain(`"id":"${id}"`);
    }
    await worker.stop();
    inDatabase();
    const moveOutput = await cli.plenum("state", "move", "--json");
    expect([moveOutput.code, moveOutput.stderr]).toEqual([0, ""]);
    expect(JSON.parse(moveOutput.stdout)).toMatchObject({ sources: ["main", "annex"], leftBehind: [] });
    hook.setOpen(true);
    const member = await started();
    for (const id of [pending, pendingToo]) await heard("alarm-raised", id);
    resolve("main", known);
    await heard("alarm-resolved", known);
    const laterAlarm = raise("annex");
    await heard("alarm-raised", laterAlarm);
    await member.stop();
    const ids = hook.told.map(({ id }) => id);
    expect(ids.length, "no event twice").toBe(new Set(ids).size);
    const raisedCounts = hook.counts("alarm-raised");
    for (const id of [known, other, pending, pendingToo, laterAlarm]) expect(raisedCounts[id]).toBe(1);
    expect(hook.counts("alarm-resolved")[other]).toBeUndefined();
    expect(hook.counts("alarm-resolved")[pending]).toBeUndefined();
    withinQuota();
  });

  test("a fleet restored from a backup reports the age of the backup and emits no false end of an alarm", async () => {
    const schema = "backed_up";
    const { cli, hook, started, inDatabase, raise, resolve, heard, withinQuota } = await setUp(schema);
    inDatabase();
    const firstMember = await started();
    const [known, ends] = [raise("main"), raise("annex")];
    await heard("alarm-raised", known);
    await heard("alarm-raised", ends);
    const programs = dirname(realpathSync(programPath("postgres") ?? ""));
    const at = ["-h", "127.0.0.1", "-p", String(server.port), "-U", "postgres", "-d", "postgres"];
    const dump = cli.path("backup.dump");
    await run(join(programs, "pg_dump"), [...at, "--format=custom", `--schema=${schema}`, `--file=${dump}`]);
    const dumpedAtMs = Date.now();
    const laterAlarm = raise("main");
    await heard("alarm-raised", laterAlarm);
    resolve("annex", ends);
    await heard("alarm-resolved", ends);
    await firstMember.stop();
    // The dump contains the member until its lease runs out.
    await expect.poll(() => Date.now() - dumpedAtMs).toBeGreaterThan(FLEET_LEASE_TIMING.ttlMs);
    const client = await connectTo(server);
    await client.query(`drop schema ${schema} cascade`);
    await client.end();
    await run(join(programs, "pg_restore"), [...at, "--exit-on-error", dump]);
    const secondMember = await started();
    expect(await secondMember.waitForOutput("The database is not the one that the members used last")).toMatch(
      /it lies back [\d.]+ (s|min): a member was heard of last at 20\d\d-/,
    );
    const newAlarm = raise("annex");
    await heard("alarm-raised", newAlarm);
    // The service still reports events from after the backup, so they are emitted again with the same ids.
    await expect.poll(() => hook.counts("alarm-resolved")[ends]).toBe(2);
    const status = await cli.plenum("status");
    expect(status.stdout).toContain("The database is not the one that the members used last");
    await secondMember.stop();
    expect(hook.counts("alarm-resolved")[known]).toBeUndefined();
    expect(hook.counts("alarm-resolved")[laterAlarm]).toBeUndefined();
    const idsByFact = new Map<string, Set<string>>();
    for (const { alarm, id, type } of hook.told) {
      if (alarm === null) continue;
      const key = `${type} ${alarm}`;
      idsByFact.set(key, (idsByFact.get(key) ?? new Set()).add(id));
    }
    for (const [fact, ids] of idsByFact) expect([fact, ids.size]).toEqual([fact, 1]);
    withinQuota();
    const third = await started();
    expect((await third.stop()).stderr).not.toContain("is not the one that the members used last");
  });
});

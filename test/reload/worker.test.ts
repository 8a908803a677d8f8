import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import type { Receipt, Sink } from "#src/core/connector.ts";
import { ConfigError } from "#src/core/errors/errors.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { testFolder } from "../test-resources.ts";
import { startVirtualWorker, type VirtualWorker, type VirtualWorkerOptions } from "../virtual-worker.ts";

const SECOND_MS = 1_000;
const MINUTE_MS = 60_000;
let virtual: VirtualWorker;
let isSlow = false;
afterEach(async () => {
  isSlow = false;
  await virtual.clear();
});

function recordingSink(delayMs = 0) {
  const got: AnyEvent[] = [];
  const seen = { opened: 0, closed: 0, writing: 0, most: 0 };
  const sink = (): Sink => {
    let isOpen = false;
    return {
      async open() {
        if (!isOpen) seen.opened += 1;
        isOpen = true;
      },
      strictOrder: true,
      async write(batch): Promise<Receipt> {
        seen.writing += 1;
        seen.most = Math.max(seen.most, seen.writing);
        if (isSlow && delayMs > 0) await virtual.clock.sleep(delayMs);
        got.push(...(batch as AnyEvent[]));
        seen.writing -= 1;
        return { rejected: [] };
      },
      async close() {
        if (isOpen) seen.closed += 1;
        isOpen = false;
      },
    };
  };
  return { got, seen, sink };
}

async function startWithSinks(sinks: VirtualWorkerOptions["sinks"] = {}): Promise<void> {
  virtual = await startVirtualWorker({
    ...{ simulator: { sites: [3, 4], alarms: { recorded: false } }, eventsFolder: null, sinks },
    source: { read: [{ name: "all", every: "1m" }] },
  });
}

function eventIds(events: readonly AnyEvent[]): readonly string[] {
  return events.map(({ id }) => id);
}

describe("a change of the configuration file while the worker runs", () => {
  test("is rejected when a sink uses the token of a source, even if the file gives that source another token", async () => {
    await startWithSinks();
    const headers = { authorization: { env: "TOKEN" } };
    const hook = { webhook: { url: "https://hooks.example.com/a", unsigned: true, headers } };
    const sharedTokenText =
      "sinks.hook.webhook.headers.authorization: This variable holds the token of the source main, and only that source may name it: put this secret into a variable of its own.";
    const reloadReport = await virtual.reload((file) => {
      file.sinks.hook = hook;
      file.sources.main.token = { env: "ANOTHER" };
    });
    expect(reloadReport).toMatchObject({ refused: [sharedTokenText], changes: [] });
  });
});

describe("sinks at a reload", () => {
  test("can be added, changed, paused and removed under load, and each sink receives its events once", async () => {
    const [stays, changes, comes] = [recordingSink(), recordingSink(700), recordingSink()];
    const sinkByName = { stays, changes, comes };
    await startWithSinks(
      Object.fromEntries(
        Object.entries(sinkByName).map(([name, { sink }]) => [name, { delivery: { enabled: name !== "comes" }, sink }]),
      ),
    );
    isSlow = true;
    await virtual.clock.advance(5 * MINUTE_MS + 2_345);
    for (let round = 0; round < 6; round += 1) {
      await virtual.reload((file) => {
        file.sinks.changes.batch = 10 + round;
        file.sinks.changes.filter = round % 2 === 0 ? { kinds: ["tag-*"] } : {};
        file.sinks.comes.enabled = round !== 3;
      });
      await virtual.clock.advance(MINUTE_MS + 777);
    }
    await virtual.reload((file) => (file.sinks.changes.filter = {}));
    await virtual.clock.advance(10 * MINUTE_MS);
    const all = await virtual.events();
    expect(eventIds(stays.got)).toEqual(eventIds(all).slice(0, stays.got.length));
    expect(all.length - stays.got.length).toBeLessThan(60);
    expect(stays.seen).toMatchObject({ opened: 1, closed: 0 });
    expect(changes.seen.opened).toBe(7);
    expect(changes.seen.opened - changes.seen.closed).toBe(1);
    expect(changes.seen.most).toBe(1);
    expect(new Set(eventIds(changes.got)).size).toBe(changes.got.length);
    const values = (events: readonly AnyEvent[]) => eventIds(events.filter(({ type }) => type === "tag-value"));
    expect(values(changes.got)).toEqual(values(all).slice(0, values(changes.got).length));
    expect(values(all).length - values(changes.got).length).toBeLessThan(60);
    // The added sink receives every event after its first one: it kept its position while it was disabled.
    const firstIndex = eventIds(all).indexOf(comes.got[0]?.id ?? "");
    expect(firstIndex).toBeGreaterThan(0);
    expect(eventIds(comes.got)).toEqual(eventIds(all).slice(firstIndex, firstIndex + comes.got.length));
  });
});

describe("a failing sink at a reload", () => {
  test("does not affect other changes while it cannot be opened, and receives all events once it works", async () => {
    const [stays, late] = [recordingSink(), recordingSink()];
    let isAway = true;
    const failingSink = (): Sink => {
      const sink = late.sink();
      return {
        ...sink,
        async open(signal) {
          if (isAway) throw new ConfigError("There is no such room.");
          await sink.open(signal);
        },
      };
    };
    await startWithSinks({
      stays: { delivery: {}, sink: stays.sink },
      late: { delivery: { enabled: false, from: "beginning" }, sink: failingSink },
    });
    await virtual.clock.advance(3 * MINUTE_MS);
    const reloadReport = await virtual.reload((file) => {
      file.sinks.late.enabled = true;
      file.sources.main.read[0].every = "2m";
    });
    expect(reloadReport.failures).toEqual([]);
    await virtual.clock.advance(3 * MINUTE_MS);
    const countBefore = stays.got.length;
    expect(stays.got.some(({ type }) => type === "configuration-changed")).toBe(true);
    expect(late.got).toEqual([]);
    isAway = false;
    await virtual.clock.advance(15 * MINUTE_MS);
    expect(stays.got.length).toBeGreaterThan(countBefore);
    expect(eventIds(late.got)).toEqual(eventIds(await virtual.events()).slice(0, late.got.length));
    expect(late.got.length).toBeGreaterThan(countBefore);
  });

  test("causes the rejection of the complete configuration file when the sink cannot be created", async () => {
    const workingSink = recordingSink();
    await startWithSinks({
      stays: { delivery: {}, sink: workingSink.sink },
      late: {
        delivery: { enabled: false },
        sink: () => {
          throw new ConfigError("The secret file late.txt cannot be opened (ENOENT).");
        },
      },
    });
    await virtual.clock.advance(2 * MINUTE_MS);
    const reloadReport = await virtual.reload((file) => {
      file.sinks.late.enabled = true;
      file.sinks.stays.batch = 3;
    });
    expect(reloadReport.refused).toEqual(["The secret file late.txt cannot be opened (ENOENT)."]);
    await virtual.clock.advance(2 * MINUTE_MS);
    expect(workingSink.seen).toMatchObject({ opened: 1, closed: 0 });
    expect((await virtual.reload((file) => (file.sinks.late.enabled = false))).changes).toMatchObject([
      { path: "sinks.stays.batch", before: "100", after: "3" },
    ]);
  });

  test("is replaced only after its hanging request has ended, without delaying other sinks", async () => {
    const [stays, hangs] = [recordingSink(), recordingSink()];
    let isHanging = true;
    const sink = (): Sink => {
      const innerSink = hangs.sink();
      return {
        ...innerSink,
        async write(batch, signal, ...more) {
          if (isHanging) {
            isHanging = false;
            await new Promise((_resolve, reject) => {
              signal.addEventListener("abort", () => reject(signal.reason), { once: true });
            });
          }
          return innerSink.write(batch, signal, ...more);
        },
      };
    };
    await startWithSinks({ stays: { delivery: {}, sink: stays.sink }, hangs: { delivery: { deadline: "1h" }, sink } });
    await virtual.clock.advance(3 * MINUTE_MS);
    const countBefore = stays.got.length;
    await virtual.reload((file) => (file.sinks.hangs.batch = 7));
    await virtual.reload((file) => (file.sinks.hangs.batch = 8));
    await virtual.clock.advance(10 * SECOND_MS);
    expect(stays.got.length).toBeGreaterThan(countBefore);
    expect(hangs.got).toEqual([]);
    await virtual.clock.advance(5 * MINUTE_MS);
    const all = eventIds(await virtual.events());
    expect(eventIds(hangs.got)).toEqual(all.slice(0, hangs.got.length));
    expect(all.length - hangs.got.length).toBeLessThan(60);
  });
});

describe("random configuration changes and kills of the worker", () => {
  test.each([1, 2])("cause no sink to miss an event that the sink selects (seed %i)", async (seed) => {
    const random = seededRandom(seed);
    const [whole, filtered, resting] = [recordingSink(40), recordingSink(300), recordingSink()];
    const sinkByName = { whole, filtered, resting };
    await startWithSinks(
      Object.fromEntries(Object.entries(sinkByName).map(([name, { sink }]) => [name, { delivery: {}, sink }])),
    );
    isSlow = true;
    let kills = 0;
    for (let round = 0; round < 16; round += 1) {
      await virtual.clock.advance(random.below(40_000));
      await virtual.reload((file) => {
        file.sinks.whole.batch = 5 + random.below(200);
        file.sinks.filtered.filter = random.pick([{}, { kinds: ["tag-*"] }, { kinds: ["tag-value", "alarm-*"] }]);
        file.sinks.resting.enabled = random.chance(0.6);
        file.sources.main.read[0].every = random.pick(["30s", "1m", "2m"]);
      });
      await virtual.clock.advance(random.below(900));
      if (!random.chance(0.25)) continue;
      kills += 1;
      await virtual.restart(random.pick(["crash", "stop"] as const));
    }
    await virtual.reload((file) => {
      file.sinks.filtered.filter = {};
      file.sinks.resting.enabled = true;
    });
    await virtual.clock.advance(10 * MINUTE_MS);
    const all = await virtual.events();
    const dueEvents = (events: readonly AnyEvent[]) => events.slice(0, events.length - 60);
    const missingIds = (got: readonly AnyEvent[], due: readonly AnyEvent[]) => {
      const had = new Set(eventIds(got));
      return eventIds(due).filter((id) => !had.has(id));
    };
    expect(kills).toBeGreaterThan(0);
    expect(missingIds(whole.got, dueEvents(all))).toEqual([]);
    expect(missingIds(resting.got, dueEvents(all))).toEqual([]);
    expect(
      missingIds(
        filtered.got,
        dueEvents(all).filter(({ type }) => type === "tag-value"),
      ),
    ).toEqual([]);
    for (const { got, seen } of Object.values(sinkByName)) {
      // A kill repeats at most the batch that the sink was writing.
      expect(got.length - new Set(eventIds(got)).size).toBeLessThanOrEqual(kills * 205);
      expect(seen.most).toBeLessThanOrEqual(1 + kills);
    }
    expect(new Set(eventIds(all)).size).toBe(all.length);
  });
});

describe("the status page at a reload", () => {
  test("requires a new password at once, and shows options that wait for a restart", async () => {
    await startWithSinks();
    await virtual.clock.advance(MINUTE_MS);
    const url = `${virtual.worker.statusUrl()}/api/status`;
    expect((await fetch(url)).status).toBe(200);
    const file = join(testFolder("page-password"), "password");
    writeFileSync(file, "a long enough one\n", { mode: 0o600 });
    const { changes } = await virtual.reload((written) => {
      written.status.password = { file };
      written.commands = { enabled: true, rehearsal: true };
    });
    expect(changes).toContainEqual({
      ...{ path: "status.password", before: null, after: "secret", effect: "alone" },
      how: "at once; logged-in users must log in again",
    });
    expect((await fetch(url)).status).toBe(401);
    const headers = { authorization: `Basic ${Buffer.from("plenum:a long enough one").toString("base64")}` };
    const pageReport = (await (await fetch(url, { headers })).json()) as StatusReport;
    expect(pageReport.notices).toContain("A change of the configuration waits for a restart: commands.rehearsal.");
    expect(pageReport.commands).toMatchObject({ enabled: true, rehearsal: false });
    const paths = pageReport.configuration?.last?.changes.map(({ path }) => path);
    expect(paths).toEqual(["status.password", "commands.enabled"]);
    expect(JSON.stringify(pageReport)).not.toContain(file);
  });
});

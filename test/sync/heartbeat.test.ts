import { afterEach, describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import type { Sink } from "#src/core/connector.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { matchesFilter, SinkEventFilter } from "#src/engine/delivery/filter.ts";
import { sampleEvent } from "../sample-events.ts";
import { startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

let virtual: VirtualWorker | null = null;
afterEach(async () => {
  await virtual?.clear();
  virtual = null;
});

function server() {
  const taken: Event<"worker-alive">[] = [];
  const state = { taken, isAway: false };
  const sink = (): Sink => ({
    maxBatch: 10,
    async open() {},
    async write(batch) {
      if (state.isAway) throw new Retryable("The server is away.");
      taken.push(...batch.filter((event): event is Event<"worker-alive"> => event.type === "worker-alive"));
      return { rejected: [] };
    },
    async close() {},
  });
  return Object.assign(state, { sink });
}

const ALIVE = { filter: { kinds: ["worker-alive"] }, retry: { first: "1s", max: "1m" } };

async function begin(
  heartbeat: object,
  sinks: Readonly<Record<string, { readonly delivery: object; readonly sink: () => Sink }>> = {},
): Promise<VirtualWorker> {
  virtual = await startVirtualWorker({
    simulator: { sites: [3], alarms: { recorded: false } },
    source: {
      ...heartbeat,
      schedules: {
        resolved_sweep: false,
        ...Object.fromEntries(["sites", "gateways", "hosts", "systems", "tags"].map((job) => [job, "0 0 * * *"])),
        alarms: "*/10 * * * *",
      },
    },
    eventsFolder: null,
    state: { max_age: "6h" },
    sinks,
  });
  return virtual;
}

async function heartbeats(): Promise<readonly Event<"worker-alive">[]> {
  return ((await virtual?.events()) ?? []).filter(
    (event): event is Event<"worker-alive"> & typeof event => event.type === "worker-alive",
  );
}

function gaps(events: readonly Event[]): readonly number[] {
  const times = events.map(({ time }) => Date.parse(time));
  return times.slice(1).map((time, n) => (time - (times[n] ?? 0)) / SECOND);
}

describe("the heartbeat", () => {
  test("the heartbeat is emitted at the start and at its interval, with the time of the last successful alarm poll", async () => {
    const watchdog = server();
    const running = await begin({ heartbeat: "1m" }, { watchdog: { delivery: ALIVE, sink: watchdog.sink } });
    await running.clock.advance(10 * MINUTE + 30 * SECOND);
    const emitted = await heartbeats();
    expect(gaps(emitted)).toEqual(Array.from({ length: 10 }, () => 60));
    expect(watchdog.taken).toEqual(emitted);
    expect(emitted[0]).toMatchObject({ source: "/sources/main", subject: "worker" });
    expect(emitted[0]?.data).toMatchObject({ intervalSeconds: 60, alarmsPolledAt: null });
    const polledMs = Date.parse(emitted[5]?.data.alarmsPolledAt ?? "");
    expect(polledMs).toBeLessThan(Date.parse(emitted[1]?.time ?? ""));
  });

  test("the heartbeat continues after a restart and after a crash without a longer gap or a repeated id", async () => {
    const running = await begin({ heartbeat: "1m" });
    await running.clock.advance(3 * MINUTE + SECOND);
    for (const how of ["stop", "crash"] as const) {
      const before = await heartbeats();
      await running.restart(how);
      await running.clock.advance(3 * MINUTE + SECOND);
      const after = await heartbeats();
      expect(after.length - before.length).toBe(4);
      expect(after[before.length]?.data.alarmsPolledAt).not.toBeNull();
      expect(Math.max(...gaps(after))).toBeLessThanOrEqual(60);
      expect(new Set(after.map(({ id }) => id)).size).toBe(after.length);
    }
  });

  test("a changed heartbeat interval is applied while the worker runs", async () => {
    const running = await begin({ heartbeat: "1h" });
    await running.clock.advance(10 * MINUTE);
    const count = async () => (await heartbeats()).length;
    expect(await count()).toBe(1);
    const { pending } = await running.reload((file) => (file.sources.main.heartbeat = "30s"));
    expect(pending).toEqual([]);
    await running.clock.advance(2 * MINUTE + SECOND);
    const faster = await heartbeats();
    expect(gaps(faster).slice(1)).toEqual([30, 30, 30, 30]);
    expect(faster.at(-1)?.data.intervalSeconds).toBe(30);
    await running.reload((file) => (file.sources.main.heartbeat = false));
    await running.clock.advance(10 * MINUTE);
    expect(await count()).toBe(faster.length);
    await running.reload((file) => (file.sources.main.heartbeat = "1m"));
    await running.clock.advance(MINUTE + SECOND);
    expect(await count()).toBe(faster.length + 2);
  });

  test("a sink that was unavailable for eight hours gets at most two heartbeats afterwards, and other sinks get all of them meanwhile", async () => {
    const [away, all, well] = [server(), server(), server()];
    const running = await begin(
      { heartbeat: "10m" },
      {
        away: { delivery: ALIVE, sink: away.sink },
        all: { delivery: { retry: ALIVE.retry }, sink: all.sink },
        well: { delivery: ALIVE, sink: well.sink },
      },
    );
    await running.clock.advance(50 * MINUTE);
    const [before, allBefore, wellBefore] = [away, all, well].map(({ taken }) => taken.length);
    away.isAway = true;
    all.isAway = true;
    for (let hours = 0; hours < 8; hours += 1) await running.clock.advance(60 * MINUTE);
    expect(well.taken.length).toBe((wellBefore ?? 0) + 48);
    const awayLag = (await running.worker.store.outbox.lag()).find(({ sink }) => sink === "away");
    expect(awayLag?.dropped).toBe(0);
    away.isAway = false;
    all.isAway = false;
    await running.clock.advance(61 * SECOND);
    for (const [sink, earlier = 0] of [
      [away, before],
      [all, allBefore],
    ] as const) {
      expect(sink.taken.length).toBeGreaterThan(earlier);
      expect(sink.taken.length).toBeLessThanOrEqual(earlier + 2);
    }
    await running.clock.advance(50 * MINUTE);
    expect(away.taken.slice(-5)).toEqual(well.taken.slice(-5));
    const depths = (await running.worker.store.outbox.lag()).map(({ depth }) => depth);
    expect(depths).toEqual([0, 0, 0]);
  });

  test("a sink with sequence numbers also gets outdated heartbeats, so that no sequence number is missing", async () => {
    const numbered = server();
    const running = await begin(
      { heartbeat: "1m" },
      { numbered: { delivery: { ...ALIVE, sequence: true }, sink: numbered.sink } },
    );
    numbered.isAway = true;
    await running.clock.advance(10 * MINUTE + SECOND);
    numbered.isAway = false;
    await running.clock.advance(MINUTE);
    expect(numbered.taken).toEqual(await heartbeats());
    expect(numbered.taken).toHaveLength(12);
  });
});

test("the filter of an alarm receiver accepts raised alarms and excludes the heartbeat", async () => {
  const { sinks } = Config.parse({
    sources: { main: { base_url: "http://127.0.0.1", token: { env: "T" }, time_zone: "UTC" } },
    sinks: { chat: { slack: { channel: "C0123456789", token: { env: "S" } } } },
  });
  const filter = SinkEventFilter.parse(sinks.chat?.filter);
  expect(matchesFilter(filter, sampleEvent("alarm-raised"))).toBe(true);
  expect(matchesFilter(filter, sampleEvent("worker-alive"))).toBe(false);
});

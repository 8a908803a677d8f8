import { describe, expect, onTestFinished, test } from "vitest";
import { EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createWakeup } from "#src/core/runtime/waiting.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { createGroupCommit, createLiveReadCommit } from "#src/engine/sync/read/commit-readings.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";
import { createStaleValues, type StaleValues } from "#src/engine/sync/read/stale-values.ts";
import { createTagSchedule } from "#src/engine/sync/read/tag-schedule.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { effortOf } from "../effort.ts";
import { START_MS, startVirtualWorker, type VirtualWorker } from "../virtual-worker.ts";
import { openClockAndStore, partialSource, tagNamed } from "./live-reads-harness.ts";

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
/** One request slot at 20 requests a minute. */
const SLOT_MS = 3 * SECOND;
const PROMISE_MS = MINUTE;
const UNAVAILABLE = [{ fault: { kind: "error", status: 500 } }];
const READS_FAIL = [{ match: { endpoints: ["read"] }, fault: { kind: "error", status: 500 } }];

const ABILITIES = ["read:sites", "read:alarms", "read:gateways"];

async function startWorker(read: readonly object[] = [{ name: "all", every: "1m" }]): Promise<VirtualWorker> {
  const virtual = await startVirtualWorker({
    simulator: { sites: [1, 6] },
    source: { read },
    serviceNow: ({ monotonic }) => START_MS + Math.floor(monotonic()),
  });
  onTestFinished(() => virtual.clear());
  await virtual.clock.advance(5 * MINUTE);
  return virtual;
}

async function values(virtual: VirtualWorker): Promise<readonly Event<"tag-value">[]> {
  return (await virtual.events()).filter((event) => event.type === "tag-value");
}

const staleOnly = (events: readonly Event<"tag-value">[]) => events.filter(({ data }) => data.quality === "stale");
const reasonsOf = (events: readonly Event<"tag-value">[]) => [...new Set(events.map(({ data }) => data.staleReason))];
const tagsOf = (events: readonly Event<"tag-value">[]) => events.map(({ data }) => data.tag.id).toSorted();
const lastByTag = (events: readonly Event<"tag-value">[]) => new Map(events.map((event) => [event.data.tag.id, event]));

describe("a value that is too old", () => {
  test("becomes stale once, at its interval plus two slots, when the service is unavailable", async () => {
    const virtual = await startWorker();
    virtual.simulator.control.setFaults(UNAVAILABLE);
    const good = lastByTag(await values(virtual));
    await virtual.clock.advance(10 * MINUTE);
    const stale = staleOnly(await values(virtual));
    expect(tagsOf(stale)).toEqual(
      [...good]
        .filter(([, { data }]) => data.quality !== "bad")
        .map(([id]) => id)
        .toSorted(),
    );
    expect(reasonsOf(stale)).toEqual(["source-unavailable"]);
    for (const { data, time } of stale) {
      const { lastGood, ...fields } = data;
      expect(fields).toMatchObject({ value: null, time, latencyMs: 0, behindGateway: null });
      const ageMs = Date.parse(time) - Date.parse(lastGood?.time ?? "");
      expect(ageMs).toBeGreaterThanOrEqual(PROMISE_MS + 2 * SLOT_MS);
      expect(ageMs).toBeLessThanOrEqual(PROMISE_MS + 2 * SLOT_MS + SECOND);
    }
  });

  test("becomes stale at once when the token loses the site, and good again with the next reading", async () => {
    const virtual = await startWorker([{ name: "all", every: "1m", on_change: true, deadband: 1_000 }]);
    virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [6] });
    await virtual.clock.advance(20 * SECOND);
    const lossMs = Date.parse((await siteLoss(virtual))?.time ?? "");
    const stale = staleOnly(await values(virtual));
    expect(new Set(stale.map(({ siteid }) => siteid))).toEqual(new Set(["1"]));
    expect(stale.length).toBeGreaterThan(100);
    expect(reasonsOf(stale)).toEqual(["out-of-scope"]);
    for (const { time } of stale) expect(Math.abs(Date.parse(time) - lossMs)).toBeLessThanOrEqual(SECOND);
    virtual.simulator.control.changeToken(SERVICE_TOKEN, { sites: [1, 6] });
    await virtual.clock.advance(5 * MINUTE);
    const after = await values(virtual);
    expect(staleOnly(after)).toHaveLength(stale.length);
    const last = lastByTag(after);
    for (const id of tagsOf(stale)) expect(last.get(id)?.data.quality).toBe("good");
  });

  test("becomes stale at once when the token loses the permission read:tags", async () => {
    const virtual = await startWorker();
    virtual.simulator.control.changeToken(SERVICE_TOKEN, { abilities: ABILITIES });
    await virtual.clock.advance(20 * SECOND);
    const all = await values(virtual);
    expect(reasonsOf(staleOnly(all))).toEqual(["no-ability"]);
    for (const { data } of lastByTag(all).values()) expect(["stale", "bad"]).toContain(data.quality);
  });

  test("becomes stale when no class selects the tag any more, and keeps that reason until it is selected and read", async () => {
    const virtual = await startWorker();
    const select = (sites: readonly number[]) =>
      virtual.reload((written) => {
        written.sources.main.read = [{ name: "selected", every: "1m", select: { sites } }];
      });
    virtual.simulator.control.setFaults(READS_FAIL);
    await virtual.clock.advance(40 * SECOND);
    await select([6]);
    await virtual.clock.advance(5 * SECOND);
    virtual.simulator.control.setFaults([]);
    await virtual.clock.advance(10 * MINUTE);
    const stale = staleOnly(await values(virtual));
    const unselected = [...lastByTag(stale).values()].filter(({ data }) => data.staleReason === "not-scheduled");
    expect(new Set(unselected.map(({ siteid }) => siteid))).toEqual(new Set(["1"]));
    expect((await staleCounts(virtual))["not-scheduled"]).toBe(unselected.length);
    await select([1, 6]);
    await virtual.clock.advance(5 * MINUTE);
    expect(staleOnly(await values(virtual))).toEqual(stale);
  });

  test("is stale at once after a start if its time comes from a clock that was ten minutes ahead", async () => {
    const virtual = await startWorker([{ name: "all", every: "15m" }]);
    virtual.clock.stepWall(10 * MINUTE);
    await virtual.clock.advance(15 * MINUTE);
    virtual.clock.stepWall(-10 * MINUTE);
    virtual.simulator.control.setFaults(UNAVAILABLE);
    await virtual.restart("crash");
    await virtual.clock.advance(30 * SECOND);
    const last = [...lastByTag(await values(virtual)).values()];
    expect(staleOnly(last)).toHaveLength(last.length);
  });

  test("becomes stale at the start when it became too old while the worker was stopped", async () => {
    const virtual = await startWorker();
    const before = lastByTag(await values(virtual));
    virtual.simulator.control.setFaults(UNAVAILABLE);
    await virtual.restart("crash");
    await virtual.clock.advance(30 * SECOND);
    const early = staleOnly(await values(virtual));
    await virtual.clock.advance(2 * MINUTE);
    expect(early.length).toBeLessThan(before.size);
    expect(tagsOf(staleOnly(await values(virtual)))).toEqual([...before.keys()].toSorted());
    await virtual.restart("crash");
    await virtual.clock.advance(2 * MINUTE);
    expect(staleOnly(await values(virtual))).toHaveLength(before.size);
    expect((await staleCounts(virtual))["source-unavailable"]).toBe(before.size);
    virtual.simulator.control.setFaults([]);
    await virtual.clock.advance(5 * MINUTE);
    expect((await staleCounts(virtual))["source-unavailable"]).toBe(0);
  });

  test.each([
    ["source-unavailable", "the service is unavailable", UNAVAILABLE, {}],
    ["source-unavailable", "the service fails the reads", READS_FAIL, {}],
    ["no-ability", "the token lacks read:tags", [], { abilities: ABILITIES }],
    ["out-of-scope", "the token sees no site", [], { sites: [] }],
  ])("gets the reason %s after a stop of ten minutes if %s", async (reason, _, faults, token) => {
    const virtual = await startWorker();
    const tagCount = lastByTag(await values(virtual)).size;
    const stopped = virtual.worker.stop(SECOND);
    await virtual.clock.advance(10 * MINUTE);
    await stopped;
    virtual.simulator.control.setFaults(faults);
    virtual.simulator.control.changeToken(SERVICE_TOKEN, token);
    await virtual.restart("stop");
    await virtual.clock.advance(5 * MINUTE);
    const stale = staleOnly(await values(virtual));
    expect(reasonsOf([...lastByTag(stale).values()])).toEqual([reason]);
    expect(stale).toHaveLength(2 * tagCount);
  });
});

test("10,000 values that become stale at once reach a sink within 2 s and cost at most 1.2 times as much as 10,000 readings", async () => {
  const { clock, store } = await openClockAndStore(START_MS);
  const log = createLog({ level: "silent" });
  const metrics = createMetrics();
  const changes = createWakeup();
  let isInSight = true;
  const [readClass] = ReadConfig.parse([{ name: "all", every: "1h" }]);
  if (readClass === undefined) throw new Error("There is no class.");
  const tags = Array.from({ length: 10_000 }, (_, n) => ({
    tag: tagNamed(String(10_001 + n)),
    siteId: 1,
    systemIds: [],
  }));
  const schedule = createTagSchedule({
    isGatewayOffline: () => false,
    canSeeSite: () => isInSight,
    hasIsolatedTags: () => false,
    isolationOf: () => null,
    wallOffsetMs: () => 0,
  });
  const stored = { values: new Map(), quarantines: new Map(), nowMs: clock.monotonic(), toMonotonic: Date.parse };
  schedule.setWatchedTags(
    tags.map((siteTag) => ({ ...siteTag, readClass })),
    stored,
  );
  const groupCommit = createGroupCommit({ store, clock, sourceCount: 1 });
  const commitOptions = { ...{ source: partialSource({}), store, clock, log, metrics }, groupCommit };
  const readCommit = createLiveReadCommit(commitOptions, schedule, (...reading) =>
    staleValues.readingCommitted(...reading),
  );
  let deliveredCount = 0;
  const sink: Sink = {
    open: async () => {},
    async write(batch) {
      deliveredCount += batch.length;
      return EVENTS_ACCEPTED;
    },
    close: async () => {},
  };
  const dispatcher = createEventDispatcher({
    sinks: [{ name: "all", connector: "model", sink, delivery: DeliveryConfig.parse({ from: "beginning" }) }],
    ...{ store, outbox: store.outbox, clock, log, metrics, building: createBuildingView(store, new Map()) },
  });
  const staleValues: StaleValues = createStaleValues({
    ...{ source: "trial", schedule, clock, log, metrics, slotMs: () => SLOT_MS, refresh: async () => {} },
    isServiceDown: () => false,
    isUnanswered: () => false,
    forgetFailuresOf: () => undefined,
    scope: { hasAbility: () => true, changes },
    commit: readCommit.commitStaleValues,
  });
  const readings = tags.map(({ tag }) => ({ ...tag, value: 20.5 }));
  const noWait = AbortSignal.abort();
  /** Returns the virtual time until the sink has a value of every tag. */
  async function publish(change: () => Promise<void> | void): Promise<number> {
    deliveredCount = 0;
    const startMs = clock.monotonic();
    await change();
    while (deliveredCount < tags.length) await clock.advance(50);
    return clock.monotonic() - startMs;
  }
  const readAllTags = () =>
    publish(async () => {
      isInSight = true;
      for (let start = 0; start < readings.length; start += 20) {
        const reply = { readings: readings.slice(start, start + 20), receivedAtMs: clock.now(), latencyMs: 50 };
        const ids = reply.readings.map(({ id }) => id);
        await readCommit.commitReply(ids, reply, noWait);
      }
    });
  const loseSite = () =>
    publish(() => {
      isInSight = false;
      changes.wakeUp();
    });
  const ended = new AbortController();
  const watch = staleValues.watchStaleValues(ended.signal);
  await dispatcher.start(ended.signal);
  await readAllTags();
  expect(await loseSite()).toBeLessThanOrEqual(2 * SECOND);
  await clock.advance(MINUTE);
  // The smallest measurements count, because other programs and the garbage collection only add to one. Ten rounds at most.
  const readEfforts: number[] = [];
  const staleEfforts: number[] = [];
  const costRatio = () => Math.min(...staleEfforts) / Math.min(...readEfforts);
  do {
    readEfforts.push(await effortOf(readAllTags));
    staleEfforts.push(await effortOf(loseSite));
  } while (staleEfforts.length < 10 && costRatio() > 1.2);
  ended.abort(new OrderlyStop());
  await Promise.all([watch, dispatcher.stop(0)]);
  expect(costRatio()).toBeLessThanOrEqual(1.2);
});

async function siteLoss(virtual: VirtualWorker) {
  return (await virtual.events()).findLast(
    ({ type, subject }) => type === "source-unavailable" && subject === "site/1",
  );
}

async function staleCounts(virtual: VirtualWorker): Promise<Readonly<Record<string, number>>> {
  const text = await (await fetch(new URL("/metrics", virtual.worker.statusUrl()))).text();
  const lines = text.matchAll(/^plenum_tags_stale\{source="main",reason="([a-z-]+)"\} (\d+)$/gm);
  return Object.fromEntries([...lines].map(([, reason = "", count]) => [reason, Number(count)]));
}

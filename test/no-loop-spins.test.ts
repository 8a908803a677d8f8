import { describe, expect, test } from "vitest";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { createEventLogPruning } from "#src/engine/delivery/event-log-pruning.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { SITE, tagsOf } from "./commands/command-harness.ts";
import { openHarness } from "./commands/test-harness.ts";
import { openDispatcher, scriptedSink } from "./delivery/dispatcher-harness.ts";
import { breakable, countingLog, FAILURE_MODES } from "./failing-parts.ts";
import { valueEvent } from "./sample-events.ts";
import { disposeAfterTest } from "./test-resources.ts";

/** While a part fails, every loop backs off: an hour has about 70 tries of a loop that waits up to a minute. */
const HOUR_MS = 3_600_000;
const MOST_LINES = 6_000;
const MOST_CALLS = 20_000;

const CALLS: readonly (readonly [string, (call: string) => boolean])[] = [
  ["every call", () => true],
  ["every call that reads documents", (call) => call === "document" || call === "documents"],
  ["every commit", (call) => call === "commit"],
];

describe.each(FAILURE_MODES)("a worker whose state store %s on failure", (way) => {
  test.each(CALLS)(
    "retries commands, read-backs, refusals and restores slowly while %s fails for an hour",
    async (_, fails) => {
      const { log, lines } = countingLog(MOST_LINES);
      let isBroken = false;
      let failed = () => 0;
      const harness = await openHarness({
        log,
        around(store) {
          const broken = breakable(store, way, (call) => isBroken && fails(call));
          failed = broken.failed;
          return broken.part;
        },
      });
      const [timed = "", proved = "", waiting = ""] = tagsOf(harness.simulator, 3);
      const entry = { site_id: SITE, type: "number" as const, min: 15, max: 25, min_interval: "0s" };
      await harness.restart({
        allow: [
          { ...entry, tag_id: timed, restore: true },
          { ...entry, tag_id: proved },
          { ...entry, tag_id: waiting, second_person: true },
        ],
      });
      await harness.send({ id: "timed", tag: timed, value: 22, for_s: 60 });
      await harness.clock.advance(20_000);
      expect(harness.posts).toHaveLength(1);
      await harness.send({ id: "waiting", tag: waiting, value: 22, ttl_s: 300 });
      await harness.send({ id: "proved", tag: proved, value: 22 });
      for (let n = 0; n < 200 && harness.posts.length < 2; n += 1) await harness.clock.advance(10);
      expect(harness.posts).toHaveLength(2);
      isBroken = true;
      for (let n = 0; n < 50; n += 1) {
        await harness.send({ id: "not json", tag: "none", value: 1 }).catch(() => undefined);
      }
      harness.killSwitch.turnOn("a test", "now");
      await harness.clock.advance(HOUR_MS);
      expect(lines()).toBeLessThan(MOST_LINES);
      expect(failed()).toBeGreaterThan(0);
      expect(failed()).toBeLessThan(MOST_CALLS);
      const stopped = harness.commands.stop(1_000);
      await harness.clock.advance(2_000);
      await stopped;
      const before = failed();
      await harness.clock.advance(HOUR_MS);
      expect(failed()).toBe(before);
      expect(harness.clock.sleepers()).toBe(0);
      isBroken = false;
    },
  );

  test("retries delivery and pruning slowly while every call of the store and the sinks fails for an hour", async () => {
    const harness = disposeAfterTest(await openDispatcher());
    const { clock, store } = harness;
    const { log, lines } = countingLog(MOST_LINES);
    await store.commit({ events: [valueEvent(1)] });
    let isBroken = false;
    const state = breakable(store.outbox, way, () => isBroken);
    const sinks = [
      breakable(scriptedSink(), way, () => isBroken),
      breakable(scriptedSink(), way, (call) => isBroken && call === "write"),
    ];
    const configured = sinks.map(({ part }, n) => ({
      name: `sink-${n}`,
      connector: "scripted",
      sink: part,
      delivery: DeliveryConfig.parse({ from: "beginning", retry: { first: "1s", max: "1m" } }),
    }));
    for (const brokenFrom of ["the start", "later"]) {
      isBroken = brokenFrom === "the start";
      const building = createBuildingView(store, new Map());
      const shared = { sinks: configured, outbox: state.part, store, building, clock, log, metrics: createMetrics() };
      const dispatcher = createEventDispatcher(shared);
      const bounds = { maxBytes: 1e9, maxAgeMs: HOUR_MS, replayMs: HOUR_MS };
      const pruning = createEventLogPruning({ ...shared, bounds, clockCheck: createClockCheck({ clock, log }) });
      await dispatcher.start(new AbortController().signal);
      await pruning.start(new AbortController().signal);
      await clock.advance(5_000);
      isBroken = true;
      const before = state.failed();
      await clock.advance(HOUR_MS);
      expect(lines()).toBeLessThan(MOST_LINES);
      expect(state.failed() - before).toBeGreaterThan(50);
      expect(state.failed() - before).toBeLessThan(MOST_CALLS);
      for (const sink of sinks) expect(sink.failed()).toBeLessThan(MOST_CALLS);
      const stopping = Promise.all([dispatcher.stop(1_000), pruning.stop(1_000)]);
      await clock.advance(2_000);
      await stopping;
      expect(clock.sleepers()).toBe(0);
    }
    isBroken = false;
  });

  test("retries a failing sink slowly for an hour without delaying other sinks", async () => {
    const harness = disposeAfterTest(await openDispatcher());
    const { clock, store } = harness;
    const dead = breakable(scriptedSink(), way, () => true);
    const alive = scriptedSink();
    const dispatcher = harness.dispatcher({ dead: dead.part, alive }, { retry: { first: "1s", max: "1m" } });
    await dispatcher.start(new AbortController().signal);
    for (let n = 0; n < 60; n += 1) {
      await store.commit({ events: [valueEvent(n)] });
      await clock.advance(HOUR_MS / 60);
    }
    expect(dead.failed()).toBeGreaterThan(50);
    expect(dead.failed()).toBeLessThan(200);
    expect(alive.writes.flat()).toHaveLength(60);
    const stopping = dispatcher.stop(1_000);
    await clock.advance(2_000);
    await stopping;
    expect(clock.sleepers()).toBe(0);
  });
});

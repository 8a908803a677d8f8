import pino from "pino";
import { beforeEach, expect, test } from "vitest";
import type { ClockDifference } from "#src/core/runtime/clock-check.ts";
import { createMetrics, type Metrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventLogPruning } from "#src/engine/delivery/event-log-pruning.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { describeService } from "../suites/service-suite.ts";
import { type DispatcherHarness, openDispatcher } from "./dispatcher-harness.ts";
import { harness, useHarness } from "./dispatcher-steps.ts";

useHarness();

let metrics: Metrics;
beforeEach(async () => {
  metrics = createMetrics();
});

const bounds = { maxBytes: 1e9, maxAgeMs: 3_600_000, replayMs: 900_000 };

function pruning({ store, clock, lines }: DispatcherHarness, doubt: () => ClockDifference | null = () => null) {
  return createEventLogPruning({
    outbox: store.outbox,
    bounds,
    sinks: [{ name: "alarms", delivery: DeliveryConfig.parse({ filter: { kinds: ["alarm-*"] } }) }],
    clock,
    clockCheck: { deviation: doubt },
    log: pino({ base: null }, { write: (line: string) => lines.push(JSON.parse(line)) }),
    metrics,
  });
}

test("pruning removes expired events every minute, and logs how many matching events a sink lost", async () => {
  const { store, clock, lines } = harness;
  await store.outbox.register("alarms", "beginning");
  await store.commit({ events: [valueEvent(1), sampleEvent("alarm-raised")] });
  const service = pruning(harness);
  await service.start(new AbortController().signal);
  await clock.advance(3_600_000);
  expect(lines).toEqual([]);
  await clock.advance(60_000);
  expect(lines).toMatchObject([{ level: 40, sink: "alarms", reason: "age", count: 1 }]);
  expect((await metrics.deliveries.get()).values).toMatchObject([
    { labels: { sink: "alarms", outcome: "dropped" }, value: 1 },
  ]);
  await service.stop(1_000);
  expect(clock.sleepers()).toBe(0);
});

test("the age of events does not grow while the clock is unverified or the process is suspended", async () => {
  const { store, clock, lines } = harness;
  await store.outbox.register("alarms", "beginning");
  await store.commit({ events: [sampleEvent("alarm-raised")] });
  let doubt: ClockDifference | null = { sinceMs: 0, byMs: 3_600_000, message: "A step." };
  const service = pruning(harness, () => doubt);
  await service.start(new AbortController().signal);
  await clock.advance(10 * 3_600_000);
  doubt = null;
  clock.stepWall(8 * 86_400_000);
  await clock.advance(600_000);
  clock.suspend(8 * 86_400_000);
  await clock.advance(600_000);
  expect(lines).toEqual([]);
  await clock.advance(2_400_000);
  expect(lines).toMatchObject([{ reason: "age", count: 1 }]);
  await service.stop(1_000);
});

test("pruning continues with the next run after a failed run", async () => {
  const { store, clock, lines } = harness;
  const { prune } = store.outbox;
  let runs = 0;
  store.outbox.prune = (asked) => {
    runs += 1;
    return runs === 1 ? Promise.reject(new Error("disk full")) : prune(asked);
  };
  const service = pruning(harness);
  await service.start(new AbortController().signal);
  await clock.advance(60_000);
  expect(runs).toBe(2);
  expect(lines).toHaveLength(1);
  await service.stop(1_000);
});

describeService("pruning", async () => {
  const own = await openDispatcher();
  metrics = createMetrics();
  return { service: pruning(own), quiet: () => expect(own.clock.sleepers()).toBe(0), dispose: own.dispose };
});

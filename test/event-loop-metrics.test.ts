import { setTimeout as sleep } from "node:timers/promises";
import { Registry } from "@prometheus-io/client";
import { expect, test } from "vitest";
import { addEventLoopMetrics, createMetrics, formatMetrics } from "#src/core/runtime/metrics.ts";

const registry = new Registry();
addEventLoopMetrics(registry);

async function scrape(): Promise<Readonly<Record<string, number>>> {
  const text = await formatMetrics(registry);
  const lines = text.matchAll(/^plenum_nodejs_eventloop_lag(?:_(\w+?))?_seconds (\S+)$/gm);
  return Object.fromEntries([...lines].map(([, name = "now", value]) => [name, Number(value)]));
}

function measureBlock(ms: number): number {
  const startMs = performance.now();
  while (performance.now() < startMs + ms);
  return performance.now() - startMs;
}

test("the event loop metrics report a 60 ms block of the event loop in the next scrape only, with an error of at most 15 ms", async () => {
  expect(Object.keys(await scrape())).toEqual(["now", "min", "max", "mean", "stddev", "p50", "p90", "p99"]);
  const excessesMs: number[] = [];
  const idleMs: number[] = [];
  for (let phaseMs = 0; phaseMs < 50; phaseMs += 10) {
    await sleep(50 + phaseMs);
    await scrape();
    const blockedMs = measureBlock(60);
    excessesMs.push(1_000 * ((await scrape()).max ?? Number.NaN) - blockedMs);
    await sleep(100);
    idleMs.push(1_000 * ((await scrape()).max ?? Number.NaN));
  }
  expect(Math.min(...excessesMs)).toBeGreaterThanOrEqual(-0.1);
  // A busy machine makes single turns longer.
  expect(excessesMs.toSorted((a, b) => a - b)[2]).toBeLessThan(15);
  expect(Math.min(...idleMs)).toBeLessThan(20);
});

test("metricsText returns the text of the registry and lets other work run after each metric", async () => {
  const { registry: workerRegistry, apiRequests } = createMetrics();
  apiRequests.inc({ source: "main", endpoint: "read", outcome: "ok" });
  let ticks = 0;
  let isRendering = true;
  const countTicks = () => {
    ticks += 1;
    if (isRendering) setImmediate(countTicks);
  };
  setImmediate(countTicks);
  const text = await formatMetrics(workerRegistry);
  isRendering = false;
  expect(text).toBe(await workerRegistry.metrics());
  expect(ticks).toBeGreaterThanOrEqual(workerRegistry.getMetricsAsArray().length - 1);
});

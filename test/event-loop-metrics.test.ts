import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Registry } from "@prometheus-io/client";
import { expect, test } from "vitest";
import { addEventLoopMetrics, createMetrics, metricsText } from "#src/core/runtime/metrics.ts";

const registry = new Registry();
addEventLoopMetrics(registry);

async function scrape(): Promise<Readonly<Record<string, number>>> {
  const text = await registry.metrics();
  const lines = text.matchAll(/^plenum_nodejs_eventloop_lag(?:_(\w+?))?_seconds (\S+)$/gm);
  return Object.fromEntries([...lines].map(([, name = "now", value]) => [name, Number(value)]));
}

function block(ms: number): void {
  const endMs = performance.now() + ms;
  while (performance.now() < endMs);
}

test("the event loop metrics report a block of 100 ms in the next scrape only", async () => {
  const names = ["max", "mean", "min", "now", "p50", "p90", "p99", "stddev"];
  expect(Object.keys(await scrape()).toSorted()).toEqual(names);
  await readFile(import.meta.filename);
  // Measured time: a busy machine only makes it longer.
  const begun = performance.now();
  block(100);
  const stoppedMs = performance.now() - begun;
  await sleep(200);
  const { max = 0, mean = 0 } = await scrape();
  expect(max).toBeGreaterThanOrEqual(0.07);
  expect(mean).toBeLessThan(max);
  expect(stoppedMs).toBeGreaterThanOrEqual(100);
  // The quietest of several idle rounds counts, because the machine may be busy.
  const idle: number[] = [];
  for (let round = 0; round < 5; round++) {
    await sleep(200);
    idle.push((await scrape()).max ?? Number.NaN);
  }
  expect(Math.min(...idle)).toBeLessThan(max);
});

test("metricsText returns the text of the registry and lets other work run after each metric", async () => {
  const { registry: workerRegistry, apiRequests } = createMetrics();
  apiRequests.inc({ source: "main", endpoint: "read", outcome: "ok" });
  let turns = 0;
  let isRendering = true;
  const countTurns = () => {
    turns += 1;
    if (isRendering) setImmediate(countTurns);
  };
  setImmediate(countTurns);
  const text = await metricsText(workerRegistry);
  isRendering = false;
  expect(text).toBe(await workerRegistry.metrics());
  expect(turns).toBeGreaterThanOrEqual(workerRegistry.getMetricsAsArray().length - 1);
});

import { pino } from "pino";
import { expect, test } from "vitest";
import { createClockCheck, createClockWatchService } from "#src/core/runtime/clock-check.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { runLoop } from "#src/core/runtime/waiting.ts";
import { describeService } from "../suites/service-suite.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START_MS = Date.UTC(2026, 5, 1, 12, 0, 0);
const HOUR_MS = 3_600_000;

function createHarness() {
  const clock = createVirtualClock(START_MS);
  const logLines: { readonly level: number; readonly msg: string; readonly seconds?: number }[] = [];
  const log = pino({ base: null }, { write: (line: string) => logLines.push(JSON.parse(line)) });
  const metrics = createMetrics();
  return { clock, lines: logLines, metrics, doubt: createClockCheck({ clock, log, metrics }) };
}

test("a clock step is reported with its size until two consecutive replies of the service agree with the clock", async () => {
  const { clock, doubt, lines, metrics } = createHarness();
  await clock.advance(HOUR_MS);
  expect([doubt.latestStep(), doubt.notices()]).toEqual([null, []]);
  clock.stepWall(-HOUR_MS);
  expect(doubt.latestStep()).toMatchObject({ sinceMs: START_MS, byMs: -HOUR_MS });
  expect(doubt.notices()).toEqual([expect.stringMatching(/went back by 3600 s at 2026-06-01T12:00:00.000Z/)]);
  expect(lines).toMatchObject([{ level: 40, seconds: -3_600 }]);
  expect((await metrics.clockInDoubt.get()).values[0]?.value).toBe(1);
  expect((await metrics.clockSteps.get()).values).toMatchObject([{ labels: { direction: "back" }, value: 1 }]);
  doubt.recordServiceClock("main", 500);
  doubt.recordServiceClock("main", -HOUR_MS);
  doubt.recordServiceClock("main", 500);
  expect(doubt.latestStep()).not.toBeNull();
  doubt.recordServiceClock("main", 700);
  expect([doubt.latestStep(), doubt.deviation()]).toEqual([null, null]);
  expect((await metrics.clockInDoubt.get()).values[0]?.value).toBe(0);
  expect(lines.at(-1)?.msg).toContain("trusted");
});

test("a second clock step is added to an unconfirmed first one, and the clock stays unverified even if both cancel out", () => {
  const { clock, doubt } = createHarness();
  clock.stepWall(10 * HOUR_MS);
  expect(doubt.latestStep()?.byMs).toBe(10 * HOUR_MS);
  clock.stepWall(-10 * HOUR_MS);
  expect(doubt.latestStep()?.byMs).toBe(0);
});

test("no clock step is reported for slewing by a time server, a suspended process, or a step of one second", async () => {
  const { clock, doubt } = createHarness();
  for (let secondIndex = 0; secondIndex < 4 * 3_600; secondIndex += 1) {
    await clock.advance(1_000);
    clock.stepWall(0.5);
    doubt.compareClocks();
  }
  clock.suspend(10 * 24 * HOUR_MS);
  doubt.compareClocks();
  clock.stepWall(1_000);
  expect(doubt.latestStep()).toBeNull();
});

test("several small clock steps in a row are reported as one step", async () => {
  const { clock, doubt } = createHarness();
  for (let n = 0; n < 3; n += 1) {
    clock.stepWall(-900);
    doubt.compareClocks();
    await clock.advance(1_000);
  }
  expect(doubt.latestStep()).not.toBeNull();
});

test("a clock difference to a service is reported from its second reply on, until two replies agree with the clock", () => {
  const { doubt } = createHarness();
  doubt.recordServiceClock("a", 8 * 24 * HOUR_MS);
  expect(doubt.deviation()).toBeNull();
  doubt.recordServiceClock("a", 8 * 24 * HOUR_MS);
  doubt.recordServiceClock("b", 0);
  doubt.recordServiceClock("b", 0);
  expect(doubt.deviation()?.byMs).toBe(8 * 24 * HOUR_MS);
  expect(doubt.latestStep()).toBeNull();
  doubt.recordServiceClock("a", 100);
  expect(doubt.deviation()).not.toBeNull();
  doubt.recordServiceClock("a", 100);
  expect(doubt.deviation()).toBeNull();
});

test("the clock check reads the wall clock every few seconds, signals a step, and leaves no timer when stopped", async () => {
  const { clock, doubt } = createHarness();
  const watchEnd = new AbortController();
  const watchEnded = runLoop({ ...doubt.watchLoop, signal: watchEnd.signal });
  await clock.advance(60_000);
  clock.stepWall(5_000);
  expect(doubt.stepWakeup.wakeupCount()).toBe(0);
  await clock.advance(5_000);
  expect(doubt.stepWakeup.wakeupCount()).toBe(1);
  watchEnd.abort();
  await watchEnded;
  expect(clock.sleepers()).toBe(0);
});

test("a clock that is behind the last stored time at the start is reported as a backward step", () => {
  const { clock } = createHarness();
  const log = pino({ level: "silent" });
  const skewWith = (lastKnownMs: number) => createClockCheck({ clock, log, storedTimeMs: lastKnownMs }).latestStep();
  expect(skewWith(START_MS)).toBeNull();
  expect(skewWith(START_MS + HOUR_MS)).toMatchObject({ byMs: -HOUR_MS });
});

describeService("watching the clock", async () => {
  const { clock, doubt } = createHarness();
  return { service: createClockWatchService(doubt), quiet: () => expect(clock.sleepers()).toBe(0) };
});

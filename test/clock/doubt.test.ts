import { pino } from "pino";
import { expect, test } from "vitest";
import { createClockCheck, watching } from "#src/core/runtime/clock-check.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { describeService } from "../suites/service-suite.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START_MS = Date.UTC(2026, 5, 1, 12, 0, 0);
const HOUR_MS = 3_600_000;

function rig() {
  const clock = createVirtualClock(START_MS);
  const lines: { readonly level: number; readonly msg: string; readonly seconds?: number }[] = [];
  const log = pino({ base: null }, { write: (line: string) => lines.push(JSON.parse(line)) });
  const metrics = createMetrics();
  return { clock, lines, metrics, doubt: createClockCheck({ clock, log, metrics }) };
}

test("a step is told at the next look, with its size, and is over after two replies that agree", async () => {
  const { clock, doubt, lines, metrics } = rig();
  await clock.advance(HOUR_MS);
  expect([doubt.stepped(), doubt.notices()]).toEqual([null, []]);
  clock.stepWall(-HOUR_MS);
  expect(doubt.stepped()).toMatchObject({ sinceMs: START_MS, byMs: -HOUR_MS });
  expect(doubt.notices()).toEqual([expect.stringMatching(/went back by 3600 s at 2026-06-01T12:00:00.000Z/)]);
  expect(lines).toMatchObject([{ level: 40, seconds: -3_600 }]);
  expect((await metrics.clockInDoubt.get()).values[0]?.value).toBe(1);
  expect((await metrics.clockSteps.get()).values).toMatchObject([{ labels: { direction: "back" }, value: 1 }]);
  doubt.compared("main", 500);
  doubt.compared("main", -HOUR_MS);
  doubt.compared("main", 500);
  expect(doubt.stepped()).not.toBeNull();
  doubt.compared("main", 700);
  expect([doubt.stepped(), doubt.anywhere()]).toEqual([null, null]);
  expect((await metrics.clockInDoubt.get()).values[0]?.value).toBe(0);
  expect(lines.at(-1)?.msg).toContain("trusted");
});

test("a second step before the first is settled adds to it; there and back is still a doubt", () => {
  const { clock, doubt } = rig();
  clock.stepWall(10 * HOUR_MS);
  expect(doubt.stepped()?.byMs).toBe(10 * HOUR_MS);
  clock.stepWall(-10 * HOUR_MS);
  expect(doubt.stepped()?.byMs).toBe(0);
});

test("what a time server slews, a freeze and a second are no steps", async () => {
  const { clock, doubt } = rig();
  for (let second = 0; second < 4 * 3_600; second += 1) {
    await clock.advance(1_000);
    clock.stepWall(0.5);
    doubt.look();
  }
  clock.suspend(10 * 24 * HOUR_MS);
  doubt.look();
  clock.stepWall(1_000);
  expect(doubt.stepped()).toBeNull();
});

test("many small steps in a row add up to one", async () => {
  const { clock, doubt } = rig();
  for (let n = 0; n < 3; n += 1) {
    clock.stepWall(-900);
    doubt.look();
    await clock.advance(1_000);
  }
  expect(doubt.stepped()).not.toBeNull();
});

test("a difference to a service is a doubt from the second reply on, and ends with the second that agrees", () => {
  const { doubt } = rig();
  doubt.compared("a", 8 * 24 * HOUR_MS);
  expect(doubt.anywhere()).toBeNull();
  doubt.compared("a", 8 * 24 * HOUR_MS);
  doubt.compared("b", 0);
  doubt.compared("b", 0);
  expect(doubt.anywhere()?.byMs).toBe(8 * 24 * HOUR_MS);
  expect(doubt.stepped()).toBeNull();
  doubt.compared("a", 100);
  expect(doubt.anywhere()).not.toBeNull();
  doubt.compared("a", 100);
  expect(doubt.anywhere()).toBeNull();
});

test("looks by itself, rings at a step, and leaves nothing behind", async () => {
  const { clock, doubt } = rig();
  const ending = new AbortController();
  const watching = doubt.watch(ending.signal);
  await clock.advance(60_000);
  clock.stepWall(5_000);
  expect(doubt.steps.wakeups()).toBe(0);
  await clock.advance(5_000);
  expect(doubt.steps.wakeups()).toBe(1);
  ending.abort();
  await watching;
  expect(clock.sleepers()).toBe(0);
});

test("a clock that is behind what the state holds was set back while nobody looked", () => {
  const { clock } = rig();
  const log = pino({ level: "silent" });
  const doubtWith = (lastKnownMs: number) => createClockCheck({ clock, log, lastKnownMs }).stepped();
  expect(doubtWith(START_MS)).toBeNull();
  expect(doubtWith(START_MS + HOUR_MS)).toMatchObject({ byMs: -HOUR_MS });
});

describeService("watching the clock", async () => {
  const { clock, doubt } = rig();
  return { service: watching(doubt), quiet: () => expect(clock.sleepers()).toBe(0) };
});

import { pino } from "pino";
import { expect, test } from "vitest";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { createClockSkew, createSkewReporter, serviceClock } from "#src/engine/source/clock-skew.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

const START_MS = Date.UTC(2026, 0, 1);

function doubtOf(clock: VirtualClock) {
  const doubt = createClockCheck({ clock, log: pino({ level: "silent" }) });
  return { ...doubt, compared: (aheadMs: number) => doubt.compared("main", aheadMs) };
}

function reply(skewMs: number, tookMs = 100) {
  const clock = createVirtualClock(START_MS);
  const skew = createClockSkew(clock, doubtOf(clock), () => {});
  const header = new Date(START_MS - skewMs).toUTCString();
  skew.observe(header, clock.monotonic() - tookMs);
  return skew.ms() ?? Number.NaN;
}

test("the difference of the clocks is known to about half a second", () => {
  for (const skewMs of [-600_000, -400, 0, 31_000, 600_000]) {
    expect(Math.abs(reply(skewMs) - skewMs)).toBeLessThanOrEqual(1_000);
  }
});

test("one odd reply, one without a date and one that took long change nothing", () => {
  const clock = createVirtualClock(START_MS);
  const skew = createClockSkew(clock, doubtOf(clock), () => {});
  const now = () => new Date(clock.now()).toUTCString();
  skew.observe(undefined, clock.monotonic());
  skew.observe("yesterday", clock.monotonic());
  skew.observe("Thu, 01 Jan 2015 00:00:00 GMT", clock.monotonic() - 30_000);
  expect(skew.ms()).toBeNull();
  for (let i = 0; i < 5; i++) skew.observe(now(), clock.monotonic());
  skew.observe("Thu, 01 Jan 2015 00:00:00 GMT", clock.monotonic());
  expect(Math.abs(skew.ms() ?? 1e9)).toBeLessThanOrEqual(1_000);
});

test("a difference of more than 30 s is told once, and once that it is over", () => {
  const told: [number, boolean][] = [];
  const tell = createSkewReporter((skewMs, differs) => told.push([skewMs, differs]));
  for (const skewMs of [0, 29_000, 31_000, 40_000, -40_000, 2_000, 0]) tell(skewMs);
  expect(told).toEqual([
    [31_000, true],
    [2_000, false],
  ]);
});

test("what was compared before the clock was set counts no more, and each reply is told", async () => {
  const clock = createVirtualClock(START_MS);
  const told: number[] = [];
  const skew = createClockSkew(clock, { ...doubtOf(clock), compared: (aheadMs) => void told.push(aheadMs) }, () => {});
  const truth = () => new Date(START_MS + clock.monotonic()).toUTCString();
  for (let i = 0; i < 15; i++) skew.observe(truth(), clock.monotonic());
  clock.stepWall(-3_600_000);
  expect(skew.ms()).toBeNull();
  skew.observe(truth(), clock.monotonic());
  expect(Math.abs((skew.ms() ?? 0) + 3_600_000)).toBeLessThanOrEqual(1_000);
  expect(told).toHaveLength(16);
});

test("the service's time is ours unless that is in doubt", async () => {
  const clock = createVirtualClock(START_MS);
  const doubt = createClockCheck({ clock, log: pino({ level: "silent" }) });
  let skewMs: number | null = null;
  const service = serviceClock(clock, () => skewMs, doubt);
  expect(service.now()).toBe(START_MS);
  skewMs = 30_000;
  expect(service.now()).toBe(START_MS);
  skewMs = 8 * 86_400_000;
  expect(service.now()).toBe(START_MS - skewMs);
  skewMs = null;
  clock.stepWall(-3_600_000);
  expect(service.now()).toBe(START_MS);
});

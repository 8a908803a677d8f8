import { pino } from "pino";
import { describe, expect, it, vi } from "vitest";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createClockSkew, createServiceClock } from "#src/engine/source/clock-skew.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START_MS = Date.UTC(2026, 0, 1);

function trialSkew() {
  const clock = createVirtualClock(START_MS);
  const clockCheck = createClockCheck({ clock, log: pino({ level: "silent" }) });
  const compared = vi.spyOn(clockCheck, "recordServiceClock");
  const log = { warn: vi.fn(), info: vi.fn() };
  const skew = createClockSkew({ clock, clockCheck, source: "main", metrics: createMetrics(), log });
  const observe = (skewMs: number) => skew.observeDate(new Date(clock.now() - skewMs).toUTCString(), clock.monotonic());
  return { clock, skew, log, compared, observe };
}

describe("the difference between the local and the service's clock (createClockSkew)", () => {
  it.each([-600_000, -400, 0, 31_000, 600_000])("is measured with an error of at most 1 s: %i ms", (skewMs) => {
    const { skew, clock } = trialSkew();
    skew.observeDate(new Date(START_MS - skewMs).toUTCString(), clock.monotonic() - 100);
    expect(Math.abs((skew.skewMs() ?? Number.NaN) - skewMs)).toBeLessThanOrEqual(1_000);
  });

  it("ignores a Date header that is missing, invalid or late, and a single header that differs from the others", () => {
    const { skew, clock, observe } = trialSkew();
    skew.observeDate(undefined, clock.monotonic());
    skew.observeDate("yesterday", clock.monotonic());
    skew.observeDate("Thu, 01 Jan 2015 00:00:00 GMT", clock.monotonic() - 30_000);
    expect(skew.skewMs()).toBeNull();
    for (let i = 0; i < 5; i++) observe(0);
    skew.observeDate("Thu, 01 Jan 2015 00:00:00 GMT", clock.monotonic());
    expect(Math.abs(skew.skewMs() ?? 1e9)).toBeLessThanOrEqual(1_000);
  });

  it("is logged above 30 s, once when it begins and once when it ends", () => {
    const { observe, log } = trialSkew();
    for (let i = 0; i < 3; i++) observe(29_000);
    expect(log.warn).not.toHaveBeenCalled();
    for (let i = 0; i < 9; i++) observe(40_000);
    expect(log.warn).toHaveBeenCalledExactlyOnceWith({ seconds: 40 }, expect.any(String));
    for (let i = 0; i < 15; i++) observe(0);
    expect(log.info).toHaveBeenCalledOnce();
  });

  it("is known at once after a clock step, and each later Date header is compared again", () => {
    const { clock, skew, compared } = trialSkew();
    const truth = () => new Date(START_MS + clock.monotonic()).toUTCString();
    const expectSkew = (skewMs: number) => expect(Math.abs((skew.skewMs() ?? 1e9) - skewMs)).toBeLessThanOrEqual(1_000);
    clock.stepWall(17 * 3_600_000);
    for (let i = 0; i < 15; i++) skew.observeDate(truth(), clock.monotonic());
    clock.stepWall(3_600_000);
    expectSkew(18 * 3_600_000);
    clock.stepWall(-18 * 3_600_000);
    expectSkew(0);
    skew.observeDate(new Date(START_MS + clock.monotonic() - 7_200_000).toUTCString(), clock.monotonic());
    expectSkew(7_200_000);
    expect(compared).toHaveBeenCalledTimes(16);
  });
});

it("the service clock returns the local time unless the local clock differs by more than 30 s or was stepped", () => {
  const clock = createVirtualClock(START_MS);
  const clockCheck = createClockCheck({ clock, log: pino({ level: "silent" }) });
  let skewMs: number | null = null;
  const service = createServiceClock(clock, () => skewMs, clockCheck);
  expect(service.now()).toBe(START_MS);
  skewMs = 30_000;
  expect(service.now()).toBe(START_MS);
  skewMs = 8 * 86_400_000;
  expect(service.now()).toBe(START_MS - skewMs);
  skewMs = null;
  clock.stepWall(-3_600_000);
  expect(service.now()).toBe(START_MS);
});

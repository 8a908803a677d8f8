import { describe, expect, test } from "vitest";
import type { Clock } from "#src/core/runtime/clock.ts";
import { momentOf } from "#src/core/runtime/moment.ts";
import { createTrust } from "#src/scale/fleet/timing.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const START_MS = Date.UTC(2026, 5, 1);

describe("the local lease time of a member", () => {
  test("counts from before the renewal was sent, and ends one second before the lease in the database", async () => {
    const clock = createVirtualClock(START_MS);
    const trust = createTrust(clock, 9_000, 1_000);
    expect(trust.leftMs()).toBe(0);
    const sent = momentOf(clock);
    await clock.advance(2_500);
    trust.renewed(sent);
    expect(trust.leftMs()).toBe(5_500);
    await clock.advance(5_499);
    expect(trust.leftMs()).toBe(1);
    await clock.advance(1);
    expect(trust.leftMs()).toBe(0);
  });

  test("is not shortened by a late response to an earlier renewal", async () => {
    const clock = createVirtualClock(START_MS);
    const trust = createTrust(clock, 9_000, 1_000);
    const first = momentOf(clock);
    await clock.advance(3_000);
    trust.renewed(momentOf(clock));
    trust.renewed(first);
    expect(trust.leftMs()).toBe(8_000);
  });

  test("is not affected by steps of the wall clock", async () => {
    const clock = createVirtualClock(START_MS);
    const trust = createTrust(clock, 9_000, 1_000);
    trust.renewed(momentOf(clock));
    clock.stepWall(-300_000);
    expect(trust.leftMs()).toBe(8_000);
    clock.stepWall(600_000);
    expect(trust.leftMs()).toBe(8_000);
  });

  test.each([
    ["a suspended machine, whose monotonic clock stands still", 0, 60_000],
    ["a machine that does not say when it was started", 60_000, null],
  ])("uses the clock that advanced more: %s", (_, monotonicMs, sinceBootMs) => {
    let isLater = false;
    const clock: Clock = {
      ...createVirtualClock(START_MS),
      monotonic: () => (isLater ? monotonicMs : 0),
      sinceBoot: () => (sinceBootMs === null ? null : { boot: "this", ms: isLater ? 1_000 + sinceBootMs : 1_000 }),
    };
    const trust = createTrust(clock, 9_000, 1_000);
    trust.renewed(momentOf(clock));
    expect(trust.leftMs()).toBe(8_000);
    isLater = true;
    expect(trust.leftMs()).toBe(0);
  });
});

import { describe, expect, test } from "vitest";
import type { Clock } from "#src/core/runtime/clock.ts";
import { readClocks } from "#src/core/runtime/elapsed-time.ts";
import {
  createHeartbeatObserver,
  createLeaseExpiryTimer,
  type MemberHeartbeat,
} from "#src/scale/fleet/lease-timing.ts";
import { createFailedStarts } from "#src/scale/fleet/running-sources.ts";
import { createVirtualClock } from "../virtual-clock.ts";

describe("the local lease time of a member", () => {
  const create = (clock: Clock = createVirtualClock(0)) => createLeaseExpiryTimer(clock, 9_000, 1_000);

  test("the local lease time counts from before the latest renewal was sent, ends one second early, and ignores steps of the wall clock", async () => {
    const clock = createVirtualClock(0);
    const trust = create(clock);
    expect(trust.leftMs()).toBe(0);
    const first = readClocks(clock);
    await clock.advance(2_500);
    trust.noteRenewal(first);
    expect(trust.leftMs()).toBe(5_500);
    trust.noteRenewal(readClocks(clock));
    trust.noteRenewal(first);
    expect(trust.leftMs()).toBe(8_000);
    for (const ms of [-300_000, 600_000]) clock.stepWall(ms);
    await clock.advance(7_999);
    expect(trust.leftMs()).toBe(1);
    await clock.advance(1);
    expect(trust.leftMs()).toBe(0);
  });

  test.each([
    ["a suspended machine, whose monotonic clock stands still", 0, 60_000],
    ["a machine that does not say when it was started", 60_000, null],
  ])("the local lease time uses the clock that advanced more: %s", (_, monotonicMs, sinceBootMs) => {
    let isLater = false;
    const clock: Clock = {
      ...createVirtualClock(0),
      monotonic: () => (isLater ? monotonicMs : 0),
      sinceBoot: () => (sinceBootMs === null ? null : { bootId: "this", ms: isLater ? 1_000 + sinceBootMs : 1_000 }),
    };
    const trust = create(clock);
    trust.noteRenewal(readClocks(clock));
    expect(trust.leftMs()).toBe(8_000);
    isLater = true;
    expect(trust.leftMs()).toBe(0);
  });
});

describe("the heartbeat monitor", () => {
  const beat = (renewals: number, name = "a"): MemberHeartbeat => ({ name, incarnation: `of ${name}`, renewals });

  function observer() {
    const clock = createVirtualClock(0);
    return { clock, heartbeats: createHeartbeatObserver(clock, 9_000, 8_000) };
  }

  test("the heartbeat monitor reports a member as silent after one lease duration without a renewal", async () => {
    const { clock, heartbeats } = observer();
    expect([heartbeats.observe([]), heartbeats.msUntilNextExpiry()]).toEqual([[], Number.POSITIVE_INFINITY]);
    heartbeats.observe([beat(7)]);
    await clock.advance(5_000);
    clock.stepWall(3_600_000);
    expect([heartbeats.observe([beat(8), beat(1, "b")]), heartbeats.msUntilNextExpiry()]).toEqual([[], 9_000]);
    await clock.advance(5_000);
    clock.stepWall(-7_200_000);
    expect([heartbeats.observe([beat(8), beat(2, "b")]), heartbeats.msUntilNextExpiry()]).toEqual([[], 4_000]);
    await clock.advance(3_999);
    expect(heartbeats.observe([beat(8), beat(2, "b")])).toEqual([]);
    await clock.advance(1);
    expect(heartbeats.observe([beat(8), beat(2, "b")])).toEqual([beat(8)]);
    expect(heartbeats.observe([{ ...beat(8), incarnation: "another" }])).toEqual([]);
    expect([heartbeats.observe([]), heartbeats.msUntilNextExpiry()]).toEqual([[], Number.POSITIVE_INFINITY]);
  });

  test("the heartbeat monitor starts measuring again after its own process was suspended", async () => {
    const { clock, heartbeats } = observer();
    heartbeats.observe([beat(3)]);
    clock.suspend(60_000);
    expect(heartbeats.observe([beat(3)])).toEqual([]);
    await clock.advance(8_000);
    expect(heartbeats.observe([beat(3)])).toEqual([]);
    await clock.advance(1_000);
    expect(heartbeats.observe([beat(3)])).toEqual([beat(3)]);
  });
});

test("a source that fails to start is left to other members for growing times until a start succeeds", async () => {
  const clock = createVirtualClock(0);
  const unable = createFailedStarts(clock, () => 1);
  expect([unable.sources(), unable.waitMs()]).toEqual([[], Number.POSITIVE_INFINITY]);
  for (const waitMs of [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000]) {
    unable.noteFailure("b", new Error("no route"));
    expect([unable.sources(), unable.waitMs()]).toEqual([["b"], waitMs]);
    await clock.advance(waitMs);
    expect(unable.sources()).toEqual([]);
  }
  unable.noteSuccess("b");
  for (const source of ["b", "a"]) unable.noteFailure(source, new Error("no route"));
  expect([unable.sources(), unable.waitMs()]).toEqual([["a", "b"], 10_000]);
  expect(unable.notices()).toContain("The source a could not be started here, and is left to other members: no route");
});

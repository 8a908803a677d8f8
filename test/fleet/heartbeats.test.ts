import { expect, test } from "vitest";
import { createHeartbeats, type Heartbeat } from "#src/scale/fleet/timing.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const beat = (renewals: number, name = "a"): Heartbeat => ({ name, incarnation: `of ${name}`, renewals });

function observer() {
  const clock = createVirtualClock(0);
  return { clock, heartbeats: createHeartbeats(clock, 9_000, 8_000) };
}

test("the heartbeat monitor reports a member as silent after one lease duration without a renewal", async () => {
  const { clock, heartbeats } = observer();
  expect([heartbeats.observe([]), heartbeats.nextMs()]).toEqual([[], Number.POSITIVE_INFINITY]);
  heartbeats.observe([beat(7)]);
  await clock.advance(5_000);
  clock.stepWall(3_600_000);
  expect([heartbeats.observe([beat(8), beat(1, "b")]), heartbeats.nextMs()]).toEqual([[], 9_000]);
  await clock.advance(5_000);
  clock.stepWall(-7_200_000);
  expect([heartbeats.observe([beat(8), beat(2, "b")]), heartbeats.nextMs()]).toEqual([[], 4_000]);
  await clock.advance(3_999);
  expect(heartbeats.observe([beat(8), beat(2, "b")])).toEqual([]);
  await clock.advance(1);
  expect(heartbeats.observe([beat(8), beat(2, "b")])).toEqual([beat(8)]);
  // Another process with the name is another member, and one that left is not observed any more.
  expect(heartbeats.observe([{ ...beat(8), incarnation: "another" }])).toEqual([]);
  expect([heartbeats.observe([]), heartbeats.nextMs()]).toEqual([[], Number.POSITIVE_INFINITY]);
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

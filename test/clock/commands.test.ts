import { afterEach, expect, test } from "vitest";
import { createRig, type Rig, SITE, START_MS, tagsOf } from "../commands/rig.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const open: Rig[] = [];
afterEach(async () => {
  for (const rig of open.splice(0)) await rig.close();
});

async function rigWith() {
  const rig = await createRig({ ownTime: true });
  open.push(rig);
  const [tag = ""] = tagsOf(rig.simulator, 1);
  const entry = { site_id: SITE, tag_id: tag, type: "number" as const, min: 15, max: 25, restore: true };
  const restart = () => rig.restart({ allow: [entry] });
  await restart();
  await rig.compareClocks();
  const outcomes = async () =>
    (await rig.results()).map(({ commandId, outcome, reason }) => [commandId, outcome, reason]);
  return { rig, tag, restart, outcomes };
}

test("a command from an hour ago is rejected after the clock was set back by an hour", async () => {
  const { rig, tag, outcomes } = await rigWith();
  const issued_at = new Date(START_MS).toISOString();
  await rig.clock.advance(HOUR_MS);
  rig.clock.stepWall(-HOUR_MS);
  await rig.send({ id: "old", tag, value: 22, issued_at, ttl_s: 60 });
  await rig.compareClocks();
  await rig.send({ id: "still", tag, value: 22, issued_at, ttl_s: 60 });
  rig.clock.stepWall(HOUR_MS);
  await rig.send({ id: "soon", tag, value: 22 });
  await rig.compareClocks();
  await rig.send({ id: "right", tag, value: 22 });
  await rig.clock.advance(5_000);
  expect(await outcomes()).toEqual([
    ["old", "rejected", "clock-skew"],
    ["still", "rejected", "clock-skew"],
    ["soon", "rejected", "clock-skew"],
    ["right", "confirmed", null],
  ]);
  expect(rig.posts).toHaveLength(1);
});

test.each([-HOUR_MS, -3_000, 3_000, 10 * DAY_MS])(
  "a pending command is not sent after a clock step of %i ms",
  async (stepMs) => {
    const { rig, tag, outcomes } = await rigWith();
    await rig.send({ id: "a", tag, value: 22, ttl_s: 120, for_s: 120 });
    rig.clock.stepWall(stepMs);
    await rig.clock.advance(1_000);
    expect((await outcomes()).map(([, outcome]) => outcome)).not.toContain("confirmed");
    await rig.clock.advance(HOUR_MS);
    expect(rig.posts).toEqual([]);
  },
);

test.each([-10 * DAY_MS, -HOUR_MS, HOUR_MS, 10 * DAY_MS])(
  "a value written for an hour is restored after an hour of measured time despite a clock step of %i ms",
  async (stepMs) => {
    const { rig, tag, outcomes } = await rigWith();
    await rig.send({ id: "a", tag, value: 22, for_s: 3_600 });
    await rig.clock.advance(HOUR_MS / 2);
    rig.clock.stepWall(stepMs);
    await rig.clock.advance(60_000);
    rig.clock.stepWall(-stepMs);
    await rig.clock.advance(60_000);
    await rig.compareClocks();
    await rig.clock.advance(HOUR_MS / 2 - 300_000);
    expect(await outcomes()).toEqual([["a", "confirmed", null]]);
    await rig.clock.advance(360_000);
    expect(await outcomes()).toEqual([
      ["a", "confirmed", null],
      ["a/restore", "confirmed", null],
    ]);
  },
);

test("a start with a clock eight days ahead ends no restore and forgets no command id", async () => {
  const { rig, tag, restart, outcomes } = await rigWith();
  await rig.send({ id: "a", tag, value: 22, for_s: 3_600 });
  await rig.clock.advance(60_000);
  rig.clock.stepWall(8 * DAY_MS);
  await restart();
  await rig.clock.advance(20_000);
  rig.clock.stepWall(-8 * DAY_MS);
  await restart();
  await rig.compareClocks();
  await rig.send({ id: "a", tag, value: 23 });
  await rig.clock.advance(HOUR_MS + 60_000);
  expect(await outcomes()).toEqual([
    ["a", "confirmed", null],
    ["a", "duplicate", "duplicate"],
    ["a/restore", "confirmed", null],
  ]);
});

import { expect, test } from "vitest";
import { allowed, TAG as tag, testRig } from "../commands/test-harness.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

async function ownTimeRig() {
  const rig = await testRig({ ownTime: true, config: { allow: [allowed(tag, { restore: true })] } });
  await rig.compareClocks();
  return rig;
}

test.each([-HOUR_MS, -3_000, 3_000, 10 * DAY_MS])(
  "a pending command is not sent after a clock step of %i ms",
  async (stepMs) => {
    const rig = await ownTimeRig();
    await rig.send({ id: "a", tag, value: 22, ttl_s: 120, for_s: 120 });
    rig.clock.stepWall(stepMs);
    await rig.clock.advance(HOUR_MS);
    expect(await rig.outcomes()).not.toContain("a confirmed");
    expect(rig.posts).toEqual([]);
  },
);

test.each([-10 * DAY_MS, -HOUR_MS, HOUR_MS, 10 * DAY_MS])(
  "a value written for an hour is restored after an hour of measured time despite a clock step of %i ms",
  async (stepMs) => {
    const rig = await ownTimeRig();
    await rig.sendAndWait({ id: "a", tag, value: 22, for_s: 3_600 }, {}, HOUR_MS / 2);
    for (const ms of [stepMs, -stepMs]) {
      rig.clock.stepWall(ms);
      await rig.clock.advance(60_000);
    }
    await rig.compareClocks();
    await rig.clock.advance(HOUR_MS / 2 - 300_000);
    expect(await rig.outcomes()).toEqual(["a confirmed"]);
    await rig.clock.advance(360_000);
    expect(await rig.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
  },
);

test("a start with a clock that is eight days ahead loses neither a planned restore nor a known command id", async () => {
  const rig = await ownTimeRig();
  await rig.sendAndWait({ id: "a", tag, value: 22, for_s: 3_600 }, {}, 60_000);
  rig.clock.stepWall(8 * DAY_MS);
  await rig.restart();
  await rig.clock.advance(20_000);
  rig.clock.stepWall(-8 * DAY_MS);
  await rig.restart();
  await rig.compareClocks();
  await rig.sendAndWait({ id: "a", tag, value: 23 }, {}, HOUR_MS + 60_000);
  expect(await rig.outcomes()).toEqual(["a confirmed", "a duplicate", "a/restore confirmed"]);
});

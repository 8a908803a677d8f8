import { expect, test } from "vitest";
import { allowed, openHarness, TAG as tag } from "../commands/test-harness.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

async function timedHarness() {
  const harness = await openHarness({ ownTime: true, config: { allow: [allowed(tag, { restore: true })] } });
  await harness.compareClocks();
  return harness;
}

test.each([-HOUR_MS, -3_000, 3_000, 10 * DAY_MS])(
  "a pending command is not sent after a clock step of %i ms",
  async (stepMs) => {
    const harness = await timedHarness();
    await harness.send({ id: "a", tag, value: 22, ttl_s: 120, for_s: 120 });
    harness.clock.stepWall(stepMs);
    await harness.clock.advance(HOUR_MS);
    expect(await harness.outcomes()).not.toContain("a confirmed");
    expect(harness.posts).toEqual([]);
  },
);

test.each([-10 * DAY_MS, -HOUR_MS, HOUR_MS, 10 * DAY_MS])(
  "a value written for an hour is restored after an hour of measured time despite a clock step of %i ms",
  async (stepMs) => {
    const harness = await timedHarness();
    await harness.execute({ id: "a", tag, value: 22, for_s: 3_600 }, {}, HOUR_MS / 2);
    for (const ms of [stepMs, -stepMs]) {
      harness.clock.stepWall(ms);
      await harness.clock.advance(60_000);
    }
    await harness.compareClocks();
    await harness.clock.advance(HOUR_MS / 2 - 300_000);
    expect(await harness.outcomes()).toEqual(["a confirmed"]);
    await harness.clock.advance(360_000);
    expect(await harness.outcomes()).toEqual(["a confirmed", "a/restore confirmed"]);
  },
);

test("a start with a clock that is eight days ahead loses neither a planned restore nor a known command id", async () => {
  const harness = await timedHarness();
  await harness.execute({ id: "a", tag, value: 22, for_s: 3_600 }, {}, 60_000);
  harness.clock.stepWall(8 * DAY_MS);
  await harness.restart();
  await harness.clock.advance(20_000);
  harness.clock.stepWall(-8 * DAY_MS);
  await harness.restart();
  await harness.compareClocks();
  await harness.execute({ id: "a", tag, value: 23 }, {}, HOUR_MS + 60_000);
  expect(await harness.outcomes()).toEqual(["a confirmed", "a duplicate", "a/restore confirmed"]);
});

import { expect, test } from "vitest";
import { playClock } from "./campaign.ts";

/**
 * Whatever happens to the wall clock: alarms are polled within two intervals, no event is dropped, no command is written
 * after its life or in doubt, the quota is kept, and nothing spins.
 *
 * 30 in CI and 5 elsewhere. `PLENUM_SEED=17` replays one; `npm run clock:long` plays a thousand.
 */
const only = process.env.PLENUM_SEED;
const seeds = process.env.CI === "true" ? 30 : 5;
const wanted = only === undefined ? Array.from({ length: seeds }, (_, n) => n + 1) : [Number(only)];

test.each(wanted)("a wall clock that is set at random, seed %i", { timeout: 600_000 }, async (seed) => {
  const { problems, story, written } = await playClock(seed);
  expect(problems, `${story.join("\n")}\nreplay with PLENUM_SEED=${seed}`).toEqual([]);
  expect(written).toBeGreaterThan(0);
});

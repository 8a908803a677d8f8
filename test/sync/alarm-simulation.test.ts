import { describe, expect, test } from "vitest";
import { sized } from "../sizes.ts";
import { campaign } from "./alarm-simulation.ts";
import kept from "./kept-seeds.json" with { type: "json" };

/**
 * Random schedules against the worker's polling (alarm-judge.ts): 60 in CI, 20 elsewhere, and every seed that ever failed.
 * `PLENUM_SEED=17` replays one; `npm run simulate:long` runs ten thousand.
 */
const only = process.env.PLENUM_SEED;
const schedules = Number(process.env.PLENUM_SCHEDULES ?? sized(60, 20));
const SEEDS_PER_TEST = 5;

async function expectNoProblem(seed: number): Promise<void> {
  const { problems } = await campaign(seed);
  expect(problems, `Replay with PLENUM_SEED=${seed} npx vitest run test/sync/alarm-simulation.test.ts`).toEqual([]);
}

describe("random schedules of alarm polls", () => {
  if (only !== undefined) {
    test(`the events of seed ${only} break no rule of the judge for alarm events`, () => expectNoProblem(Number(only)));
    return;
  }
  for (let first = 1; first <= schedules; first += SEEDS_PER_TEST) {
    const last = Math.min(schedules, first + SEEDS_PER_TEST - 1);
    test(`the events of seeds ${first} to ${last} break no rule of the judge for alarm events`, async () => {
      for (let seed = first; seed <= last; seed += 1) await expectNoProblem(seed);
    });
  }
  test.each(kept.filter((seed) => seed > schedules))(
    "the events of the stored seed %i, which failed before, break no rule of the judge for alarm events",
    expectNoProblem,
  );

  test("two runs of the same seed give the same events", async () => {
    const [once, again] = [await campaign(4_711), await campaign(4_711)];
    expect(again.digest).toBe(once.digest);
    expect(once.requests).toBeGreaterThan(50);
  });
});

import { describe, expect, test } from "vitest";
import { seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { playReceiver } from "./battery.ts";
import { CONTESTANTS } from "./contestants.ts";

/** Of each contestant, after a request left and before anything was written down of it; `receivers:long` does more. */
const KILLS_IN_DOUBT = sized(8, 4);

describe("killed between what is said and what is remembered, each alarm is one thing that ends with it", () => {
  test.each(CONTESTANTS.map((contestant) => [contestant.name, contestant] as const))(
    "%s",
    { timeout: 120_000 },
    async (_, contestant) => {
      let inDoubt = 0;
      for (let round = 0; inDoubt < KILLS_IN_DOUBT; round += 1) {
        const played = await playReceiver(contestant, seed + round);
        expect(played.problems, `PLENUM_SEED=${seed + round}: ${played.circumstances}`).toEqual([]);
        inDoubt += played.inDoubt;
      }
      expect(inDoubt).toBeGreaterThanOrEqual(KILLS_IN_DOUBT);
    },
  );

  test("a seed gives the same run again", async () => {
    const contestant = CONTESTANTS.find(({ name }) => name === "servicenow");
    if (contestant === undefined) throw new Error("ServiceNow takes no part.");
    const played = await playReceiver(contestant, seed);
    expect(await playReceiver(contestant, seed), `PLENUM_SEED=${seed}`).toEqual(played);
  });
});

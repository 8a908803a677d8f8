import { describe, expect, test } from "vitest";
import { seed } from "../seed.ts";
import { playReceiver } from "./battery.ts";
import { CONTESTANTS } from "./contestants.ts";

const KILLS = 40;

describe("killed between what is said and what is remembered, each alarm is one thing that ends with it", () => {
  test.each(CONTESTANTS.map((contestant) => [contestant.name, contestant] as const))(
    "%s",
    { timeout: 120_000 },
    async (_, contestant) => {
      let kills = 0;
      for (let round = 0; kills < KILLS; round += 1) {
        const played = await playReceiver(contestant, seed + round);
        expect(played.problems, `PLENUM_SEED=${seed + round}`).toEqual([]);
        kills += played.kills;
      }
      expect(kills).toBeGreaterThanOrEqual(KILLS);
    },
  );
});

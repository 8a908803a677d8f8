import { expect, test } from "vitest";
import { seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { playRandomCrashes } from "./random-crashes.ts";
import { RECEIVERS } from "./receivers.ts";

/** Kills per receiver after a request left and before its result was stored; `receivers:long` plays more. */
const KILLS_IN_DOUBT = sized(8, 4);

test.each(RECEIVERS.map((row) => [row.name, row] as const))(
  "a process that is killed between request and commit leaves one incident per alarm at the receiver %s",
  async (_, row) => {
    let openKills = 0;
    for (let round = 0; openKills < KILLS_IN_DOUBT; round += 1) {
      const run = await playRandomCrashes(row, seed + round);
      expect(run.problems, `PLENUM_SEED=${seed + round}: ${run.settings}`).toEqual([]);
      openKills += run.unverified;
    }
  },
);

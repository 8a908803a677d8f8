import { describe, expect, test } from "vitest";
import { seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { playReceiver } from "./random-crashes.ts";
import { RECEIVERS } from "./receivers.ts";

/** Of each row, after a request left and before anything was written down of it; `receivers:long` does more. */
const KILLS_IN_DOUBT = sized(8, 4);

describe("a process that is killed between request and commit leaves one incident per alarm", () => {
  test.each(RECEIVERS.map((row) => [row.name, row] as const))("%s", { timeout: 120_000 }, async (_, row) => {
    let inDoubt = 0;
    for (let round = 0; inDoubt < KILLS_IN_DOUBT; round += 1) {
      const played = await playReceiver(row, seed + round);
      expect(played.problems, `PLENUM_SEED=${seed + round}: ${played.circumstances}`).toEqual([]);
      inDoubt += played.inDoubt;
    }
    expect(inDoubt).toBeGreaterThanOrEqual(KILLS_IN_DOUBT);
  });

  test("repeats a run with the same seed", async () => {
    const row = RECEIVERS.find(({ name }) => name === "servicenow");
    if (row === undefined) throw new Error("ServiceNow takes no part.");
    const played = await playReceiver(row, seed);
    expect(await playReceiver(row, seed), `PLENUM_SEED=${seed}`).toEqual(played);
  });
});

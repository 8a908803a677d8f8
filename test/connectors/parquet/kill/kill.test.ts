import { expect, test } from "vitest";
import { replay, seed } from "../../../seed.ts";
import { sized } from "../../../sizes.ts";
import { LAKES } from "../engine.ts";
import { killDuringCommits } from "./campaign.ts";

const KILLS = sized(6, 3);

test.each(LAKES)(
  "a Parquet writer that is killed repeatedly loses and duplicates no row: %s, %s",
  async (where, format) => {
    const killed = await killDuringCommits(where, format, KILLS, seed);
    expect(killed, replay).toMatchObject({ kills: KILLS, lost: 0, doubled: 0 });
  },
);

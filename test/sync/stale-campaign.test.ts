import { expect, test } from "vitest";
import { sized } from "../sizes.ts";
import { campaign } from "./stale-campaign.ts";
import kept from "./stale-failed-seeds.json" with { type: "json" };

const only = process.env.PLENUM_SEED;
const firstSeeds = Array.from({ length: sized(10, 2) }, (_, n) => n + 1);
const seeds = only === undefined ? [...new Set([...firstSeeds, ...sized(kept, kept.slice(-1))])] : [Number(only)];

test.each(seeds)(
  "no sink shows a value that is too old as good during 10.75 simulated hours with all kinds of faults (seed %i)",
  async (seed) => {
    const { problems, requests } = await campaign(seed);
    expect(problems, `Replay with PLENUM_SEED=${seed} npm run stale:long`).toEqual([]);
    expect(requests).toBeGreaterThan(300);
  },
);

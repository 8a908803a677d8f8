import { expect, test } from "vitest";
import { seed } from "../../seed.ts";
import { sized } from "../../sizes.ts";
import { judgePlan } from "./random-plan.ts";

/** 20,000 plans take 5 s, or 30 s with branch counting. */
const PLANS = sized(20_000, 5_000);
const PLANS_PER_TEST = 1_000;

const firstSeeds = Array.from({ length: PLANS / PLANS_PER_TEST }, (_, lot) => seed + lot * PLANS_PER_TEST);

test.each(firstSeeds)(
  "1,000 random plans of read classes near full load break no rule of the planner (from seed %i on)",
  (first) => {
    for (let n = first; n < first + PLANS_PER_TEST; n += 1) {
      const complaints = judgePlan(n);
      // An expectation for each plan would take longer than the plans.
      if (complaints.length > 0) expect(complaints).toEqual([]);
    }
  },
);

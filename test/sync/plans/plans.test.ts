import { expect, test } from "vitest";
import { seed } from "../../seed.ts";
import { sized } from "../../sizes.ts";
import { judgePlan } from "./random-plan.ts";

/** 20,000 take some 5 s; a million: `npm run plans:long`. */
const PLANS = sized(20_000, 5_000);

test(`${PLANS} random plans near full load keep the planner's contract`, () => {
  for (let n = 0; n < PLANS; n += 1) {
    const complaints = judgePlan(seed + n);
    // An expectation each would take longer than the plans.
    if (complaints.length > 0) expect(complaints).toEqual([]);
  }
});

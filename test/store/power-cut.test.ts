import { expect, test } from "vitest";
import { replay, seed } from "../seed.ts";
import { cutPower } from "./power-cut/campaign.ts";
import { canRecord } from "./power-cut/record.ts";

test(`2,000 power cuts: what was said to be committed is there, and whole (seed ${seed})`, async (context) => {
  if (!canRecord()) {
    process.stderr.write("There is no strace that may trace here: the power cuts are skipped.\n");
    return context.skip();
  }
  const { states, broken } = await cutPower(2_000, seed);
  expect(states).toBeGreaterThanOrEqual(2_000);
  expect(broken.slice(0, 5), replay).toEqual([]);
}, 600_000);

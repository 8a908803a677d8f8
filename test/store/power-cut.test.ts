import { describe, expect, test } from "vitest";
import { replay, seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { cutPower } from "./power-cut/campaign.ts";
import { canRecord } from "./power-cut/record.ts";

/** More by `npm run crash:long`. */
const CUTS = sized(1_000, 150);

describe(`data reported as durable survives a power cut intact (seed ${seed})`, () => {
  test.each([
    ["store", CUTS],
    ["file sink", CUTS],
  ] as const)("%s, %i cuts", { timeout: 600_000 }, async (of, wanted) => {
    if (!canRecord()) {
      process.stderr.write("There is no strace that may trace here: the power cuts are skipped.\n");
      return;
    }
    const { states, broken } = await cutPower(of, wanted, seed);
    expect(states).toBeGreaterThanOrEqual(wanted);
    expect(broken.slice(0, 5), replay).toEqual([]);
  });
});

import { expect, test } from "vitest";
import { replay, seed } from "../seed.ts";
import { sized } from "../sizes.ts";
import { runCampaign } from "./campaign.ts";

const COMMANDS = sized(20_000, 5_000);

test(`${COMMANDS} random commands cause only allowed writes, at most one write for each id, and exactly one emitted and audited result each`, async () => {
  const report = await runCampaign({ seed, commands: COMMANDS });
  expect(report.violations.slice(0, 20), replay).toEqual([]);
  expect(report.writes).toBeGreaterThan(COMMANDS / 40);
  expect(report.restarts).toBeGreaterThan(3);
  for (const reason of ["duplicate", "retained", "expired", "out-of-range", "invalid", "flood", "superseded"])
    expect(report.reasons[reason], `${reason}, ${replay}`).toBeGreaterThan(COMMANDS / 4_000);
});

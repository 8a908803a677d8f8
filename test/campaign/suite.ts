import { describe, expect, test } from "vitest";
import { sized } from "../sizes.ts";
import { playAll, type Report } from "./seed-processes.ts";

export interface CampaignSuite {
  readonly campaign: URL;
  readonly script: string;
  /** Seeds that failed once: CI plays all, other machines the last three. */
  readonly failedSeeds: readonly number[];
  readonly seeds: number;
  readonly seedsInCi: number;
  readonly leastRequests: number;
}

const KEPT_HERE = 3;

/** The first seeds of a campaign and all that are kept, as tests. `PLENUM_SEED=17` replays one. */
export function describeCampaign(name: string, suite: CampaignSuite): void {
  const { campaign, script, leastRequests } = suite;
  const replayedSeeds = sized(suite.failedSeeds, suite.failedSeeds.slice(-KEPT_HERE));
  const oneSeed = process.env.PLENUM_SEED;
  const usualCount = sized(suite.seedsInCi, suite.seeds);
  const seeds = Number(process.env.PLENUM_SCHEDULES ?? usualCount);
  const seedNumbers =
    oneSeed === undefined
      ? [...new Set([...Array.from({ length: seeds }, (_, n) => n + 1), ...replayedSeeds])]
      : [Number(oneSeed)];
  const reportBySeed = new Map<number, Report>();
  let played: Promise<void> | undefined;

  async function playSeed(seed: number): Promise<Report> {
    played ??= playAll(
      campaign,
      seedNumbers.map((each, index) => ({ seed: each, twice: index === 0 })),
      (report) => void reportBySeed.set(report.seed, report),
    );
    await played;
    const seedReport = reportBySeed.get(seed);
    if (seedReport === undefined) throw new Error(`Seed ${seed} was not played.`);
    return seedReport;
  }

  describe(name, () => {
    test("gives the same result digest when the first seed runs twice", async () => {
      const firstReport = await playSeed(seedNumbers[0] ?? 1);
      expect(firstReport.same).toBe(true);
      expect(firstReport.requests).toBeGreaterThan(leastRequests);
    });

    test.each(seedNumbers)("violates no checked rule with seed %i", async (seed) => {
      const { problems, story } = await playSeed(seed);
      expect(
        problems.map(({ rule, text }) => `${rule}: ${text}`),
        `Replay with PLENUM_SEED=${seed} npm run ${script}\n${story.join("\n")}`,
      ).toEqual([]);
    });
  });
}

import { describe, expect, test } from "vitest";
import { sized } from "../sizes.ts";
import { playAll, type Report } from "./seed-processes.ts";

export interface CampaignSuite {
  readonly campaign: URL;
  readonly script: string;
  /** Seeds that failed once: CI plays all, other machines the last three. */
  readonly kept: readonly number[];
  readonly seeds: number;
  readonly seedsInCi: number;
  readonly leastRequests: number;
}

const KEPT_HERE = 3;

/** The first seeds of a campaign and all that are kept, as tests. `PLENUM_SEED=17` replays one. */
export function describeCampaign(name: string, suite: CampaignSuite): void {
  const { campaign, script, leastRequests } = suite;
  const kept = sized(suite.kept, suite.kept.slice(-KEPT_HERE));
  const only = process.env.PLENUM_SEED;
  const usual = sized(suite.seedsInCi, suite.seeds);
  const seeds = Number(process.env.PLENUM_SCHEDULES ?? usual);
  const wanted =
    only === undefined ? [...new Set([...Array.from({ length: seeds }, (_, n) => n + 1), ...kept])] : [Number(only)];
  const reports = new Map<number, Report>();
  let played: Promise<void> | undefined;

  async function reportOf(seed: number): Promise<Report> {
    played ??= playAll(
      campaign,
      wanted.map((each, place) => ({ seed: each, twice: place === 0 })),
      (report) => void reports.set(report.seed, report),
    );
    await played;
    const report = reports.get(seed);
    if (report === undefined) throw new Error(`Seed ${seed} was not played.`);
    return report;
  }

  describe(name, () => {
    test("gives the same digest when a seed runs twice", { timeout: 900_000 }, async () => {
      const first = await reportOf(wanted[0] ?? 1);
      expect(first.same).toBe(true);
      expect(first.requests).toBeGreaterThan(leastRequests);
    });

    test.each(wanted)("breaks no rule with seed %i", { timeout: 900_000 }, async (seed) => {
      const { problems, story } = await reportOf(seed);
      expect(
        problems.map(({ rule, text }) => `${rule}: ${text}`),
        `Replay with PLENUM_SEED=${seed} npm run ${script}\n${story.join("\n")}`,
      ).toEqual([]);
    });
  });
}

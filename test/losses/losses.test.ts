import { describe, expect, test } from "vitest";
import kept from "./kept-seeds.json" with { type: "json" };
import { playAll, type Report, replayOf } from "./players.ts";

/**
 * Random losses against the whole worker: scope, abilities, permissions, views, tokens, gateways, tags and endpoints
 * are taken away and given back, during live reads and backfills, across restarts. Whatever happens, every point that
 * could be had is had once, every other span is named, nobody else is late, nobody healthy is set aside, the service
 * is not flooded and no age is flattered (test/losses/README.md).
 *
 * 50 in CI and 10 elsewhere, and every seed that is kept. `PLENUM_SEED=17` replays one; `npm run history:long` runs a
 * thousand.
 */
const only = process.env.PLENUM_SEED;
const seeds = Number(process.env.PLENUM_SCHEDULES ?? (process.env.CI === "true" ? 50 : 10));
const wanted =
  only === undefined
    ? [...new Set([...Array.from({ length: seeds }, (_, n) => n + 1), ...kept])]
    : [Number(only)];

const reports = new Map<number, Report>();
let played: Promise<void> | undefined;

/** All of them on every core, begun with the first test and asked for one by one. */
async function reportOf(seed: number): Promise<Report> {
  played ??= playAll(
    wanted.map((each, place) => ({ seed: each, twice: place === 0 })),
    (report) => void reports.set(report.seed, report),
  );
  await played;
  const report = reports.get(seed);
  if (report === undefined) throw new Error(`Seed ${seed} was not played.`);
  return report;
}

describe("random losses", () => {
  test("a seed comes out the same twice, bit by bit", { timeout: 600_000 }, async () => {
    const first = await reportOf(wanted[0] ?? 1);
    expect(first.same).toBe(true);
    expect(first.requests).toBeGreaterThan(200);
  });

  test.each(wanted)("seed %i", { timeout: 600_000 }, async (seed) => {
    const { problems, story } = await reportOf(seed);
    expect(
      problems.map(({ rule, text }) => `${rule}: ${text}`),
      `Replay with ${replayOf(seed)}\n${story.join("\n")}`,
    ).toEqual([]);
  });
});

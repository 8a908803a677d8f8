import { readFileSync, writeFileSync } from "node:fs";
import { playAll, type Report } from "./seed-processes.ts";

export interface CampaignOptions {
  readonly campaign: URL;
  readonly script: string;
  readonly failedSeeds: URL;
  /** Maximum ratio of two counts over all seeds. */
  readonly ratio?: { readonly of: string; readonly to: string; readonly most: number };
}

/**
 *     node test/<campaign>/long.ts [seeds] [first seed]
 *     PLENUM_SEED=17 node test/<campaign>/long.ts
 *
 * Plays every hundredth seed twice and compares the digests. Prints a replay command for each failed seed and stores the
 * seed. The second form plays one seed, prints its story and stores nothing. Exits with 1 when a seed fails.
 */
export async function runCampaign(options: CampaignOptions): Promise<void> {
  const onlySeed = process.env.PLENUM_SEED;
  if (onlySeed === undefined) await playMany(options, Number(process.argv[2] ?? 1_000), Number(process.argv[3] ?? 1));
  else await replaySeed(options, Number(onlySeed));
}

const REPEAT_EVERY = 100;
const ENOUGH_SEEDS = 100;
/** Stored seeds run in every test run, so store only the first. */
const KEPT_MAX = 20;

async function replaySeed({ campaign }: CampaignOptions, seed: number): Promise<void> {
  await playAll(campaign, [{ seed, twice: false }], (report) => {
    for (const line of report.story) console.log(line);
    for (const { rule, text } of report.problems) console.log(`! ${rule}: ${text}`);
    console.log(`seed ${seed}: ${report.problems.length} problems, ${report.digest}, ${seconds(report.durationMs)}`);
    if (report.problems.length > 0) process.exitCode = 1;
  });
}

async function playMany(options: CampaignOptions, seeds: number, first: number): Promise<void> {
  const { campaign, script, failedSeeds, ratio } = options;
  const startedMs = performance.now();
  const seedsByRule = new Map<string, number[]>();
  const counts = new Map<string, number>();
  const sum = { done: 0, failed: 0, unlike: 0, requests: 0, simulatedMs: 0, tookMs: 0, slowestMs: 0 };

  function addReport(report: Report): void {
    const { seed, problems, same } = report;
    sum.done += 1;
    sum.requests += report.requests;
    for (const [name, count] of Object.entries(report.counts ?? {})) counts.set(name, (counts.get(name) ?? 0) + count);
    sum.simulatedMs += report.simulatedMs;
    sum.tookMs += report.durationMs;
    sum.slowestMs = Math.max(sum.slowestMs, report.durationMs);
    if (!same) sum.unlike += 1;
    if (!same) console.log(`seed ${seed}: two runs differ`);
    for (const rule of new Set(problems.map((problem) => problem.rule)))
      seedsByRule.set(rule, [...(seedsByRule.get(rule) ?? []), seed]);
    for (const { rule, text } of problems) console.log(`seed ${seed}: ${rule}: ${text}`);
    if (problems.length > 0) {
      sum.failed += 1;
      storeSeed(failedSeeds, seed);
      console.log(`  replay: PLENUM_SEED=${seed} npm run ${script}`);
    }
    if (sum.done % 50 === 0) console.log(`${sum.done} of ${seeds} seeds, ${sum.failed} failed`);
  }

  const seedNumbers = Array.from({ length: seeds }, (_, n) => first + n);
  await playAll(
    campaign,
    seedNumbers.map((seed) => ({ seed, twice: seed % REPEAT_EVERY === 0 })),
    addReport,
  );
  for (const [rule, failing] of [...seedsByRule].toSorted((a, b) => b[1].length - a[1].length))
    console.log(`${rule}: ${failing.length} seeds, as ${failing.slice(0, 8).join(", ")}`);
  for (const [name, count] of counts) console.log(`${name}: occurred ${count} times`);
  const missingFaults = sum.done < ENOUGH_SEEDS ? [] : [...counts].filter(([, count]) => count === 0);
  for (const [name] of missingFaults) console.log(`${name} never occurred, so the campaign did not judge it`);
  const quotient = ratio === undefined ? 0 : (counts.get(ratio.of) ?? 0) / (counts.get(ratio.to) ?? 1);
  const isTooMuch = sum.done >= ENOUGH_SEEDS && ratio !== undefined && quotient > ratio.most;
  if (ratio !== undefined) console.log(`${ratio.of} per ${ratio.to}: ${quotient.toFixed(3)}, at most ${ratio.most}`);
  console.log(
    [
      `${sum.done} seeds from ${first}: ${sum.failed} failed, ${sum.unlike} of the repeated differ`,
      `${Math.round(sum.simulatedMs / 3_600_000)} hours simulated in ${seconds(performance.now() - startedMs)}`,
      `a seed takes ${seconds(sum.tookMs / sum.done)} of a processor, ${seconds(sum.slowestMs)} at most`,
      `${sum.requests} requests`,
    ].join("\n"),
  );
  process.exitCode = sum.failed > 0 || sum.unlike > 0 || missingFaults.length > 0 || isTooMuch ? 1 : 0;
}

function seconds(ms: number): string {
  return `${(ms / 1_000).toFixed(1)} s`;
}

function storeSeed(file: URL, seed: number): void {
  const storedSeeds = JSON.parse(readFileSync(file, "utf8")) as number[];
  if (storedSeeds.includes(seed) || storedSeeds.length >= KEPT_MAX) return;
  writeFileSync(file, `${JSON.stringify([...storedSeeds, seed].sort((a, b) => a - b))}\n`);
}

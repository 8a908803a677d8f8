import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { seededRandom } from "../commands/seeded-random.ts";
import { EQUIVALENTS } from "./equivalents.ts";
import { findMutants, type Mutant } from "./mutants.ts";
import { type Player, startPlayer } from "./play.ts";
import { listTargetFiles, type MutationTarget, ROOT, TARGETS } from "./targets.ts";

/**
 * Mutation tests (`npm run mutate`): changes the source and checks that a test fails.
 *
 *     node test/mutate/main.ts [target …] [--sample 40] [--minutes 60]
 *
 * Tries a random sample of the mutants of each target in two processes; PLENUM_SEED selects another sample. Prints each
 * survivor. Exits with code 1 when the tests detect less than 90 % of a target's mutants or time runs out.
 */
const GOAL = 0.9;
const LANES = 2;

type TrialVerdict = "killed" | "timeout" | "survived" | "not tried";

interface Job {
  readonly target: MutationTarget;
  readonly mutant: Mutant;
  verdict: TrialVerdict;
}

const { values, positionals } = parseArgs({
  options: { sample: { type: "string", default: "40" }, minutes: { type: "string", default: "60" } },
  allowPositionals: true,
});
const unknownTarget = positionals.find((name) => !TARGETS.some((target) => target.name === name));
if (unknownTarget !== undefined)
  throw new Error(`There is no target ${unknownTarget}. Targets: ${TARGETS.map(({ name }) => name).join(", ")}.`);
const chosenTargets = TARGETS.filter(({ name }) => positionals.length === 0 || positionals.includes(name));
const seed = Number(process.env.PLENUM_SEED ?? 1);
const untilMs = performance.now() + Number(values.minutes) * 60_000;
const readSource = (file: string) => readFileSync(join(ROOT, file), "utf8");

const allTrials = chosenTargets.flatMap((target) =>
  drawSample(target).map((mutant): Job => ({ target, mutant, verdict: "not tried" })),
);
const trials = allTrials.filter(({ mutant }) => !isEquivalent(mutant));
const queue = [...trials];
/** Duration in milliseconds of the tests of a target with the unchanged code. */
const usualMsByTarget = new Map<MutationTarget, Promise<number>>();

for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => process.exit(1));

// Killed processes leave temporary files, so all of them use one folder that is removed at exit.
const temporary = mkdtempSync(join(tmpdir(), "plenum-mutate-"));
process.once("exit", () => rmSync(temporary, { recursive: true, force: true, maxRetries: 5 }));
await Promise.all(Array.from({ length: LANES }, () => playAll()));
process.exitCode = printReport() ? 0 : 1;

function drawSample(target: MutationTarget): readonly Mutant[] {
  const all = listTargetFiles(target).flatMap((file) => findMutants(file, readSource(file)));
  const random = seededRandom(seed);
  const drawnMutants = all.map((mutant) => ({ mutant, at: random() })).toSorted((a, b) => a.at - b.at);
  return drawnMutants.slice(0, Number(values.sample)).map(({ mutant }) => mutant);
}

function isEquivalent({ file, change }: Mutant): boolean {
  return EQUIVALENTS[file]?.some(([part]) => change.includes(part)) ?? false;
}

async function playAll(): Promise<void> {
  let player: Player | null = null;
  try {
    for (let job = queue.shift(); job !== undefined && performance.now() < untilMs; job = queue.shift()) {
      if (player === null || player.target !== job.target || !player.isAlive()) {
        player?.end();
        player = startPlayer(job.target, { TMPDIR: temporary });
      }
      const usualMs = await usualMsOf(job.target, player);
      const limitMs = Math.min(4 * usualMs + 15_000, untilMs - performance.now());
      const { file, line, start, end, replacement, change } = job.mutant;
      const sourceText = readSource(file);
      const mutated = sourceText.slice(0, start) + replacement + sourceText.slice(end);
      const played = await player.play({ file, text: mutated }, limitMs);
      job.verdict = played === null ? "timeout" : played.failed === null ? "survived" : "killed";
      if (job.verdict === "survived") process.stdout.write(`\n${file}:${line}\n  ${change}\n`);
    }
  } finally {
    player?.end();
  }
}

function usualMsOf(target: MutationTarget, player: Player): Promise<number> {
  const knownMs = usualMsByTarget.get(target) ?? measureUsualMs(target, player);
  usualMsByTarget.set(target, knownMs);
  return knownMs;
}

async function measureUsualMs(target: MutationTarget, player: Player): Promise<number> {
  const played = await player.play({ file: null, text: "" }, Math.max(0, untilMs - performance.now()));
  if (played === null) throw new Error(`The tests of ${target.name} did not end in time.`);
  if (played.failed !== null) throw new Error(`This test fails without a mutant: ${played.failed}`);
  return played.tookMs;
}

/** Prints the table and returns true when all targets reach the goal. */
function printReport(): boolean {
  const rows = chosenTargets.map((target) => {
    const targetTrials = trials.filter((job) => job.target === target);
    const count = (verdict: TrialVerdict) => targetTrials.filter((job) => job.verdict === verdict).length;
    const detected = count("killed") + count("timeout");
    return {
      target: target.name,
      tried: targetTrials.length - count("not tried"),
      killed: count("killed"),
      timeout: count("timeout"),
      survived: count("survived"),
      "not tried": count("not tried"),
      equivalent: allTrials.filter((job) => job.target === target).length - targetTrials.length,
      "detected %": Math.round((1000 * detected) / Math.max(1, targetTrials.length)) / 10,
    };
  });
  console.table(rows);
  process.stdout.write(`seed ${seed}, ${values.sample} of each target; the goal is ${GOAL * 100} %\n`);
  return rows.every((row) => row["detected %"] >= GOAL * 100);
}

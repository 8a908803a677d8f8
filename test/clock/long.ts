import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { playClock } from "./campaign.ts";

/**
 * A thousand wall clocks that are set at random, on every core (`npm run clock:long`).
 *
 *     node test/clock/long.ts [seeds] [first seed]
 *     PLENUM_SEED=17 node test/clock/long.ts
 *
 * What fails is printed with its story; ends with exit code 1 then.
 */
const seeds = Number(process.argv[2] ?? 1_000);
const first = Number(process.argv[3] ?? 1);
const only = process.env.PLENUM_SEED;
const part = process.env.PLENUM_CLOCK_PART;

if (only !== undefined) await play([Number(only)]);
else if (part !== undefined) await play(ofPart(Number(part)));
else process.exitCode = await playOnAllCores();

function ofPart(mine: number): readonly number[] {
  const all = Array.from({ length: seeds }, (_, n) => first + n);
  return all.filter((_, n) => n % availableParallelism() === mine);
}

async function play(mine: readonly number[]): Promise<void> {
  let written = 0;
  let failed = 0;
  for (const seed of mine) {
    const report = await playClock(seed);
    written += report.written;
    if (report.problems.length === 0) continue;
    failed += 1;
    const lines = [...report.story, ...report.problems.map((problem) => `! ${problem}`)];
    console.log(`seed ${seed}:\n  ${lines.join("\n  ")}\n  replay: PLENUM_SEED=${seed} npm run clock:long`);
  }
  console.log(`${mine.length} seeds, ${failed} failed, ${written} commands written`);
  process.exitCode = failed > 0 ? 1 : 0;
}

async function playOnAllCores(): Promise<number> {
  const codes = Array.from({ length: availableParallelism() }, (_, mine) => {
    const child = fork(fileURLToPath(import.meta.url), [String(seeds), String(first)], {
      env: { ...process.env, PLENUM_CLOCK_PART: String(mine) },
    });
    return new Promise<number>((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
  });
  return Math.max(...(await Promise.all(codes)));
}

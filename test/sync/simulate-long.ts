import { fork } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { type SimulationResult, simulate } from "./alarm-simulation.ts";

/**
 * Ten thousand random schedules of the alarm feed, on every core (`npm run simulate:long`).
 *
 *     node test/sync/simulate-long.ts [schedules] [first seed]
 *
 * Each hundredth is run twice and has to come out the same, bit by bit. What fails is printed with the command that
 * replays it, and its seed is kept in kept-seeds.json, which every test run walks. Ends with exit code 1 then, or
 * when a second took more than a thousandth of what it simulated.
 */
const REPEAT_EVERY = 100;
const COMPRESSION = 1_000;
const KEPT = new URL("kept-seeds.json", import.meta.url);

interface Report extends SimulationResult {
  readonly seed: number;
  readonly same: boolean;
  readonly tookMs: number;
}

if (process.send === undefined) await conduct();
else {
  process.on("message", (seed: number) => {
    // A rejection ends this process, and with it the run.
    void play(seed).then((report) => process.send?.(report));
  });
  process.on("disconnect", () => process.exit());
}

async function play(seed: number): Promise<Report> {
  const startedMs = performance.now();
  const result = await simulate(seed);
  const tookMs = performance.now() - startedMs;
  const same = seed % REPEAT_EVERY !== 0 || (await simulate(seed)).digest === result.digest;
  return { seed, same, tookMs, ...result };
}

async function conduct(): Promise<void> {
  const schedules = Number(process.argv[2] ?? 10_000);
  const first = Number(process.argv[3] ?? 1);
  const sum = { done: 0, failed: 0, unlike: 0, events: 0, requests: 0, simulatedMs: 0, tookMs: 0, slowest: 0 };
  const startedMs = performance.now();
  let next = first;

  function take(report: Report): void {
    sum.done += 1;
    sum.events += report.events;
    sum.requests += report.requests;
    sum.simulatedMs += report.simulatedMs;
    sum.tookMs += report.tookMs;
    sum.slowest = Math.max(sum.slowest, report.tookMs / report.simulatedMs);
    if (!report.same) sum.unlike += 1;
    if (report.problems.length > 0) {
      sum.failed += 1;
      keep(report.seed);
      for (const problem of report.problems) console.log(problem);
    }
    if (!report.same) console.log(`seed ${report.seed}: two runs differ`);
    if (report.problems.length > 0 || !report.same) console.log(`  replay: ${replayOf(report.seed)}`);
    if (sum.done % 500 === 0) console.log(`${sum.done} of ${schedules} schedules, ${sum.failed} failed`);
  }

  await Promise.all(
    Array.from({ length: Math.min(availableParallelism(), schedules) }, async () => {
      const child = fork(fileURLToPath(import.meta.url));
      while (next < first + schedules) {
        const seed = next;
        next += 1;
        take(
          await new Promise<Report>((resolve, reject) => {
            child.once("message", (message) => resolve(message as Report));
            child.once("exit", (code) => reject(new Error(`seed ${seed}: the process ended with ${code}`)));
            child.send(seed);
          }),
        );
        child.removeAllListeners("exit");
      }
      child.disconnect();
    }),
  );

  const compression = sum.simulatedMs / sum.tookMs;
  console.log(
    [
      `${sum.done} schedules from seed ${first}: ${sum.failed} failed, ${sum.unlike} of the repeated differ`,
      `${Math.round(sum.simulatedMs / 3_600_000)} hours simulated in ${Math.round((performance.now() - startedMs) / 1000)} s`,
      `time compressed ${Math.round(compression)} : 1, the slowest schedule ${Math.round(1 / sum.slowest)} : 1`,
      `${sum.requests} requests, ${sum.events} events`,
    ].join("\n"),
  );
  process.exitCode = sum.failed > 0 || sum.unlike > 0 || compression < COMPRESSION ? 1 : 0;
}

function replayOf(seed: number): string {
  return `PLENUM_SEED=${seed} npx vitest run test/sync/alarm-simulation.test.ts`;
}

function keep(seed: number): void {
  const kept = JSON.parse(readFileSync(KEPT, "utf8")) as number[];
  if (kept.includes(seed)) return;
  writeFileSync(KEPT, `${JSON.stringify([...kept, seed].sort((a, b) => a - b))}\n`);
}

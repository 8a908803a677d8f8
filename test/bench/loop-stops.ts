import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";

/**
 * Loaded into a worker before its own code (`--import`): how long its event loop was stopped at most since the last
 * SIGUSR2. Once a second it is written into the file that `BENCH_STOPS` names, in milliseconds: of processor time that
 * the main thread used between two turns of a 5 ms timer, which does not depend on what else the machine does; and of
 * delay by the clock, in which waiting for the disk and for a busy machine are contained. With `BENCH_STOPS_LATER` it begins
 * with the first SIGUSR2, and costs nothing before.
 */
const EVERY_MS = 5;
const WRITE_EVERY_MS = 1_000;
const file = process.env.BENCH_STOPS ?? "";

function usedMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1_000;
}

const delay = monitorEventLoopDelay({ resolution: EVERY_MS });
let hasBegun = false;
let longestMs = 0;
let lastMs = 0;

function begin(): void {
  longestMs = 0;
  lastMs = usedMs();
  delay.reset();
  if (hasBegun) return;
  hasBegun = true;
  delay.enable();
  setInterval(() => {
    const nowMs = usedMs();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
  }, EVERY_MS).unref();
  setInterval(() => {
    writeFileSync(file, JSON.stringify({ processorMs: longestMs, clockMs: delay.max / 1e6 }));
  }, WRITE_EVERY_MS).unref();
}

process.on("SIGUSR2", begin);
if (process.env.BENCH_STOPS_LATER === undefined) begin();

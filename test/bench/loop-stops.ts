import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";

/** Writes the longest stops of the event loop since SIGUSR2 into `BENCH_STOPS`: by processor time and by the clock. */
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

process.on("SIGUSR2", () => {
  longestMs = 0;
  lastMs = usedMs();
  delay.reset();
  if (hasBegun) return;
  hasBegun = true;
  delay.enable();
  const measureTick = () => {
    const nowMs = usedMs();
    longestMs = Math.max(longestMs, nowMs - lastMs);
    lastMs = nowMs;
    // A timer would add what runs between two of its ticks. An unreferenced immediate runs once a turn and wakes nothing.
    setImmediate(measureTick).unref();
  };
  measureTick();
  setInterval(() => {
    writeFileSync(file, JSON.stringify({ processorMs: longestMs, clockMs: delay.max / 1e6 }));
  }, WRITE_EVERY_MS).unref();
});

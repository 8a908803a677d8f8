import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { monitorEventLoopDelay } from "node:perf_hooks";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import type { ClockSpeed } from "./fast-clock.ts";

export interface WorkerRun {
  readonly number: number;
  readonly startMs: number;
  endMs: number;
  how: "running" | "killed" | "stopped" | "failed";
  maxDelayMs: number;
  readonly started: Promise<void>;
  readonly ended: Promise<void>;
  kill(): void;
  stop(): Promise<void>;
}

const STOP_WITHIN_MS = 30_000;

export function startWorkerRun(options: {
  readonly number: number;
  readonly configuration: object;
  readonly clockSpeed: ClockSpeed;
  readonly now: () => number;
}): WorkerRun {
  const child: ChildProcess = spawn(
    process.execPath,
    [join(import.meta.dirname, "worker.ts"), JSON.stringify(options.configuration), JSON.stringify(options.clockSpeed)],
    { stdio: ["ignore", "pipe", "inherit"], env: { ...process.env, TOKEN: SERVICE_TOKEN } },
  );
  const delays = monitorEventLoopDelay();
  delays.enable();
  const ended = once(child, "exit").then(([code]) => {
    delays.disable();
    run.endMs = options.now();
    run.maxDelayMs = (delays.max / 1e6) * options.clockSpeed.factor;
    if (run.how === "running") run.how = "failed";
    if (run.how === "stopped" && code !== 0) run.how = "failed";
  });
  const printed = new Promise<void>((resolve) => child.stdout?.once("data", () => resolve()));
  const run: WorkerRun = {
    number: options.number,
    startMs: options.now(),
    endMs: Number.POSITIVE_INFINITY,
    how: "running",
    maxDelayMs: 0,
    started: Promise.race([printed, ended]),
    ended,
    kill() {
      if (run.how !== "running") return;
      run.how = "killed";
      child.kill("SIGKILL");
    },
    async stop() {
      if (run.how === "running") {
        run.how = "stopped";
        child.kill("SIGTERM");
      }
      const overdue = setTimeout(() => child.kill("SIGKILL"), STOP_WITHIN_MS);
      await ended;
      clearTimeout(overdue);
    },
  };
  return run;
}

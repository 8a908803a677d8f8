import { resolve } from "node:path";
import type { Command } from "commander";
import { createLog } from "../log.ts";
import { createRecentLines } from "../recent-lines.ts";
import { createWorker, type Worker } from "../worker.ts";
import type { CliContext } from "./context.ts";
import { takeStandardError } from "./log-stream.ts";

/** Containers and service managers give about ten seconds before they kill. */
const STOP_WITHIN_MS = 8_000;

/** What is wrong before the worker stands is a sentence for whoever starts it; from then on there is its log only. */
export function define(command: Command, context: CliContext): void {
  command
    .option("--arm-writing", "let a new state write, as the configuration allows; once is enough")
    .option("--setup", "where there is no configuration yet: make one on a page of this machine, then run")
    .addHelpText("after", "\nExample:\n  plenum run --config /etc/plenum/plenum.yaml")
    .action(async (options: { readonly armWriting?: boolean; readonly setup?: boolean }) => {
      if (options.setup === true && !(await setUp(context))) return;
      const config = context.config();
      const recent = createRecentLines();
      const log = createLog({ level: config.log.level, recent });
      takeStandardError(log);
      const worker = await createWorker({
        config,
        log,
        recentLog: recent.lines,
        armWriting: options.armWriting ?? false,
        configFile: { file: resolve(context.configFile()), load: context.config, isWatched: true },
      });
      if (process.stdin.isTTY !== true) reloadOnHangup(worker);
      await worker.start();
      // A sentence for a person at a terminal; everything else reads lines of JSON.
      const status = worker.statusUrl();
      if (process.stderr.isTTY) context.terminal().say(`Plenum is running; status page ${status}`);
      else log.info({ status }, "Plenum is running");
      await new Promise<void>((resolve) => {
        if (context.signal.aborted) resolve();
        context.signal.addEventListener("abort", () => resolve(), { once: true });
      });
      await worker.stop(STOP_WITHIN_MS);
    });
}

/** Loaded when asked for: a worker does not carry it. */
async function setUp(context: CliContext): Promise<boolean> {
  const { runSetup } = await import("./run-setup.ts");
  return runSetup(context);
}

/** SIGHUP asks a service to read its configuration again; where a terminal was hung up, it ends the worker as before. */
function reloadOnHangup(worker: Worker): void {
  process.removeAllListeners("SIGHUP");
  process.on("SIGHUP", () => void worker.reload?.("signal", false));
}

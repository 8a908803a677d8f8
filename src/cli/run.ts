import type { Command } from "commander";
import { createWorker } from "../worker.ts";
import type { CliContext } from "./context.ts";

/** Containers and service managers give about ten seconds before they kill. */
const STOP_WITHIN_MS = 8_000;

export function addRun(program: Command, context: CliContext): void {
  program
    .command("run")
    .description("run the worker until Ctrl-C or SIGTERM")
    .addHelpText("after", "\nExample:\n  plenum run --config /etc/plenum/plenum.yaml")
    .action(async () => {
      const terminal = context.terminal();
      const worker = await createWorker({ config: context.config() });
      await worker.start();
      terminal.say(`Plenum is running; status page ${worker.statusUrl()}`);
      await new Promise<void>((resolve) => {
        if (context.signal.aborted) resolve();
        context.signal.addEventListener("abort", () => resolve(), { once: true });
      });
      await worker.stop(STOP_WITHIN_MS);
    });
}

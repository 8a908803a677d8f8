import type { Command } from "commander";
import { Rejected, Retryable } from "../errors.ts";
import { askReady, askReport, type FoundWorker, findWorker } from "../operator/remote.ts";
import type { StatusReport } from "../status/report.ts";
import type { CliContext } from "./context.ts";
import { lookAtState } from "./look-at-state.ts";
import { rememberedStatus } from "./remembered-status.ts";
import { statusLines } from "./status-lines.ts";

export function define(command: Command, context: CliContext): void {
  command
    .option("--probe", "say nothing; exit 0 when a worker is alive and ready (for health checks)")
    .addHelpText(
      "after",
      "\nExits 75 when a worker is there and does not answer; `--probe` exits 1 when none is running.\n\nExample:\n  plenum status --json",
    )
    .action(async (options: { readonly probe?: boolean }) => {
      const found = await findWorker(context.config().state.folder, context.signal);
      if (options.probe === true) return probe(found, context.signal);
      const { report, silent } = await reportOf(found, context);
      context.terminal().object(report, statusLines(report, silent !== null));
      // What the state remembers is shown all the same; the exit code says that nobody vouches for it.
      if (silent !== null) throw silent;
    });
}

async function probe(found: FoundWorker, signal: AbortSignal): Promise<void> {
  if (found.kind === "none") throw new Rejected("No worker is running on this state folder.");
  if (found.kind === "silent") throw found.trouble;
  const reason = await askReady(found.door, signal);
  if (reason !== null) throw new Retryable(`The worker is not ready. ${reason}`);
}

/** The worker's own report; what the state remembers when there is no worker, or one that does not answer. */
async function reportOf(
  found: FoundWorker,
  context: CliContext,
): Promise<{ readonly report: StatusReport; readonly silent: Retryable | null }> {
  if (found.kind === "silent") return { report: await fromStore(context), silent: found.trouble };
  if (found.kind === "none") return { report: await fromStore(context), silent: null };
  try {
    return { report: await askReport(found.door, context.signal), silent: null };
  } catch (error) {
    if (!(error instanceof Retryable)) throw error;
    return { report: await fromStore(context), silent: error };
  }
}

async function fromStore(context: CliContext): Promise<StatusReport> {
  const config = context.config();
  return lookAtState(config.state.folder, (store) => rememberedStatus(store, config));
}

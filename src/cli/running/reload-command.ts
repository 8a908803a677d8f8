import type { Command } from "commander";
import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import { formatConfigChange, type ReloadReport } from "../../core/model/config-change-report.ts";
import { reloadWorkerConfig } from "../../ui/operator/control-socket-client.ts";
import type { CliContext } from "../shell/command-context.ts";
import { findWorkerOfConfig } from "../shell/find-worker.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";

export function defineCommand(command: Command, context: CliContext): void {
  command
    .option("--dry-run", "show what would change, and change nothing")
    .addHelpText(
      "after",
      "\nA running worker notices a change of its file by itself within a few seconds, and on SIGHUP at once.\n\nExample:\n  plenum reload --dry-run",
    )
    .action(async (options: { readonly dryRun?: boolean }) => {
      const config = context.config();
      const { folder } = config.state;
      const foundWorker = await findWorkerOfConfig({ config }, context.signal);
      if (foundWorker.kind === "silent") throw foundWorker.failure;
      if (foundWorker.kind === "none")
        throw new Rejected(`No worker is running on the state folder ${folder}.`, {
          hint: "If state.folder was just changed, that needs a restart; otherwise plenum run starts one.",
        });
      const reloadReport = await reloadWorkerConfig(foundWorker.socket, options.dryRun === true, context.signal);
      if (reloadReport.refused !== null) throw new ConfigError(reloadReport.refused.join("\n"));
      context.terminal().print(reloadReport, reloadReportLines(reloadReport));
    });
}

function reloadReportLines({ changes, pending, failures, isDryRun, file }: ReloadReport): readonly string[] {
  if (changes.length === 0 && pending.length === 0 && failures.length === 0)
    return [`${file} says what is in force; nothing changes.`];
  return omitMissingLines(
    changes.length > 0 && (isDryRun ? "Would change:" : "Changed:"),
    ...changes.map((change) => `  ${formatConfigChange(change)}`),
    pending.length > 0 && (isDryRun ? "Would wait for a restart:" : "Waits for a restart:"),
    ...pending.map((change) => `  ${formatConfigChange(change)}`),
    ...failures.map((failure) => `! Not in force, a restart does it: ${failure}`),
  );
}

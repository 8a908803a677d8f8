import type { Command } from "commander";
import { systemClock } from "../clock.ts";
import { verifyAudit } from "../commands/audit/audit.ts";
import { Rejected } from "../errors.ts";
import { openStore } from "../store/open.ts";
import type { CliContext } from "./context.ts";

export function addAudit(program: Command, context: CliContext): void {
  const audit = program
    .command("audit")
    .description("the log of every command and what became of it")
    .addHelpText("after", "\nExample:\n  plenum audit verify");
  audit
    .command("verify")
    .description("check that no record was changed, removed or moved")
    .action(async () => {
      const terminal = context.terminal();
      const store = await openStore({
        folder: context.config().state.folder,
        clock: systemClock,
        readOnly: true,
      });
      try {
        const verdict = await terminal.progress("Verifying the audit log", () => verifyAudit(store));
        terminal.object(verdict, [
          verdict.brokenAt === null
            ? `The chain of ${verdict.records} records is whole.`
            : `The chain breaks at record ${verdict.brokenAt}.`,
        ]);
        if (verdict.brokenAt !== null) throw new Rejected("The audit log was changed from outside.");
      } finally {
        await store.close();
      }
    });
}

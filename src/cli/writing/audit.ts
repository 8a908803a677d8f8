import type { Command } from "commander";
import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import type { AuditHead } from "../../core/model/command-facts.ts";
import { type AuditVerdict, verifyAudit } from "../../engine/commands/audit/audit.ts";
import { type CliContext, choose } from "../shell/context.ts";
import { refuseUnknownSources } from "../shell/known-things.ts";
import { lookAtState, type WhichState } from "../shell/look-at-state.ts";
import { showCommand } from "./audit-show.ts";

export function define(audit: Command, context: CliContext): void {
  audit.addHelpText("after", "\nExample:\n  plenum audit verify");
  audit
    .command("verify")
    .description("check that no record was changed, removed or moved; prints how far the log reaches")
    .option(
      "--expect <records:head>",
      "a head that was kept elsewhere: finds a log that was cut or written anew",
    )
    .addHelpText(
      "after",
      "\nThe head is told as event audit-head with each write and once an hour. In a fleet each source has a log of its own, and\n--json prints an object for each.\n\nExample:\n  plenum audit verify --expect 4711:9f86d0…",
    )
    .option("--source <name>", "in a fleet, whose sources have a log each: only this one's")
    .action(async (options: { readonly expect?: string; readonly source?: string }) => {
      const expected = options.expect === undefined ? null : headIn(options.expect);
      const config = context.config();
      refuseUnknownSources(config, options.source === undefined ? [] : [options.source]);
      if (config.state.postgres === undefined) return verify(context, { config }, expected);
      if (expected !== null)
        return verify(context, { config, source: choose(config, options.source)[0] }, expected);
      const broken: unknown[] = [];
      for (const source of options.source === undefined ? Object.keys(config.sources) : [options.source])
        await verify(context, { config, source }, null).catch((error: unknown) => broken.push(error));
      if (broken.length > 0) throw broken[0];
    });
  showCommand(audit.command("show"), context);
}

async function verify(context: CliContext, which: WhichState, expected: AuditHead | null): Promise<void> {
  const terminal = context.terminal();
  const whose = which.source === undefined ? "" : `${which.source}: `;
  await lookAtState(which, async (store) => {
    const verdict = await terminal.progress("Verifying the audit log", () => verifyAudit(store, expected));
    terminal.object(which.source === undefined ? verdict : { source: which.source, ...verdict }, [
      verdict.brokenAt === null
        ? `${whose}The chain of ${verdict.records} records is whole. Its head: ${verdict.records}:${verdict.head}`
        : `${whose}The chain breaks at record ${verdict.brokenAt}.`,
    ]);
    complain(verdict, expected);
  });
}

function headIn(text: string): AuditHead {
  const [, records, head] = /^(\d{1,12}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (records === undefined || head === undefined)
    throw new ConfigError(
      "--expect wants a number of records and the hash of the last, as audit verify prints them.",
    );
  return { records: Number(records), head };
}

function complain({ brokenAt, records, hasExpected }: AuditVerdict, expected: AuditHead | null): void {
  if (brokenAt !== null) throw new Rejected("The audit log was changed from outside.");
  if (expected === null || hasExpected === true) return;
  throw new Rejected(
    records < expected.records
      ? `The audit log was cut: ${expected.records} records were there, ${records} are left.`
      : `The audit log was written anew: record ${expected.records} is not the one that was there.`,
  );
}

import type { Command } from "commander";
import type { AuditHead } from "../command-facts.ts";
import { AUDIT_LOG, type AuditRecord, type AuditVerdict, verifyAudit } from "../commands/audit/audit.ts";
import { ConfigError, Rejected } from "../errors.ts";
import type { LogRecord, Store } from "../store/store.ts";
import type { CliContext } from "./context.ts";
import { lookAtState } from "./look-at-state.ts";

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
      "\nThe head is told as event audit-head with each write and once an hour.\n\nExample:\n  plenum audit verify --expect 4711:9f86d0…",
    )
    .action(async (options: { readonly expect?: string }) => {
      const expected = options.expect === undefined ? null : headIn(options.expect);
      const terminal = context.terminal();
      await lookAtState(context.config().state.folder, async (store) => {
        const verdict = await terminal.progress("Verifying the audit log", () =>
          verifyAudit(store, expected),
        );
        terminal.object(verdict, [
          verdict.brokenAt === null
            ? `The chain of ${verdict.records} records is whole. Its head: ${verdict.records}:${verdict.head}`
            : `The chain breaks at record ${verdict.brokenAt}.`,
        ]);
        complain(verdict, expected);
      });
    });
  audit
    .command("show")
    .description("the records, the latest last")
    .option("--last <count>", "how many", "20")
    .option("--command <id>", "only those of one command")
    .addHelpText("after", "\nExample:\n  plenum audit show --command set-7")
    .action(async (options: { readonly last: string; readonly command?: string }) => {
      const count = Number(options.last);
      if (!Number.isInteger(count) || count < 1)
        throw new ConfigError("--last is a whole number of records, from 1 on.");
      await lookAtState(context.config().state.folder, async (store) => {
        const found = await latest(store, count, options.command ?? null);
        const rows = found.map(({ sequence, body }) => ({ sequence, ...body }));
        context.terminal().object(
          rows,
          rows.map(({ sequence, at, step, commandId, detail }) =>
            [sequence, at, step, commandId, JSON.stringify(detail)].filter((text) => text !== "").join("  "),
          ),
        );
      });
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

const PAGE = 1_000;

/** The last so many records, the latest last; of one command, should it be named. */
async function latest(
  store: Store,
  count: number,
  commandId: string | null,
): Promise<readonly LogRecord<AuditRecord>[]> {
  const found: LogRecord<AuditRecord>[] = [];
  // One command's may stand anywhere; of all, sequences rise by one, so that the last ones are known without a look.
  const end = (await store.lastRecord(AUDIT_LOG))?.sequence ?? 0;
  for (let after = commandId === null ? Math.max(0, end - count) : 0; ; ) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, after, PAGE);
    const last = page.at(-1);
    if (last === undefined) return found;
    after = last.sequence;
    found.push(...page.filter(({ body }) => commandId === null || body.commandId === commandId));
    found.splice(0, found.length - count);
  }
}

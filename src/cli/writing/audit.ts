import type { Command } from "commander";
import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import type { AuditHead } from "../../core/model/command-facts.ts";
import { globMatches } from "../../core/values/glob.ts";
import { AUDIT_LOG, type AuditRecord, type AuditVerdict, verifyAudit } from "../../engine/commands/audit/audit.ts";
import type { LogRecord, Store } from "../../engine/store/store.ts";
import { type CliContext, chooseSource } from "../shell/context.ts";
import { refuseUnknownSources } from "../shell/known-ids.ts";
import { addLogOptions, collectWords } from "../shell/options.ts";
import { readState, type StateSelector } from "../shell/state-access.ts";

export function define(audit: Command, context: CliContext): void {
  audit.addHelpText("after", "\nExample:\n  plenum audit verify");
  audit
    .command("verify")
    .description("check that no record was changed, removed or moved; prints how far the log reaches")
    .option("--expect <records:head>", "a head that you stored elsewhere: detects a log that was cut or rewritten")
    .addHelpText(
      "after",
      "\nThe head is emitted as event audit-head with each write and once an hour. In a fleet each source has a log of its own, and\n--json prints an object for each.\n\nExample:\n  plenum audit verify --expect 4711:9f86d0…",
    )
    .option("--source <name>", "in a fleet, whose sources have a log each: only this one's")
    .action(async (options: { readonly expect?: string; readonly source?: string }) => {
      const expected = options.expect === undefined ? null : parseHead(options.expect);
      const config = context.config();
      refuseUnknownSources(config, options.source === undefined ? [] : [options.source]);
      if (config.state.postgres === undefined) return verifyLog(context, { config }, expected);
      if (expected !== null)
        return verifyLog(context, { config, source: chooseSource(config, options.source)[0] }, expected);
      const broken: unknown[] = [];
      for (const source of options.source === undefined ? Object.keys(config.sources) : [options.source])
        await verifyLog(context, { config, source }, null).catch((error: unknown) => broken.push(error));
      if (broken.length > 0) throw broken[0];
    });
  defineShow(audit.command("show"), context);
}

async function verifyLog(context: CliContext, which: StateSelector, expected: AuditHead | null): Promise<void> {
  const terminal = context.terminal();
  const whose = which.source === undefined ? "" : `${which.source}: `;
  await readState(which, async (store) => {
    const verdict = await terminal.progress("Verifying the audit log", () => verifyAudit(store, expected));
    terminal.object(which.source === undefined ? verdict : { source: which.source, ...verdict }, [
      verdict.brokenAt === null
        ? `${whose}The chain of ${verdict.records} records is whole. Its head: ${verdict.records}:${verdict.head}`
        : `${whose}The chain breaks at record ${verdict.brokenAt}.`,
    ]);
    refuseChangedLog(verdict, expected);
  });
}

function parseHead(text: string): AuditHead {
  const [, records, head] = /^(\d{1,12}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (records === undefined || head === undefined)
    throw new ConfigError("--expect wants a number of records and the hash of the last, as audit verify prints them.");
  return { records: Number(records), head };
}

function refuseChangedLog({ brokenAt, records, hasExpected }: AuditVerdict, expected: AuditHead | null): void {
  if (brokenAt !== null) throw new Rejected("The audit log was changed from outside.");
  if (expected === null || hasExpected === true) return;
  throw new Rejected(
    records < expected.records
      ? `The audit log was cut: ${expected.records} records were there, ${records} are left.`
      : `The audit log was rewritten: record ${expected.records} is not the one that was there.`,
  );
}

interface ShowOptions {
  readonly last: number;
  readonly since?: string;
  readonly command?: readonly string[];
  readonly tag?: readonly string[];
  readonly source?: readonly string[];
  readonly kind?: readonly string[];
}

function defineShow(show: Command, context: CliContext): void {
  show
    .description("the records, the latest last, with filters")
    .option(
      "--kind <pattern>",
      "only such steps, such as accepted or restore-*; may be given several times",
      collectWords,
    )
    .option("--command <id>", "only those of this command", collectWords)
    .option("--source <name>", "only those about a tag of this source", collectWords)
    .option("--tag <id>", "only those about this tag", collectWords);
  addLogOptions(show)
    .addHelpText(
      "after",
      "\nExamples:\n  plenum audit show --command set-7\n  plenum audit show --since 7d --tag 10001 --kind '*rejected*'",
    )
    .action(async (options: ShowOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      refuseUnknownSources(config, options.source ?? []);
      const only = config.state.postgres === undefined ? undefined : chooseSource(config, options.source?.[0])[0];
      const found = await readState({ config, source: only }, (store) => findRecords(store, options));
      const rows = found.map(({ sequence, body }) => ({ sequence, ...body }));
      if (rows.length === 0 && !terminal.json) return terminal.say("No record matches.");
      const lineOf = ({ sequence, at, step, commandId, detail }: (typeof rows)[number]) =>
        [sequence, at, step, commandId, JSON.stringify(detail)].filter((text) => text !== "").join("  ");
      terminal.object(rows, rows.map(lineOf));
    });
}

const PAGE_RECORDS = 1_000;

/** Finds records, oldest first. Throws ConfigError for a command, tag or step without any record. */
async function findRecords(store: Store, options: ShowOptions): Promise<readonly LogRecord<AuditRecord>[]> {
  const { since, command, tag, source, kind } = options;
  const isFiltered = [since, command, tag, source, kind].some((part) => part !== undefined);
  const filter = createFilter(options);
  const found: LogRecord<AuditRecord>[] = [];
  // Sequences are consecutive, so the last records are found without reading the others.
  const end = (await store.lastRecord(AUDIT_LOG))?.sequence ?? 0;
  for (let after = isFiltered ? 0 : Math.max(0, end - options.last); ; ) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, after, PAGE_RECORDS);
    const last = page.at(-1);
    if (last === undefined) break;
    after = last.sequence;
    found.push(...page.filter(({ body }) => filter.matches(body)));
    if (since === undefined) found.splice(0, found.length - options.last);
  }
  filter.refuseUnknown();
  return found;
}

/** Creates a filter that must see the log from its beginning: only the first record of a command names the tag. */
function createFilter({ since, command = [], tag = [], source = [], kind = [] }: ShowOptions) {
  const subjects = new Map<string, AuditSubject>();
  const tags = new Set<string>();
  const steps = new Set<string>();
  const commands = new Set<string>();
  const sinceMs = since === undefined ? Number.NEGATIVE_INFINITY : Date.parse(since);
  const includes = (wanted: readonly string[], value: string | undefined) =>
    wanted.length === 0 || (value !== undefined && wanted.includes(value));
  const notFoundError = (what: string, hint?: string) =>
    new ConfigError(`The audit log has no record ${what}.`, hint === undefined ? {} : { hint });

  return {
    matches({ at, commandId, step, detail }: AuditRecord): boolean {
      const own = toSubject(detail);
      if (step === "accepted") subjects.set(commandId, own);
      const { tagId, source: sourceName } = { ...subjects.get(commandId), ...own };
      commands.add(commandId);
      steps.add(step);
      if (tagId !== undefined) tags.add(tagId);
      return (
        Date.parse(at) >= sinceMs &&
        includes(command, commandId) &&
        includes(tag, tagId) &&
        includes(source, sourceName) &&
        (kind.length === 0 || kind.some((pattern) => globMatches(pattern, step)))
      );
    },
    refuseUnknown(): void {
      const unknown = command.find((id) => !commands.has(id));
      if (unknown !== undefined) throw notFoundError(`of a command ${unknown}`);
      const tagId = tag.find((id) => !tags.has(id));
      if (tagId !== undefined) throw notFoundError(`about a tag ${tagId}`);
      const pattern = kind.find((each) => ![...steps].some((step) => globMatches(each, step)));
      if (pattern === undefined) return;
      const all = [...steps].toSorted().join(", ");
      throw notFoundError(`of a step ${pattern}`, steps.size === 0 ? "It is empty." : `Its steps are ${all}.`);
    },
  };
}

interface AuditSubject {
  readonly tagId?: string;
  readonly source?: string;
}

function toSubject({ tagId, source }: AuditRecord["detail"]): AuditSubject {
  return { ...(typeof tagId === "string" && { tagId }), ...(typeof source === "string" && { source }) };
}

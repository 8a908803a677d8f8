import type { Command } from "commander";
import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import type { AuditHead } from "../../core/model/command-event-data.ts";
import { globMatches } from "../../core/values/glob.ts";
import { AUDIT_LOG, type AuditRecord, type AuditVerdict, verifyAudit } from "../../engine/commands/audit/audit-log.ts";
import type { LogRecord, Store } from "../../engine/store/store.ts";
import { type CliContext, chooseSource } from "../shell/command-context.ts";
import { addLogRangeOptions, collectWords } from "../shell/common-command-options.ts";
import { readState, type StateSelector } from "../shell/open-worker-state.ts";
import { refuseUnknownSources } from "../shell/refuse-unknown-ids.ts";

export function defineCommand(auditCommand: Command, context: CliContext): void {
  auditCommand.addHelpText("after", "\nExample:\n  plenum audit verify");
  auditCommand
    .command("verify")
    .description("check that no record was changed, removed or moved; prints how far the log reaches")
    .option("--expect <records:head>", "a head that you stored elsewhere: detects a log that was cut or rewritten")
    .addHelpText(
      "after",
      "\nThe head is emitted as event audit-head with each write and once an hour. In a fleet each source has a log of its own, and\n--json prints an object for each.\n\nExample:\n  plenum audit verify --expect 4711:9f86d0…",
    )
    .option("--source <name>", "in a fleet, whose sources have a log each: only this one's")
    .action(async (options: { readonly expect?: string; readonly source?: string }) => {
      const expectedHead = options.expect === undefined ? null : parseAuditHead(options.expect);
      const config = context.config();
      refuseUnknownSources(config, options.source === undefined ? [] : [options.source]);
      if (config.state.postgres === undefined) return verifyAuditLog(context, { config }, expectedHead);
      if (expectedHead !== null)
        return verifyAuditLog(context, { config, source: chooseSource(config, options.source)[0] }, expectedHead);
      const auditLogErrors: unknown[] = [];
      for (const source of options.source === undefined ? Object.keys(config.sources) : [options.source])
        await verifyAuditLog(context, { config, source }, null).catch((error: unknown) => auditLogErrors.push(error));
      if (auditLogErrors.length > 0) throw auditLogErrors[0];
    });
  defineAuditShow(auditCommand.command("show"), context);
}

async function verifyAuditLog(
  context: CliContext,
  selector: StateSelector,
  expectedHead: AuditHead | null,
): Promise<void> {
  const terminal = context.terminal();
  const sourcePrefix = selector.source === undefined ? "" : `${selector.source}: `;
  await readState(selector, async (store) => {
    const auditVerdict = await terminal.progress("Verifying the audit log", () => verifyAudit(store, expectedHead));
    terminal.print(selector.source === undefined ? auditVerdict : { source: selector.source, ...auditVerdict }, [
      auditVerdict.brokenAt === null
        ? `${sourcePrefix}The chain of ${auditVerdict.records} records is whole. Its head: ${auditVerdict.records}:${auditVerdict.head}`
        : `${sourcePrefix}The chain breaks at record ${auditVerdict.brokenAt}.`,
    ]);
    refuseChangedAuditLog(auditVerdict, expectedHead);
  });
}

function parseAuditHead(text: string): AuditHead {
  const [, records, head] = /^(\d{1,12}):([0-9a-f]{64})$/.exec(text) ?? [];
  if (records === undefined || head === undefined)
    throw new ConfigError("--expect wants a number of records and the hash of the last, as audit verify prints them.");
  return { records: Number(records), head };
}

function refuseChangedAuditLog({ brokenAt, records, hasExpected }: AuditVerdict, expectedHead: AuditHead | null): void {
  if (brokenAt !== null) throw new Rejected("The audit log was changed from outside.");
  if (expectedHead === null || hasExpected === true) return;
  throw new Rejected(
    records < expectedHead.records
      ? `The audit log was cut: ${expectedHead.records} records were there, ${records} are left.`
      : `The audit log was rewritten: record ${expectedHead.records} is not the one that was there.`,
  );
}

interface AuditShowOptions {
  readonly last: number;
  readonly since?: string;
  readonly command?: readonly string[];
  readonly tag?: readonly string[];
  readonly source?: readonly string[];
  readonly kind?: readonly string[];
}

function defineAuditShow(showCommand: Command, context: CliContext): void {
  showCommand
    .description("the records, the latest last, with filters")
    .option(
      "--kind <pattern>",
      "only such steps, such as accepted or restore-*; may be given several times",
      collectWords,
    )
    .option("--command <id>", "only those of this command", collectWords)
    .option("--source <name>", "only those about a tag of this source", collectWords)
    .option("--tag <id>", "only those about this tag", collectWords);
  addLogRangeOptions(showCommand)
    .addHelpText(
      "after",
      "\nExamples:\n  plenum audit show --command set-7\n  plenum audit show --since 7d --tag 10001 --kind '*rejected*'",
    )
    .action(async (options: AuditShowOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      refuseUnknownSources(config, options.source ?? []);
      const onlySource = config.state.postgres === undefined ? undefined : chooseSource(config, options.source?.[0])[0];
      const auditRecords = await readState({ config, source: onlySource }, (store) => findAuditRecords(store, options));
      const rows = auditRecords.map(({ sequence, body }) => ({ sequence, ...body }));
      if (rows.length === 0 && !terminal.json) return terminal.info("No record matches.");
      const formatAuditRecord = ({ sequence, at, step, commandId, detail }: (typeof rows)[number]) =>
        [sequence, at, step, commandId, JSON.stringify(detail)].filter((text) => text !== "").join("  ");
      terminal.print(rows, rows.map(formatAuditRecord));
    });
}

const RECORDS_PER_PAGE = 1_000;

/** Finds records, oldest first. Throws ConfigError for a command, tag or step without any record. */
async function findAuditRecords(store: Store, options: AuditShowOptions): Promise<readonly LogRecord<AuditRecord>[]> {
  const { since, command, tag, source, kind } = options;
  const hasAnyFilter = [since, command, tag, source, kind].some((filterOption) => filterOption !== undefined);
  const recordFilter = createAuditFilter(options);
  const matchingRecords: LogRecord<AuditRecord>[] = [];
  // Sequences are consecutive, so the last records are found without reading the others.
  const lastAuditSequence = (await store.lastRecord(AUDIT_LOG))?.sequence ?? 0;
  for (let lastSequence = hasAnyFilter ? 0 : Math.max(0, lastAuditSequence - options.last); ; ) {
    const page = await store.records<AuditRecord>(AUDIT_LOG, lastSequence, RECORDS_PER_PAGE);
    const lastRecord = page.at(-1);
    if (lastRecord === undefined) break;
    lastSequence = lastRecord.sequence;
    matchingRecords.push(...page.filter(({ body }) => recordFilter.matchesRecord(body)));
    if (since === undefined) matchingRecords.splice(0, matchingRecords.length - options.last);
  }
  recordFilter.refuseUnknownFilters();
  return matchingRecords;
}

/** Creates a filter that must see all records in order, because only the first record of a command names the tag. */
function createAuditFilter({ since, command = [], tag = [], source = [], kind = [] }: AuditShowOptions) {
  const subjectByCommand = new Map<string, ReturnType<typeof selectAuditSubject>>();
  const knownTags = new Set<string>();
  const knownSteps = new Set<string>();
  const knownCommands = new Set<string>();
  const earliestRecordMs = since === undefined ? Number.NEGATIVE_INFINITY : Date.parse(since);
  const isEmptyOrIncludes = (allowedValues: readonly string[], value: string | undefined) =>
    allowedValues.length === 0 || (value !== undefined && allowedValues.includes(value));
  const noRecordError = (recordDescription: string, hint?: string) =>
    new ConfigError(`The audit log has no record ${recordDescription}.`, hint === undefined ? {} : { hint });

  return {
    matchesRecord({ at, commandId, step, detail }: AuditRecord): boolean {
      const recordSubject = selectAuditSubject(detail);
      if (step === "accepted") subjectByCommand.set(commandId, recordSubject);
      const { tagId, source: sourceName } = { ...subjectByCommand.get(commandId), ...recordSubject };
      knownCommands.add(commandId);
      knownSteps.add(step);
      if (tagId !== undefined) knownTags.add(tagId);
      return (
        Date.parse(at) >= earliestRecordMs &&
        isEmptyOrIncludes(command, commandId) &&
        isEmptyOrIncludes(tag, tagId) &&
        isEmptyOrIncludes(source, sourceName) &&
        (kind.length === 0 || kind.some((pattern) => globMatches(pattern, step)))
      );
    },
    refuseUnknownFilters(): void {
      const unknownCommand = command.find((id) => !knownCommands.has(id));
      if (unknownCommand !== undefined) throw noRecordError(`of a command ${unknownCommand}`);
      const unknownTagId = tag.find((id) => !knownTags.has(id));
      if (unknownTagId !== undefined) throw noRecordError(`about a tag ${unknownTagId}`);
      const unmatchedPattern = kind.find((pattern) => ![...knownSteps].some((step) => globMatches(pattern, step)));
      if (unmatchedPattern === undefined) return;
      const steps = [...knownSteps].toSorted().join(", ");
      throw noRecordError(
        `of a step ${unmatchedPattern}`,
        knownSteps.size === 0 ? "It is empty." : `Its steps are ${steps}.`,
      );
    },
  };
}

function selectAuditSubject({ tagId, source }: AuditRecord["detail"]) {
  return { ...(typeof tagId === "string" && { tagId }), ...(typeof source === "string" && { source }) };
}

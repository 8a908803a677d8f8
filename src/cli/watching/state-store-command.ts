import { hostname } from "node:os";
import { resolve } from "node:path";
import type { Command } from "commander";
import { ConfigError, Rejected } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { createLog } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { formatCount } from "../../core/values/plural.ts";
import { readApprovers } from "../../engine/commands/approval/approval-files.ts";
import { AUDIT_LOG, AUDIT_START_HASH, type AuditRecord, hashEntry } from "../../engine/commands/audit/audit-log.ts";
import { createKillSwitch } from "../../engine/commands/kill-switch.ts";
import { type RecoveryReport, recoverEvents } from "../../engine/store/damaged-state-recovery.ts";
import { checkStateInFolder, isStateIntact, type StateCheckReport } from "../../engine/store/state-check.ts";
import { PostgresState } from "../../engine/store/state-config.ts";
import { KILL_SWITCH_DOCUMENT_KEY } from "../../scale/fleet/kill-switch.ts";
import { APPROVERS_DOCUMENT_KEY } from "../../scale/fleet-tag-write-guards.ts";
import { type MovedTableRows, moveStateFolder, type StateMoveResult } from "../../scale/move-to-postgres/move-state.ts";
import type { LastLogRecord } from "../../scale/move-to-postgres/state-folder-reader.ts";
import { openStateDatabase } from "../../scale/postgres/open-state-database.ts";
import type { CliContext } from "../shell/command-context.ts";
import { useAndClose } from "../shell/open-worker-state.ts";
import { omitMissingLines } from "../shell/terminal-output.ts";

export function defineCommand(stateCommand: Command, context: CliContext): void {
  stateCommand.addHelpText(
    "after",
    "\nBackup, restore and what happens on damage: docs/operations.md.\n\nExamples:\n  plenum state check\n" +
      "  plenum state salvage state/plenum.db.damaged-2026-11-02T06-00-00-000Z",
  );

  stateCommand
    .command("check")
    .description("read the complete state and report damage; changes nothing")
    .addHelpText("after", "\nExit code 0 when all is what was written, 1 when something is damaged.")
    .action(async () => {
      const terminal = context.terminal();
      const { folder } = context.config().state;
      const stateReport = await terminal.progress("Reading the state", async () => checkStateInFolder(folder));
      terminal.print({ ...stateReport, whole: isStateIntact(stateReport) }, stateCheckLines(stateReport));
      if (!isStateIntact(stateReport))
        throw new Rejected("The state is damaged.", {
          hint: "Restart the worker: it quarantines the damaged data and continues.",
        });
    });

  stateCommand
    .command("salvage")
    .description("send undelivered events from a damaged state file that was quarantined")
    .argument("<file>", "the file; `plenum state check` lists those in the state folder")
    .addHelpText(
      "after",
      "\nIts events go to every sink, with their ids, so that receivers can fold what they had. Nothing else is\n" +
        "taken, and the file stays as it is. Start the worker once before, so that there is a state to put them into.",
    )
    .action(async (file: string) => {
      const terminal = context.terminal();
      const { folder } = context.config().state;
      const salvageReport = await terminal.progress("Reading the file", () => recoverEvents(folder, file, systemClock));
      terminal.print(salvageReport, salvageReportLines(salvageReport));
      if (salvageReport.found === 0)
        throw new Rejected(`No event could be read out of ${file}.`, {
          hint: "It may be of another program, or of a version that wrote no checksums.",
        });
    });

  defineMoveCommand(stateCommand, context);
}

function stateCheckLines({ file, bytes, schemaVersion, trouble, tables, setAside, filesSetAside }: StateCheckReport) {
  const damagedTables = tables.filter((table) => table.damaged > 0);
  const tableRowCount = tables.reduce((sum, table) => sum + table.rows, 0);
  return omitMissingLines(
    `${file}: ${(bytes / 1024 ** 2).toFixed(1)} MiB, schema ${schemaVersion}`,
    ...trouble.map((complaint) => `Damaged: ${complaint}`),
    trouble.length === 0 && `The file is whole. ${tableRowCount} rows were compared with their checksums.`,
    ...tables.map((table) => `  ${table.table}: ${table.rows}`),
    ...damagedTables.map((table) => `Damaged: ${table.damaged} of ${table.rows} rows of ${table.table}.`),
    ...setAside.map(
      (quarantinedRows) =>
        `Found damaged before, and kept apart: ${quarantinedRows.rows} of ${`${quarantinedRows.table} ${quarantinedRows.part}`.trimEnd()}, the last at ${quarantinedRows.lastFound}.`,
    ),
    ...filesSetAside.map((name) => `A damaged state was set aside here: ${name} (plenum state salvage).`),
  );
}

function salvageReportLines({ pages, found, taken, known, delivered, damaged, deadLetters, cursors }: RecoveryReport) {
  const unknownCursors = Object.entries(cursors).filter(([, position]) => position === null);
  return [
    `${found} events were read out of ${pages} pages.`,
    `Taken: ${taken}, for every sink. The worker delivers them with their ids.`,
    `Not taken: ${delivered} that every sink had, ${known} that the log has already, ${damaged} of which too little is left.`,
    `Not taken either: ${deadLetters} dead letters; the stored data of the building (the worker lists it again), commands and the audit log.`,
    ...unknownCursors.map(([sink]) => `How far ${sink} was could not be read, so nothing was left out on its account.`),
  ];
}

interface MoveStateOptions {
  readonly to?: string;
  readonly passwordFile?: string;
  readonly caFile?: string;
  readonly schema?: string;
  readonly allowPlain?: true;
}

/** With more sources than this, the rows of each source are printed only with --json. */
const MAX_PRINTED_SOURCES = 5;

function defineMoveCommand(stateCommand: Command, context: CliContext): void {
  stateCommand
    .command("move")
    .description("take a stopped worker's state from its folder into a database, for a fleet to go on with")
    .option("--to <url>", "database, as postgresql://user@host/database; else that of state.postgres")
    .option("--password-file <file>", "file with the user's password")
    .option("--ca-file <file>", "PEM file of a private certificate authority")
    .option("--schema <name>", "schema of the state's tables (default: plenum)")
    .option("--allow-plain", "allow sslmode=disable to another machine")
    .addHelpText(
      "after",
      "\nStop the worker first. Plenum moves everything or nothing; after a failure, run the command again. The folder stays\n" +
        "unchanged, but workers refuse to start with it. docs/scaling.md describes the steps before and after.\n\nExamples:\n" +
        "  plenum state move --config plenum.yaml\n" +
        "  plenum state move --to postgresql://plenum@db.example.com/plenum --password-file db-password",
    )
    .action(async (options: MoveStateOptions) => {
      const terminal = context.terminal();
      const config = context.config();
      const { folder } = config.state;
      const postgres = chooseTargetDatabase(options, config.state.postgres);
      const log = createLog({ level: "error" });
      const connectionOptions = { migrate: true, connections: 2, allowsLongTransaction: true };
      const openedDatabase = await openStateDatabase({
        config: postgres,
        clock: systemClock,
        log,
        ...connectionOptions,
      });
      await useAndClose(openedDatabase, async (database) => {
        const moveOptions = {
          ...{ folder, database, sources: Object.keys(config.sources), clock: systemClock, log },
          ...{ fleetDocuments: buildFleetDocuments(folder), closingRecord: closingRecordFor(folder, database.name) },
        };
        const moveResult = await terminal.progress("Moving the state", () => moveStateFolder(moveOptions));
        terminal.print(moveResult, moveResultLines(moveResult, config.state.postgres === undefined));
      });
    });
}

function chooseTargetDatabase(
  { to, schema, passwordFile, caFile, allowPlain }: MoveStateOptions,
  configuredDatabase: PostgresState | undefined,
) {
  if (to === undefined) {
    const otherDatabaseOption = schema ?? passwordFile ?? caFile ?? allowPlain;
    if (configuredDatabase !== undefined && otherDatabaseOption === undefined) return configuredDatabase;
    throw new ConfigError(
      configuredDatabase === undefined
        ? "It is not said which database the state is to be moved to."
        : "Without --to the database is that of state.postgres, and the other options say nothing.",
      { hint: "Give state.postgres in the configuration, or --to postgresql://user@host/database." },
    );
  }
  const parsedDatabase = PostgresState.safeParse({
    url: to,
    ...(schema !== undefined && { schema }),
    ...(passwordFile !== undefined && { password: { file: passwordFile } }),
    ...(caFile !== undefined && { ca_file: caFile }),
    ...(allowPlain && { allow_plain: true }),
  });
  if (parsedDatabase.success) return parsedDatabase.data;
  const [issue] = parsedDatabase.error.issues;
  const option = issue?.path[0] === "schema" ? "--schema" : "--to";
  throw new ConfigError(`${option}: ${(issue?.message ?? "").replace("set allow_plain: true", "add --allow-plain")}`);
}

function buildFleetDocuments(folder: string): ReadonlyMap<string, string> {
  const documents = new Map<string, string>();
  const at = isoUtc(systemClock.now());
  const by = `the state ${resolve(folder)}, where it was thrown`;
  if (createKillSwitch(folder).isOn()) documents.set(KILL_SWITCH_DOCUMENT_KEY, JSON.stringify({ by, at }));
  const pinnedApprovers = readApprovers(folder);
  if (pinnedApprovers !== null) documents.set(APPROVERS_DOCUMENT_KEY, JSON.stringify(pinnedApprovers));
  return documents;
}

/** Returns a function that builds the record that a source adds to its copy of an audit log after a state move. */
export function closingRecordFor(folder: string, databaseName: string) {
  const at = isoUtc(systemClock.now());
  const stateOrigin = { folder: resolve(folder), host: hostname() };
  return (log: string, source: string, { sequence, body }: LastLogRecord): unknown => {
    if (log !== AUDIT_LOG) return null;
    const previousHash = (body as Partial<AuditRecord>).hash ?? AUDIT_START_HASH;
    const detail = { from: stateOrigin, to: databaseName, source, records: sequence, head: previousHash };
    return hashEntry(previousHash, { at, commandId: "-", step: "state-moved", detail });
  };
}

function moveResultLines(
  { folder, to, movedAt, wasThere, sources, tables, leftBehind }: StateMoveResult,
  isDatabaseUnconfigured: boolean,
) {
  if (wasThere) return [`The state in the folder ${folder} was moved to ${to} at ${movedAt}, and is there.`];
  const sourceNamesText = sources.length <= MAX_PRINTED_SOURCES ? `: ${sources.join(", ")}` : "";
  return [
    `The state in the folder ${folder} is in ${to} now, for ${formatCount(sources.length, "source")}${sourceNamesText}.`,
    "What was read, what was written and what the database gave back are the same:",
    ...tables.flatMap((table) => movedTableLines(table, sources.length)),
    ...leftBehind.map(({ what, rows }) => `Left in the folder: ${rows} ${what}.`),
    "The folder stays unchanged, but workers refuse to start with it.",
    `Next: ${isDatabaseUnconfigured ? "set state.postgres in the configuration, and " : ""}start the members: plenum run.`,
  ];
}

function movedTableLines({ table, rows, bySource }: MovedTableRows, sourceCount: number): readonly string[] {
  const tableSummary = `  ${table.padEnd(12)} ${String(rows).padStart(8)} rows`;
  if (sourceCount > MAX_PRINTED_SOURCES) return [tableSummary];
  return [
    tableSummary,
    ...bySource.map((sourceRows) => `    ${sourceRows.source}: ${sourceRows.rows} rows, digest ${sourceRows.digest}`),
  ];
}

import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { ConfigError, Rejected, Retryable } from "../../core/errors/errors.ts";
import { textArray } from "../../core/postgres/sql-quoting.ts";
import { CommitUnknown } from "../../core/postgres/transaction.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import {
  type ArmedWritingState,
  WRITE_ARMING_KEY,
  WRITE_ARMING_SET,
  WRITE_LIMIT_SETS,
} from "../../engine/commands/write-arming.ts";
import { openStore } from "../../engine/store/open.ts";
import { type Database, isDamagedSql, openDatabase } from "../../engine/store/sqlite.ts";
import type { MoveMark } from "../../engine/store/state-folder.ts";
import { readMoveMark, removeMoveMark, stateFilePath, writeMoveMark } from "../../engine/store/state-folder.ts";
import type { Store } from "../../engine/store/store.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import type { MoveSession, RowSumsByTable } from "./moved-rows.ts";
import { findFirstSumDifference, formatRowDigest, readTableRowSums, writeStateRows } from "./moved-rows.ts";
import { type FolderReader, type FolderReaderOptions, readStateRows, type UnmovedRows } from "./state-folder-reader.ts";

export interface MoveOptions {
  readonly folder: string;
  readonly database: StateDatabase;
  readonly sources: readonly string[];
  /** Documents of the fleet to write, by key; documents that exist already are kept. */
  readonly fleetDocuments: ReadonlyMap<string, string>;
  readonly closingRecord: FolderReaderOptions["closingRecord"];
  readonly clock: Clock;
  readonly log: Log;
}

export interface StateMoveResult {
  readonly folder: string;
  readonly to: string;
  readonly movedAt: string;
  /** True if an earlier run had moved the state already. */
  readonly wasThere: boolean;
  readonly sources: readonly string[];
  readonly tables: readonly MovedTableRows[];
  readonly leftBehind: readonly UnmovedRows[];
}

export type MovedTableRows = ReturnType<typeof listMovedTables>[number];

/**
 * Moves the state of a folder into a database in one transaction. Throws `ConfigError`.
 *
 *   folder     lock ─ MOVED.json: begun ───────────────────────────────────────── MOVED.json: moved ─ unlock
 *   database                             begin · rows · compare · move id · commit
 *
 * If the reply to the commit is lost, MOVED.json stays; the next run looks in the database for the commit.
 */
export async function moveStateFolder(options: MoveOptions): Promise<StateMoveResult> {
  const { clock, database, folder, log } = options;
  if (!existsSync(stateFilePath(folder)))
    throw new ConfigError(`There is no state in ${folder}.`, {
      hint: "Name the folder that the worker has used (state.folder). A new fleet needs none.",
    });
  const storedMoveMark = readMoveMark(folder);
  if (storedMoveMark !== null && storedMoveMark.to !== database.name) throw movedElsewhereError(folder, storedMoveMark);
  const store = await openStore({ folder, clock, log, allowsMovedFolder: true });
  try {
    using fileDatabase = openDatabase(stateFilePath(folder), { readOnly: true });
    await refuseDamagedState(store, fileDatabase, folder);
    return await moveWithMark(options, store, fileDatabase, storedMoveMark);
  } finally {
    await store.close();
  }
}

async function moveWithMark(options: MoveOptions, store: Store, fileDatabase: Database, existingMark: MoveMark | null) {
  const { clock, database, folder } = options;
  const moveMark: MoveMark = existingMark ?? {
    id: randomBytes(8).toString("hex"),
    to: database.name,
    begunAt: isoUtc(clock.now()),
    movedAt: null,
  };
  if (existingMark === null) writeMoveMark(folder, moveMark);
  let isMoveMarkNew = existingMark === null;
  try {
    const moveResult = await moveStateInTransaction(options, store, fileDatabase, moveMark, () => {
      isMoveMarkNew = true;
    });
    if (moveMark.movedAt === null) writeMoveMark(folder, { ...moveMark, movedAt: moveResult.movedAt });
    return moveResult;
  } catch (error) {
    // Remove MOVED.json if nothing was committed, so that a worker may start again.
    if (moveMark.movedAt === null && isMoveMarkNew && !(error instanceof CommitUnknown)) removeMoveMark(folder);
    throw error;
  }
}

async function moveStateInTransaction(
  options: MoveOptions,
  store: Store,
  fileDatabase: Database,
  mark: MoveMark,
  onMarkAbsent: () => void,
): Promise<StateMoveResult> {
  const { clock, database, folder } = options;
  const documentReplacements = await readDocumentReplacements(store, clock);
  // Read the state file in one transaction, so that all rows are from one snapshot.
  fileDatabase.exec("begin");
  return database.transaction(async (session) => {
    // Lock the row that members lock to register, so that a member finds the complete state or nothing.
    await session.query(`select digest from ${database.table("meta")} for update`);
    const timeReply = await session.query("select (extract(epoch from clock_timestamp()) * 1000)::double precision");
    const folderReader = readStateRows({
      ...options,
      database: fileDatabase,
      replacements: documentReplacements,
      clockShiftMs: Number(timeReply.rows[0]?.[0]) - clock.now(),
    });
    const commonMoveResult = { folder: resolve(folder), to: database.name, sources: folderReader.sources };
    const { rows: marks } = await session.query(`select body from ${database.table("fleet_document")} where key = $1`, [
      `moved/${mark.id}`,
    ]);
    const [body] = marks[0] ?? [];
    if (body !== undefined) {
      const { movedAt } = JSON.parse(String(body)) as { readonly movedAt: string };
      return { ...commonMoveResult, movedAt, wasThere: true, tables: [], leftBehind: [] };
    }
    if (mark.movedAt !== null)
      throw new Retryable(
        `The state in the folder ${folder} was moved to ${mark.to} at ${mark.movedAt}, and is not there any more.`,
        { hint: "Restore the database from its backup; what lies in the folder is as old as the move." },
      );
    onMarkAbsent();
    await refuseExistingState(session, database, folderReader.sources);
    await session.query(
      `insert into ${database.table("source")} (name) select unnest($1::text[]) on conflict (name) do nothing`,
      [textArray(folderReader.sources)],
    );
    const writtenRowSums = await writeStateRows(session, database.table, folderReader.rows());
    await storeEndPositions(session, database, folderReader);
    await writeFleetDocuments(session, database, options.fleetDocuments);
    refuseUnmovedRows(fileDatabase, writtenRowSums);
    const storedTableSums = await readTableRowSums(session, database.table, folderReader.sources);
    const firstDifference = findFirstSumDifference(writtenRowSums, storedTableSums);
    if (firstDifference !== null) {
      const { table, source } = firstDifference;
      throw new Rejected(
        `What the database holds of ${table} of the source ${source} is not what was written; nothing was moved.`,
        {
          hint: "Look whether the database keeps its texts in UTF-8, and whether something changes rows as they are written.",
        },
      );
    }
    const movedAt = isoUtc(clock.now());
    const moveRecordJson = JSON.stringify({ folder: commonMoveResult.folder, host: hostname(), movedAt });
    await writeFleetDocuments(session, database, new Map([[`moved/${mark.id}`, moveRecordJson]]));
    return {
      ...commonMoveResult,
      movedAt,
      wasThere: false,
      tables: listMovedTables(storedTableSums, folderReader.sources),
      leftBehind: folderReader.leftBehind(),
    };
  });
}

async function refuseDamagedState(store: Store, fileDatabase: Database, folder: string): Promise<void> {
  const { quarantinedFile } = await store.describe();
  if (quarantinedFile !== undefined)
    throw new ConfigError(`The state in ${folder} was damaged, and was set aside as ${quarantinedFile}.`, {
      hint: "Nothing was moved. Start the worker once, or put a backup in its place (docs/operations.md).",
    });
  if (fileDatabase.number("select count(*) from damaged where table_name = 'sink' and is_open = 1") > 0)
    throw new ConfigError(`A cursor in ${folder} is damaged, and it is not known yet which sink it belongs to.`, {
      hint: "Nothing was moved. Start the worker once with the configuration it had, stop it, and move then.",
    });
  // Reading a damaged event makes it a dead letter of each sink that has not received it.
  const damagedEvents = fileDatabase
    .prepare(`select position from event where ${isDamagedSql("event")}`)
    .all<{ readonly position: number }>();
  for (const { position } of damagedEvents) await store.outbox.after(position - 1, 1);
}

async function refuseExistingState(session: MoveSession, { name, table }: StateDatabase, sources: readonly string[]) {
  const stateExistsConditions = ["document", "record", "event", "sink"].map(
    (tableName) => `exists (select 1 from ${table(tableName)} where source = named.source)`,
  );
  const { rows } = await session.query(
    `select named.source from unnest($1::text[]) as named (source)
     left join ${table("source")} as known on known.name = named.source
     where coalesce(known.epoch > 0 or known.last_position > 0, false) or ${stateExistsConditions.join(" or ")} limit 1`,
    [textArray(sources)],
  );
  const [source] = rows[0] ?? [];
  if (source === undefined) return;
  throw new ConfigError(
    `The database (${name}) holds another state of the source ${source} already; nothing was moved.`,
    {
      hint: "Move before the first member of the fleet is started, or into a schema of its own (state.postgres.schema).",
    },
  );
}

function refuseUnmovedRows(fileDatabase: Database, movedRowSums: RowSumsByTable): void {
  const tablesToCount = [
    ["event", "event"],
    ["dead_letter", "dead_letter where checksum is not null"],
    ["gap", "gap"],
    ["quota", "quota"],
  ] as const;
  for (const [table, fromSql] of tablesToCount) {
    const fileRowCount = fileDatabase.number(`select count(*) from ${fromSql}`);
    const movedRowCount = [...(movedRowSums.get(table)?.values() ?? [])].reduce((total, sum) => total + sum.rows, 0);
    if (fileRowCount === movedRowCount) continue;
    throw new Rejected(`Only ${movedRowCount} of ${fileRowCount} rows of ${table} have a source; nothing was moved.`, {
      hint: "This is a fault of this version; please report it.",
    });
  }
}

async function storeEndPositions(session: MoveSession, { table }: StateDatabase, folderReader: FolderReader) {
  const { bytes, position } = folderReader.endPositions();
  const { sources } = folderReader;
  await session.query(
    `update ${table("source")} as known set last_position = $1::bigint, bytes = told.bytes::bigint, written = told.bytes::bigint
     from unnest($2::text[], $3::text[]) as told (source, bytes) where known.name = told.source`,
    [String(position), textArray(sources), textArray(sources.map((source) => String(bytes.get(source) ?? 0)))],
  );
}

async function writeFleetDocuments(
  session: MoveSession,
  { table }: StateDatabase,
  bodies: ReadonlyMap<string, string>,
) {
  await session.query(
    `insert into ${table("fleet_document")} (key, body) select * from unnest($1::text[], $2::text[]) on conflict (key) do nothing`,
    [textArray([...bodies.keys()]), textArray([...bodies.values()])],
  );
}

function listMovedTables(sums: RowSumsByTable, sources: readonly string[]) {
  return [...sums].map(([table, bySource]) => ({
    table,
    rows: [...bySource.values()].reduce((total, { rows }) => total + rows, 0),
    bySource: sources.flatMap((source) => {
      const sum = bySource.get(source);
      return sum === undefined ? [] : [{ source, rows: sum.rows, digest: formatRowDigest(sum) }];
    }),
  }));
}

function movedElsewhereError(folder: string, { to, movedAt }: MoveMark): ConfigError {
  return new ConfigError(
    movedAt === null
      ? `The state in the folder ${folder} is being moved to ${to}, and it is not known yet whether the move was committed.`
      : `The state in the folder ${folder} was moved to ${to} already, at ${movedAt}.`,
    { hint: "Name that database, or leave it as it is." },
  );
}

const COMMAND_DOCUMENT_SET = "command";

/** Returns new contents of documents that change with the move, because PostgreSQL has no list of damaged documents. */
async function readDocumentReplacements(
  store: Pick<Store, "damagedKeys" | "describe" | "document">,
  clock: Pick<Clock, "now">,
): Promise<ReadonlyMap<string, ReadonlyMap<string, unknown>>> {
  const damagedKeys = await Promise.all(WRITE_LIMIT_SETS.map((setName) => store.damagedKeys(setName)));
  const { copy } = await store.describe();
  const armedDocument = await store.document<ArmedWritingState>(WRITE_ARMING_SET, WRITE_ARMING_KEY);
  const isArmed =
    armedDocument !== undefined &&
    armedDocument.copy === copy?.identity &&
    armedDocument.damaged >= damagedKeys.flat().length;
  const unknownCommandOutcome = { state: "unknown", changedAt: isoUtc(clock.now()) };
  const finishedCommands = new Map<string, unknown>();
  for (const id of await store.damagedKeys(COMMAND_DOCUMENT_SET)) {
    if ((await store.document(COMMAND_DOCUMENT_SET, id)) === undefined) finishedCommands.set(id, unknownCommandOutcome);
  }
  const armedDocumentToWrite = isArmed ? { at: armedDocument.at, by: armedDocument.by, damaged: 0 } : undefined;
  return new Map([
    [WRITE_ARMING_SET, new Map([[WRITE_ARMING_KEY, armedDocumentToWrite]])],
    [COMMAND_DOCUMENT_SET, finishedCommands],
  ]);
}

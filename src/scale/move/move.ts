import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { hostname } from "node:os";
import { resolve } from "node:path";
import { ConfigError, Rejected, Retryable } from "../../core/errors/errors.ts";
import { textList } from "../../core/postgres/sql-text.ts";
import { Unanswered } from "../../core/postgres/transact.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type MoveMark, readMoveMark, removeMoveMark, stateFile, writeMoveMark } from "../../engine/store/folder.ts";
import { openStore } from "../../engine/store/open.ts";
import { type Database, isDamagedSql, openDatabase } from "../../engine/store/sqlite.ts";
import type { Store } from "../../engine/store/store.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { type FolderReader, type FolderReaderOptions, type LeftBehind, readFolder } from "./folder-reader.ts";
import {
  firstDifference,
  type MoveSession,
  readSums,
  type SumsByTable,
  type TableName,
  type TableSum,
  writeRows,
} from "./rows.ts";

export interface MoveOptions {
  /** Folder of a state that no worker uses. */
  readonly folder: string;
  /** Opened with `isPatient`. */
  readonly database: StateDatabase;
  readonly sources: readonly string[];
  /** Documents of the complete fleet, by key; existing ones stay. */
  readonly fleetDocuments: ReadonlyMap<string, string>;
  readonly closingRecord: FolderReaderOptions["closingRecord"];
  readonly clock: Clock;
  readonly log: Log;
}

export interface Moved {
  readonly folder: string;
  readonly to: string;
  readonly movedAt: string;
  /** An earlier run had moved the state, and this one has checked that it is there. */
  readonly wasThere: boolean;
  readonly sources: readonly string[];
  /** Rows that were written and verified; empty when an earlier run did it. */
  readonly tables: readonly MovedTable[];
  readonly leftBehind: readonly LeftBehind[];
}

export interface MovedTable {
  readonly table: TableName;
  readonly rows: number;
  readonly bySource: readonly (TableSum & { readonly source: string })[];
}

/**
 * Moves the state of a folder into a database in one transaction. Throws `ConfigError`.
 *
 *   folder     lock ─ MOVED.json: begun ───────────────────────────────────────── MOVED.json: moved ─ unlock
 *   database                             begin · rows · compare · its mark · commit
 *
 * If the reply to the commit is lost, the mark stays; the next run looks in the database for the commit.
 */
export async function moveState(options: MoveOptions): Promise<Moved> {
  const { clock, database, folder, log } = options;
  if (!existsSync(stateFile(folder))) {
    throw new ConfigError(`There is no state in ${folder}.`, {
      hint: "Name the folder that the worker has used (state.folder). A fleet that begins anew needs none.",
    });
  }
  const known = readMoveMark(folder);
  if (known !== null && known.to !== database.name) throw movedElsewhere(folder, known);
  const store = await openStore({ folder, clock, log, allowMoved: true });
  try {
    const file = openDatabase(stateFile(folder), { readOnly: true });
    try {
      await refuseDamaged(store, file, folder);
      return await moveMarked(options, store, file, known);
    } finally {
      file.close();
    }
  } finally {
    await store.close();
  }
}

async function moveMarked(options: MoveOptions, store: Store, file: Database, known: MoveMark | null): Promise<Moved> {
  const { clock, database, folder } = options;
  const mark: MoveMark = known ?? {
    id: randomBytes(8).toString("hex"),
    to: database.name,
    begunAt: isoUtc(clock.now()),
    movedAt: null,
  };
  if (known === null) writeMoveMark(folder, mark);
  let isNew = known === null;
  try {
    const moved = await moveAll(options, store, file, mark, () => {
      isNew = true;
    });
    if (mark.movedAt === null) writeMoveMark(folder, { ...mark, movedAt: moved.movedAt });
    return moved;
  } catch (error) {
    // Without a commit the database has nothing, and a worker may start again.
    if (mark.movedAt === null && isNew && !(error instanceof Unanswered)) removeMoveMark(folder);
    throw error;
  }
}

async function moveAll(
  options: MoveOptions,
  store: Store,
  file: Database,
  mark: MoveMark,
  isAbsent: () => void,
): Promise<Moved> {
  const { clock, database, folder } = options;
  const instead = await readReplacements(store, clock);
  // All reads of the file are from one snapshot.
  file.exec("begin");
  return database.work(async (session) => {
    // Members register one at a time with this row locked, and find everything or nothing.
    await session.query(`select digest from ${database.table("meta")} for update`);
    const time = await session.query("select (extract(epoch from clock_timestamp()) * 1000)::double precision");
    const shiftMs = Number(time.rows[0]?.[0]) - clock.now();
    const reading = readFolder({ ...options, database: file, replacements: instead, shiftMs });
    const common = { folder: resolve(folder), to: database.name, sources: reading.sources };
    const { rows: marks } = await session.query(`select body from ${database.table("fleet_document")} where key = $1`, [
      `moved/${mark.id}`,
    ]);
    const [body] = marks[0] ?? [];
    if (body !== undefined) {
      const { movedAt } = JSON.parse(String(body)) as { readonly movedAt: string };
      return { ...common, movedAt, wasThere: true, tables: [], leftBehind: [] };
    }
    if (mark.movedAt !== null) {
      throw new Retryable(
        `The state in the folder ${folder} was moved to ${mark.to} at ${mark.movedAt}, and is not there any more.`,
        { hint: "Restore the database from its backup; what lies in the folder is as old as the move." },
      );
    }
    isAbsent();
    await refuseOtherState(session, database, reading.sources);
    await session.query(
      `insert into ${database.table("source")} (name) select unnest($1::text[]) on conflict (name) do nothing`,
      [textList(reading.sources)],
    );
    const written = await writeRows(session, database.table, reading.rows());
    await setEnds(session, database, reading);
    await writeFleetDocuments(session, database, options.fleetDocuments);
    refuseLeftOut(file, written);
    const found = await readSums(session, database.table, reading.sources);
    const difference = firstDifference(written, found);
    if (difference !== null) {
      const { table, source } = difference;
      throw new Rejected(
        `What the database holds of ${table} of the source ${source} is not what was written; nothing was moved.`,
        {
          hint: "Look whether the database keeps its texts in UTF-8, and whether something changes rows as they are written.",
        },
      );
    }
    const movedAt = isoUtc(clock.now());
    const stored = JSON.stringify({ folder: common.folder, host: hostname(), movedAt });
    await writeFleetDocuments(session, database, new Map([[`moved/${mark.id}`, stored]]));
    return {
      ...common,
      movedAt,
      wasThere: false,
      tables: tablesOf(found, reading.sources),
      leftBehind: reading.leftBehind(),
    };
  });
}

async function refuseDamaged(store: Store, file: Database, folder: string): Promise<void> {
  const { quarantinedFile: setAside } = await store.describe();
  if (setAside !== undefined) {
    throw new ConfigError(`The state in ${folder} was damaged, and was set aside as ${setAside}.`, {
      hint: "Nothing was moved. Start the worker once, or put a backup in its place (docs/operations.md).",
    });
  }
  const lost = file.number("select count(*) from damaged where table_name = 'sink' and is_open = 1");
  if (lost > 0) {
    throw new ConfigError(`A cursor in ${folder} is damaged, and it is not known yet which sink it belongs to.`, {
      hint: "Nothing was moved. Start the worker once with the configuration it had, stop it, and move then.",
    });
  }
  // Reading a damaged event turns it into a dead letter of the sinks that have not got it.
  const rotten = file
    .prepare(`select position from event where ${isDamagedSql("event")}`)
    .all<{ readonly position: number }>();
  for (const { position } of rotten) await store.outbox.after(position - 1, 1);
}

async function refuseOtherState(session: MoveSession, { name, table }: StateDatabase, sources: readonly string[]) {
  const parts = ["document", "record", "event", "sink"].map(
    (part) => `exists (select 1 from ${table(part)} where source = named.source)`,
  );
  const { rows } = await session.query(
    `select named.source from unnest($1::text[]) as named (source)
     left join ${table("source")} as known on known.name = named.source
     where coalesce(known.epoch > 0 or known.last_position > 0, false) or ${parts.join(" or ")} limit 1`,
    [textList(sources)],
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

/** Throws unless every row was moved: each belongs to one source. */
function refuseLeftOut(file: Database, written: SumsByTable): void {
  const parts = [
    ["event", "event"],
    ["dead_letter", "dead_letter where checksum is not null"],
    ["gap", "gap"],
    ["quota", "quota"],
  ] as const;
  for (const [table, rows] of parts) {
    const there = file.number(`select count(*) from ${rows}`);
    const moved = [...(written.get(table)?.values() ?? [])].reduce((all, sum) => all + sum.rows, 0);
    if (there === moved) continue;
    throw new Rejected(`Of ${there} rows of ${table} only ${moved} were shared out; nothing was moved.`, {
      hint: "This is a fault of this version; please report it.",
    });
  }
}

async function setEnds(session: MoveSession, { table }: StateDatabase, reading: FolderReader): Promise<void> {
  const { bytes, position } = reading.ends();
  const { sources } = reading;
  await session.query(
    `update ${table("source")} as known set last_position = $1::bigint, bytes = told.bytes::bigint, written = told.bytes::bigint
     from unnest($2::text[], $3::text[]) as told (source, bytes) where known.name = told.source`,
    [String(position), textList(sources), textList(sources.map((source) => String(bytes.get(source) ?? 0)))],
  );
}

async function writeFleetDocuments(
  session: MoveSession,
  { table }: StateDatabase,
  documents: MoveOptions["fleetDocuments"],
): Promise<void> {
  await session.query(
    `insert into ${table("fleet_document")} (key, body) select * from unnest($1::text[], $2::text[]) on conflict (key) do nothing`,
    [textList([...documents.keys()]), textList([...documents.values()])],
  );
}

function tablesOf(sums: SumsByTable, sources: readonly string[]): readonly MovedTable[] {
  return [...sums].map(([table, bySource]) => ({
    table,
    rows: [...bySource.values()].reduce((all, { rows }) => all + rows, 0),
    bySource: sources.flatMap((source) => {
      const sum = bySource.get(source);
      return sum === undefined ? [] : [{ source, ...sum }];
    }),
  }));
}

function movedElsewhere(folder: string, { to, movedAt }: MoveMark): ConfigError {
  return new ConfigError(
    movedAt === null
      ? `The state in the folder ${folder} is being moved to ${to}, and it is not known yet whether the move was committed.`
      : `The state in the folder ${folder} was moved to ${to} already, at ${movedAt}.`,
    { hint: "Name that database, or leave it as it is." },
  );
}

interface ArmedDocument {
  readonly at: string;
  readonly by: string;
  readonly damaged: number;
  readonly copy?: string;
}

const ARMED = "command-armed";
const WRITING = "writing";
/** Sets of documents that must be complete to enforce the write limits. */
const WRITE_LIMIT_SETS = [ARMED, "command-wear", "command-restore", "command-not-restored"];
const COMMANDS = "command";

/** Documents to write instead of the stored ones. Quarantines exist in SQLite only, so writing must be armed now. */
async function readReplacements(
  store: Pick<Store, "damagedKeys" | "describe" | "document">,
  clock: Pick<Clock, "now">,
): Promise<ReadonlyMap<string, ReadonlyMap<string, unknown>>> {
  const damaged = await Promise.all(WRITE_LIMIT_SETS.map((set) => store.damagedKeys(set)));
  const { copy } = await store.describe();
  const armed = await store.document<ArmedDocument>(ARMED, WRITING);
  const isArmed = armed !== undefined && armed.copy === copy?.identity && armed.damaged >= damaged.flat().length;
  const over = { state: "unknown", changedAt: isoUtc(clock.now()) };
  const used = new Map<string, unknown>();
  for (const id of await store.damagedKeys(COMMANDS)) {
    if ((await store.document(COMMANDS, id)) === undefined) used.set(id, over);
  }
  const writing = isArmed ? { at: armed.at, by: armed.by, damaged: 0 } : undefined;
  return new Map([
    [ARMED, new Map([[WRITING, writing]])],
    [COMMANDS, used],
  ]);
}

import { existsSync, readdirSync } from "node:fs";
import { ConfigError } from "../../core/errors/errors.ts";
import { summarizeDamagedRows } from "./damage-quarantine.ts";
import { findSchemaProblem, prepareSchema, SCHEMA_VERSION } from "./schema.ts";
import { CHECKED_TABLE_NAMES, type Database, isDamagedSql, openDatabase, StateDamaged } from "./sqlite.ts";
import { fileSize, isQuarantinedStateFile, stateFilePath } from "./state-folder.ts";
import type { DamagedRows } from "./store.ts";

export interface StateCheckReport {
  readonly file: string;
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Problems of the file itself in SQLite's words or ours; empty if there are none. */
  readonly trouble: readonly string[];
  readonly tables: readonly TableCheckResult[];
  readonly setAside: readonly DamagedRows[];
  readonly filesSetAside: readonly string[];
}

export interface TableCheckResult {
  readonly table: string;
  readonly rows: number;
  readonly damaged: number;
}

const MAX_SQLITE_PROBLEMS = 20;

export function isStateIntact({ trouble, tables }: StateCheckReport): boolean {
  return trouble.length === 0 && tables.every(({ damaged }) => damaged === 0);
}

/** Checks the complete state and changes nothing; a worker may run. Throws `ConfigError` if the folder has no state. */
export function checkStateInFolder(folder: string): StateCheckReport {
  const file = stateFilePath(folder);
  const wal = fileSize(`${file}-wal`);
  if (!existsSync(file) && wal === 0) {
    throw new ConfigError(`There is no state in ${folder} yet.`, {
      hint: "Start the worker first, or name the folder that it uses.",
    });
  }
  const reportFields = {
    file,
    bytes: fileSize(file) + wal,
    schemaVersion: SCHEMA_VERSION,
    filesSetAside: readdirSync(folder).filter(isQuarantinedStateFile).toSorted(),
  };
  const emptyReport = { ...reportFields, tables: [], setAside: [] };
  if (fileSize(file) === 0) {
    return { ...emptyReport, trouble: [`${file} is empty or gone, and ${wal} bytes of its write-ahead log are left.`] };
  }
  try {
    using database = openDatabase(file, { readOnly: true });
    return { ...reportFields, ...checkTableRows(database) };
  } catch (error) {
    if (!(error instanceof StateDamaged)) throw error;
    return { ...emptyReport, trouble: [error.message] };
  }
}

function checkTableRows(database: Database): Pick<StateCheckReport, "trouble" | "tables" | "setAside"> {
  prepareSchema(database, false);
  const sqliteProblems = database
    .prepare(`pragma integrity_check(${MAX_SQLITE_PROBLEMS})`)
    .all<{ readonly integrity_check: string }>()
    .map((row) => row.integrity_check)
    .filter((complaint) => complaint !== "ok");
  const schemaProblem = findSchemaProblem(database);
  const stateProblems = schemaProblem === null ? sqliteProblems : [...sqliteProblems, schemaProblem];
  if (stateProblems.length > 0) return { trouble: stateProblems, tables: [], setAside: [] };
  return {
    trouble: stateProblems,
    tables: CHECKED_TABLE_NAMES.map((table) => countTableRows(database, table)),
    setAside: summarizeDamagedRows(database),
  };
}

function countTableRows(database: Database, table: (typeof CHECKED_TABLE_NAMES)[number]): TableCheckResult {
  // Damaged rows of these tables stay in their place, without a checksum.
  const isKnownDamageSql = table === "record" || table === "dead_letter" ? "checksum is null" : "false";
  const rowCounts = database
    .prepare(
      `select count(*) as rows, coalesce(sum(not (${isKnownDamageSql}) and ${isDamagedSql(table)}), 0) as damaged from ${table}`,
    )
    .get<Omit<TableCheckResult, "table">>();
  return { table, rows: rowCounts?.rows ?? 0, damaged: rowCounts?.damaged ?? 0 };
}

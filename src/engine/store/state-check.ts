import { existsSync, readdirSync } from "node:fs";
import { ConfigError } from "../../core/errors/errors.ts";
import { summarizeDamage } from "./damage-quarantine.ts";
import { findSchemaProblem, prepareSchema, SCHEMA_VERSION } from "./schema.ts";
import { CHECKED_TABLE_NAMES, type Database, isDamagedSql, openDatabase, StateDamaged } from "./sqlite.ts";
import { fileBytes, isQuarantinedStateFile, stateFile } from "./state-folder.ts";
import type { DamagedRows } from "./store.ts";

export interface StateReport {
  readonly file: string;
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Damage of the file itself, in SQLite's words or ours; empty when there is none. */
  readonly trouble: readonly string[];
  readonly tables: readonly TableCheck[];
  readonly setAside: readonly DamagedRows[];
  readonly filesSetAside: readonly string[];
}

export interface TableCheck {
  readonly table: string;
  readonly rows: number;
  readonly damaged: number;
}

/** Largest number of complaints that SQLite lists: a torn page makes thousands. */
const MAX_SQLITE_COMPLAINTS = 20;

export function isStateIntact({ trouble, tables }: StateReport): boolean {
  return trouble.length === 0 && tables.every(({ damaged }) => damaged === 0);
}

/** Reads everything and changes nothing; a worker may run. Throws `ConfigError` when the folder has no state. */
export function checkState(folder: string): StateReport {
  const file = stateFile(folder);
  const wal = fileBytes(`${file}-wal`);
  if (!existsSync(file) && wal === 0) {
    throw new ConfigError(`There is no state in ${folder} yet.`, {
      hint: "Start the worker first, or name the folder that it uses.",
    });
  }
  const reportFields = {
    file,
    bytes: fileBytes(file) + wal,
    schemaVersion: SCHEMA_VERSION,
    filesSetAside: readdirSync(folder).filter(isQuarantinedStateFile).toSorted(),
  };
  const withoutRows = { ...reportFields, tables: [], setAside: [] };
  if (fileBytes(file) === 0) {
    return { ...withoutRows, trouble: [`${file} is empty or gone, and ${wal} bytes of its write-ahead log are left.`] };
  }
  try {
    const database = openDatabase(file, { readOnly: true });
    try {
      return { ...reportFields, ...checkRows(database) };
    } finally {
      database.close();
    }
  } catch (error) {
    if (!(error instanceof StateDamaged)) throw error;
    return { ...withoutRows, trouble: [error.message] };
  }
}

function checkRows(database: Database): Pick<StateReport, "trouble" | "tables" | "setAside"> {
  prepareSchema(database, false);
  const sqliteProblems = database
    .prepare(`pragma integrity_check(${MAX_SQLITE_COMPLAINTS})`)
    .all<{ readonly integrity_check: string }>()
    .map((row) => row.integrity_check)
    .filter((complaint) => complaint !== "ok");
  const schemaProblem = findSchemaProblem(database);
  const problems = schemaProblem === null ? sqliteProblems : [...sqliteProblems, schemaProblem];
  if (problems.length > 0) return { trouble: problems, tables: [], setAside: [] };
  return {
    trouble: problems,
    tables: CHECKED_TABLE_NAMES.map((table) => countRows(database, table)),
    setAside: summarizeDamage(database),
  };
}

function countRows(database: Database, table: (typeof CHECKED_TABLE_NAMES)[number]): TableCheck {
  // Damaged rows of these tables stay in their place, without a checksum.
  const knownDamageSql = table === "record" || table === "dead_letter" ? "checksum is null" : "false";
  const counted = database
    .prepare(
      `select count(*) as rows, coalesce(sum(not (${knownDamageSql}) and ${isDamagedSql(table)}), 0) as damaged from ${table}`,
    )
    .get<Omit<TableCheck, "table">>();
  return { table, rows: counted?.rows ?? 0, damaged: counted?.damaged ?? 0 };
}

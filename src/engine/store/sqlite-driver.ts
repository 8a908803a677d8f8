import type { Clock } from "../../core/runtime/clock.ts";
import type { DamagedRowQuarantine } from "./damage-quarantine.ts";
import type { DeferredWrites } from "./deferred-writes.ts";
import type { createDocumentStore } from "./documents.ts";
import type { DamagedQuota } from "./quota-store.ts";
import type { SqlByColumn, SqlDialect, SqlDriver, SqlStatement, SqlSteps, SqlValue } from "./sql-driver.ts";
import type { Database, SqliteStatement as Prepared, StateTable } from "./sqlite.ts";
import { CHECKED_TABLES, checksumSql } from "./sqlite.ts";
import type { BootClockMark, QuotaStore } from "./store.ts";

export function createSqliteDriver(
  database: Database,
  deferredWrites: DeferredWrites<() => void>,
  documents: Pick<ReturnType<typeof createDocumentStore>, "change">,
  repairCursors: () => boolean,
): SqlDriver {
  const preparedStatements = new Map<string, Prepared>();

  function runStatement({ text, values }: Pick<SqlStatement, "text" | "values">): readonly unknown[] {
    let statement = preparedStatements.get(text);
    if (statement === undefined) {
      statement = database.prepare(translateToSqlite(text));
      preparedStatements.set(text, statement);
    }
    const boundSqlValues = values.map((value) =>
      value === null || typeof value !== "object" ? value : JSON.stringify(value),
    );
    if (!text.startsWith("update sink ")) return statement.all(...boundSqlValues);
    // A damaged cursor is not changed: repair it first.
    if (statement.run(...boundSqlValues) === 0 && repairCursors()) statement.run(...boundSqlValues);
    return [];
  }

  function runTransactionSteps<T>(steps: SqlSteps<T>): T {
    let nextStep = steps.next();
    while (nextStep.done !== true) nextStep = steps.next(nextStep.value.map(runStatement));
    return nextStep.value;
  }

  return {
    dialect: SQLITE_DIALECT,
    query: <Row>(text: string, ...values: readonly SqlValue[]) => runStatement({ text, values }) as readonly Row[],
    commit: (statements, documentChanges = []) =>
      database.transaction(() => {
        for (const statement of statements) runStatement(statement);
        for (const change of documentChanges) documents.change(change);
      }),
    transaction: (work) => database.transaction(() => runTransactionSteps(work())),
    defer: (key, buildStatement) => deferredWrites.write(key, () => void runStatement(buildStatement())),
    isBehind: deferredWrites.isBehind,
    flush: deferredWrites.flush,
    changes: database.changes,
  };
}

/** Translates PostgreSQL's SQL: a file has no column `source`, so `$2` is its first parameter. */
function translateToSqlite(text: string): string {
  return text
    .replaceAll(/(\w+\.)?source = \$1/g, "true")
    .replaceAll(/::\w+(\[\])?/g, "")
    .replaceAll(/\$(\d+)/g, (_, number) => `?${Number(number) - 1}`)
    .replaceAll("greatest(", "max(")
    .replaceAll("least(", "min(");
}

const SQLITE_DIALECT: SqlDialect = {
  insert: (table, cells, fromSql = "where true", copyOf) =>
    `${insertRowSql(table, cells, fromSql, copyOf)} on conflict do nothing`,
  upsert(table, keys, cells) {
    const updatedColumns = [...Object.keys(cells).filter((column) => !keys.includes(column)), "checksum"];
    const assignmentsSql = updatedColumns.map((column) => `${column} = excluded.${column}`).join(", ");
    return `${insertRowSql(table, cells, "")} on conflict (${keys.join(", ")}) do update set ${assignmentsSql}`;
  },
  update(table, cells, where) {
    const assignments = Object.entries(cells).map(([column, value]) => `${column} = ${value}, `);
    return `update ${table} set ${assignments.join("")}checksum = ${checksumSql(table, cells)}
      where ${where} and ${SQLITE_DIALECT.isIntactSql(table)}`;
  },
  isIntactSql: (table) => `${checksumSql(table)} is ${table}.checksum`,
  isIn: (column, valuesSql) => `${column} in (select value from json_each(${valuesSql}))`,
  kindOfBodySql: (body) => `case when json_valid(${body}) then ${body} ->> '$.type' end`,
  counters: { table: "log_size", where: "true" },
  lastPositionSql: "(select coalesce(max(seq), 0) from sqlite_sequence where name = 'event')",
  countValuesAfterSql: "(select count(*) from event where telemetry = 1 and position > $2)",
};

function insertRowSql(table: StateTable, cells: SqlByColumn, fromSql: string, copyOf?: StateTable): string {
  const columnNames = Object.keys(cells).join(", ");
  const values = Object.entries(cells).map(([column, value]) => `${value} as ${column}`);
  const checksum = `row_checksum(${CHECKED_TABLES[table].columns.join(", ")})`;
  return copyOf === undefined
    ? `insert into ${table} (${columnNames}, checksum)
        select ${columnNames}, ${checksum} from (select ${values.join(", ")} ${fromSql}) where true`
    : `insert into ${table} (${columnNames}, checksum) select ${columnNames}, case when is_sound then ${checksum} end
        from (select ${values.join(", ")}, ${SQLITE_DIALECT.isIntactSql(copyOf)} as is_sound ${fromSql}) where true`;
}

/** Longest time for which the service counts a request, with a margin for its clock. */
const MAX_QUOTA_COUNTING_MS = 2 * 60_000;
const UNKNOWN_QUOTA_PAUSE_MS = 60_000;

/** Counts a damaged record of a sent request against every rate limit, so that the quota is never exceeded. */
export function createDamagedQuota(quarantine: DamagedRowQuarantine, clock: Pick<Clock, "now">): DamagedQuota {
  return {
    unknownSlots: () =>
      quarantine
        .rowsFoundSince("quota", clock.now() - MAX_QUOTA_COUNTING_MS)
        .map(({ id, foundMs }) => ({ id: -id, sentAtMs: foundMs, countedByMs: foundMs })),
    unknownPause() {
      const pauseRow = quarantine.rowsFoundSince("quota_hold", clock.now() - UNKNOWN_QUOTA_PAUSE_MS).at(-1);
      return pauseRow && { orderedAtMs: pauseRow.foundMs, untilMs: pauseRow.foundMs + UNKNOWN_QUOTA_PAUSE_MS };
    },
  };
}

/** Stores readings of wall and boot clock in the table of pauses. Their keys contain a blank, keys of pauses do not. */
export function createQuotaClockStore(database: Database): Pick<QuotaStore, "loadClock" | "saveClock"> {
  const clockMarkKey = (key: string, boot: string) => `clock ${key} ${boot}`;
  return {
    async loadClock(key, boot) {
      const clockMark = database
        .prepare("select said_ms as wallMs, until_ms as sinceBootMs from quota_hold where bucket = ?")
        .get<BootClockMark>(clockMarkKey(key, boot));
      return clockMark && { ...clockMark };
    },
    async saveClock(key, boot, { wallMs, sinceBootMs }) {
      database.transaction(() => {
        database.prepare("delete from quota_hold where substr(bucket, 1, length(?1)) = ?1").run(clockMarkKey(key, ""));
        database
          .prepare(
            "insert into quota_hold (bucket, said_ms, until_ms, checksum) values (?1, ?2, ?3, row_checksum(?1, ?2, ?3))",
          )
          .run(clockMarkKey(key, boot), wallMs, sinceBootMs);
      });
    },
  };
}

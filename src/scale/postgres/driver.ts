import type { SqlQuery, SqlResult } from "../../core/postgres/session.ts";
import { sqlArray, textArray } from "../../core/postgres/sql-quoting.ts";
import type { SqlByColumn, SqlDialect, SqlDriver, SqlStatement, SqlValue } from "../../engine/store/sql-driver.ts";
import type { StateTable } from "../../engine/store/sqlite.ts";
import { buildDocumentChanges, encodePostgresText, type RunPostgresQuery } from "./document-store.ts";
import type { SourceStateWriter } from "./transaction-writer.ts";

/** SQL driver for the rows of one source. A commit passes the changed document sets to `noteChangedSets`. */
export function createPostgresDriver(
  source: string,
  query: RunPostgresQuery,
  writer: SourceStateWriter,
  noteChangedSets: (sets: Iterable<string>) => void,
  readChangeCount: () => Promise<number>,
): SqlDriver {
  const toPostgresQuery = (statement: SqlStatement) => bindStatement(source, statement);
  return {
    dialect: POSTGRES_DIALECT,
    query: async <Row>(text: string, ...values: readonly SqlValue[]) =>
      toRowObjects<Row>(await query(text, toPostgresQuery({ text, values }).values)),
    async commit(statements, documents = []) {
      await writer.commit([...statements.map(toPostgresQuery), ...buildDocumentChanges(source, documents)]);
      noteChangedSets(documents.map(({ set }) => set));
    },
    transaction: (work) =>
      writer.transaction(async (session) => {
        const sqlSteps = work();
        let stepResult = sqlSteps.next();
        while (stepResult.done !== true) {
          const results = await session.runQueries(stepResult.value.map(toPostgresQuery));
          stepResult = sqlSteps.next(results.map(toRowObjects));
        }
        return stepResult.value;
      }),
    defer: (key, statement) => writer.deferredWrites.write(key, () => toPostgresQuery(statement())),
    isBehind: writer.deferredWrites.isBehind,
    flush: async () => writer.deferredWrites.flush(),
    changes: readChangeCount,
  };
}

export function bindStatement(source: string, { values, ...statement }: SqlStatement): SqlQuery {
  return { ...statement, values: [source, ...values.map(bindSqlValue)] };
}

export function toRowObjects<Row>({ rows, columns = [] }: SqlResult): readonly Row[] {
  return rows.map((cells) => Object.fromEntries(columns.map((column, index) => [column, cells[index]])) as Row);
}

function bindSqlValue(value: SqlValue): string | Buffer | null {
  if (value === null) return null;
  if (typeof value === "number") return String(value);
  if (typeof value === "string") return encodePostgresText(value);
  return value.every((each) => typeof each === "number") ? sqlArray(value) : textArray(value as readonly string[]);
}

const POSTGRES_DIALECT: SqlDialect = {
  insert: (table, cells, from = "") => `${insertRowSql(table, cells, from)} on conflict do nothing`,
  upsert(table, keys, cells) {
    const replacedColumns = Object.keys(cells).filter((column) => !keys.includes(column));
    const assignmentsSql = replacedColumns.map((column) => `${column} = excluded.${column}`).join(", ");
    return `${insertRowSql(table, cells, "")} on conflict (source, ${keys.join(", ")}) do update set ${assignmentsSql}`;
  },
  update(table, cells, where) {
    const assignments = Object.entries(cells).map(([column, value]) => `${column} = ${value}`);
    return `update ${table} set ${assignments.join(", ")} where source = $1 and ${where}`;
  },
  isIntactSql: () => "true",
  isIn: (column, list) => `${column} = any(${list})`,
  kindOfBodySql: (body) => `${body}::json ->> 'type'`,
  counters: { table: "source", where: "source.name = $1" },
  lastPositionSql: "(select last_position from source where source.name = $1)",
  // Subtract all other events from the total, because no index contains only telemetry.
  countValuesAfterSql: `(select count(*) from event where source = $1 and position > $2)
    - (select count(*) from event where source = $1 and position > $2 and not telemetry)`,
};

function insertRowSql(table: StateTable, cells: SqlByColumn, from: string): string {
  return `insert into ${table} (source, ${Object.keys(cells).join(", ")})
    select $1, ${Object.values(cells).join(", ")} ${from}`;
}

import { quoteSqlName, quoteSqlText } from "../../src/core/postgres/sql-quoting.ts";
import type { Column, LakeTable } from "../shared/lake/table-model.ts";
import { SQL_TYPES } from "./column-encoding.ts";

export interface TableSettings {
  readonly schema: string;
  readonly timescale: boolean;
}

export function qualifiedName({ schema }: Pick<TableSettings, "schema">, table: Pick<LakeTable, "name">): string {
  return `${quoteSqlName(schema)}.${quoteSqlName(table.name)}`;
}

export const joinQuotedColumnNames = (names: readonly string[]): string => names.map(quoteSqlName).join(", ");

/** Lists the primary key columns, sort columns first if possible. A hypertable needs its time column in the key. */
export function buildPrimaryKey(table: LakeTable, { timescale }: Pick<TableSettings, "timescale">): readonly string[] {
  const keyColumnNames = timescale && table.rowPolicy === "append" ? new Set([...table.key, table.time]) : table.key;
  const keyColumns = [...keyColumnNames];
  const leadingSortColumns = table.sortedBy.every((name) => keyColumns.includes(name)) ? table.sortedBy : [];
  return [...leadingSortColumns, ...keyColumns.filter((name) => !leadingSortColumns.includes(name))];
}

/**
 * Builds an upsert. `isArrayColumn` is true for columns whose parameter is an array, not one value for all. Of two
 * rows with the same key, a table of versions keeps the new row. Other tables keep the stored row if the key contains
 * the event id, otherwise the row with the higher `observed_at` and position.
 */
export function buildInsertSql(table: LakeTable, target: TableSettings, isArrayColumn: readonly boolean[]): string {
  const keyColumns = buildPrimaryKey(table, target);
  const columnNames = table.columns.map(({ name }) => name);
  const arrayParameterColumns = table.columns.flatMap((column, n) => (isArrayColumn[n] ? [{ column, n }] : []));
  const unnestSql = `unnest(${arrayParameterColumns.map(({ column, n }) => `$${n + 1}::${sqlParameterType(column)}[]`).join(", ")})`;
  const selectedCellsSql = table.columns.map((column, n) => {
    const cellSql = isArrayColumn[n] ? `sent.${quoteSqlName(column.name)}` : `$${n + 1}::${sqlParameterType(column)}`;
    return `${cellSql}${column.type === "json" ? "::jsonb" : ""} as ${quoteSqlName(column.name)}`;
  });
  const selectSql = `select ${selectedCellsSql.join(", ")} from ${unnestSql} as sent (${joinQuotedColumnNames(arrayParameterColumns.map(({ column }) => column.name))})`;
  const replacedColumns = columnNames.filter((name) => !keyColumns.includes(name));
  const updateClause = `do update set ${replacedColumns.map((name) => `${quoteSqlName(name)} = excluded.${quoteSqlName(name)}`).join(", ")}`;
  const insertClause = `insert into ${qualifiedName(target, table)} as stored (${joinQuotedColumnNames(columnNames)})`;
  const onConflictClause = `on conflict (${joinQuotedColumnNames(keyColumns)})`;
  if (table.rowPolicy === "versions") return `${insertClause}\n${selectSql}\n${onConflictClause} ${updateClause}`;
  if (table.key.includes("event_id")) return `${insertClause}\n${selectSql}\n${onConflictClause} do nothing`;
  // An upsert does not allow duplicate keys within a statement.
  return `${insertClause}
select distinct on (${joinQuotedColumnNames(keyColumns)}) * from (${selectSql}) as every
order by ${joinQuotedColumnNames(keyColumns)}, "observed_at" desc, "position" desc
${onConflictClause} ${updateClause}
where (excluded."observed_at", excluded."position") > (stored."observed_at", stored."position")`;
}

/** JSON is sent as text: binary jsonb is text with a leading byte. */
const sqlParameterType = ({ type }: Pick<Column, "type">): string => (type === "json" ? "text" : SQL_TYPES[type].name);

/** Table of the columns that Plenum created; distinguishes a new column from a dropped column. */
export const VERSION_TABLE = { name: "schema_version" } as const;

export function buildCreateVersionTableSql(target: TableSettings): string {
  const tableName = qualifiedName(target, VERSION_TABLE);
  return `create table if not exists ${tableName} (
  version integer not null primary key,
  applied_at timestamp with time zone not null default now(),
  columns text[] not null
);
comment on table ${tableName} is 'Which columns Plenum has made, as table.column: one row for each time that it made some.'`;
}

export const formatColumnPath = (table: LakeTable, column: Column): string => `${table.name}.${column.name}`;

export function buildCreateTableSql(table: LakeTable, target: TableSettings): string {
  const tableName = qualifiedName(target, table);
  const keyColumns = buildPrimaryKey(table, target);
  const columns = table.columns.map(
    (column) => `  ${quoteSqlName(column.name)} ${SQL_TYPES[column.type].name}${column.isNullable ? "" : " not null"}`,
  );
  return [
    `create table if not exists ${tableName} (\n${[...columns, `  primary key (${joinQuotedColumnNames(keyColumns)})`].join(",\n")}\n)`,
    `comment on table ${tableName} is ${quoteSqlText(table.about)}`,
    ...table.columns.map((column) => buildColumnCommentSql(table, column, target)),
    ...buildCreateIndexesSql(table, target),
  ].join(";\n");
}

function buildCreateIndexesSql(table: LakeTable, target: TableSettings): readonly string[] {
  const name = qualifiedName(target, table);
  const leadingKeyColumns = buildPrimaryKey(table, target).slice(0, table.sortedBy.length);
  const isSortedByPrimaryKey = table.sortedBy.every((column, n) => leadingKeyColumns[n] === column);
  return [
    ...(isSortedByPrimaryKey ? [] : [`create index on ${name} (${joinQuotedColumnNames(table.sortedBy)})`]),
    // Rows arrive nearly in time order, so a small BRIN index finds a day or the newest rows.
    ...(table.rowPolicy === "append"
      ? [`create index on ${name} using brin (${joinQuotedColumnNames([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

export function buildAddColumnSql(table: LakeTable, column: Column, target: TableSettings): string {
  const columnDefinition = `${quoteSqlName(column.name)} ${SQL_TYPES[column.type].name}`;
  return `alter table ${qualifiedName(target, table)} add column if not exists ${columnDefinition};
${buildColumnCommentSql(table, column, target)}`;
}

function buildColumnCommentSql(table: LakeTable, column: Column, target: TableSettings): string {
  return `comment on column ${qualifiedName(target, table)}.${quoteSqlName(column.name)} is ${quoteSqlText(column.about)}`;
}

export function buildCreateHypertableSql(table: LakeTable, target: TableSettings, timescaleSchema: string): string {
  const [tableSql, timeSql] = [quoteSqlText(qualifiedName(target, table)), quoteSqlText(table.time)];
  return `select ${quoteSqlName(timescaleSchema)}.create_hypertable(${tableSql}, ${timeSql}, if_not_exists => true, migrate_data => true)`;
}

import { quoteSqlName, quoteSqlText } from "../../src/core/postgres/sql-quoting.ts";
import type { Column, LakeTable } from "../shared/lake/table-model.ts";
import { SQL_TYPES } from "./column-encoding.ts";

export interface TableTarget {
  readonly schema: string;
  readonly timescale: boolean;
}

export function qualifiedName({ schema }: Pick<TableTarget, "schema">, table: Pick<LakeTable, "name">): string {
  return `${quoteSqlName(schema)}.${quoteSqlName(table.name)}`;
}

export function joinQuotedColumns(names: readonly string[]): string {
  return names.map(quoteSqlName).join(", ");
}

/** Starts the key with the sort columns if possible. Hypertables need their time column in every key. */
export function buildPrimaryKey(table: LakeTable, { timescale }: Pick<TableTarget, "timescale">): readonly string[] {
  const names = timescale && table.rowPolicy === "append" ? new Set([...table.key, table.time]) : table.key;
  const key = [...names];
  const leadingColumns = table.sortedBy.every((name) => key.includes(name)) ? table.sortedBy : [];
  return [...leadingColumns, ...key.filter((name) => !leadingColumns.includes(name))];
}

/**
 * `arrays` tells for each column whether its parameter is an array or one value for all rows. Of two rows with a key stays
 * the new row in a table of versions, the stored row with the event's id in the key, otherwise the row with the higher
 * `observed_at` and position.
 */
export function buildInsert(table: LakeTable, target: TableTarget, arrays: readonly boolean[]): string {
  const key = buildPrimaryKey(table, target);
  const names = table.columns.map(({ name }) => name);
  const arrayColumns = table.columns.flatMap((column, n) => (arrays[n] ? [{ column, n }] : []));
  const unnest = `unnest(${arrayColumns.map(({ column, n }) => `$${n + 1}::${parameterType(column)}[]`).join(", ")})`;
  const cells = table.columns.map((column, n) => {
    const cell = arrays[n] ? `sent.${quoteSqlName(column.name)}` : `$${n + 1}::${parameterType(column)}`;
    return `${cell}${column.type === "json" ? "::jsonb" : ""} as ${quoteSqlName(column.name)}`;
  });
  const selectSql = `select ${cells.join(", ")} from ${unnest} as sent (${joinQuotedColumns(arrayColumns.map(({ column }) => column.name))})`;
  const replacedColumns = names.filter((name) => !key.includes(name));
  const updateClause = `do update set ${replacedColumns.map((name) => `${quoteSqlName(name)} = excluded.${quoteSqlName(name)}`).join(", ")}`;
  const insertClause = `insert into ${qualifiedName(target, table)} as stored (${joinQuotedColumns(names)})`;
  const onConflict = `on conflict (${joinQuotedColumns(key)})`;
  if (table.rowPolicy === "versions") return `${insertClause}\n${selectSql}\n${onConflict} ${updateClause}`;
  if (table.key.includes("event_id")) return `${insertClause}\n${selectSql}\n${onConflict} do nothing`;
  // An upsert does not allow duplicate keys within a statement.
  return `${insertClause}
select distinct on (${joinQuotedColumns(key)}) * from (${selectSql}) as every
order by ${joinQuotedColumns(key)}, "observed_at" desc, "position" desc
${onConflict} ${updateClause}
where (excluded."observed_at", excluded."position") > (stored."observed_at", stored."position")`;
}

/** JSON is sent as text: binary jsonb is text with a leading byte. */
function parameterType({ type }: Pick<Column, "type">): string {
  return type === "json" ? "text" : SQL_TYPES[type].name;
}

/** Table of the columns that Plenum created; distinguishes a new column from a dropped column. */
export const VERSION_TABLE = { name: "schema_version" } as const;

export function buildCreateSchema({ schema }: TableTarget): string {
  return `create schema ${quoteSqlName(schema)}`;
}

export function buildCreateVersionTable(target: TableTarget): string {
  const name = qualifiedName(target, VERSION_TABLE);
  return `create table if not exists ${name} (
  version integer not null primary key,
  applied_at timestamp with time zone not null default now(),
  columns text[] not null
);
comment on table ${name} is 'Which columns Plenum has made, as table.column: one row for each time that it made some.'`;
}

export function columnPath(table: LakeTable, column: Column): string {
  return `${table.name}.${column.name}`;
}

/** Builds statements for a table with comments and the indexes of the usual queries. */
export function buildCreateTable(table: LakeTable, target: TableTarget): string {
  const name = qualifiedName(target, table);
  const key = buildPrimaryKey(table, target);
  const columns = table.columns.map(
    (column) => `  ${quoteSqlName(column.name)} ${SQL_TYPES[column.type].name}${column.isNullable ? "" : " not null"}`,
  );
  return [
    `create table if not exists ${name} (\n${[...columns, `  primary key (${joinQuotedColumns(key)})`].join(",\n")}\n)`,
    `comment on table ${name} is ${quoteSqlText(table.about)}`,
    ...table.columns.map((column) => buildComment(table, column, target)),
    ...buildCreateIndexes(table, target),
  ].join(";\n");
}

function buildCreateIndexes(table: LakeTable, target: TableTarget): readonly string[] {
  const name = qualifiedName(target, table);
  const leadingKeyColumns = buildPrimaryKey(table, target).slice(0, table.sortedBy.length);
  const isSortCovered = table.sortedBy.every((column, n) => leadingKeyColumns[n] === column);
  return [
    ...(isSortCovered ? [] : [`create index on ${name} (${joinQuotedColumns(table.sortedBy)})`]),
    // Rows arrive nearly in time order, so a small BRIN index finds a day or the newest rows.
    ...(table.rowPolicy === "append"
      ? [`create index on ${name} using brin (${joinQuotedColumns([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

export function buildAddColumn(table: LakeTable, column: Column, target: TableTarget): string {
  const definition = `${quoteSqlName(column.name)} ${SQL_TYPES[column.type].name}`;
  return `alter table ${qualifiedName(target, table)} add column if not exists ${definition};
${buildComment(table, column, target)}`;
}

function buildComment(table: LakeTable, column: Column, target: TableTarget): string {
  return `comment on column ${qualifiedName(target, table)}.${quoteSqlName(column.name)} is ${quoteSqlText(column.about)}`;
}

export function buildCreateHypertable(table: LakeTable, target: TableTarget, functions: string): string {
  const [relation, time] = [quoteSqlText(qualifiedName(target, table)), quoteSqlText(table.time)];
  return `select ${quoteSqlName(functions)}.create_hypertable(${relation}, ${time}, if_not_exists => true, migrate_data => true)`;
}

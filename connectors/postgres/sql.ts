import { quoted } from "../../src/core/postgres/sql-text.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { SQL_TYPES } from "./columns.ts";

export interface Target {
  readonly schema: string;
  readonly timescale: boolean;
}

export function qualifiedName({ schema }: Pick<Target, "schema">, table: Pick<Table, "name">): string {
  return `${quoted(schema)}.${quoted(table.name)}`;
}

export function columnList(names: readonly string[]): string {
  return names.map(quoted).join(", ");
}

/** Starts with the sort columns where possible. Hypertables need their time column in every key. */
export function primaryKeyOf(table: Table, { timescale }: Pick<Target, "timescale">): readonly string[] {
  const names = timescale && table.rowPolicy === "append" ? new Set([...table.key, table.time]) : table.key;
  const key = [...names];
  const first = table.sortedBy.every((name) => key.includes(name)) ? table.sortedBy : [];
  return [...first, ...key.filter((name) => !first.includes(name))];
}

/**
 * `arrays` tells for each column whether its parameter is an array or one value for all rows. Of two rows with a key stays
 * the new row in a table of versions, the stored row with the event's id in the key, otherwise the row with the higher
 * `observed_at` and position.
 */
export function insertText(table: Table, target: Target, arrays: readonly boolean[]): string {
  const key = primaryKeyOf(table, target);
  const names = table.columns.map(({ name }) => name);
  const lists = table.columns.flatMap((column, n) => (arrays[n] ? [{ column, n }] : []));
  const from = `unnest(${lists.map(({ column, n }) => `$${n + 1}::${sentAs(column)}[]`).join(", ")})`;
  const cells = table.columns.map((column, n) => {
    const cell = arrays[n] ? `sent.${quoted(column.name)}` : `$${n + 1}::${sentAs(column)}`;
    return `${cell}${column.type === "json" ? "::jsonb" : ""} as ${quoted(column.name)}`;
  });
  const sent = `select ${cells.join(", ")} from ${from} as sent (${columnList(lists.map(({ column }) => column.name))})`;
  const replaced = names.filter((name) => !key.includes(name));
  const update = `do update set ${replaced.map((name) => `${quoted(name)} = excluded.${quoted(name)}`).join(", ")}`;
  const insert = `insert into ${qualifiedName(target, table)} as stored (${columnList(names)})`;
  const onConflict = `on conflict (${columnList(key)})`;
  if (table.rowPolicy === "versions") return `${insert}\n${sent}\n${onConflict} ${update}`;
  if (table.key.includes("event_id")) return `${insert}\n${sent}\n${onConflict} do nothing`;
  // An upsert does not allow duplicate keys within a statement.
  return `${insert}
select distinct on (${columnList(key)}) * from (${sent}) as every
order by ${columnList(key)}, "observed_at" desc, "position" desc
${onConflict} ${update}
where (excluded."observed_at", excluded."position") > (stored."observed_at", stored."position")`;
}

/** JSON is sent as text: binary jsonb is text with a leading byte. */
function sentAs({ type }: Pick<Column, "type">): string {
  return type === "json" ? "text" : SQL_TYPES[type].name;
}

/** Columns that Plenum created; tells a new column from a dropped one. */
export const VERSION_TABLE = { name: "schema_version" } as const;

export function createSchema({ schema }: Target): string {
  return `create schema ${quoted(schema)}`;
}

export function createVersionTable(target: Target): string {
  const name = qualifiedName(target, VERSION_TABLE);
  return `create table if not exists ${name} (
  version integer not null primary key,
  applied_at timestamp with time zone not null default now(),
  columns text[] not null
);
comment on table ${name} is 'Which columns Plenum has made, as table.column: one row for each time that it made some.'`;
}

export function columnPathOf(table: Table, column: Column): string {
  return `${table.name}.${column.name}`;
}

/** With comments and the indexes of the usual queries. */
export function createTable(table: Table, target: Target): string {
  const name = qualifiedName(target, table);
  const key = primaryKeyOf(table, target);
  const columns = table.columns.map(
    (column) => `  ${quoted(column.name)} ${SQL_TYPES[column.type].name}${column.isNullable ? "" : " not null"}`,
  );
  return [
    `create table if not exists ${name} (\n${[...columns, `  primary key (${columnList(key)})`].join(",\n")}\n)`,
    `comment on table ${name} is ${sqlLiteral(table.about)}`,
    ...table.columns.map((column) => commentOn(table, column, target)),
    ...createIndexes(table, target),
  ].join(";\n");
}

function createIndexes(table: Table, target: Target): readonly string[] {
  const name = qualifiedName(target, table);
  const keyStart = primaryKeyOf(table, target).slice(0, table.sortedBy.length);
  const isCovered = table.sortedBy.every((column, n) => keyStart[n] === column);
  return [
    ...(isCovered ? [] : [`create index on ${name} (${columnList(table.sortedBy)})`]),
    // Rows arrive nearly in time order, so a small BRIN index finds a day or the newest rows.
    ...(table.rowPolicy === "append"
      ? [`create index on ${name} using brin (${columnList([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

export function addColumn(table: Table, column: Column, target: Target): string {
  const definition = `${quoted(column.name)} ${SQL_TYPES[column.type].name}`;
  return `alter table ${qualifiedName(target, table)} add column if not exists ${definition};
${commentOn(table, column, target)}`;
}

function commentOn(table: Table, column: Column, target: Target): string {
  return `comment on column ${qualifiedName(target, table)}.${quoted(column.name)} is ${sqlLiteral(column.about)}`;
}

/** `functions` is the schema of the TimescaleDB extension. */
export function createHypertable(table: Table, target: Target, functions: string): string {
  const [relation, time] = [sqlLiteral(qualifiedName(target, table)), sqlLiteral(table.time)];
  return `select ${quoted(functions)}.create_hypertable(${relation}, ${time}, if_not_exists => true, migrate_data => true)`;
}

function sqlLiteral(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

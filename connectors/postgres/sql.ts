import { quoted } from "../../src/core/postgres/quoted.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { TYPES } from "./columns.ts";

/** The statements that put rows into a table; texts only. */

/** Where the tables are, and what their primary keys look like. */
export interface Target {
  readonly schema: string;
  readonly timescale: boolean;
}

export function nameOf({ schema }: Pick<Target, "schema">, table: Pick<Table, "name">): string {
  return `${quoted(schema)}.${quoted(table.name)}`;
}

/** Columns as a list of a statement. */
export function listOf(names: readonly string[], of = ""): string {
  return names.map((name) => `${of}${quoted(name)}`).join(", ");
}

/**
 * What makes a row this row, in the order of the primary key: it begins as people search where that is possible, so that
 * one index is enough. A hypertable is cut by time, and wants it in every key.
 */
export function keyOf(table: Table, { timescale }: Pick<Target, "timescale">): readonly string[] {
  const names = timescale && table.rowPolicy === "append" ? new Set([...table.key, table.time]) : table.key;
  const key = [...names];
  const first = table.sortedBy.every((name) => key.includes(name)) ? table.sortedBy : [];
  return [...first, ...key.filter((name) => !first.includes(name))];
}

/**
 * Of two rows of one key:
 * - `first`: they say the same, because the key holds the event's id; the one that is there stays.
 * - `newer`: the one of the later `observed_at`, or of the same moment that of the higher position.
 * - `last`: the one that is written, because whoever writes has looked at what is there.
 */
type ConflictRule = "first" | "newer" | "last";

function conflictRuleOf(table: Table): ConflictRule {
  if (table.rowPolicy === "versions") return "last";
  return table.key.includes("event_id") ? "first" : "newer";
}

/** `arrays` says of each column whether its parameter is an array, or one value for all rows; one of them is an array. */
export function insertText(table: Table, target: Target, arrays: readonly boolean[]): string {
  const key = keyOf(table, target);
  const rule = conflictRuleOf(table);
  const names = table.columns.map(({ name }) => name);
  const lists = table.columns.flatMap((column, n) => (arrays[n] ? [{ column, n }] : []));
  const from = `unnest(${lists.map(({ column, n }) => `$${n + 1}::${sentAs(column)}[]`).join(", ")})`;
  const cells = table.columns.map((column, n) => {
    const cell = arrays[n] ? `told.${quoted(column.name)}` : `$${n + 1}::${sentAs(column)}`;
    return `${cell}${column.type === "json" ? "::jsonb" : ""} as ${quoted(column.name)}`;
  });
  const offered = `select ${cells.join(", ")} from ${from} as told (${listOf(lists.map(({ column }) => column.name))})`;
  return [
    `insert into ${nameOf(target, table)} as held (${listOf(names)})`,
    rule === "newer" ? newestOfEach(key, offered) : offered,
    `on conflict (${listOf(key)}) ${conflict(rule, names, key)}`,
  ].join("\n");
}

/** A statement must not meet one key twice where it replaces rows. */
function newestOfEach(key: readonly string[], offered: string): string {
  return `select distinct on (${listOf(key)}) * from (${offered}) as every
order by ${listOf(key)}, "observed_at" desc, "position" desc`;
}

function conflict(rule: ConflictRule, names: readonly string[], key: readonly string[]): string {
  if (rule === "first") return "do nothing";
  const replaced = names.filter((name) => !key.includes(name));
  const set = `do update set ${replaced.map((name) => `${quoted(name)} = excluded.${quoted(name)}`).join(", ")}`;
  if (rule === "last") return set;
  return `${set}
where (excluded."observed_at", excluded."position") > (held."observed_at", held."position")`;
}

/** JSON goes as text: what jsonb takes in binary is a text too, with a byte in front. */
function sentAs({ type }: Pick<Column, "type">): string {
  return type === "json" ? "text" : TYPES[type].name;
}

/** The statements that make schema and tables; texts only. */

/** Which tables and columns were made, and when: so a column that comes later is told from one that somebody dropped. */
export const VERSION_TABLE = { name: "schema_version" } as const;

export function createSchema({ schema }: Target): string {
  return `create schema ${quoted(schema)}`;
}

export function createVersionTable(target: Target): string {
  const name = nameOf(target, VERSION_TABLE);
  return `create table if not exists ${name} (
  version integer not null primary key,
  applied_at timestamp with time zone not null default now(),
  columns text[] not null
);
comment on table ${name} is 'Which columns Plenum has made, as table.column: one row for each time that it made some.'`;
}

/** How the stamp of a column reads. */
export function stampOf(table: Table, column: Column): string {
  return `${table.name}.${column.name}`;
}

/** A table, its comments, and the indexes that the obvious queries need. */
export function createTable(table: Table, target: Target): string {
  const name = nameOf(target, table);
  const key = keyOf(table, target);
  const columns = table.columns.map(
    (column) => `  ${quoted(column.name)} ${TYPES[column.type].name}${column.isNullable ? "" : " not null"}`,
  );
  return [
    `create table if not exists ${name} (\n${[...columns, `  primary key (${listOf(key)})`].join(",\n")}\n)`,
    `comment on table ${name} is ${literal(table.about)}`,
    ...table.columns.map((column) => commentOn(table, column, target)),
    ...indexes(table, target),
  ].join(";\n");
}

function indexes(table: Table, target: Target): readonly string[] {
  const name = nameOf(target, table);
  const keyStart = keyOf(table, target).slice(0, table.sortedBy.length);
  const isCovered = table.sortedBy.every((column, n) => keyStart[n] === column);
  return [
    ...(isCovered ? [] : [`create index on ${name} (${listOf(table.sortedBy)})`]),
    // Rows come nearly in the order of both, so an index of block ranges finds a day, and what is new, for next to nothing.
    ...(table.rowPolicy === "append"
      ? [`create index on ${name} using brin (${listOf([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

/** Null for what was there before, whatever the column says: nobody knows what it would have held. */
export function addColumn(table: Table, column: Column, target: Target): string {
  return [
    `alter table ${nameOf(target, table)} add column if not exists ${quoted(column.name)} ${TYPES[column.type].name}`,
    commentOn(table, column, target),
  ].join(";\n");
}

function commentOn(table: Table, column: Column, target: Target): string {
  return `comment on column ${nameOf(target, table)}.${quoted(column.name)} is ${literal(column.about)}`;
}

/** `functions` is the schema that the extension was created in. The form that TimescaleDB has known since its version 1. */
export function createHypertable(table: Table, target: Target, functions: string): string {
  const [relation, time] = [literal(nameOf(target, table)), literal(table.time)];
  return `select ${quoted(functions)}.create_hypertable(${relation}, ${time}, if_not_exists => true, migrate_data => true)`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

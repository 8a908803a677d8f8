import { quoted } from "../../src/core/postgres/sql-text.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { TYPES } from "./columns.ts";

/** Schema of the tables, and whether they are hypertables. */
export interface Target {
  readonly schema: string;
  readonly timescale: boolean;
}

export function nameOf({ schema }: Pick<Target, "schema">, table: Pick<Table, "name">): string {
  return `${quoted(schema)}.${quoted(table.name)}`;
}

export function listOf(names: readonly string[], of = ""): string {
  return names.map((name) => `${of}${quoted(name)}`).join(", ");
}

/**
 * Primary key of a table: starts with the columns that people search by where possible, so that one index
 * suffices. Hypertables need their time column in every key.
 */
export function keyOf(table: Table, { timescale }: Pick<Target, "timescale">): readonly string[] {
  const names = timescale && table.rowPolicy === "append" ? new Set([...table.key, table.time]) : table.key;
  const key = [...names];
  const first = table.sortedBy.every((name) => key.includes(name)) ? table.sortedBy : [];
  return [...first, ...key.filter((name) => !first.includes(name))];
}

/**
 * Row that stays where two have the same key:
 * - `first`: the stored row; both say the same, because the key contains the event's id.
 * - `newer`: the row with the later `observed_at`, or with the higher position at the same time.
 * - `last`: the new row; the writer has compared it with the stored one.
 */
type ConflictRule = "first" | "newer" | "last";

function conflictRuleOf(table: Table): ConflictRule {
  if (table.rowPolicy === "versions") return "last";
  return table.key.includes("event_id") ? "first" : "newer";
}

/**
 * Builds an insert. `arrays` tells for each column whether its parameter is an array or one value for all rows; at
 * least one is an array.
 */
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

/** Removes duplicate keys, which an upsert does not allow within a statement. */
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

/** Sends JSON as text: binary jsonb is text with a leading byte. */
function sentAs({ type }: Pick<Column, "type">): string {
  return type === "json" ? "text" : TYPES[type].name;
}

/** Table of the columns that Plenum created and when; it tells a new column from a dropped one. */
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

/** Name of a column in that table. */
export function stampOf(table: Table, column: Column): string {
  return `${table.name}.${column.name}`;
}

/** Creates a table, its comments, and the indexes of the usual queries. */
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
    // Rows arrive nearly in time order, so a small BRIN index finds a day or the newest rows.
    ...(table.rowPolicy === "append"
      ? [`create index on ${name} using brin (${listOf([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

/** Adds a column. It is null in existing rows, whose value is unknown. */
export function addColumn(table: Table, column: Column, target: Target): string {
  return [
    `alter table ${nameOf(target, table)} add column if not exists ${quoted(column.name)} ${TYPES[column.type].name}`,
    commentOn(table, column, target),
  ].join(";\n");
}

function commentOn(table: Table, column: Column, target: Target): string {
  return `comment on column ${nameOf(target, table)}.${quoted(column.name)} is ${literal(column.about)}`;
}

/**
 * Makes a hypertable with the call that TimescaleDB has had since version 1. `functions` is the extension's
 * schema.
 */
export function createHypertable(table: Table, target: Target, functions: string): string {
  const [relation, time] = [literal(nameOf(target, table)), literal(table.time)];
  return `select ${quoted(functions)}.create_hypertable(${relation}, ${time}, if_not_exists => true, migrate_data => true)`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

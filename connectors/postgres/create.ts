import { quoted } from "../../src/core/postgres/quoted.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { TYPES } from "./columns.ts";
import { keyOf, listOf, nameOf, type Place } from "./statement.ts";

/** The statements that make schema and tables; texts only. */

/** Which tables and columns were made, and when: so a column that comes later is told from one that somebody dropped. */
export const STAMPS = { name: "schema_version" } as const;

export function createSchema({ schema }: Place): string {
  return `create schema ${quoted(schema)}`;
}

export function createStamps(place: Place): string {
  const name = nameOf(place, STAMPS);
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
export function createTable(table: Table, place: Place): string {
  const name = nameOf(place, table);
  const key = keyOf(table, place);
  const columns = table.columns.map(
    (column) => `  ${quoted(column.name)} ${TYPES[column.type].name}${column.isNullable ? "" : " not null"}`,
  );
  return [
    `create table if not exists ${name} (\n${[...columns, `  primary key (${listOf(key)})`].join(",\n")}\n)`,
    `comment on table ${name} is ${literal(table.about)}`,
    ...table.columns.map((column) => commentOn(table, column, place)),
    ...indexes(table, place),
  ].join(";\n");
}

function indexes(table: Table, place: Place): readonly string[] {
  const name = nameOf(place, table);
  const begins = keyOf(table, place).slice(0, table.sortedBy.length);
  const isFound = table.sortedBy.every((column, n) => begins[n] === column);
  return [
    ...(isFound ? [] : [`create index on ${name} (${listOf(table.sortedBy)})`]),
    // Rows come nearly in the order of both, so an index of block ranges finds a day, and what is new, for next to nothing.
    ...(table.keeping === "append"
      ? [`create index on ${name} using brin (${listOf([...new Set([table.time, "observed_at"])])})`]
      : []),
  ];
}

/** Null for what was there before, whatever the column says: nobody knows what it would have held. */
export function addColumn(table: Table, column: Column, place: Place): string {
  return [
    `alter table ${nameOf(place, table)} add column if not exists ${quoted(column.name)} ${TYPES[column.type].name}`,
    commentOn(table, column, place),
  ].join(";\n");
}

function commentOn(table: Table, column: Column, place: Place): string {
  return `comment on column ${nameOf(place, table)}.${quoted(column.name)} is ${literal(column.about)}`;
}

/** `functions` is the schema that the extension was created in. The form that TimescaleDB has known since its version 1. */
export function createHypertable(table: Table, place: Place, functions: string): string {
  const [relation, time] = [literal(nameOf(place, table)), literal(table.time)];
  return `select ${quoted(functions)}.create_hypertable(${relation}, ${time}, if_not_exists => true, migrate_data => true)`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

import { quoted } from "../../src/core/postgres/quoted.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { TYPES } from "./columns.ts";

/** The statements that put rows into a table; texts only. */

/** Where the tables are, and what their primary keys look like. */
export interface Place {
  readonly schema: string;
  readonly timescale: boolean;
}

export function nameOf({ schema }: Pick<Place, "schema">, table: Pick<Table, "name">): string {
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
export function keyOf(table: Table, { timescale }: Pick<Place, "timescale">): readonly string[] {
  const wanted = timescale && table.keeping === "append" ? new Set([...table.key, table.time]) : table.key;
  const key = [...wanted];
  const first = table.sortedBy.every((name) => key.includes(name)) ? table.sortedBy : [];
  return [...first, ...key.filter((name) => !first.includes(name))];
}

/**
 * Of two rows of one key:
 * - `first`: they say the same, because the key holds the event's id; the one that is there stays.
 * - `newer`: the one of the later `observed_at`, or of the same moment that of the higher position.
 * - `last`: the one that is written, because whoever writes has looked at what is there.
 */
export type Winner = "first" | "newer" | "last";

function winnerOf(table: Table): Winner {
  if (table.keeping === "versions") return "last";
  return table.key.includes("event_id") ? "first" : "newer";
}

/** `arrays` says of each column whether its parameter is an array, or one value for all rows; one of them is an array. */
export function insertText(table: Table, place: Place, arrays: readonly boolean[]): string {
  const key = keyOf(table, place);
  const winner = winnerOf(table);
  const names = table.columns.map(({ name }) => name);
  const lists = table.columns.flatMap((column, n) => (arrays[n] ? [{ column, n }] : []));
  const from = `unnest(${lists.map(({ column, n }) => `$${n + 1}::${sentAs(column)}[]`).join(", ")})`;
  const cells = table.columns.map((column, n) => {
    const cell = arrays[n] ? `told.${quoted(column.name)}` : `$${n + 1}::${sentAs(column)}`;
    return `${cell}${column.type === "json" ? "::jsonb" : ""} as ${quoted(column.name)}`;
  });
  const told = `select ${cells.join(", ")} from ${from} as told (${listOf(lists.map(({ column }) => column.name))})`;
  return [
    `insert into ${nameOf(place, table)} as held (${listOf(names)})`,
    winner === "newer" ? newestOfEach(key, told) : told,
    `on conflict (${listOf(key)}) ${conflict(winner, names, key)}`,
  ].join("\n");
}

/** A statement must not meet one key twice where it replaces rows. */
function newestOfEach(key: readonly string[], told: string): string {
  return `select distinct on (${listOf(key)}) * from (${told}) as every
order by ${listOf(key)}, "observed_at" desc, "position" desc`;
}

function conflict(winner: Winner, names: readonly string[], key: readonly string[]): string {
  if (winner === "first") return "do nothing";
  const replaced = names.filter((name) => !key.includes(name));
  const set = `do update set ${replaced.map((name) => `${quoted(name)} = excluded.${quoted(name)}`).join(", ")}`;
  if (winner === "last") return set;
  return `${set}
where (excluded."observed_at", excluded."position") > (held."observed_at", held."position")`;
}

/** JSON goes as text: what jsonb takes in binary is a text too, with a byte in front. */
function sentAs({ type }: Pick<Column, "type">): string {
  return type === "json" ? "text" : TYPES[type].name;
}

import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Column, Table } from "../shared/lake/table.ts";
import { TYPES } from "./columns.ts";
import { stampOf } from "./create.ts";
import { keyOf, listOf, nameOf, type Place } from "./statement.ts";

/** A column as the catalogue of the database has it. */
export interface FoundColumn {
  /** As `format_type` writes it, such as `double precision`. */
  readonly type: string;
  readonly isNotNull: boolean;
  /** The database fills it where nobody does. */
  readonly hasDefault: boolean;
}

export interface FoundTable {
  /** `r` for a table, `p` for one in partitions; anything else is none. */
  readonly kind: string;
  readonly columns: ReadonlyMap<string, FoundColumn>;
  /** Columns of each unique index, in the order of their names. */
  readonly uniques: readonly string[];
}

/** How `uniques` spells an index. */
export function uniqueOf(columns: readonly string[]): string {
  return columns.toSorted().join(" ");
}

export interface Found {
  readonly hasSchema: boolean;
  readonly tables: ReadonlyMap<string, FoundTable>;
  /** Columns that we have made at any time, as `table.column`. */
  readonly stamps: ReadonlySet<string>;
}

/** What is missing by our doing: never there, or of a later version than what made the table. */
export interface Missing {
  readonly tables: readonly Table[];
  readonly columns: readonly { readonly table: Table; readonly column: Column }[];
}

/** Throws ConfigError where somebody has changed a table so that rows do not fit: nothing is written then. */
export function missingIn(tables: readonly Table[], found: Found, place: Place): Missing {
  const absent = tables.filter(({ name }) => !found.tables.has(name));
  const columns = tables.flatMap((table) => {
    const there = found.tables.get(table.name);
    if (there === undefined) return [];
    refuseForeign(table, there, place);
    return table.columns
      .filter(({ name }) => !there.columns.has(name))
      .map((column) => {
        if (!found.stamps.has(stampOf(table, column))) return { table, column };
        throw changed(
          `The table ${shown(place, table)} has lost its column ${column.name}.`,
          `Run: alter table ${nameOf(place, table)} add column "${column.name}" ${TYPES[column.type].name}`,
        );
      });
  });
  return { tables: absent, columns };
}

function refuseForeign(table: Table, there: FoundTable, place: Place): void {
  const name = shown(place, table);
  if (!["r", "p"].includes(there.kind)) {
    throw changed(`${name} is no table.`, "Rename what has that name, or let schema name another.");
  }
  for (const [columnName, { type, isNotNull, hasDefault }] of there.columns) {
    const own = table.columns.find((column) => column.name === columnName);
    const alter = `Run: alter table ${nameOf(place, table)} alter column "${columnName}"`;
    if (own === undefined) {
      if (!isNotNull || hasDefault) continue;
      throw changed(
        `The table ${name} has a column ${columnName} that has to be filled, and nobody does.`,
        `${alter} drop not null; or give it a default.`,
      );
    }
    const wanted = TYPES[own.type].name;
    if (type !== wanted) {
      throw changed(
        `The column ${columnName} of ${name} is ${type} and has to be ${wanted}.`,
        `${alter} type ${wanted}`,
      );
    }
    if (isNotNull && own.isNullable) {
      throw changed(`The column ${columnName} of ${name} has to take null.`, `${alter} drop not null`);
    }
  }
  const key = keyOf(table, place);
  if (there.uniques.includes(uniqueOf(key)) || key.some((column) => !there.columns.has(column))) return;
  throw changed(
    `The table ${name} has no unique index on ${key.join(", ")}.`,
    `Run: create unique index on ${nameOf(place, table)} (${listOf(key)})`,
  );
}

function changed(message: string, hint: string): ConfigError {
  return new ConfigError(message, { field: "schema", hint });
}

function shown({ schema }: Place, { name }: Table): string {
  return `${schema}.${name}`;
}

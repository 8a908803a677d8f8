import type { Table } from "../../src/lake/table.ts";

/**
 * Where files lie in the lake, in the way of Hive, so that a query engine skips the days and sites that it is not asked
 * for. What begins with `_` is for us, and readers leave it out.
 *
 *     value/date=2026-11-21/site=1/k3v9q2-000000000101-000000004711.parquet
 *     tag/tag.parquet
 *     _manifests/site=1/date=2026-11-21.json
 */

/** Of facts about no single site. */
const NO_SITE = "none";

/** Rows that lie together: those of a table's day and site, or of a whole table that changes too rarely to be divided. */
export interface Partition {
  readonly table: Table;
  /** In the lake, with the slash. */
  readonly folder: string;
  /** UTC day and site; null where the table is not divided. */
  readonly of: { readonly day: string; readonly site: string | null } | null;
}

export function partitionOf(table: Table, day: string, site: string | null): Partition {
  return { table, folder: `${folderOf(table)}date=${day}/site=${escaped(site)}/`, of: { day, site } };
}

/** Tables of versions hold things of all sites, each from one day to another. */
export function isDivided({ keeping }: Table): boolean {
  return keeping !== "versions";
}

export function undivided(table: Table): Partition {
  return { table, folder: folderOf(table), of: null };
}

export function folderOf(table: Table): string {
  return `${table.name}/`;
}

/** The one object of a partition that is replaced whole. */
export function wholeOf({ table, folder }: Partition): string {
  return `${folder}${table.name}.parquet`;
}

/** A file of a table that has all its columns and no rows, where no day is in the way. */
export function emptyOf(table: Table): string {
  return `${partitionOf(table, "1970-01-01", null).folder}empty.parquet`;
}

/** What a landing puts there, without the ending: whose, and which positions. */
export function landedName(life: string, from: number, through: number): string {
  return `${life}-${padded(from)}-${padded(through)}`;
}

export function manifestOf(day: string, site: string | null): string {
  return `_manifests/site=${escaped(site)}/date=${day}.json`;
}

/** Through which position a life has begun to land. */
export function lifeOf(life: string): string {
  return `_lives/${life}.json`;
}

/** The columns of all tables, as they were written last. */
export const SCHEMAS = "_schemas.json";

function padded(position: number): string {
  return String(position).padStart(12, "0");
}

/** As Hive escapes it, and DuckDB and Spark read it: `a/b` is `a%2Fb`. */
function escaped(site: string | null): string {
  return site === null || site === "" ? NO_SITE : encodeURIComponent(site.toWellFormed());
}

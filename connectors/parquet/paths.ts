import type { Table } from "../shared/lake/table.ts";

/**
 * Keys of files in the lake, in Hive's layout, so that query engines skip days and sites:
 *
 *   value/date=2026-11-21/site=1/k3v9q2-000000000101-000000004711.parquet
 *   tag/tag.parquet
 *   _manifests/site=1/date=2026-11-21.json        (readers ignore names with `_`)
 */

/** Folder name for rows of no single site. */
const NO_SITE = "none";
/** Hive's name for a missing partition value, which DuckDB and Spark read as null. */
const NO_DAY = "__HIVE_DEFAULT_PARTITION__";
/** Day under which earlier versions put rows without a time, and files without rows. */
export const FIRST_DAY = "1970-01-01";
/** File with all columns of its table and no rows. */
export const EMPTY_FILE_NAME = "empty.parquet";
/** File with the columns of all tables. */
export const SCHEMAS_KEY = "_schemas.json";

/** One day and site of a table, or a complete table that changes too rarely to be divided. */
export interface Partition {
  readonly table: Table;
  readonly folder: string;
  /** Null where the table is not divided. The day (UTC) is null where the row's time is unknown. */
  readonly dayAndSite: { readonly day: string | null; readonly site: string | null } | null;
}

export function partitionOf(table: Table, day: string | null, site: string | null): Partition {
  return { table, folder: `${folderOf(table)}date=${day ?? NO_DAY}/site=${escaped(site)}/`, dayAndSite: { day, site } };
}

/** Parses two folder names, such as `date=2026-11-21` and `site=1`; null for other names. */
export function partitionIn(table: Table, date: string, site: string): Partition | null {
  const [, day] = /^date=(\d{4}-\d\d-\d\d)$/.exec(date) ?? [];
  const [, word] = /^site=(.+)$/.exec(site) ?? [];
  if (day === undefined || word === undefined) return null;
  const partition = partitionOf(table, day, word === NO_SITE ? null : decodedUri(word));
  return partition.folder === `${folderOf(table)}${date}/${site}/` ? partition : null;
}

/** Returns the text itself where it is no valid encoding. */
export function decodedUri(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** False for tables of versions: their rows are valid for several days. */
export function isDivided({ rowPolicy }: Table): boolean {
  return rowPolicy !== "versions";
}

export function undividedPartition(table: Table): Partition {
  return { table, folder: folderOf(table), dayAndSite: null };
}

export function folderOf(table: Table): string {
  return `${table.name}/`;
}

export function fileKeyIn({ folder }: Partition, name: string): string {
  return `${folder}${name}.parquet`;
}

/** File name of a staged commit, without the ending. */
export function stagedName(writerId: string, from: number, through: number): string {
  return [writerId, ...[from, through].map((position) => String(position).padStart(12, "0"))].join("-");
}

export function manifestKeyOf(day: string, site: string | null): string {
  return `_manifests/site=${escaped(site)}/date=${day}.json`;
}

/** File that records how far a writer has started to commit. */
export function writerKeyOf(writerId: string): string {
  return `_lives/${writerId}.json`;
}

/** Escapes a site id as DuckDB and Spark read it: `a/b` is `a%2Fb`. */
function escaped(site: string | null): string {
  return site === null || site === "" ? NO_SITE : encodeURIComponent(site.toWellFormed());
}

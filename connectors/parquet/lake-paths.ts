import { valueOr } from "../../src/core/values/value-or-fallback.ts";
import type { LakeTable } from "../shared/lake/table-model.ts";

/**
 * Keys of files in the lake, in Hive's layout, so that query engines skip days and sites:
 *   value/date=2026-11-21/site=1/k3v9q2-000000000101-000000004711.parquet
 *   tag/tag.parquet
 *   _manifests/site=1/date=2026-11-21.json        (readers ignore names with `_`)
 */

const NO_SITE_FOLDER = "none";
/** Hive's name for a missing partition value, which DuckDB and Spark read as null. */
const UNKNOWN_DAY_FOLDER = "__HIVE_DEFAULT_PARTITION__";
/** Day under which earlier Plenum versions put rows without a time, and files without rows. */
export const UNIX_EPOCH_DAY = "1970-01-01";
export const EMPTY_PARQUET_FILE_NAME = "empty.parquet";
export const TABLE_SCHEMAS_KEY = "_schemas.json";

/** Rows of a table for one day and site, or all rows of a table that changes too rarely to be divided. */
export interface LakePartition {
  readonly table: LakeTable;
  readonly folder: string;
  /** Day (UTC) and site; null for an undivided table. The day is null if the time of the row is unknown. */
  readonly dayAndSite: { readonly day: string | null; readonly site: string | null } | null;
}

export function dayPartition(table: LakeTable, day: string | null, site: string | null): LakePartition {
  return {
    table,
    folder: `${buildTableFolder(table)}date=${day ?? UNKNOWN_DAY_FOLDER}/site=${escapeSiteId(site)}/`,
    dayAndSite: { day, site },
  };
}

/** Parses two folder names, such as `date=2026-11-21` and `site=1`; null for other names. */
export function parsePartitionFolders(table: LakeTable, dateFolder: string, siteFolder: string): LakePartition | null {
  const [, day] = /^date=(\d{4}-\d\d-\d\d)$/.exec(dateFolder) ?? [];
  const [, encodedSite] = /^site=(.+)$/.exec(siteFolder) ?? [];
  if (day === undefined || encodedSite === undefined) return null;
  const partition = dayPartition(table, day, encodedSite === NO_SITE_FOLDER ? null : decodeUriOrKeep(encodedSite));
  return partition.folder === `${buildTableFolder(table)}${dateFolder}/${siteFolder}/` ? partition : null;
}

export const decodeUriOrKeep = (text: string): string => valueOr(() => decodeURIComponent(text), text);

/** Returns false for a table whose rows are valid for several days. */
export const hasDayPartitions = ({ rowPolicy }: LakeTable): boolean => rowPolicy !== "versions";

export function buildWholeTablePartition(table: LakeTable): LakePartition {
  return { table, folder: buildTableFolder(table), dayAndSite: null };
}

export const buildTableFolder = (table: LakeTable): string => `${table.name}/`;

export const buildFileKey = ({ folder }: LakePartition, name: string): string => `${folder}${name}.parquet`;

export const buildStagedFileName = (writerId: string, from: number, through: number): string =>
  [writerId, ...[from, through].map((position) => String(position).padStart(12, "0"))].join("-");

export const buildManifestKey = (day: string, site: string | null): string =>
  `_manifests/site=${escapeSiteId(site)}/date=${day}.json`;

/** Returns the key of the file with the event-log position of the last event that a writer began to commit. */
export const buildWriterPositionKey = (writerId: string): string => `_lives/${writerId}.json`;

/** Escapes a site id as DuckDB and Spark read it: `a/b` is `a%2Fb`. */
const escapeSiteId = (site: string | null): string =>
  site === null || site === "" ? NO_SITE_FOLDER : encodeURIComponent(site.toWellFormed());

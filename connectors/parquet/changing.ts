import type { Row, Table } from "../shared/lake/table.ts";
import { withNews } from "../shared/lake/versions.ts";
import { type Columns, createColumns, sorting } from "./columns.ts";
import type { Change } from "./hand.ts";
import { parquetOf, readParquet } from "./parquet-file.ts";
import { pause } from "./pauses.ts";

/** Rows that are copied between two looks at the time: 1,000 rows of tags take 2 ms. */
const ROWS_AT_ONCE = 1_000;

export interface Replacement {
  readonly bytes: Uint8Array;
  readonly columns: Columns;
  /** In the order of the file. */
  readonly rows: Uint32Array;
}

/**
 * The file that replaces those of a partition whose rows change; null where the news say nothing new. To be told the same
 * twice changes nothing, so a repetition after a crash needs no care.
 */
export async function replacementOf(
  { news, partition: { table } }: Change,
  keys: readonly string[],
  read: (key: string) => Promise<Uint8Array | null>,
  nameOf: (key: string) => string,
): Promise<Replacement | null> {
  const held = await rowsOfFiles(table, keys, read, nameOf);
  const merged = withNews(table, held, news);
  if (merged === held) return null;
  const columns = createColumns(table);
  const added: number[] = [];
  for (const row of merged) {
    added.push(columns.add(row));
    if (added.length % ROWS_AT_ONCE === 0) await pause();
  }
  const rows = await sorting(columns)(added);
  return { bytes: await parquetOf(columns, rows), columns, rows };
}

/** All rows of some files of a table; of a file that is gone, none. */
export async function rowsOfFiles(
  table: Table,
  keys: readonly string[],
  read: (key: string) => Promise<Uint8Array | null>,
  nameOf: (key: string) => string,
): Promise<readonly Row[]> {
  const columns = createColumns(table);
  for (const key of keys) {
    const bytes = await read(key);
    if (bytes !== null) await readParquet(bytes, columns, nameOf(key));
  }
  const rows: Row[] = [];
  for (let row = 0; row < columns.length; row++) {
    rows.push(table.columns.map((_, place) => columns.cell(place, row)));
    if (row % ROWS_AT_ONCE === 0) await pause();
  }
  return rows;
}

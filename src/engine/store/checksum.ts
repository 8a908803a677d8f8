import { crc32 } from "node:zlib";

type Value = string | number | bigint | null | Uint8Array;

/** CRC-32 over the columns of a row; the last column may be long. 1, 1n and 1.0 give the same checksum, as in SQL. */
export function checksumOf(...values: readonly Value[]): number {
  const last = values.at(-1) ?? "";
  // An array would cost too much here: this runs for each value read. Null becomes an empty text.
  let before = "";
  for (let n = 0; n < values.length - 1; n++) before += `${n === 0 ? "" : "\u0000"}${values[n] ?? ""}`;
  return crc32(last instanceof Uint8Array ? last : String(last), crc32(before));
}

/** Computes `checksumOf` for the columns of an event, without an array for each value. */
export function checksumOfEvent(
  id: string,
  kind: string,
  telemetry: number,
  committedMs: number,
  bytes: number,
  body: string,
): number {
  return crc32(body, crc32(`${id}\u0000${kind}\u0000${telemetry}\u0000${committedMs}\u0000${bytes}`));
}

export interface CheckedTable {
  readonly columns: readonly string[];
  /** The set, log, sink or bucket of a row, as SQL. */
  readonly part: string;
  readonly key: string;
}

/** Not covered: values that a start computes again (`event.written`, `log_size`, `dead_letter.resending`). */
export const CHECKED_TABLES = {
  document: { columns: ["set_name", "key", "body"], part: "set_name", key: "key" },
  record: { columns: ["log", "sequence", "body"], part: "log", key: "sequence" },
  event: { columns: ["id", "kind", "telemetry", "committed_ms", "bytes", "body"], part: "kind", key: "id" },
  dead_letter: {
    columns: ["sink", "position", "at_ms", "committed_ms", "reason", "number", "epoch", "body"],
    part: "sink",
    key: "position",
  },
  sink: { columns: ["name", "position", "dropped", "ended", "counted", "epoch", "urgent"], part: "name", key: "''" },
  again: { columns: ["sink", "position"], part: "sink", key: "position" },
  gap: {
    columns: ["sink", "reason", "first_time", "last_time", "count", "at_ms", "told_ms"],
    part: "sink",
    key: "at_ms",
  },
  age_mark: { columns: ["ran_ms", "newest", "settled"], part: "''", key: "ran_ms" },
  quota: { columns: ["bucket", "id", "sent_ms", "counted_ms"], part: "bucket", key: "id" },
  quota_hold: { columns: ["bucket", "said_ms", "until_ms"], part: "bucket", key: "''" },
} as const satisfies Readonly<Record<string, CheckedTable>>;

export type CheckedTableName = keyof typeof CHECKED_TABLES;

export const CHECKED_TABLE_NAMES = Object.keys(CHECKED_TABLES) as readonly CheckedTableName[];

/** SQL for the checksum of a row; `changed` maps columns to their new values. */
export function checksumSql(table: CheckedTableName, changed: Readonly<Record<string, string>> = {}): string {
  const columns: readonly string[] = CHECKED_TABLES[table].columns;
  return `row_checksum(${columns.map((column) => changed[column] ?? `${table}.${column}`).join(", ")})`;
}

/** SQL condition for rows that differ from what was written. A row that is known to be damaged has no checksum. */
export function isDamagedSql(table: CheckedTableName): string {
  return `${checksumSql(table)} is not ${table}.checksum`;
}

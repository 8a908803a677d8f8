import { crc32 } from "node:zlib";

/** A value of a row, as JavaScript or SQLite passes it. */
type Value = string | number | bigint | null | Uint8Array;

/**
 * Computes the checksum of a row: CRC-32 over its columns. The last column is long, so it is not copied. A number, a
 * bigint and a real with the same digits give the same checksum, so that SQL and JavaScript agree.
 *
 * It finds damage by a disk or by memory; it does not stop a person who edits the file on purpose.
 */
export function checksumOf(...values: readonly Value[]): number {
  const last = values.at(-1) ?? "";
  // All values but the last, joined; null becomes an empty text. Without an array, because this runs for each value
  // read.
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

/** A table whose rows carry a checksum. */
export interface CheckedTable {
  /** Columns that the checksum covers, the long one last. */
  readonly columns: readonly string[];
  /** The set, log, sink or bucket that a row belongs to, as SQL. */
  readonly part: string;
  /** SQL that identifies the row within its part. */
  readonly key: string;
}

/**
 * Not covered: columns that each start computes again (`event.written`, `log_size`), `event.position`, which the order
 * of the rows proves, and `dead_letter.resending`, which is reset when the letter has no mark.
 */
export const CHECKED = {
  document: { columns: ["set_name", "key", "body"], part: "set_name", key: "key" },
  record: { columns: ["log", "sequence", "body"], part: "log", key: "sequence" },
  event: {
    columns: ["id", "kind", "telemetry", "committed_ms", "bytes", "body"],
    part: "kind",
    key: "id",
  },
  dead_letter: {
    columns: ["sink", "position", "at_ms", "committed_ms", "reason", "number", "epoch", "body"],
    part: "sink",
    key: "position",
  },
  sink: {
    columns: ["name", "position", "dropped", "ended", "counted", "epoch", "urgent"],
    part: "name",
    key: "''",
  },
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

export type CheckedName = keyof typeof CHECKED;

export const CHECKED_NAMES = Object.keys(CHECKED) as readonly CheckedName[];

/** SQL for the checksum of a row; `changed` maps columns to their new values. */
export function checksumSql(table: CheckedName, changed: Readonly<Record<string, string>> = {}): string {
  const columns: readonly string[] = CHECKED[table].columns;
  return `row_checksum(${columns.map((column) => changed[column] ?? `${table}.${column}`).join(", ")})`;
}

/** SQL condition for rows that differ from what was written. A row that is known to be damaged has no checksum. */
export function unsound(table: CheckedName): string {
  return `${checksumSql(table)} is not ${table}.checksum`;
}

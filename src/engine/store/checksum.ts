import { crc32 } from "node:zlib";

/** What a row of the state may hold, as JavaScript or SQLite hands it over. */
type Value = string | number | bigint | null | Uint8Array;

/**
 * The checksum of a row: CRC-32 over its columns. The last is taken by itself, because it is the long one and need
 * not be copied. A number, a bigint and a real with the same digits count alike, so that SQL and JavaScript agree.
 *
 * It finds what a disk or memory does to a row; it does not stand in the way of whoever edits the file on purpose.
 */
export function checksumOf(...values: readonly Value[]): number {
  const last = values.at(-1) ?? "";
  // What `join` makes of all but the last, null being nothing; for each value without a list of them.
  let before = "";
  for (let n = 0; n < values.length - 1; n++) before += `${n === 0 ? "" : "\u0000"}${values[n] ?? ""}`;
  return crc32(last instanceof Uint8Array ? last : String(last), crc32(before));
}

/** The same of an event's row, whose columns are these and in this order: without a list of them for each value. */
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
  /** The columns that it covers, the long one last. */
  readonly columns: readonly string[];
  /** The set, log, sink or bucket that a row belongs to, as SQL. */
  readonly part: string;
  /** What tells the row from the others of its part, as SQL. */
  readonly key: string;
}

/**
 * Not covered: what is worked out again at each start (`event.written`, `log_size`), what the order of the rows proves
 * (`event.position`), and `dead_letter.resending`, which is put right when no mark stands behind it.
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

/** SQL for the checksum of a row; `changed` says what columns will hold. */
export function checksumSql(table: CheckedName, changed: Readonly<Record<string, string>> = {}): string {
  const columns: readonly string[] = CHECKED[table].columns;
  return `row_checksum(${columns.map((column) => changed[column] ?? `${table}.${column}`).join(", ")})`;
}

/** SQL condition for rows that are not what was written. A row that is known to be damaged has no checksum. */
export function unsound(table: CheckedName): string {
  return `${checksumSql(table)} is not ${table}.checksum`;
}

import { hash } from "node:crypto";

/** What is moved, and what it looks like in the database. A row is the text of each column, null where it has none. */
export type Column = "text" | "bigint" | "boolean" | "double precision";

export interface Row {
  readonly source: string;
  readonly cells: readonly (string | null)[];
}

/** The tables that belong to sources, with their columns besides `source`. */
export const TABLES = {
  document: { set_name: "text", key: "text", body: "text" },
  record: { log: "text", sequence: "bigint", body: "text" },
  event: {
    position: "bigint",
    id: "text",
    kind: "text",
    telemetry: "boolean",
    committed_ms: "bigint",
    bytes: "bigint",
    written: "bigint",
    body: "text",
  },
  sink: {
    name: "text",
    position: "bigint",
    dropped: "bigint",
    ended: "text",
    counted: "bigint",
    epoch: "text",
    urgent: "bigint",
  },
  again: { sink: "text", position: "bigint" },
  dead_letter: {
    sink: "text",
    position: "bigint",
    reason: "text",
    at_ms: "bigint",
    committed_ms: "bigint",
    resending: "boolean",
    number: "bigint",
    epoch: "text",
    body: "text",
  },
  gap: {
    sink: "text",
    reason: "text",
    first_time: "text",
    last_time: "text",
    count: "bigint",
    at_ms: "bigint",
    told_ms: "bigint",
  },
  age_mark: { ran_ms: "bigint", newest: "bigint", settled: "bigint" },
  quota: { bucket: "text", id: "bigint", sent_ms: "double precision", counted_ms: "double precision" },
  quota_hold: { bucket: "text", said_ms: "double precision", until_ms: "double precision" },
  quota_clock: {
    bucket: "text",
    boot: "text",
    wall_ms: "double precision",
    since_boot_ms: "double precision",
  },
} as const satisfies Readonly<Record<string, Readonly<Record<string, Column>>>>;

export type TableName = keyof typeof TABLES;
export const TABLE_NAMES = Object.keys(TABLES) as readonly TableName[];

export function columnsOf(table: TableName): readonly (readonly [name: string, type: Column])[] {
  return Object.entries(TABLES[table]);
}

/** What stands for null among the texts of a row; no text of ours begins so. */
export const NULL = "\\N";

/** How many rows there are, and a number that is another one where any of them is another. */
export interface Sum {
  readonly rows: number;
  /** 16 hexadecimal digits, whatever the order of the rows. */
  readonly digest: string;
}

/** Adds rows up as `digestSql` does. */
export function createSummer(table: TableName) {
  const types = columnsOf(table).map(([, type]) => type);
  let rows = 0;
  let sum = 0n;
  return {
    add(cells: Row["cells"]): void {
      const text = cells.map((cell, index) => summed(cell, types[index] ?? "text")).join(BETWEEN);
      sum += BigInt(`0x${hash("md5", text).slice(0, DIGITS)}`);
      rows += 1;
    },
    result: (): Sum => ({ rows, digest: digestOf(sum) }),
  };
}

const BETWEEN = "\u001f";
/** Of each row's hash so many hexadecimal digits are added up: 60 bits, which fit into a bigint. */
const DIGITS = 15;

export function digestOf(sum: bigint): string {
  return BigInt.asUintN(64, sum).toString(16).padStart(16, "0");
}

/** A number with a fraction is compared by its bits, because it is written in another way everywhere. */
function summed(cell: string | null, type: Column): string {
  if (cell === null) return NULL;
  if (type !== "double precision") return cell;
  const bits = Buffer.alloc(8);
  bits.writeDoubleBE(Number(cell));
  return bits.toString("hex");
}

/** SQL for the sum of the rows of a table, as numeric. */
export function digestSql(table: TableName): string {
  const texts = columnsOf(table).map(([name, type]) => {
    if (type === "double precision") return `encode(float8send(${name}), 'hex')`;
    return `coalesce(${name}::text, '${NULL}')`;
  });
  const row = texts.join(" || chr(31) || ");
  return `sum(('x' || left(md5(${row}), ${DIGITS}))::bit(${4 * DIGITS})::bigint)::text`;
}

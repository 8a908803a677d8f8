import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetReadObjects, parquetSchema, type SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { Action, unreadable } from "./actions.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Checkpoints: all that counts at a version, in one Parquet file, so that nobody has to read the log from its beginning.
 * A row is one action; each kind of action is a group of columns. Source: PROTOCOL.md, "Checkpoint Schema", "V1 Spec".
 */

type Node = readonly SchemaElement[];

const text = (name: string): Node => [
  { name, type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "OPTIONAL" },
];
const long = (name: string): Node => [{ name, type: "INT64", repetition_type: "OPTIONAL" }];
const int = (name: string): Node => [{ name, type: "INT32", repetition_type: "OPTIONAL" }];
const bool = (name: string): Node => [{ name, type: "BOOLEAN", repetition_type: "OPTIONAL" }];
const group = (name: string, ...children: readonly Node[]): Node => [
  { name, repetition_type: "OPTIONAL", num_children: children.length },
  ...children.flat(),
];
const list = (name: string): Node => [
  { name, repetition_type: "OPTIONAL", converted_type: "LIST", num_children: 1 },
  { name: "list", repetition_type: "REPEATED", num_children: 1 },
  ...text("element"),
];
const map = (name: string): Node => [
  { name, repetition_type: "OPTIONAL", converted_type: "MAP", num_children: 1 },
  { name: "key_value", repetition_type: "REPEATED", num_children: 2 },
  { name: "key", type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "REQUIRED" },
  ...text("value"),
];

const KINDS = {
  txn: group("txn", text("appId"), long("version"), long("lastUpdated")),
  add: group(
    "add",
    text("path"),
    map("partitionValues"),
    long("size"),
    long("modificationTime"),
    bool("dataChange"),
    map("tags"),
    text("stats"),
  ),
  remove: group(
    "remove",
    text("path"),
    long("deletionTimestamp"),
    bool("dataChange"),
    bool("extendedFileMetadata"),
    map("partitionValues"),
    long("size"),
  ),
  metaData: group(
    "metaData",
    text("id"),
    text("name"),
    text("description"),
    group("format", text("provider"), map("options")),
    text("schemaString"),
    list("partitionColumns"),
    long("createdTime"),
    map("configuration"),
  ),
  protocol: group("protocol", int("minReaderVersion"), int("minWriterVersion")),
} as const;

type Kind = keyof typeof KINDS;
const NAMES = Object.keys(KINDS) as readonly Kind[];
const SCHEMA: Node = [{ name: "root", num_children: NAMES.length }, ...Object.values(KINDS).flat()];

/**
 * So many actions are written or read in one go, in which all else of this process waits: 10 to 15 ms of work. With the
 * statistics of 20,000 files a checkpoint takes half a second altogether.
 */
const AT_ONCE = 500;

/** A checkpoint, and how many actions it holds. */
export async function checkpointOf({ protocol, metaData, txns, files, tombstones }: Snapshot): Promise<{
  readonly bytes: Uint8Array;
  readonly size: number;
}> {
  const actions: readonly Action[] = [
    { protocol },
    { metaData },
    ...[...txns.values()].map((txn) => ({ txn })),
    ...[...tombstones.values()].map((remove) => ({ remove: { ...remove, dataChange: false } })),
    ...[...files.values()].map((add) => ({ add: { ...add, dataChange: false } })),
  ];
  const writer = new ByteWriter();
  const file = new ParquetWriter({ writer, schema: [...SCHEMA], createdBy: "plenum" });
  for (let from = 0; from < actions.length; from += AT_ONCE) {
    const some = actions.slice(from, from + AT_ONCE);
    const columnData = NAMES.map((name) => ({ name, data: some.map((action) => stored(name, action)) }));
    await file.write({ columnData, rowGroupSize: AT_ONCE });
    await yieldToEventLoop();
  }
  await file.finish();
  return { bytes: writer.getBytes(), size: actions.length };
}

/** An action as the Parquet writer takes it: whole numbers of 64 bits are `bigint`. */
function stored(kind: Kind, action: Action): Record<string, unknown> | null {
  const value = action[kind];
  if (value === null || value === undefined) return null;
  const longs = LONGS[kind] as readonly string[];
  return Object.fromEntries(
    Object.entries(value).map(([name, of]) => [
      name,
      longs.includes(name) && typeof of === "number" ? BigInt(of) : of,
    ]),
  );
}

const LONGS = {
  txn: ["version", "lastUpdated"],
  add: ["size", "modificationTime"],
  remove: ["deletionTimestamp", "size"],
  metaData: ["createdTime"],
  protocol: [],
} as const satisfies Record<Kind, readonly string[]>;

/** How others may have compressed theirs; what is not listed here the reader knows by itself. */
const COMPRESSORS = {
  ZSTD: (bytes: Uint8Array) => zstdDecompressSync(bytes),
  GZIP: (bytes: Uint8Array) => gunzipSync(bytes),
};

/** The actions of a checkpoint, ours or somebody else's; `name` is its file, for a person. Throws ConfigError. */
export async function actionsInCheckpoint(bytes: Uint8Array, name: string): Promise<readonly Action[]> {
  try {
    const file = new Uint8Array(bytes).buffer;
    const metadata = parquetMetadata(file);
    const kinds = new Set(parquetSchema(metadata).children.map(({ element }) => element.name));
    const columns = NAMES.filter((kind) => kinds.has(kind));
    const actions: Action[] = [];
    for (let rowStart = 0; rowStart < Number(metadata.num_rows); rowStart += AT_ONCE) {
      const rowEnd = rowStart + AT_ONCE;
      const rows = await parquetReadObjects({
        file,
        metadata,
        columns,
        rowStart,
        rowEnd,
        compressors: COMPRESSORS,
      });
      for (const row of rows) actions.push(Action.parse(numbered(row)));
      await yieldToEventLoop();
    }
    return actions;
  } catch (error) {
    throw unreadable(name, error);
  }
}

/** With every `bigint` in it as a number: sizes, times and versions are far below 2^53. */
function numbered(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(numbered);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, numbered(of)]));
}

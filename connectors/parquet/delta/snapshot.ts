import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetReadObjects, parquetSchema, type SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { decodedUri } from "../paths.ts";
import { Action, type Add, type MetaData, type Protocol, type Remove, type Txn, unreadableLog } from "./log-format.ts";

export type PartitionValues = Readonly<Record<string, string | null>>;

/** State of a table at a version ("Action Reconciliation"). Files have their decoded paths as keys. */
export interface Snapshot {
  version: number;
  checkpoint: number;
  protocol: Protocol | null;
  metaData: MetaData | null;
  readonly files: Map<string, Add>;
  /** Removed files that may still exist for earlier readers. */
  readonly tombstones: Map<string, Remove>;
  readonly txns: Map<string, Txn>;
  /** Version of the last change, by `partitionKey`. */
  readonly changed: Map<string, number>;
  /** Last version whose changes are unknown, because a checkpoint does not list them. */
  changedUntil: number;
}

export function emptySnapshot(): Snapshot {
  return {
    version: -1,
    checkpoint: -1,
    protocol: null,
    metaData: null,
    files: new Map(),
    tombstones: new Map(),
    txns: new Map(),
    changed: new Map(),
    changedUntil: -1,
  };
}

/** Applies a commit, removals first. Only checkpoints need column statistics, which double the memory of a file. */
export function applyActions(snapshot: Snapshot, version: number, actions: readonly Action[], keepStats: boolean) {
  for (const { protocol, metaData, txn, remove } of actions) {
    if (protocol) snapshot.protocol = protocol;
    if (metaData) snapshot.metaData = metaData;
    if (txn) snapshot.txns.set(txn.appId, txn);
    if (remove) {
      const path = decodedUri(remove.path);
      const values = remove.partitionValues ?? snapshot.files.get(path)?.partitionValues;
      snapshot.files.delete(path);
      snapshot.tombstones.set(path, remove);
      if (remove.dataChange && values) snapshot.changed.set(partitionKey(values), version);
    }
  }
  for (const { add } of actions) {
    if (!add) continue;
    const path = decodedUri(add.path);
    const stats = () => JSON.stringify({ numRecords: rowCountOf(add) ?? undefined });
    snapshot.files.set(path, keepStats ? add : { ...add, stats: stats() });
    snapshot.tombstones.delete(path);
    if (add.dataChange) snapshot.changed.set(partitionKey(add.partitionValues), version);
  }
  snapshot.version = version;
}

/** Version that last changed a partition, or may have. */
export function lastChangeOf(snapshot: Snapshot, partition: string): number {
  return snapshot.changed.get(partition) ?? snapshot.changedUntil;
}

/** Independent of the order of the values. */
export function partitionKey(values: PartitionValues): string {
  return JSON.stringify(Object.entries(normalizeValues(values)).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** An empty text is null in Delta ("Partition Value Serialization"). */
export function normalizeValues(values: PartitionValues): PartitionValues {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]));
}

export function rowCountOf({ stats }: Add): number | null {
  if (!stats) return null;
  try {
    const { numRecords } = JSON.parse(stats) as { readonly numRecords?: unknown };
    return typeof numRecords === "number" ? numRecords : null;
  } catch {
    return null;
  }
}

/** Checkpoint: one action per row, one group of columns per kind. Source: PROTOCOL.md, "Checkpoint Schema", "V1 Spec". */

type SchemaNode = readonly SchemaElement[];

const text = (name: string): SchemaNode => [
  { name, type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "OPTIONAL" },
];
const long = (name: string): SchemaNode => [{ name, type: "INT64", repetition_type: "OPTIONAL" }];
const int = (name: string): SchemaNode => [{ name, type: "INT32", repetition_type: "OPTIONAL" }];
const bool = (name: string): SchemaNode => [{ name, type: "BOOLEAN", repetition_type: "OPTIONAL" }];
const group = (name: string, ...children: readonly SchemaNode[]): SchemaNode => [
  { name, repetition_type: "OPTIONAL", num_children: children.length },
  ...children.flat(),
];
const list = (name: string): SchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "LIST", num_children: 1 },
  { name: "list", repetition_type: "REPEATED", num_children: 1 },
  ...text("element"),
];
const map = (name: string): SchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "MAP", num_children: 1 },
  { name: "key_value", repetition_type: "REPEATED", num_children: 2 },
  { name: "key", type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "REQUIRED" },
  ...text("value"),
];

const ACTION_COLUMNS = {
  txn: group("txn", text("appId"), long("version"), long("lastUpdated")),
  add: group(
    "add",
    ...[text("path"), map("partitionValues"), long("size"), long("modificationTime"), bool("dataChange")],
    ...[map("tags"), text("stats")],
  ),
  remove: group(
    "remove",
    ...[text("path"), long("deletionTimestamp"), bool("dataChange"), bool("extendedFileMetadata")],
    ...[map("partitionValues"), long("size")],
  ),
  metaData: group(
    "metaData",
    ...[text("id"), text("name"), text("description"), group("format", text("provider"), map("options"))],
    ...[text("schemaString"), list("partitionColumns"), long("createdTime"), map("configuration")],
  ),
  protocol: group("protocol", int("minReaderVersion"), int("minWriterVersion")),
} as const;

type Kind = keyof typeof ACTION_COLUMNS;
const ACTION_KINDS = Object.keys(ACTION_COLUMNS) as readonly Kind[];
const ROOT = { name: "root", num_children: ACTION_KINDS.length };
const CHECKPOINT_SCHEMA: SchemaNode = [ROOT, ...Object.values(ACTION_COLUMNS).flat()];

/** Actions between two yields: 10 to 15 ms of work. */
const ACTIONS_PER_CHUNK = 500;

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
  const file = new ParquetWriter({ writer, schema: [...CHECKPOINT_SCHEMA], createdBy: "plenum" });
  for (let from = 0; from < actions.length; from += ACTIONS_PER_CHUNK) {
    const some = actions.slice(from, from + ACTIONS_PER_CHUNK);
    const columnData = ACTION_KINDS.map((name) => ({ name, data: some.map((action) => parquetValue(name, action)) }));
    await file.write({ columnData, rowGroupSize: ACTIONS_PER_CHUNK });
    await yieldToEventLoop();
  }
  await file.finish();
  return { bytes: writer.getBytes(), size: actions.length };
}

/** The Parquet writer takes 64-bit integers as `bigint`. */
function parquetValue(kind: Kind, action: Action): Record<string, unknown> | null {
  const value = action[kind];
  if (value === null || value === undefined) return null;
  const longs = ACTION_COLUMNS[kind].filter(({ type }) => type === "INT64").map(({ name }) => name);
  return Object.fromEntries(
    Object.entries(value).map(([name, of]) => [name, longs.includes(name) && typeof of === "number" ? BigInt(of) : of]),
  );
}

const COMPRESSORS = {
  ZSTD: (bytes: Uint8Array) => zstdDecompressSync(bytes),
  GZIP: (bytes: Uint8Array) => gunzipSync(bytes),
};

/** `name` is the file for messages. Throws ConfigError for an unreadable checkpoint. */
export async function actionsInCheckpoint(bytes: Uint8Array, name: string): Promise<readonly Action[]> {
  try {
    const file = new Uint8Array(bytes).buffer;
    const metadata = parquetMetadata(file);
    const kinds = new Set(parquetSchema(metadata).children.map(({ element }) => element.name));
    const columns = ACTION_KINDS.filter((kind) => kinds.has(kind));
    const actions: Action[] = [];
    for (let rowStart = 0; rowStart < Number(metadata.num_rows); rowStart += ACTIONS_PER_CHUNK) {
      const rowEnd = rowStart + ACTIONS_PER_CHUNK;
      const rows = await parquetReadObjects({ file, metadata, columns, rowStart, rowEnd, compressors: COMPRESSORS });
      for (const row of rows) actions.push(Action.parse(withoutBigints(row)));
      await yieldToEventLoop();
    }
    return actions;
  } catch (error) {
    throw unreadableLog(name, error);
  }
}

/** Sizes, times and versions are far below 2^53. */
function withoutBigints(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(withoutBigints);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, withoutBigints(of)]));
}

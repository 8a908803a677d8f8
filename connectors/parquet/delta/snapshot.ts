import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetReadObjects, parquetSchema, type SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { decodeUriOrKeep } from "../lake-paths.ts";
import {
  type AddAction,
  LogAction,
  type MetaData,
  type Protocol,
  type RemoveAction,
  type Txn,
  unreadableLogError,
} from "./log-format.ts";

export type PartitionValues = Readonly<Record<string, string | null>>;

/** State of a Delta table at a version. Files and tombstones have decoded paths as keys. */
export interface Snapshot {
  version: number;
  checkpoint: number;
  protocol: Protocol | null;
  metaData: MetaData | null;
  readonly files: Map<string, AddAction>;
  readonly tombstones: Map<string, RemoveAction>;
  readonly txns: Map<string, Txn>;
  /** Version of the last change of each partition, by `partitionKey`. */
  readonly partitionChangeVersions: Map<string, number>;
  /** Last version whose changes are unknown, because a checkpoint does not list changes. */
  unknownChangesUntil: number;
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
    partitionChangeVersions: new Map(),
    unknownChangesUntil: -1,
  };
}

/** Applies a commit, removals first. Only checkpoints need column statistics, which double the memory. */
export function applyActions(snapshot: Snapshot, version: number, actions: readonly LogAction[], keepStats: boolean) {
  for (const { protocol, metaData, txn, remove } of actions) {
    if (protocol) snapshot.protocol = protocol;
    if (metaData) snapshot.metaData = metaData;
    if (txn) snapshot.txns.set(txn.appId, txn);
    if (remove) {
      const path = decodeUriOrKeep(remove.path);
      const values = remove.partitionValues ?? snapshot.files.get(path)?.partitionValues;
      snapshot.files.delete(path);
      snapshot.tombstones.set(path, remove);
      if (remove.dataChange && values) snapshot.partitionChangeVersions.set(partitionKey(values), version);
    }
  }
  for (const { add } of actions) {
    if (!add) continue;
    const path = decodeUriOrKeep(add.path);
    const buildStats = () => JSON.stringify({ numRecords: parseRowCount(add) ?? undefined });
    snapshot.files.set(path, keepStats ? add : { ...add, stats: buildStats() });
    snapshot.tombstones.delete(path);
    if (add.dataChange) snapshot.partitionChangeVersions.set(partitionKey(add.partitionValues), version);
  }
  snapshot.version = version;
}

/** Returns the last version that changed a partition, or that may have changed the partition. */
export function lastPartitionChange(snapshot: Snapshot, partition: string): number {
  return snapshot.partitionChangeVersions.get(partition) ?? snapshot.unknownChangesUntil;
}

export function partitionKey(values: PartitionValues): string {
  return JSON.stringify(Object.entries(normalizeValues(values)).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Replaces empty texts by null, because Delta does not distinguish empty and null partition values. */
export function normalizeValues(values: PartitionValues): PartitionValues {
  return Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]));
}

export function parseRowCount({ stats }: AddAction): number | null {
  if (!stats) return null;
  try {
    const { numRecords } = JSON.parse(stats) as { readonly numRecords?: unknown };
    return typeof numRecords === "number" ? numRecords : null;
  } catch {
    return null;
  }
}

/** Checkpoint: one action per row, one group of columns per kind. Source: PROTOCOL.md, "Checkpoint Schema", "V1 Spec". */

type ParquetSchemaNode = readonly SchemaElement[];

const textNode = (name: string): ParquetSchemaNode => [
  { name, type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "OPTIONAL" },
];
const longNode = (name: string): ParquetSchemaNode => [{ name, type: "INT64", repetition_type: "OPTIONAL" }];
const intNode = (name: string): ParquetSchemaNode => [{ name, type: "INT32", repetition_type: "OPTIONAL" }];
const boolNode = (name: string): ParquetSchemaNode => [{ name, type: "BOOLEAN", repetition_type: "OPTIONAL" }];
const groupNode = (name: string, ...children: readonly ParquetSchemaNode[]): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", num_children: children.length },
  ...children.flat(),
];
const listNode = (name: string): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "LIST", num_children: 1 },
  { name: "list", repetition_type: "REPEATED", num_children: 1 },
  ...textNode("element"),
];
const mapNode = (name: string): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "MAP", num_children: 1 },
  { name: "key_value", repetition_type: "REPEATED", num_children: 2 },
  { name: "key", type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "REQUIRED" },
  ...textNode("value"),
];

const ACTION_COLUMNS = {
  txn: groupNode("txn", textNode("appId"), longNode("version"), longNode("lastUpdated")),
  add: groupNode(
    "add",
    ...[textNode("path"), mapNode("partitionValues"), longNode("size"), longNode("modificationTime")],
    ...[boolNode("dataChange"), mapNode("tags"), textNode("stats")],
  ),
  remove: groupNode(
    "remove",
    ...[textNode("path"), longNode("deletionTimestamp"), boolNode("dataChange"), boolNode("extendedFileMetadata")],
    ...[mapNode("partitionValues"), longNode("size")],
  ),
  metaData: groupNode(
    "metaData",
    ...[textNode("id"), textNode("name"), textNode("description")],
    ...[groupNode("format", textNode("provider"), mapNode("options")), textNode("schemaString")],
    ...[listNode("partitionColumns"), longNode("createdTime"), mapNode("configuration")],
  ),
  protocol: groupNode("protocol", intNode("minReaderVersion"), intNode("minWriterVersion")),
} as const;

type ActionKind = keyof typeof ACTION_COLUMNS;
const ACTION_KINDS = Object.keys(ACTION_COLUMNS) as readonly ActionKind[];
const PARQUET_ROOT_ELEMENT = { name: "root", num_children: ACTION_KINDS.length };
const CHECKPOINT_SCHEMA: ParquetSchemaNode = [PARQUET_ROOT_ELEMENT, ...Object.values(ACTION_COLUMNS).flat()];

const ACTIONS_PER_CHUNK = 500;

export async function encodeCheckpoint({ protocol, metaData, txns, files, tombstones }: Snapshot) {
  const actions: readonly LogAction[] = [
    { protocol },
    { metaData },
    ...[...txns.values()].map((txn) => ({ txn })),
    ...[...tombstones.values()].map((remove) => ({ remove: { ...remove, dataChange: false } })),
    ...[...files.values()].map((add) => ({ add: { ...add, dataChange: false } })),
  ];
  const writer = new ByteWriter();
  const file = new ParquetWriter({ writer, schema: [...CHECKPOINT_SCHEMA], createdBy: "plenum" });
  for (let from = 0; from < actions.length; from += ACTIONS_PER_CHUNK) {
    const chunk = actions.slice(from, from + ACTIONS_PER_CHUNK);
    const columnData = ACTION_KINDS.map((name) => ({
      name,
      data: chunk.map((action) => toParquetValue(name, action)),
    }));
    await file.write({ columnData, rowGroupSize: ACTIONS_PER_CHUNK });
    await yieldToEventLoop();
  }
  await file.finish();
  return { bytes: writer.getBytes(), size: actions.length };
}

/** Converts 64-bit integers to `bigint`, as the Parquet writer requires. */
function toParquetValue(kind: ActionKind, action: LogAction): Record<string, unknown> | null {
  const value = action[kind];
  if (value === null || value === undefined) return null;
  const isInt64 = (name: string) => ACTION_COLUMNS[kind].some((node) => node.name === name && node.type === "INT64");
  return Object.fromEntries(
    Object.entries(value).map(([name, of]) => [name, isInt64(name) && typeof of === "number" ? BigInt(of) : of]),
  );
}

const DECOMPRESSORS = {
  ZSTD: (bytes: Uint8Array) => zstdDecompressSync(bytes),
  GZIP: (bytes: Uint8Array) => gunzipSync(bytes),
};

/** Throws ConfigError for an unreadable checkpoint; `name` is the file name in the message. */
export async function parseCheckpoint(bytes: Uint8Array, name: string): Promise<readonly LogAction[]> {
  try {
    const file = new Uint8Array(bytes).buffer;
    const metadata = parquetMetadata(file);
    const storedActionKinds = new Set(parquetSchema(metadata).children.map(({ element }) => element.name));
    const columns = ACTION_KINDS.filter((kind) => storedActionKinds.has(kind));
    const actions: LogAction[] = [];
    for (let rowStart = 0; rowStart < Number(metadata.num_rows); rowStart += ACTIONS_PER_CHUNK) {
      const rowEnd = rowStart + ACTIONS_PER_CHUNK;
      const rows = await parquetReadObjects({ file, metadata, columns, rowStart, rowEnd, compressors: DECOMPRESSORS });
      for (const row of rows) actions.push(LogAction.parse(bigintsToNumbers(row)));
      await yieldToEventLoop();
    }
    return actions;
  } catch (error) {
    throw unreadableLogError(name, error);
  }
}

function bigintsToNumbers(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(bigintsToNumbers);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, of]) => [name, bigintsToNumbers(of)]));
}

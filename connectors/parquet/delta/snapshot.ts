import { gunzipSync, zstdDecompressSync } from "node:zlib";
import { parquetMetadata, parquetReadObjects, parquetSchema, type SchemaElement } from "hyparquet";
import { ByteWriter, ParquetWriter } from "hyparquet-writer";
import { yieldToEventLoop } from "../../../src/core/runtime/waiting.ts";
import { decodeUriOrKeep } from "../lake-paths.ts";
import {
  type AddFileAction,
  createDeltaLogError,
  DeltaLogAction,
  type DeltaMetaData,
  type DeltaProtocol,
  type RemoveFileAction,
  type Txn,
} from "./log-format.ts";

export type PartitionValues = Readonly<Record<string, string | null>>;

/** State of a Delta table at a version. Files and tombstones have decoded paths as keys. */
export interface DeltaSnapshot {
  version: number;
  checkpointVersion: number;
  protocol: DeltaProtocol | null;
  metaData: DeltaMetaData | null;
  readonly files: Map<string, AddFileAction>;
  readonly tombstones: Map<string, RemoveFileAction>;
  readonly txns: Map<string, Txn>;
  /** Version of the last change of each partition, by `partitionKey`. */
  readonly partitionChangeVersions: Map<string, number>;
  /** Last version whose changes are unknown, because a checkpoint does not list changes. */
  unknownChangesUntil: number;
}

export function createEmptySnapshot(): DeltaSnapshot {
  return {
    version: -1,
    checkpointVersion: -1,
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
export function applyDeltaActions(
  snapshot: DeltaSnapshot,
  version: number,
  actions: readonly DeltaLogAction[],
  keepStats: boolean,
) {
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
    const buildRowCountStats = () => JSON.stringify({ numRecords: parseRowCount(add) ?? undefined });
    snapshot.files.set(path, keepStats ? add : { ...add, stats: buildRowCountStats() });
    snapshot.tombstones.delete(path);
    if (add.dataChange) snapshot.partitionChangeVersions.set(partitionKey(add.partitionValues), version);
  }
  snapshot.version = version;
}

/** Returns the last table version that changed, or may have changed, a partition. */
export const getChangeVersion = (snapshot: DeltaSnapshot, partition: string): number =>
  snapshot.partitionChangeVersions.get(partition) ?? snapshot.unknownChangesUntil;

export const partitionKey = (values: PartitionValues): string =>
  JSON.stringify(Object.entries(normalizePartitionValues(values)).toSorted(([a], [b]) => (a < b ? -1 : 1)));

/** Replaces empty texts by null, because Delta does not distinguish empty and null partition values. */
export const normalizePartitionValues = (values: PartitionValues): PartitionValues =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]));

export function parseRowCount({ stats }: AddFileAction): number | null {
  if (!stats) return null;
  try {
    const { numRecords } = JSON.parse(stats) as { readonly numRecords?: unknown };
    return typeof numRecords === "number" ? numRecords : null;
  } catch {
    return null;
  }
}

/** Checkpoint: one action per row, one column group per kind of action. Source: PROTOCOL.md, "V1 Spec". */

type ParquetSchemaNode = readonly SchemaElement[];

const parquetText = (name: string): ParquetSchemaNode => [
  { name, type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "OPTIONAL" },
];
const parquetInt64 = (name: string): ParquetSchemaNode => [{ name, type: "INT64", repetition_type: "OPTIONAL" }];
const parquetInt32 = (name: string): ParquetSchemaNode => [{ name, type: "INT32", repetition_type: "OPTIONAL" }];
const parquetBoolean = (name: string): ParquetSchemaNode => [{ name, type: "BOOLEAN", repetition_type: "OPTIONAL" }];
const parquetGroup = (name: string, ...children: readonly ParquetSchemaNode[]): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", num_children: children.length },
  ...children.flat(),
];
const parquetList = (name: string): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "LIST", num_children: 1 },
  { name: "list", repetition_type: "REPEATED", num_children: 1 },
  ...parquetText("element"),
];
const parquetMap = (name: string): ParquetSchemaNode => [
  { name, repetition_type: "OPTIONAL", converted_type: "MAP", num_children: 1 },
  { name: "key_value", repetition_type: "REPEATED", num_children: 2 },
  { name: "key", type: "BYTE_ARRAY", converted_type: "UTF8", repetition_type: "REQUIRED" },
  ...parquetText("value"),
];

const CHECKPOINT_ACTION_COLUMNS = {
  txn: parquetGroup("txn", parquetText("appId"), parquetInt64("version"), parquetInt64("lastUpdated")),
  add: parquetGroup(
    "add",
    ...[parquetText("path"), parquetMap("partitionValues"), parquetInt64("size"), parquetInt64("modificationTime")],
    ...[parquetBoolean("dataChange"), parquetMap("tags"), parquetText("stats")],
  ),
  remove: parquetGroup(
    "remove",
    ...[parquetText("path"), parquetInt64("deletionTimestamp"), parquetBoolean("dataChange")],
    ...[parquetBoolean("extendedFileMetadata"), parquetMap("partitionValues"), parquetInt64("size")],
  ),
  metaData: parquetGroup(
    "metaData",
    ...[parquetText("id"), parquetText("name"), parquetText("description")],
    ...[parquetGroup("format", parquetText("provider"), parquetMap("options")), parquetText("schemaString")],
    ...[parquetList("partitionColumns"), parquetInt64("createdTime"), parquetMap("configuration")],
  ),
  protocol: parquetGroup("protocol", parquetInt32("minReaderVersion"), parquetInt32("minWriterVersion")),
} as const;

type DeltaActionKind = keyof typeof CHECKPOINT_ACTION_COLUMNS;
const DELTA_ACTION_KINDS = Object.keys(CHECKPOINT_ACTION_COLUMNS) as readonly DeltaActionKind[];
const PARQUET_ROOT_ELEMENT = { name: "root", num_children: DELTA_ACTION_KINDS.length };
const CHECKPOINT_SCHEMA: ParquetSchemaNode = [PARQUET_ROOT_ELEMENT, ...Object.values(CHECKPOINT_ACTION_COLUMNS).flat()];

const CHECKPOINT_ACTIONS_PER_CHUNK = 500;

export async function encodeDeltaCheckpoint({ protocol, metaData, txns, files, tombstones }: DeltaSnapshot) {
  const checkpointActions: readonly DeltaLogAction[] = [
    { protocol },
    { metaData },
    ...[...txns.values()].map((txn) => ({ txn })),
    ...[...tombstones.values()].map((remove) => ({ remove: { ...remove, dataChange: false } })),
    ...[...files.values()].map((add) => ({ add: { ...add, dataChange: false } })),
  ];
  const byteWriter = new ByteWriter();
  const parquetWriter = new ParquetWriter({ writer: byteWriter, schema: [...CHECKPOINT_SCHEMA], createdBy: "plenum" });
  for (let chunkStart = 0; chunkStart < checkpointActions.length; chunkStart += CHECKPOINT_ACTIONS_PER_CHUNK) {
    const actionChunk = checkpointActions.slice(chunkStart, chunkStart + CHECKPOINT_ACTIONS_PER_CHUNK);
    const columnData = DELTA_ACTION_KINDS.map((name) => ({
      name,
      data: actionChunk.map((action) => toCheckpointValue(name, action)),
    }));
    await parquetWriter.write({ columnData, rowGroupSize: CHECKPOINT_ACTIONS_PER_CHUNK });
    await yieldToEventLoop();
  }
  await parquetWriter.finish();
  return { bytes: byteWriter.getBytes(), size: checkpointActions.length };
}

/** Converts 64-bit integers to `bigint`, as the Parquet writer requires. */
function toCheckpointValue(kind: DeltaActionKind, action: DeltaLogAction): Record<string, unknown> | null {
  const value = action[kind];
  if (value === null || value === undefined) return null;
  const isInt64Column = (name: string) =>
    CHECKPOINT_ACTION_COLUMNS[kind].some((node) => node.name === name && node.type === "INT64");
  return Object.fromEntries(
    Object.entries(value).map(([name, member]) => [
      name,
      isInt64Column(name) && typeof member === "number" ? BigInt(member) : member,
    ]),
  );
}

const DECOMPRESSORS = {
  ZSTD: (bytes: Uint8Array) => zstdDecompressSync(bytes),
  GZIP: (bytes: Uint8Array) => gunzipSync(bytes),
};

export async function parseCheckpoint(bytes: Uint8Array, name: string): Promise<readonly DeltaLogAction[]> {
  try {
    const fileBuffer = new Uint8Array(bytes).buffer;
    const metadata = parquetMetadata(fileBuffer);
    const checkpoint = { file: fileBuffer, metadata };
    const storedActionKinds = new Set(parquetSchema(metadata).children.map(({ element }) => element.name));
    const columns = DELTA_ACTION_KINDS.filter((kind) => storedActionKinds.has(kind));
    const checkpointActions: DeltaLogAction[] = [];
    for (let rowStart = 0; rowStart < Number(metadata.num_rows); rowStart += CHECKPOINT_ACTIONS_PER_CHUNK) {
      const rowEnd = rowStart + CHECKPOINT_ACTIONS_PER_CHUNK;
      const rows = await parquetReadObjects({ ...checkpoint, columns, rowStart, rowEnd, compressors: DECOMPRESSORS });
      for (const row of rows) checkpointActions.push(DeltaLogAction.parse(bigintsToNumbers(row)));
      await yieldToEventLoop();
    }
    return checkpointActions;
  } catch (error) {
    throw createDeltaLogError(name, error);
  }
}

function bigintsToNumbers(value: unknown): unknown {
  if (typeof value === "bigint") return Number(value);
  if (Array.isArray(value)) return value.map(bigintsToNumbers);
  if (typeof value !== "object" || value === null || value instanceof Date) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, bigintsToNumbers(member)]));
}

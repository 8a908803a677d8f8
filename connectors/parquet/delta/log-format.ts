import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";
import { decodeUriOrKeep } from "../lake-paths.ts";

/**
 * Actions in commits (JSON lines) and checkpoints of a Delta log. Unknown actions and fields are ignored, but kept in a
 * rewritten `metaData`. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Actions").
 */

const integerSchema = z.number().int();
const stringMapSchema = z.record(z.string(), z.string().nullable());

const DeltaProtocol = z.object({
  minReaderVersion: integerSchema,
  minWriterVersion: integerSchema,
  readerFeatures: z.array(z.string()).nullish(),
  writerFeatures: z.array(z.string()).nullish(),
});
export type DeltaProtocol = z.infer<typeof DeltaProtocol>;

const DeltaMetaData = z.looseObject({
  id: z.string(),
  name: z.string().nullish(),
  description: z.string().nullish(),
  format: z.object({ provider: z.string(), options: stringMapSchema.nullish() }),
  schemaString: z.string(),
  partitionColumns: z.array(z.string()),
  createdTime: integerSchema.nullish(),
  configuration: stringMapSchema.nullish(),
});
export type DeltaMetaData = z.infer<typeof DeltaMetaData>;

const AddFileAction = z.object({
  /** Percent-encoded path: relative to the table's folder, or absolute. */
  path: z.string(),
  partitionValues: stringMapSchema,
  size: integerSchema,
  modificationTime: integerSchema,
  dataChange: z.boolean(),
  stats: z.string().nullish(),
  tags: stringMapSchema.nullish(),
});
export type AddFileAction = z.infer<typeof AddFileAction>;

const RemoveFileAction = z.object({
  path: z.string(),
  deletionTimestamp: integerSchema.nullish(),
  dataChange: z.boolean(),
  extendedFileMetadata: z.boolean().nullish(),
  partitionValues: stringMapSchema.nullish(),
  size: integerSchema.nullish(),
});
export type RemoveFileAction = z.infer<typeof RemoveFileAction>;

const Txn = z.object({ appId: z.string(), version: integerSchema, lastUpdated: integerSchema.nullish() });
export type Txn = z.infer<typeof Txn>;

/** Line of a commit: one action is set, all other actions are absent or null. */
export const DeltaLogAction = z.object({
  commitInfo: z.looseObject({ txnId: z.string().nullish() }).nullish(),
  protocol: DeltaProtocol.nullish(),
  metaData: DeltaMetaData.nullish(),
  txn: Txn.nullish(),
  remove: RemoveFileAction.nullish(),
  add: AddFileAction.nullish(),
});
export type DeltaLogAction = z.infer<typeof DeltaLogAction>;

export const encodeDeltaCommit = (actions: readonly DeltaLogAction[]): Uint8Array =>
  new TextEncoder().encode(`${actions.map((action) => JSON.stringify(action)).join("\n")}\n`);

export function parseCommit(bytes: Uint8Array, name: string): readonly DeltaLogAction[] {
  const lines = new TextDecoder().decode(bytes).split("\n");
  return parseDeltaLogOrFail(name, () =>
    lines.filter((line) => line.trim() !== "").map((line) => DeltaLogAction.parse(JSON.parse(line))),
  );
}

export function parseDeltaLogOrFail<T>(name: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw createDeltaLogError(name, error);
  }
}

export function createDeltaLogError(name: string, cause: unknown): ConfigError {
  return new ConfigError(`${name} is not what a Delta log has there.`, {
    hint: "Look who else writes into this table, or take it out of the way so that a new one is begun.",
    cause,
  });
}

/**
 * Names of the files in `_delta_log/`. Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints".
 *   00000000000000000012.json                                     changes of version 12
 *   00000000000000000010.checkpoint.parquet                       complete state at version 10
 *   00000000000000000010.checkpoint.0000000001.0000000003.parquet the same in three parts (deprecated)
 *   00000000000000000010.checkpoint.80a083e8-….parquet            the same in the V2 form, which needs reader version 3
 *   _last_checkpoint                                              version of the newest checkpoint
 */
const COMMIT_FILE_PATTERN = /^(\d{20})\.json$/;
const CHECKPOINT_FILE_PATTERN = /^(\d{20})\.checkpoint\.parquet$/;
const CHECKPOINT_PART_FILE_PATTERN = /^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$/;
const V2_CHECKPOINT_FILE_PATTERN = /^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$/i;
export const LAST_CHECKPOINT_FILE_NAME = "_last_checkpoint";

export const padTableVersion = (version: number): string => String(version).padStart(20, "0");

export const commitFileName = (version: number): string => `${padTableVersion(version)}.json`;

export const checkpointFileName = (version: number): string => `${padTableVersion(version)}.checkpoint.parquet`;

export interface DeltaLogListing {
  readonly versions: ReadonlySet<number>;
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** True if the log has a V2 checkpoint, which Plenum cannot read. */
  readonly hasV2Checkpoint: boolean;
}

export function parseDeltaLogListing(fileNames: readonly string[]): DeltaLogListing {
  const parseVersions = (pattern: RegExp) => fileNames.flatMap((name) => pattern.exec(name)?.[1] ?? []).map(Number);
  const checkpoints = new Map<number, readonly string[]>();
  const partsByCheckpoint = Map.groupBy(fileNames, (name) =>
    CHECKPOINT_PART_FILE_PATTERN.exec(name)
      ?.filter((_, groupIndex) => groupIndex === 1 || groupIndex === 3)
      .join(),
  );
  for (const [key, partNames] of partsByCheckpoint) {
    const [version, partCount] = key?.split(",").map(Number) ?? [];
    if (version !== undefined && partNames.length === partCount) checkpoints.set(version, partNames);
  }
  for (const version of parseVersions(CHECKPOINT_FILE_PATTERN)) checkpoints.set(version, [checkpointFileName(version)]);
  const hasV2Checkpoint = fileNames.some((name) => V2_CHECKPOINT_FILE_PATTERN.test(name));
  return { versions: new Set(parseVersions(COMMIT_FILE_PATTERN)), checkpoints, hasV2Checkpoint };
}

export function findMaxVersion(versions: Iterable<number>): number {
  let maxVersion = -1;
  for (const version of versions) maxVersion = Math.max(maxVersion, version);
  return maxVersion;
}

export function getPathInTableFolder(key: string, prefix: string): string {
  if (!key.startsWith(prefix)) throw new Error(`The file ${key} does not lie in ${prefix}.`);
  return key.slice(prefix.length);
}

/** Percent-encodes the path of a data file: `site=a%2Fb` becomes `site=a%252Fb`. */
export const encodeDataFilePath = (key: string, prefix: string): string =>
  getPathInTableFolder(key, prefix).split("/").map(encodeURIComponent).join("/").replaceAll("%3D", "=");

/** Returns null for a file outside the table's folder, which another writer added. */
export function decodeStorageKey(path: string, prefix: string): string | null {
  const decodedPath = decodeUriOrKeep(path);
  const isOutsideTableFolder = /^(?:[A-Za-z][A-Za-z0-9+.-]*:|\/)/.test(path) || decodedPath.split("/").includes("..");
  return isOutsideTableFolder ? null : `${prefix}${decodedPath}`;
}

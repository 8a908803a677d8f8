import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";
import { decodedUri } from "../paths.ts";

/**
 * Actions in commits (JSON lines) and checkpoints of a Delta log. Unknown actions and fields are ignored, but kept in a
 * rewritten `metaData`. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Actions").
 */

const integer = z.number().int();
const stringMap = z.record(z.string(), z.string().nullable());

const Protocol = z.object({
  minReaderVersion: integer,
  minWriterVersion: integer,
  readerFeatures: z.array(z.string()).nullish(),
  writerFeatures: z.array(z.string()).nullish(),
});
export type Protocol = z.infer<typeof Protocol>;

const MetaData = z.looseObject({
  id: z.string(),
  name: z.string().nullish(),
  description: z.string().nullish(),
  format: z.object({ provider: z.string(), options: stringMap.nullish() }),
  schemaString: z.string(),
  partitionColumns: z.array(z.string()),
  createdTime: integer.nullish(),
  configuration: stringMap.nullish(),
});
export type MetaData = z.infer<typeof MetaData>;

const Add = z.object({
  /** Relative to the table's folder, or absolute; percent-encoded. */
  path: z.string(),
  partitionValues: stringMap,
  size: integer,
  modificationTime: integer,
  dataChange: z.boolean(),
  /** JSON (statistics.ts). */
  stats: z.string().nullish(),
  tags: stringMap.nullish(),
});
export type Add = z.infer<typeof Add>;

const Remove = z.object({
  path: z.string(),
  deletionTimestamp: integer.nullish(),
  dataChange: z.boolean(),
  extendedFileMetadata: z.boolean().nullish(),
  partitionValues: stringMap.nullish(),
  size: integer.nullish(),
});
export type Remove = z.infer<typeof Remove>;

const Txn = z.object({ appId: z.string(), version: integer, lastUpdated: integer.nullish() });
export type Txn = z.infer<typeof Txn>;

/** One action is set; the others are absent or null. */
export const Action = z.object({
  commitInfo: z.looseObject({ txnId: z.string().nullish() }).nullish(),
  protocol: Protocol.nullish(),
  metaData: MetaData.nullish(),
  txn: Txn.nullish(),
  remove: Remove.nullish(),
  add: Add.nullish(),
});
export type Action = z.infer<typeof Action>;

export function encodeCommit(actions: readonly Action[]): Uint8Array {
  return new TextEncoder().encode(`${actions.map((action) => JSON.stringify(action)).join("\n")}\n`);
}

/** `name` is the file for messages. Throws ConfigError for an unreadable commit. */
export function parseCommit(bytes: Uint8Array, name: string): readonly Action[] {
  const lines = new TextDecoder().decode(bytes).split("\n");
  return parseOrRefuse(name, () =>
    lines.filter((line) => line.trim() !== "").map((line) => Action.parse(JSON.parse(line))),
  );
}

export function parseOrRefuse<T>(name: string, parse: () => T): T {
  try {
    return parse();
  } catch (error) {
    throw unreadableLog(name, error);
  }
}

export function unreadableLog(name: string, cause: unknown): ConfigError {
  return new ConfigError(`${name} is not what a Delta log has there.`, {
    hint: "Look who else writes into this table, or take it out of the way so that a new one is begun.",
    cause,
  });
}

/**
 * Names of the files in `_delta_log/`. Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints".
 *
 *   00000000000000000012.json                                     changes of version 12
 *   00000000000000000010.checkpoint.parquet                       complete state at version 10
 *   00000000000000000010.checkpoint.0000000001.0000000003.parquet the same in three parts (deprecated)
 *   00000000000000000010.checkpoint.80a083e8-….parquet            the same in the V2 form, which needs reader version 3
 *   _last_checkpoint                                              version of the newest checkpoint
 */
const COMMIT_FILE = /^(\d{20})\.json$/;
const CHECKPOINT_FILE = /^(\d{20})\.checkpoint\.parquet$/;
const CHECKPOINT_PART = /^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$/;
const V2_CHECKPOINT = /^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$/i;
export const LAST_CHECKPOINT = "_last_checkpoint";

export function paddedVersion(version: number): string {
  return String(version).padStart(20, "0");
}

export function commitName(version: number): string {
  return `${paddedVersion(version)}.json`;
}

export function checkpointName(version: number): string {
  return `${paddedVersion(version)}.checkpoint.parquet`;
}

export interface Listing {
  readonly commits: ReadonlySet<number>;
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** True where there is a checkpoint in the unsupported V2 form. */
  readonly hasUnsupported: boolean;
}

export function parseListing(names: readonly string[]): Listing {
  const versionsOf = (form: RegExp) => names.flatMap((name) => form.exec(name)?.[1] ?? []).map(Number);
  const checkpoints = new Map<number, readonly string[]>();
  const parts = Map.groupBy(names, (name) =>
    CHECKPOINT_PART.exec(name)
      ?.filter((_, group) => group === 1 || group === 3)
      .join(),
  );
  for (const [key, partNames] of parts) {
    const [version, count] = key?.split(",").map(Number) ?? [];
    if (version !== undefined && partNames.length === count) checkpoints.set(version, partNames);
  }
  for (const version of versionsOf(CHECKPOINT_FILE)) checkpoints.set(version, [checkpointName(version)]);
  const hasUnsupported = names.some((name) => V2_CHECKPOINT.test(name));
  return { commits: new Set(versionsOf(COMMIT_FILE)), checkpoints, hasUnsupported };
}

export function maxVersion(versions: Iterable<number>): number {
  let max = -1;
  for (const version of versions) max = Math.max(max, version);
  return max;
}

/** Returns the key relative to the table's folder, such as `value/`. */
export function decodedPathOf(key: string, prefix: string): string {
  if (!key.startsWith(prefix)) throw new Error(`The file ${key} does not lie in ${prefix}.`);
  return key.slice(prefix.length);
}

/** Percent-encodes a storage key: `site=a%2Fb` becomes `site=a%252Fb` ("Add File and Remove File"). */
export function pathOf(key: string, prefix: string): string {
  return decodedPathOf(key, prefix).split("/").map(encodeURIComponent).join("/").replaceAll("%3D", "=");
}

/** Returns null for a file outside the table's folder, which another writer added. */
export function keyOf(path: string, prefix: string): string | null {
  const decoded = decodedUri(path);
  const isOutside = /^(?:[A-Za-z][A-Za-z0-9+.-]*:|\/)/.test(path) || decoded.split("/").includes("..");
  return isOutside ? null : `${prefix}${decoded}`;
}

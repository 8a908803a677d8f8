import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";

/**
 * Actions of a Delta log that Plenum reads, as commits (JSON lines) and checkpoints contain them. Unknown actions
 * and fields are ignored, as the protocol demands ("Protocol Evolution"); unknown fields of `metaData` are kept
 * when it is rewritten. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Actions").
 */

const integer = z.number().int();
const stringMap = z.record(z.string(), z.string().nullable());

export const Protocol = z.object({
  minReaderVersion: integer,
  minWriterVersion: integer,
  readerFeatures: z.array(z.string()).nullish(),
  writerFeatures: z.array(z.string()).nullish(),
});
export type Protocol = z.infer<typeof Protocol>;

export const MetaData = z.looseObject({
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

export const Add = z.object({
  /** Relative to the table's folder, or absolute; percent-encoded (see `pathOf`). */
  path: z.string(),
  partitionValues: stringMap,
  size: integer,
  /** Milliseconds since 1970. */
  modificationTime: integer,
  dataChange: z.boolean(),
  /** JSON (statistics.ts). */
  stats: z.string().nullish(),
  tags: stringMap.nullish(),
});
export type Add = z.infer<typeof Add>;

export const Remove = z.object({
  path: z.string(),
  /** Milliseconds since 1970. */
  deletionTimestamp: integer.nullish(),
  dataChange: z.boolean(),
  extendedFileMetadata: z.boolean().nullish(),
  partitionValues: stringMap.nullish(),
  size: integer.nullish(),
});
export type Remove = z.infer<typeof Remove>;

export const Txn = z.object({ appId: z.string(), version: integer, lastUpdated: integer.nullish() });
export type Txn = z.infer<typeof Txn>;

const CommitInfo = z.looseObject({ txnId: z.string().nullish() });

/** One action is set; the others are absent or null. */
export const Action = z.object({
  commitInfo: CommitInfo.nullish(),
  protocol: Protocol.nullish(),
  metaData: MetaData.nullish(),
  txn: Txn.nullish(),
  remove: Remove.nullish(),
  add: Add.nullish(),
});
export type Action = z.infer<typeof Action>;

export function commitBytes(actions: readonly Action[]): Uint8Array {
  return new TextEncoder().encode(`${actions.map((action) => JSON.stringify(action)).join("\n")}\n`);
}

/** Parses a commit; `name` is its file for messages. Throws ConfigError for another file. */
export function actionsIn(bytes: Uint8Array, name: string): readonly Action[] {
  return parseOrRefuse(name, () =>
    new TextDecoder()
      .decode(bytes)
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => Action.parse(JSON.parse(line))),
  );
}

/** Parses a log file with `read`. Throws ConfigError where the file does not follow the protocol. */
export function parseOrRefuse<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw unreadable(name, error);
  }
}

export function unreadable(name: string, cause: unknown): ConfigError {
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

export const LAST_CHECKPOINT = "_last_checkpoint";

export function padded(version: number): string {
  return String(version).padStart(20, "0");
}

export function commitName(version: number): string {
  return `${padded(version)}.json`;
}

export function checkpointName(version: number): string {
  return `${padded(version)}.checkpoint.parquet`;
}

export interface Listing {
  readonly commits: ReadonlySet<number>;
  /** File names of each complete checkpoint, by version. */
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** True where there is a checkpoint in the unsupported V2 form. */
  readonly hasUnsupported: boolean;
}

const COMMIT = /^(\d{20})\.json$/;
const CLASSIC = /^(\d{20})\.checkpoint\.parquet$/;
const PART = /^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$/;
const FOREIGN = /^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$/i;

/** Parses the file names of the folder; ignores unknown names. */
export function listingOf(names: readonly string[]): Listing {
  const commits = new Set<number>();
  const checkpoints = new Map<number, readonly string[]>();
  const parts = new Map<string, string[]>();
  for (const name of names) {
    const commit = COMMIT.exec(name);
    if (commit !== null) commits.add(Number(commit[1]));
    const [, version, , count] = PART.exec(name) ?? [];
    if (version !== undefined && count !== undefined) {
      const checkpointParts = parts.get(`${version}.${count}`) ?? [];
      checkpointParts.push(name);
      parts.set(`${version}.${count}`, checkpointParts);
      if (checkpointParts.length === Number(count)) checkpoints.set(Number(version), checkpointParts);
    }
  }
  // Prefer the single-file form of a checkpoint.
  for (const name of names) {
    const classic = CLASSIC.exec(name);
    if (classic !== null) checkpoints.set(Number(classic[1]), [name]);
  }
  return { commits, checkpoints, hasUnsupported: names.some((name) => FOREIGN.test(name)) };
}

export function maxVersion(versions: Iterable<number>): number {
  let most = -1;
  for (const version of versions) most = Math.max(most, version);
  return most;
}

/**
 * Paths of data files. The log stores them as URIs relative to the table's folder, percent-encoded: the key
 * `site=a%2Fb` becomes `site=a%252Fb`. Source: PROTOCOL.md, "Add File and Remove File" ("a URI as specified by RFC
 * 2396, which needs to be decoded to get the data file path").
 */

/** Encodes a storage key for the log. `prefix` is the table's folder, such as `value/`. */
export function pathOf(key: string, prefix: string): string {
  if (!key.startsWith(prefix)) throw new Error(`The file ${key} does not lie in ${prefix}.`);
  return key.slice(prefix.length).split("/").map(encodeURIComponent).join("/").replaceAll("%3D", "=");
}

/** Decodes a path, so that each file has one name. */
export function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/**
 * Returns the storage key; null for a file outside the table's folder, which another writer added by an absolute
 * path.
 */
export function keyOf(path: string, prefix: string): string | null {
  const decoded = decodedPath(path);
  const isOutside = /^(?:[A-Za-z][A-Za-z0-9+.-]*:|\/)/.test(path) || decoded.split("/").includes("..");
  return isOutside ? null : `${prefix}${decoded}`;
}

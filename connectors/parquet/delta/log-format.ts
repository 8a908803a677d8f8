import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";

/**
 * The actions of a Delta log that we know, as a commit (JSON lines) and a checkpoint hold them. What a log has besides,
 * be it actions or fields, is passed over as the protocol asks ("Protocol Evolution"); fields of `metaData` that we do
 * not know are kept when we write it anew. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Actions").
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
  /** Relative to the table's folder, or absolute; percent-encoded (paths.ts). */
  path: z.string(),
  partitionValues: stringMap,
  /** Bytes. */
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

/** One of them, the others absent or null. */
export const Action = z.object({
  commitInfo: CommitInfo.nullish(),
  protocol: Protocol.nullish(),
  metaData: MetaData.nullish(),
  txn: Txn.nullish(),
  remove: Remove.nullish(),
  add: Add.nullish(),
});
export type Action = z.infer<typeof Action>;

/** The bytes of a commit: one action a line. */
export function commitBytes(actions: readonly Action[]): Uint8Array {
  return new TextEncoder().encode(`${actions.map((action) => JSON.stringify(action)).join("\n")}\n`);
}

/** The actions of a commit; `name` is its file, for a person. Throws ConfigError where it is none. */
export function actionsIn(bytes: Uint8Array, name: string): readonly Action[] {
  return parseOrRefuse(name, () =>
    new TextDecoder()
      .decode(bytes)
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => Action.parse(JSON.parse(line))),
  );
}

/** What `read` makes of a file of the log. Throws ConfigError where it cannot, for it was not written by the protocol. */
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
 * Names of the files in `_delta_log/`, by which a log is found. Source: PROTOCOL.md, "Delta Log Entries", "Checkpoints".
 *
 *   00000000000000000012.json                                     what version 12 changed
 *   00000000000000000010.checkpoint.parquet                       all that counts at version 10
 *   00000000000000000010.checkpoint.0000000001.0000000003.parquet the same in three parts, which nobody should write
 *   00000000000000000010.checkpoint.80a083e8-….parquet            the same in the second form, which needs reader version 3
 *   _last_checkpoint                                              where to begin to read
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
  /** Names of the files that make up a checkpoint, by its version; whole ones only. */
  readonly checkpoints: ReadonlyMap<number, readonly string[]>;
  /** There is a checkpoint in a form that we do not read. */
  readonly hasUnsupported: boolean;
}

const COMMIT = /^(\d{20})\.json$/;
const CLASSIC = /^(\d{20})\.checkpoint\.parquet$/;
const PART = /^(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet$/;
const FOREIGN = /^\d{20}\.checkpoint\.[0-9a-f-]{36}\.(?:json|parquet)$/i;

/** What a listing of the folder says; names that mean nothing to us are passed over. */
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
  // Of two forms of the same checkpoint the classic one, which is one file.
  for (const name of names) {
    const classic = CLASSIC.exec(name);
    if (classic !== null) checkpoints.set(Number(classic[1]), [name]);
  }
  return { commits, checkpoints, hasUnsupported: names.some((name) => FOREIGN.test(name)) };
}

/** The highest of some versions; -1 where there are none. */
export function maxVersion(versions: Iterable<number>): number {
  let most = -1;
  for (const version of versions) most = Math.max(most, version);
  return most;
}

/**
 * Paths of data files. The log has them as URIs, relative to the table's folder: whatever is not allowed there is
 * percent-encoded, so a folder `site=a%2Fb` of the storage stands as `site=a%252Fb` in the log. Source: PROTOCOL.md,
 * "Add File and Remove File" ("a URI as specified by RFC 2396, which needs to be decoded to get the data file path").
 */

/** A key of the storage as the log has it. `prefix` is the table's folder, such as `value/`. */
export function pathOf(key: string, prefix: string): string {
  if (!key.startsWith(prefix)) throw new Error(`The file ${key} does not lie in ${prefix}.`);
  return key.slice(prefix.length).split("/").map(encodeURIComponent).join("/").replaceAll("%3D", "=");
}

/** One name for one file, however its path was encoded. */
export function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** Null where the file lies outside of the table's folder: somebody else put it into the table by an absolute path. */
export function keyOf(path: string, prefix: string): string | null {
  const decoded = decodedPath(path);
  const isOutside = /^(?:[A-Za-z][A-Za-z0-9+.-]*:|\/)/.test(path) || decoded.split("/").includes("..");
  return isOutside ? null : `${prefix}${decoded}`;
}

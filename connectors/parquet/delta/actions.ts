import { z } from "zod";
import { ConfigError } from "../../../src/core/errors/errors.ts";

/**
 * The actions of a Delta log that we know, as a commit (JSON lines) and a checkpoint hold them. What a log has besides,
 * be it actions or fields, is passed over as the protocol asks ("Protocol Evolution"); fields of `metaData` that we do
 * not know are kept when we write it anew. Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md ("Actions").
 */

const whole = z.number().int();
const texts = z.record(z.string(), z.string().nullable());

export const Protocol = z.object({
  minReaderVersion: whole,
  minWriterVersion: whole,
  readerFeatures: z.array(z.string()).nullish(),
  writerFeatures: z.array(z.string()).nullish(),
});
export type Protocol = z.infer<typeof Protocol>;

export const MetaData = z.looseObject({
  id: z.string(),
  name: z.string().nullish(),
  description: z.string().nullish(),
  format: z.object({ provider: z.string(), options: texts.nullish() }),
  schemaString: z.string(),
  partitionColumns: z.array(z.string()),
  createdTime: whole.nullish(),
  configuration: texts.nullish(),
});
export type MetaData = z.infer<typeof MetaData>;

export const Add = z.object({
  /** Relative to the table's folder, or absolute; percent-encoded (paths.ts). */
  path: z.string(),
  partitionValues: texts,
  /** Bytes. */
  size: whole,
  /** Milliseconds since 1970. */
  modificationTime: whole,
  dataChange: z.boolean(),
  /** JSON (statistics.ts). */
  stats: z.string().nullish(),
  tags: texts.nullish(),
});
export type Add = z.infer<typeof Add>;

export const Remove = z.object({
  path: z.string(),
  /** Milliseconds since 1970. */
  deletionTimestamp: whole.nullish(),
  dataChange: z.boolean(),
  extendedFileMetadata: z.boolean().nullish(),
  partitionValues: texts.nullish(),
  size: whole.nullish(),
});
export type Remove = z.infer<typeof Remove>;

export const Txn = z.object({ appId: z.string(), version: whole, lastUpdated: whole.nullish() });
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
  return believed(name, () =>
    new TextDecoder()
      .decode(bytes)
      .split("\n")
      .filter((line) => line.trim() !== "")
      .map((line) => Action.parse(JSON.parse(line))),
  );
}

/** What `read` makes of a file of the log. Throws ConfigError where it cannot, for it was not written by the protocol. */
export function believed<T>(name: string, read: () => T): T {
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

/** Where files are kept: a folder, or a bucket of an S3-compatible storage. */
export interface ObjectStore {
  /** For a person, without secrets, such as `/srv/lake` or `s3://bucket/prefix`. */
  readonly where: string;
  /** Durable when it resolves. Takes the place of what is there, whole or not at all: no reader sees half of it. */
  put(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** The same, but false where there is something already; of two who try at once, one gets true. */
  putIfAbsent(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<boolean>;
  /** Null where there is nothing. */
  get(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
  /** All keys that begin so, ascending by UTF-8 bytes; those after `after`, where it is given. */
  list(prefix: string, signal: AbortSignal, after?: string): Promise<readonly StoredObject[]>;
  /** Names of the folders directly below a prefix that ends with a slash, ascending; without their slash. */
  folders(prefix: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Nothing happens where there is nothing. */
  remove(key: string, signal: AbortSignal): Promise<void>;
}

/** Keys are relative to `where`, with slashes, such as `value/date=2026-11-21/site=1/…parquet`. */
export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
}

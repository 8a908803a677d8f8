/** Storage of files: a folder, or a bucket of an S3-compatible storage. */
export interface ObjectStore {
  /** Location for messages, without secrets, such as `/srv/lake` or `s3://bucket/prefix`. */
  readonly where: string;
  /** Writes or replaces an object atomically. It is durable when the promise resolves. */
  put(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** Writes the object unless the key exists; of two concurrent calls one gets true. */
  putIfAbsent(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<boolean>;
  /** Returns null where the key does not exist. */
  get(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
  /** Lists all keys with this prefix, ascending by UTF-8 bytes; with `after`, only later keys. */
  list(prefix: string, signal: AbortSignal, after?: string): Promise<readonly StoredObject[]>;
  /**
   * Lists the names of the folders directly below a prefix that ends with a slash, ascending, without slashes.
   */
  folders(prefix: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Removes the object; does nothing where the key does not exist. */
  remove(key: string, signal: AbortSignal): Promise<void>;
}

/** Keys are relative to `where`, with slashes, such as `value/date=2026-11-21/site=1/…parquet`. */
export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
}

/** Folder, or bucket of an S3-compatible storage. Keys are relative to `location`, with slashes. */
export interface ObjectStore {
  /** Location for messages, without secrets, such as `/srv/lake` or `s3://bucket/prefix`. */
  readonly location: string;
  /** Writes or replaces an object atomically and durably. */
  put(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<void>;
  /** Writes an object unless the key exists. Only one of two concurrent calls for a key returns true. */
  putIfAbsent(key: string, bytes: Uint8Array, signal: AbortSignal): Promise<boolean>;
  get(key: string, signal: AbortSignal): Promise<Uint8Array | null>;
  /** Lists keys in ascending order of UTF-8 bytes; with `afterKey`, only later keys. */
  list(prefix: string, signal: AbortSignal, afterKey?: string): Promise<readonly StoredLakeFile[]>;
  /** Names of the folders directly below a prefix that ends with a slash, ascending. */
  listFolders(prefix: string, signal: AbortSignal): Promise<readonly string[]>;
  remove(key: string, signal: AbortSignal): Promise<void>;
}

export interface StoredLakeFile {
  readonly key: string;
  readonly bytes: number;
}

export const compareInUtf8Order = (a: string, b: string): number => Buffer.compare(Buffer.from(a), Buffer.from(b));

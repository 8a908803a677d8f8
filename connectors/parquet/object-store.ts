/** Storage of files: a folder, or a bucket of an S3-compatible storage. Keys are relative to `where`, with slashes. */
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
  list(prefix: string, signal: AbortSignal, after?: string): Promise<readonly StoredFile[]>;
  /** Lists the names of the folders directly below a prefix that ends with a slash, ascending. */
  folders(prefix: string, signal: AbortSignal): Promise<readonly string[]>;
  /** Removes the object; does nothing where the key does not exist. */
  remove(key: string, signal: AbortSignal): Promise<void>;
}

export interface StoredFile {
  readonly key: string;
  readonly bytes: number;
}

export function compareUtf8(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

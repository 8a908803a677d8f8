import type { ObjectStore } from "#connectors/parquet/object-store.ts";
import { Retryable } from "#src/core/errors/errors.ts";

/** `refused`: not done. `answer lost`: done, but reported as failed. `denied`: a put done, but reported as existing. */
export type Fault = "none" | "refused" | "answer lost" | "denied";

export interface MemoryStore extends ObjectStore {
  readonly objects: ReadonlyMap<string, Uint8Array>;
  readonly calls: Readonly<Record<"put" | "putIfAbsent" | "get" | "list" | "folders" | "remove", number>>;
  text(key: string): string;
  write(key: string, content: string | Uint8Array): void;
}

export function createMemoryStore(
  faultOf: (call: keyof MemoryStore["calls"], key: string) => Fault = () => "none",
  pause: () => Promise<void> = () => Promise.resolve(),
): MemoryStore {
  const objects = new Map<string, Uint8Array>();
  const calls = { put: 0, putIfAbsent: 0, get: 0, list: 0, folders: 0, remove: 0 };

  async function performCall<T>(call: keyof typeof calls, key: string, signal: AbortSignal, act: () => T): Promise<T> {
    calls[call] += 1;
    await pause();
    signal.throwIfAborted();
    const fault = faultOf(call, key);
    if (fault === "refused") throw new Retryable(`${call} of ${key} was refused.`);
    const result = act();
    await pause();
    if (fault === "answer lost") throw new Retryable(`The answer to ${call} of ${key} was lost.`);
    return fault === "denied" && call === "putIfAbsent" ? (false as T) : result;
  }

  return {
    location: "memory:",
    objects,
    calls,
    text: (key) => new TextDecoder().decode(objects.get(key)),
    write(key, content) {
      objects.set(key, typeof content === "string" ? new TextEncoder().encode(content) : content);
    },
    put: (key, bytes, signal) => performCall("put", key, signal, () => void objects.set(key, bytes)),
    putIfAbsent: (key, bytes, signal) =>
      performCall("putIfAbsent", key, signal, () => {
        if (objects.has(key)) return false;
        objects.set(key, bytes);
        return true;
      }),
    get: (key, signal) => performCall("get", key, signal, () => objects.get(key) ?? null),
    list: (prefix, signal, after = "") =>
      performCall("list", prefix, signal, () =>
        [...objects]
          .filter(([key]) => key.startsWith(prefix) && key > after)
          .map(([key, { length }]) => ({ key, bytes: length }))
          .toSorted((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key))),
      ),
    listFolders: (prefix, signal) =>
      performCall("folders", prefix, signal, () => {
        const below = [...objects.keys()].filter((key) => key.startsWith(prefix));
        const names = below.map((key) => key.slice(prefix.length)).filter((rest) => rest.includes("/"));
        return [...new Set(names.map((rest) => rest.slice(0, rest.indexOf("/"))))].sort();
      }),
    remove: (key, signal) => performCall("remove", key, signal, () => void objects.delete(key)),
  };
}

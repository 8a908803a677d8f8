import type { ObjectStore } from "../object-store.ts";
import type { MetaData, Remove } from "./actions.ts";
import { keyOf } from "./paths.ts";
import type { Snapshot } from "./snapshot.ts";

/**
 * Files that were taken out of a table stay where they are for a while, so that whoever began to read before is not hurt.
 * Source: PROTOCOL.md, "Add File and Remove File" ("A tombstone expires when …"), and its overview (7 days by default).
 */

const UNITS_MS: Readonly<Record<string, number>> = {
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
};

/**
 * How long they stay, in milliseconds: `retentionMs`, or longer where the owner set `delta.deletedFileRetentionDuration`
 * (`interval 30 days`) on the table.
 */
export function retentionOf(metaData: MetaData | null, retentionMs: number): number {
  const property = metaData?.configuration?.["delta.deletedFileRetentionDuration"] ?? "";
  const [, count, unit] = /^\s*(?:interval\s+)?(\d+)\s+([a-z]+?)s?\s*$/i.exec(property) ?? [];
  return Math.max(retentionMs, Number(count ?? 0) * (UNITS_MS[unit?.toLowerCase() ?? ""] ?? 0));
}

/** One without a time never is, as nobody knows. */
function isExpired({ deletionTimestamp }: Remove, nowMs: number, retentionMs: number): boolean {
  return typeof deletionTimestamp === "number" && deletionTimestamp + retentionMs < nowMs;
}

/**
 * Removes what has been out of the table for longer than `retentionMs`, so many files at most, and forgets it; how many
 * that were. What lies outside of the table's folder is somebody else's.
 */
export async function removeExpired(
  snapshot: Snapshot,
  { store, prefix }: { readonly store: ObjectStore; readonly prefix: string },
  nowMs: number,
  retentionMs: number,
  signal: AbortSignal,
  atMost = Number.POSITIVE_INFINITY,
): Promise<number> {
  let removed = 0;
  for (const [path, remove] of snapshot.tombstones) {
    if (removed >= atMost) break;
    if (!isExpired(remove, nowMs, retentionMs)) continue;
    const key = keyOf(remove.path, prefix);
    if (key !== null) {
      await store.remove(key, signal);
      removed += 1;
    }
    snapshot.tombstones.delete(path);
  }
  return removed;
}

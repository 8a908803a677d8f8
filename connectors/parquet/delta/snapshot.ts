import type { Action, Add, MetaData, Protocol, Remove, Txn } from "./actions.ts";
import { decodedPath } from "./paths.ts";

/** By partition column; null where the rows have none, such as facts about no single site. */
export type PartitionValues = Readonly<Record<string, string | null>>;

/**
 * What is true of a table at a version: the newest word about each thing, as the protocol reconciles actions ("Action
 * Reconciliation"). Files are kept by their decoded path.
 */
export interface Snapshot {
  /** -1 while there is no table. */
  version: number;
  /** Version of the newest checkpoint that was seen; -1 where there is none. */
  checkpoint: number;
  protocol: Protocol | null;
  metaData: MetaData | null;
  readonly files: Map<string, Add>;
  /** Files that were taken away, and may still lie there for readers who began before. */
  readonly tombstones: Map<string, Remove>;
  readonly txns: Map<string, Txn>;
  /** By partition (`partitionKey`): the version that last changed what stands in it. */
  readonly changed: Map<string, number>;
  /** Of versions up to this one it is not known what they changed: a checkpoint does not say. */
  changedUntil: number;
}

export function emptySnapshot(): Snapshot {
  return {
    version: -1,
    checkpoint: -1,
    protocol: null,
    metaData: null,
    files: new Map(),
    tombstones: new Map(),
    txns: new Map(),
    changed: new Map(),
    changedUntil: -1,
  };
}

/**
 * Puts the actions of a version into the snapshot before it. The order of actions in a commit means nothing, so files go
 * before they come. The columns' statistics of a file are as long as all else of it together, and nobody but the
 * checkpoint needs them: without `keepStats` only the number of rows is kept of them.
 */
export function apply(
  snapshot: Snapshot,
  version: number,
  actions: readonly Action[],
  keepStats: boolean,
): void {
  for (const { protocol, metaData, txn, remove } of actions) {
    if (protocol) snapshot.protocol = protocol;
    if (metaData) snapshot.metaData = metaData;
    if (txn) snapshot.txns.set(txn.appId, txn);
    if (remove) {
      const path = decodedPath(remove.path);
      const values = remove.partitionValues ?? snapshot.files.get(path)?.partitionValues;
      snapshot.files.delete(path);
      snapshot.tombstones.set(path, remove);
      if (remove.dataChange && values) snapshot.changed.set(partitionKey(values), version);
    }
  }
  for (const { add } of actions) {
    if (!add) continue;
    const path = decodedPath(add.path);
    snapshot.files.set(path, keepStats ? add : { ...add, stats: countOnly(add) });
    snapshot.tombstones.delete(path);
    if (add.dataChange) snapshot.changed.set(partitionKey(add.partitionValues), version);
  }
  snapshot.version = version;
}

/** The version that last changed a partition, or may have. */
export function lastChange(snapshot: Snapshot, partition: string): number {
  return snapshot.changed.get(partition) ?? snapshot.changedUntil;
}

/** The same for the same values, whatever their order. */
export function partitionKey(values: PartitionValues): string {
  return JSON.stringify(Object.entries(meant(values)).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** What partition values mean: an empty text is null in Delta ("Partition Value Serialization"). */
export function meant(values: PartitionValues): PartitionValues {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, value === "" ? null : value]),
  );
}

/** How many rows a file has by its statistics; null where they do not say. */
export function rowsIn({ stats }: Add): number | null {
  if (!stats) return null;
  try {
    const { numRecords } = JSON.parse(stats) as { readonly numRecords?: unknown };
    return typeof numRecords === "number" ? numRecords : null;
  } catch {
    return null;
  }
}

function countOnly(add: Add): string | null {
  const rows = rowsIn(add);
  return rows === null ? null : JSON.stringify({ numRecords: rows });
}

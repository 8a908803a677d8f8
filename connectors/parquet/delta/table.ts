import { randomUUID } from "node:crypto";
import { Retryable } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Log } from "../../../src/core/runtime/log.ts";
import type { Table } from "../../shared/lake/table.ts";
import type { ObjectStore } from "../object-store.ts";
import { actionsOf, type Change, type Committed, EMPTY_CHANGE, earlyOutcome } from "./change.ts";
import { createLog } from "./log.ts";
import {
  type Action,
  actionsIn,
  checkpointName,
  commitBytes,
  commitName,
  decodedPath,
  keyOf,
  LAST_CHECKPOINT,
  type MetaData,
  pathOf,
  type Remove,
} from "./log-format.ts";
import { checkProtocol, type PartitionColumn } from "./schema.ts";
import {
  apply,
  checkpointOf,
  emptySnapshot,
  normalized,
  type PartitionValues,
  rowsIn,
  type Snapshot,
} from "./snapshot.ts";

/**
 * One table of the lake as a Delta table: which files count, and how that changes, all at once or not at all.
 *
 *   data files are there ─► commit ─► _delta_log/…12.json, put only where there is none ─► every reader sees it
 *                              ▲              │ somebody else was first
 *                              └── read theirs, judge again ◄┘
 *
 * A commit is the file of its version, so of two who want the same version one wins, and the other reads what the winner
 * did. Whether ours is there is never guessed: where the answer to a put is lost, the file is read, and says by the id in
 * it whose it is. Should even that fail, the next commit with the same `txn` finds it in the log and does nothing.
 */
export interface DeltaTable {
  /** What counts now, and at which version that is: what others committed is read before. */
  files(signal: AbortSignal): Promise<{ readonly version: number; readonly files: readonly ActiveFile[] }>;
  /**
   * How far an application has come by its last commit; null where it has made none. After a crash this says what is in
   * the table already: what is told again up to here, in whatever batches, has to be left out.
   */
  lastVersionOf(appId: string, signal: AbortSignal): Promise<number | null>;
  /** Makes the table where there is none, and gives it the columns that it does not have. Throws as `commit` does. */
  make(signal: AbortSignal): Promise<void>;
  /**
   * Makes the table, where there is none, and changes it. The added files are in the storage before. Throws what the
   * storage throws, and ConfigError where somebody changed the table so that we cannot write into it; then nothing is
   * changed, or it is changed and the next try with the same `txn` says so.
   */
  commit(change: Change, signal: AbortSignal): Promise<Committed>;
  /**
   * Those of some keys that the log does not name: no files of the table, nor such as were taken out of it. After a crash
   * between put and commit they are nobody's.
   */
  unreferenced(keys: readonly string[], signal: AbortSignal): Promise<readonly string[]>;
  /**
   * Removes files from the storage that have been out of the table for longer than the retention, so many at most; how many
   * that were. To be called once a day, and again while it removes so many. Old files of the log stay: they are small, and how far back a table can be read is its owner's choice.
   */
  vacuum(signal: AbortSignal, atMost?: number): Promise<number>;
}

export interface ActiveFile {
  /** In the storage; null where somebody put a file of another place into the table, which cannot be read here. */
  readonly key: string | null;
  readonly bytes: number;
  /** Null where its statistics do not say. */
  readonly rows: number | null;
  readonly partitionValues: PartitionValues;
}

export interface DeltaTableOptions {
  readonly store: ObjectStore;
  readonly table: Table;
  /** The table's folder in the storage, with a slash at its end, such as `value/`. */
  readonly prefix: string;
  readonly partitionColumns: readonly PartitionColumn[];
  readonly clock: Pick<Clock, "now">;
  readonly log: Pick<Log, "warn">;
  /** A checkpoint after so many versions. */
  readonly checkpointEvery?: number;
  /** Files that were removed from the table stay so long in the storage, in milliseconds. */
  readonly retentionMs?: number;
}

/** So that a reader has at most 100 small files to read besides. */
const CHECKPOINT_EVERY = 100;
const RETENTION_MS = 7 * 86_400_000;
/** Whoever loses so often in a row has found something else than others who write. */
const MAX_RACES = 100;
const hasMetaData = (actions: readonly Action[]) => actions.some(({ metaData }) => metaData);

/** Reads nothing yet: a table that cannot be written into says so at the first call. */
export function openDeltaTable(options: DeltaTableOptions): DeltaTable {
  const { store, table, prefix, partitionColumns, clock } = options;
  const checkpointEvery = options.checkpointEvery ?? CHECKPOINT_EVERY;
  const where = `${store.where}/${prefix}`;
  const location = { table, prefix, partitionColumns, where };
  const log = createLog(store, prefix);
  let snapshot = emptySnapshot();

  async function refresh(signal: AbortSignal): Promise<Snapshot> {
    snapshot = await log.current(snapshot, signal);
    if (snapshot.protocol !== null) checkProtocol(snapshot.protocol, where);
    return snapshot;
  }

  const retention = (of: Snapshot) => retentionOf(of.metaData, options.retentionMs ?? RETENTION_MS);

  /** True when the commit at this version is ours, however the answer to the put read. */
  async function putCommit(
    version: number,
    actions: readonly Action[],
    id: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const file = commitName(version);
    const key = `${log.folder}${file}`;
    let failure: { readonly error: unknown } | null = null;
    try {
      if (await store.putIfAbsent(key, commitBytes(actions), signal)) return true;
    } catch (error) {
      failure = { error };
    }
    // Also "there is something already" may be said of our own, by a storage behind something that tries twice.
    const there = await store.get(key, signal).catch((error: unknown) => {
      throw failure === null ? error : failure.error;
    });
    if (there === null) {
      throw failure === null
        ? new Retryable(`${log.nameOf(file)} was there a moment ago, and is gone.`)
        : failure.error;
    }
    return actionsIn(there, log.nameOf(file)).some(({ commitInfo }) => commitInfo?.txnId === id);
  }

  /** The commit is made, so whatever fails here is told and left for the next time. */
  async function checkpointWhenDue(signal: AbortSignal): Promise<void> {
    if (snapshot.version - Math.max(0, snapshot.checkpoint) < checkpointEvery) return;
    try {
      const complete = await log.whole(signal);
      if (complete.protocol === null) return;
      checkProtocol(complete.protocol, where);
      // What a checkpoint leaves out nobody finds again, so files whose time is over go first.
      await removeExpired(complete, options, clock.now(), retention(complete), signal);
      const { bytes, size } = await checkpointOf(complete);
      const { version } = complete;
      await store.put(`${log.folder}${checkpointName(version)}`, bytes, signal);
      const hint = { version, size, sizeInBytes: bytes.length, numOfAddFiles: complete.files.size };
      await store.put(
        `${log.folder}${LAST_CHECKPOINT}`,
        new TextEncoder().encode(JSON.stringify(hint)),
        signal,
      );
      snapshot.checkpoint = version;
    } catch (error) {
      options.log.warn(
        { err: error },
        "A checkpoint of a Delta table could not be written; the table is whole.",
      );
    }
  }

  /** Where `isWanted` says no to what would be written, nothing is. */
  async function commitChange(
    change: Change,
    signal: AbortSignal,
    isWanted: (actions: readonly Action[]) => boolean,
  ): Promise<Committed> {
    const id = randomUUID();
    for (let race = 0; race < MAX_RACES; race += 1) {
      const before = await refresh(signal);
      const early = earlyOutcome(change, before, prefix);
      if (early !== null) return early;
      const version = before.version + 1;
      const actions = actionsOf(change, before, location, id, clock.now());
      if (!isWanted(actions)) return { outcome: "done-before" };
      if (await putCommit(version, actions, id, signal)) {
        apply(snapshot, version, actions, false);
        await checkpointWhenDue(signal);
        return { outcome: "committed", version };
      }
    }
    throw new Retryable(`The Delta table ${where} is changed by others faster than we can.`);
  }

  return {
    async files(signal) {
      const { version, files } = await refresh(signal);
      return {
        version,
        files: [...files.values()].map((add) => ({
          key: keyOf(add.path, prefix),
          bytes: add.size,
          rows: rowsIn(add),
          partitionValues: normalized(add.partitionValues),
        })),
      };
    },

    async lastVersionOf(appId, signal) {
      return (await refresh(signal)).txns.get(appId)?.version ?? null;
    },

    async make(signal) {
      await commitChange(EMPTY_CHANGE, signal, hasMetaData);
    },

    commit: (change, signal) => commitChange(change, signal, () => true),

    async unreferenced(keys, signal) {
      const { files, tombstones } = await refresh(signal);
      return keys.filter((key) => {
        const path = decodedPath(pathOf(key, prefix));
        return !files.has(path) && !tombstones.has(path);
      });
    },

    async vacuum(signal, atMost) {
      const current = await refresh(signal);
      return removeExpired(current, options, clock.now(), retention(current), signal, atMost);
    },
  };
}

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
function retentionOf(metaData: MetaData | null, retentionMs: number): number {
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
async function removeExpired(
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

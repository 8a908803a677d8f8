import { randomUUID } from "node:crypto";
import { Retryable } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Log } from "../../../src/core/runtime/log.ts";
import type { Table } from "../../shared/lake/table-model.ts";
import type { ObjectStore } from "../object-store.ts";
import {
  checkpointFileName,
  commitFileName,
  decodeStorageKey,
  encodeCommit,
  LAST_CHECKPOINT_FILE,
  type LogAction,
  type MetaData,
  parseCommit,
  relativePath,
} from "./log-format.ts";
import { createDeltaLogReader } from "./log-reader.ts";
import { checkProtocol, type PartitionColumn } from "./schema.ts";
import {
  applyActions,
  emptySnapshot,
  encodeCheckpoint,
  normalizeValues,
  type PartitionValues,
  parseRowCount,
  type Snapshot,
} from "./snapshot.ts";
import {
  buildCommitActions,
  type CommitOutcome,
  EMPTY_CHANGE,
  precheckCommit,
  type TableChange,
} from "./table-change.ts";

export type DeltaTable = ReturnType<typeof openDeltaTable>;

export interface ActiveFile {
  /** Storage key; null for a file outside the table's folder, which Plenum cannot read. */
  readonly key: string | null;
  readonly bytes: number;
  readonly rows: number | null;
  readonly partitionValues: PartitionValues;
}

export interface DeltaTableOptions {
  readonly store: ObjectStore;
  readonly table: Table;
  /** Folder of the table with a trailing slash, such as `value/`. */
  readonly prefix: string;
  readonly partitionColumns: readonly PartitionColumn[];
  readonly clock: Pick<Clock, "now">;
  readonly log: Pick<Log, "warn">;
  readonly checkpointEvery?: number;
  /** Time that removed files stay in the storage. */
  readonly retentionMs?: number;
}

/** Number of commits between two checkpoints, so that readers read at most 100 small files. */
const COMMITS_PER_CHECKPOINT = 100;
const REMOVED_FILE_RETENTION_MS = 7 * 86_400_000;
const MAX_REMOVALS = Number.POSITIVE_INFINITY;
/** Number of consecutive commits that concurrent writers may prevent; more must have another cause. */
const MAX_LOST_COMMIT_RACES = 100;

/**
 * Opens a table of the lake as a Delta table.
 *
 *   data files exist ─► commit ─► _delta_log/…12.json, put only if absent ─► all readers see it
 *                         ▲              │ another writer was first
 *                         └── read its commit, check again ◄┘
 *
 * If the response to a put is lost, the id in the stored file tells whose commit it is. If reading fails too, the
 * next commit with the same `txn` finds the commit in the log and does nothing.
 */
export function openDeltaTable(options: DeltaTableOptions) {
  const { store, table, prefix, partitionColumns, clock } = options;
  const { checkpointEvery = COMMITS_PER_CHECKPOINT, retentionMs = REMOVED_FILE_RETENTION_MS } = options;
  const tablePath = `${store.where}/${prefix}`;
  const location = { table, prefix, partitionColumns, where: tablePath };
  const log = createDeltaLogReader(store, prefix);
  let snapshot = emptySnapshot();

  async function refresh(signal: AbortSignal): Promise<Snapshot> {
    snapshot = await log.update(snapshot, signal);
    if (snapshot.protocol !== null) checkProtocol(snapshot.protocol, tablePath);
    return snapshot;
  }

  /** Returns true if the stored commit of this version is ours, even if the put seemed to fail. */
  async function putCommit(version: number, actions: readonly LogAction[], id: string, signal: AbortSignal) {
    const file = commitFileName(version);
    const key = `${log.folder}${file}`;
    let failure: unknown = new Retryable(`${log.nameOf(file)} was there a moment ago, and is gone.`);
    let isPutAnswered = true;
    try {
      if (await store.putIfAbsent(key, encodeCommit(actions), signal)) return true;
    } catch (error) {
      failure = error;
      isPutAnswered = false;
    }
    const storedCommit = await store.get(key, signal).catch((error: unknown) => {
      throw isPutAnswered ? error : failure;
    });
    if (storedCommit === null) throw failure;
    return parseCommit(storedCommit, log.nameOf(file)).some(({ commitInfo }) => commitInfo?.txnId === id);
  }

  /** Writes a checkpoint every 100 commits. Failures are only logged, because the commit is done. */
  async function checkpointWhenDue(signal: AbortSignal): Promise<void> {
    if (snapshot.version - Math.max(0, snapshot.checkpoint) < checkpointEvery) return;
    try {
      const fullSnapshot = await log.readAll(signal);
      if (fullSnapshot.protocol === null) return;
      checkProtocol(fullSnapshot.protocol, tablePath);
      // Remove expired files first: a checkpoint drops the tombstones of these files.
      await removeExpired(fullSnapshot, signal);
      const { bytes, size } = await encodeCheckpoint(fullSnapshot);
      const { files, version } = fullSnapshot;
      await store.put(`${log.folder}${checkpointFileName(version)}`, bytes, signal);
      const hintText = JSON.stringify({ version, size, sizeInBytes: bytes.length, numOfAddFiles: files.size });
      await store.put(`${log.folder}${LAST_CHECKPOINT_FILE}`, new TextEncoder().encode(hintText), signal);
      snapshot.checkpoint = version;
    } catch (error) {
      options.log.warn({ err: error }, "A checkpoint of a Delta table could not be written; the table is whole.");
    }
  }

  /** Removes expired files of the table's folder. Returns the number of removed files. */
  async function removeExpired({ metaData, tombstones }: Snapshot, signal: AbortSignal, atMost = MAX_REMOVALS) {
    const expiredBefore = clock.now() - resolveRetentionMs(metaData, retentionMs);
    let removed = 0;
    for (const [path, remove] of tombstones) {
      if (removed >= atMost) break;
      if ((remove.deletionTimestamp ?? Number.POSITIVE_INFINITY) >= expiredBefore) continue;
      const key = decodeStorageKey(remove.path, prefix);
      if (key !== null) {
        await store.remove(key, signal);
        removed += 1;
      }
      tombstones.delete(path);
    }
    return removed;
  }

  async function commitChange(
    change: TableChange,
    signal: AbortSignal,
    isWanted: (actions: readonly LogAction[]) => boolean = () => true,
  ): Promise<CommitOutcome> {
    const id = randomUUID();
    for (let race = 0; race < MAX_LOST_COMMIT_RACES; race += 1) {
      const currentSnapshot = await refresh(signal);
      const precheckOutcome = precheckCommit(change, currentSnapshot, prefix);
      if (precheckOutcome !== null) return precheckOutcome;
      const version = currentSnapshot.version + 1;
      const actions = buildCommitActions(change, currentSnapshot, location, id, clock.now());
      if (!isWanted(actions)) return { outcome: "done-before" };
      if (await putCommit(version, actions, id, signal)) {
        applyActions(snapshot, version, actions, false);
        await checkpointWhenDue(signal);
        return { outcome: "committed", version };
      }
    }
    throw new Retryable(`The Delta table ${tablePath} is changed by others faster than we can.`);
  }

  return {
    async files(signal: AbortSignal): Promise<{ readonly version: number; readonly files: readonly ActiveFile[] }> {
      const { version, files } = await refresh(signal);
      const activeFiles = [...files.values()].map((add) => ({
        key: decodeStorageKey(add.path, prefix),
        bytes: add.size,
        rows: parseRowCount(add),
        partitionValues: normalizeValues(add.partitionValues),
      }));
      return { version, files: activeFiles };
    },
    async lastVersionOf(appId: string, signal: AbortSignal): Promise<number | null> {
      return (await refresh(signal)).txns.get(appId)?.version ?? null;
    },
    async createIfMissing(signal: AbortSignal): Promise<void> {
      await commitChange(EMPTY_CHANGE, signal, (actions) => actions.some(({ metaData }) => metaData));
    },
    /** Commits a change whose added files exist. After an error, repeat the call with the same `txn`. */
    commit: (change: TableChange, signal: AbortSignal) => commitChange(change, signal),
    /** Returns the keys that the log does not mention, such as files put before a crash and never committed. */
    async unreferenced(keys: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
      const { files, tombstones } = await refresh(signal);
      return keys.filter((key) => {
        const path = relativePath(key, prefix);
        return !files.has(path) && !tombstones.has(path);
      });
    },
    /** Removes up to `atMost` expired files. Call again while the result is `atMost`. */
    vacuum: async (signal: AbortSignal, atMost?: number) => removeExpired(await refresh(signal), signal, atMost),
  };
}

const INTERVAL_UNITS_MS: Readonly<Record<string, number>> = {
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
};

/** Returns the retention of removed files: at least `delta.deletedFileRetentionDuration` (`interval 30 days`). */
function resolveRetentionMs(metaData: MetaData | null, retentionMs: number): number {
  const retentionProperty = metaData?.configuration?.["delta.deletedFileRetentionDuration"] ?? "";
  const [, count, unit] = /^\s*(?:interval\s+)?(\d+)\s+([a-z]+?)s?\s*$/i.exec(retentionProperty) ?? [];
  return Math.max(retentionMs, Number(count ?? 0) * (INTERVAL_UNITS_MS[unit?.toLowerCase() ?? ""] ?? 0));
}

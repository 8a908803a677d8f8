import { randomUUID } from "node:crypto";
import { Retryable } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Log } from "../../../src/core/runtime/log.ts";
import type { LakeTable } from "../../shared/lake/table-model.ts";
import { buildTableFolder } from "../lake-paths.ts";
import type { ObjectStore } from "../object-store.ts";
import {
  checkpointFileName,
  commitFileName,
  type DeltaLogAction,
  type DeltaMetaData,
  decodeStorageKey,
  encodeDeltaCommit,
  getPathInTableFolder,
  LAST_CHECKPOINT_FILE_NAME,
  parseCommit,
} from "./log-format.ts";
import { createDeltaLogReader } from "./log-reader.ts";
import { checkDeltaProtocol } from "./schema.ts";
import {
  applyDeltaActions,
  createEmptySnapshot,
  type DeltaSnapshot,
  encodeDeltaCheckpoint,
  normalizePartitionValues,
  type PartitionValues,
  parseRowCount,
} from "./snapshot.ts";
import {
  buildCommitActions,
  type CommitOutcome,
  type DeltaTableChange,
  EMPTY_TABLE_CHANGE,
  precheckCommit,
} from "./table-change.ts";

export type DeltaTable = ReturnType<typeof openDeltaTable>;

export interface ActiveDeltaFile {
  /** Storage key; null for a file outside the table's folder, which Plenum cannot read. */
  readonly key: string | null;
  readonly bytes: number;
  readonly rows: number | null;
  readonly partitionValues: PartitionValues;
}

export interface DeltaTableOptions {
  readonly store: ObjectStore;
  readonly table: LakeTable;
  readonly clock: Pick<Clock, "now">;
  readonly log: Pick<Log, "warn">;
  readonly checkpointEvery?: number;
  readonly retentionMs?: number;
}

/** Number of commits between two checkpoints, so that readers read at most 100 small files. */
const COMMITS_PER_CHECKPOINT = 100;
const REMOVED_FILE_RETENTION_MS = 7 * 86_400_000;
/** Maximum attempts of a commit. Concurrent writers hardly cause this many conflicts in a row. */
const MAX_COMMIT_ATTEMPTS = 100;

/**
 * Opens a table of the lake as a Delta table.
 *   data files exist ─► commit ─► _delta_log/…12.json, put only if absent ─► all readers see it
 *                         ▲              │ another writer was first
 *                         └── read its commit, check again ◄┘
 * If the response to a put is lost, the id in the stored file tells whose commit it is. If reading fails too, the
 * next commit with the same `txn` finds the commit in the log and does nothing.
 */
export function openDeltaTable(options: DeltaTableOptions) {
  const { store, table, clock } = options;
  const { checkpointEvery = COMMITS_PER_CHECKPOINT, retentionMs = REMOVED_FILE_RETENTION_MS } = options;
  const prefix = buildTableFolder(table);
  const tablePath = `${store.location}/${prefix}`;
  const reader = createDeltaLogReader(store, prefix);
  let snapshot = createEmptySnapshot();

  async function readSnapshot(signal: AbortSignal): Promise<DeltaSnapshot> {
    snapshot = await reader.updateSnapshot(snapshot, signal);
    if (snapshot.protocol !== null) checkDeltaProtocol(snapshot.protocol, tablePath);
    return snapshot;
  }

  /** Stores a commit. Returns true if the stored file has this commit's id, even if the put seemed to fail. */
  async function putDeltaCommit(version: number, actions: readonly DeltaLogAction[], id: string, signal: AbortSignal) {
    const fileName = commitFileName(version);
    const key = `${reader.folder}${fileName}`;
    let failure: unknown = new Retryable(`${reader.describePath(fileName)} was there a moment ago, and is gone.`);
    let hasPutResponse = true;
    try {
      if (await store.putIfAbsent(key, encodeDeltaCommit(actions), signal)) return true;
    } catch (error) {
      failure = error;
      hasPutResponse = false;
    }
    const storedCommit = await store.get(key, signal).catch((error: unknown) => {
      throw hasPutResponse ? error : failure;
    });
    if (storedCommit === null) throw failure;
    return parseCommit(storedCommit, reader.describePath(fileName)).some(({ commitInfo }) => commitInfo?.txnId === id);
  }

  /** Writes a checkpoint every 100 commits. Failures are only logged, because the commit is done. */
  async function writeCheckpointWhenDue(signal: AbortSignal): Promise<void> {
    if (snapshot.version - Math.max(0, snapshot.checkpointVersion) < checkpointEvery) return;
    try {
      const fullSnapshot = await reader.readFullSnapshot(signal);
      if (fullSnapshot.protocol === null) return;
      checkDeltaProtocol(fullSnapshot.protocol, tablePath);
      // Remove expired files first: a checkpoint drops the tombstones of these files.
      await removeExpiredFiles(fullSnapshot, signal);
      const { bytes, size } = await encodeDeltaCheckpoint(fullSnapshot);
      const { files, version } = fullSnapshot;
      await store.put(`${reader.folder}${checkpointFileName(version)}`, bytes, signal);
      const checkpointInfo = JSON.stringify({ version, size, sizeInBytes: bytes.length, numOfAddFiles: files.size });
      await store.put(`${reader.folder}${LAST_CHECKPOINT_FILE_NAME}`, new TextEncoder().encode(checkpointInfo), signal);
      snapshot.checkpointVersion = version;
    } catch (error) {
      options.log.warn({ err: error }, "A checkpoint of a Delta table could not be written; the table is whole.");
    }
  }

  async function removeExpiredFiles({ metaData, tombstones }: DeltaSnapshot, signal: AbortSignal, maxFiles?: number) {
    const expiredBeforeMs = clock.now() - resolveFileRetentionMs(metaData, retentionMs);
    let removedFileCount = 0;
    for (const [path, tombstone] of tombstones) {
      if (removedFileCount === maxFiles) break;
      if ((tombstone.deletionTimestamp ?? Number.POSITIVE_INFINITY) >= expiredBeforeMs) continue;
      const key = decodeStorageKey(tombstone.path, prefix);
      if (key !== null) {
        await store.remove(key, signal);
        removedFileCount += 1;
      }
      tombstones.delete(path);
    }
    return removedFileCount;
  }

  async function commitTableChange(
    change: DeltaTableChange,
    signal: AbortSignal,
    isChangeNeeded: (actions: readonly DeltaLogAction[]) => boolean = () => true,
  ): Promise<CommitOutcome> {
    const commitId = randomUUID();
    for (let attempt = 0; attempt < MAX_COMMIT_ATTEMPTS; attempt += 1) {
      const currentSnapshot = await readSnapshot(signal);
      const precheckOutcome = precheckCommit(change, currentSnapshot, prefix);
      if (precheckOutcome !== null) return precheckOutcome;
      const version = currentSnapshot.version + 1;
      const commitActions = buildCommitActions(change, currentSnapshot, table, tablePath, commitId, clock.now());
      if (!isChangeNeeded(commitActions)) return "done-before";
      if (await putDeltaCommit(version, commitActions, commitId, signal)) {
        applyDeltaActions(snapshot, version, commitActions, false);
        await writeCheckpointWhenDue(signal);
        return "committed";
      }
    }
    throw new Retryable(`The Delta table ${tablePath} is changed by others faster than we can.`);
  }

  return {
    async readActiveFiles(signal: AbortSignal) {
      const { version, files } = await readSnapshot(signal);
      const activeTableFiles = [...files.values()].map((addAction) => ({
        key: decodeStorageKey(addAction.path, prefix),
        bytes: addAction.size,
        rows: parseRowCount(addAction),
        partitionValues: normalizePartitionValues(addAction.partitionValues),
      }));
      return { version, files: activeTableFiles };
    },
    async readLastTxnVersion(appId: string, signal: AbortSignal): Promise<number | null> {
      return (await readSnapshot(signal)).txns.get(appId)?.version ?? null;
    },
    async createIfMissing(signal: AbortSignal): Promise<void> {
      await commitTableChange(EMPTY_TABLE_CHANGE, signal, (actions) => actions.some(({ metaData }) => metaData));
    },
    /** Commits a change whose added files exist. After an error, repeat the call with the same `txn`. */
    commit: (change: DeltaTableChange, signal: AbortSignal) => commitTableChange(change, signal),
    /** Returns the keys that the log does not mention, such as files put before a crash and never committed. */
    async findUnreferencedKeys(keys: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
      const { files, tombstones } = await readSnapshot(signal);
      return keys.filter((key) => {
        const path = getPathInTableFolder(key, prefix);
        return !files.has(path) && !tombstones.has(path);
      });
    },
    /** Removes up to `maxFiles` expired files. Call again while the result is `maxFiles`. */
    vacuum: async (signal: AbortSignal, maxFiles?: number) =>
      removeExpiredFiles(await readSnapshot(signal), signal, maxFiles),
  };
}

const RETENTION_UNITS_MS: Readonly<Record<string, number>> = {
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
};

/** Returns the retention of removed files: at least `delta.deletedFileRetentionDuration` (`interval 30 days`). */
function resolveFileRetentionMs(metaData: DeltaMetaData | null, retentionMs: number): number {
  const retentionProperty = metaData?.configuration?.["delta.deletedFileRetentionDuration"] ?? "";
  const [, count, unit] = /^\s*(?:interval\s+)?(\d+)\s+([a-z]+?)s?\s*$/i.exec(retentionProperty) ?? [];
  return Math.max(retentionMs, Number(count ?? 0) * (RETENTION_UNITS_MS[unit?.toLowerCase() ?? ""] ?? 0));
}

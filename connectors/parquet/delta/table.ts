import { randomUUID } from "node:crypto";
import { Retryable } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Log } from "../../../src/core/runtime/log.ts";
import type { Table } from "../../shared/lake/table.ts";
import type { ObjectStore } from "../object-store.ts";
import { actionsOf, type Change, type CommitOutcome, EMPTY_CHANGE, earlyOutcome } from "./change.ts";
import { createLog } from "./log.ts";
import {
  type Action,
  checkpointName,
  commitName,
  decodedPathOf,
  encodeCommit,
  keyOf,
  LAST_CHECKPOINT,
  type MetaData,
  parseCommit,
} from "./log-format.ts";
import { checkProtocol, type PartitionColumn } from "./schema.ts";
import {
  applyActions,
  checkpointOf,
  emptySnapshot,
  normalizeValues,
  type PartitionValues,
  rowCountOf,
  type Snapshot,
} from "./snapshot.ts";

export type DeltaTable = ReturnType<typeof openDeltaTable>;

export interface ActiveFile {
  /** Null for a file outside the table's folder, which cannot be read here. */
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

/** Readers then read at most 100 small files after a checkpoint. */
const CHECKPOINT_EVERY = 100;
/** Default of the protocol. */
const RETENTION_MS = 7 * 86_400_000;
/** After this many lost races in a row, the cause must be something other than concurrent writers. */
const MAX_RACES = 100;

/**
 * One table of the lake as a Delta table.
 *
 *   data files exist ─► commit ─► _delta_log/…12.json, put only if absent ─► all readers see it
 *                         ▲              │ another writer was first
 *                         └── read its commit, check again ◄┘
 *
 * Where the response to a put is lost, the id in the stored file tells whose commit it is. If that read fails too, the
 * next commit with the same `txn` finds it in the log and does nothing.
 */
export function openDeltaTable(options: DeltaTableOptions) {
  const { store, table, prefix, partitionColumns, clock } = options;
  const { checkpointEvery = CHECKPOINT_EVERY, retentionMs = RETENTION_MS } = options;
  const where = `${store.where}/${prefix}`;
  const location = { table, prefix, partitionColumns, where };
  const log = createLog(store, prefix);
  let snapshot = emptySnapshot();

  async function refresh(signal: AbortSignal): Promise<Snapshot> {
    snapshot = await log.update(snapshot, signal);
    if (snapshot.protocol !== null) checkProtocol(snapshot.protocol, where);
    return snapshot;
  }

  /** Returns whether the commit at this version is ours, whatever the response to the put. */
  async function putCommit(
    version: number,
    actions: readonly Action[],
    id: string,
    signal: AbortSignal,
  ): Promise<boolean> {
    const file = commitName(version);
    const key = `${log.folder}${file}`;
    let failure: unknown = new Retryable(`${log.nameOf(file)} was there a moment ago, and is gone.`);
    let isPutAnswered = true;
    try {
      if (await store.putIfAbsent(key, encodeCommit(actions), signal)) return true;
    } catch (error) {
      failure = error;
      isPutAnswered = false;
    }
    const stored = await store.get(key, signal).catch((error: unknown) => {
      throw isPutAnswered ? error : failure;
    });
    if (stored === null) throw failure;
    return parseCommit(stored, log.nameOf(file)).some(({ commitInfo }) => commitInfo?.txnId === id);
  }

  /** The commit is done, so a failure is only logged. */
  async function checkpointWhenDue(signal: AbortSignal): Promise<void> {
    if (snapshot.version - Math.max(0, snapshot.checkpoint) < checkpointEvery) return;
    try {
      const complete = await log.readAll(signal);
      if (complete.protocol === null) return;
      checkProtocol(complete.protocol, where);
      // Remove expired files first: a checkpoint drops their tombstones.
      await removeExpired(complete, signal);
      const { bytes, size } = await checkpointOf(complete);
      const { version } = complete;
      await store.put(`${log.folder}${checkpointName(version)}`, bytes, signal);
      const hint = { version, size, sizeInBytes: bytes.length, numOfAddFiles: complete.files.size };
      await store.put(`${log.folder}${LAST_CHECKPOINT}`, new TextEncoder().encode(JSON.stringify(hint)), signal);
      snapshot.checkpoint = version;
    } catch (error) {
      options.log.warn({ err: error }, "A checkpoint of a Delta table could not be written; the table is whole.");
    }
  }

  /** Returns the number of removed files. Ignores files outside the table's folder. */
  async function removeExpired(
    { metaData, tombstones }: Snapshot,
    signal: AbortSignal,
    atMost = Number.POSITIVE_INFINITY,
  ): Promise<number> {
    const expiredBefore = clock.now() - retentionOf(metaData, retentionMs);
    let removed = 0;
    for (const [path, remove] of tombstones) {
      if (removed >= atMost) break;
      // A tombstone without a time never expires.
      if ((remove.deletionTimestamp ?? Number.POSITIVE_INFINITY) >= expiredBefore) continue;
      const key = keyOf(remove.path, prefix);
      if (key !== null) {
        await store.remove(key, signal);
        removed += 1;
      }
      tombstones.delete(path);
    }
    return removed;
  }

  async function commitChange(
    change: Change,
    signal: AbortSignal,
    isWanted: (actions: readonly Action[]) => boolean = () => true,
  ): Promise<CommitOutcome> {
    const id = randomUUID();
    for (let race = 0; race < MAX_RACES; race += 1) {
      const before = await refresh(signal);
      const early = earlyOutcome(change, before, prefix);
      if (early !== null) return early;
      const version = before.version + 1;
      const actions = actionsOf(change, before, location, id, clock.now());
      if (!isWanted(actions)) return { outcome: "done-before" };
      if (await putCommit(version, actions, id, signal)) {
        applyActions(snapshot, version, actions, false);
        await checkpointWhenDue(signal);
        return { outcome: "committed", version };
      }
    }
    throw new Retryable(`The Delta table ${where} is changed by others faster than we can.`);
  }

  return {
    async files(signal: AbortSignal): Promise<{ readonly version: number; readonly files: readonly ActiveFile[] }> {
      const { version, files } = await refresh(signal);
      const active = [...files.values()].map((add) => ({
        key: keyOf(add.path, prefix),
        bytes: add.size,
        rows: rowCountOf(add),
        partitionValues: normalizeValues(add.partitionValues),
      }));
      return { version, files: active };
    },

    /** Version of an application's last commit; null without one. */
    async lastVersionOf(appId: string, signal: AbortSignal): Promise<number | null> {
      return (await refresh(signal)).txns.get(appId)?.version ?? null;
    },

    async createIfMissing(signal: AbortSignal): Promise<void> {
      await commitChange(EMPTY_CHANGE, signal, (actions) => actions.some(({ metaData }) => metaData));
    },

    /** The added files must exist. After an error, the next attempt with the same `txn` says whether it was done. */
    commit: (change: Change, signal: AbortSignal) => commitChange(change, signal),

    /** Keys that the log does not mention: after a crash between put and commit, no table has them. */
    async unreferenced(keys: readonly string[], signal: AbortSignal): Promise<readonly string[]> {
      const { files, tombstones } = await refresh(signal);
      return keys.filter((key) => {
        const path = decodedPathOf(key, prefix);
        return !files.has(path) && !tombstones.has(path);
      });
    },

    /** Call it again while it returns `atMost`. */
    vacuum: async (signal: AbortSignal, atMost?: number) => removeExpired(await refresh(signal), signal, atMost),
  };
}

const UNITS_MS: Readonly<Record<string, number>> = {
  second: 1_000,
  minute: 60_000,
  hour: 3_600_000,
  day: 86_400_000,
  week: 604_800_000,
};

/** Files stay longer where `delta.deletedFileRetentionDuration` says so (`interval 30 days`). */
function retentionOf(metaData: MetaData | null, retentionMs: number): number {
  const property = metaData?.configuration?.["delta.deletedFileRetentionDuration"] ?? "";
  const [, count, unit] = /^\s*(?:interval\s+)?(\d+)\s+([a-z]+?)s?\s*$/i.exec(property) ?? [];
  return Math.max(retentionMs, Number(count ?? 0) * (UNITS_MS[unit?.toLowerCase() ?? ""] ?? 0));
}

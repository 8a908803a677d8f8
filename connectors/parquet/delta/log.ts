import { ConfigError, Retryable } from "../../../src/core/errors/errors.ts";
import type { ObjectStore } from "../object-store.ts";
import {
  commitFileName,
  LAST_CHECKPOINT_FILE,
  type LogListing,
  maxVersion,
  padVersion,
  parseCommit,
  parseLogListing,
} from "./log-format.ts";
import { applyActions, emptySnapshot, parseCheckpoint, type Snapshot } from "./snapshot.ts";

/** Reads the log of a Delta table, from the newest checkpoint on. */
export function createDeltaLogReader(store: ObjectStore, prefix: string) {
  const folder = `${prefix}_delta_log/`;
  const displayPath = (file: string) => `${store.where}/${folder}${file}`;

  async function list(signal: AbortSignal, fromVersion: number | null): Promise<LogListing> {
    // A version without file ending sorts before the names of all files of that version.
    const after = fromVersion === null ? undefined : `${folder}${padVersion(fromVersion)}`;
    const files = await store.list(folder, signal, after);
    return parseLogListing(files.map(({ key }) => key.slice(folder.length)));
  }

  async function read(file: string, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = await store.get(`${folder}${file}`, signal);
    if (bytes === null) throw new Retryable(`${displayPath(file)} was there a moment ago, and is gone.`);
    return bytes;
  }

  /** Applies later commits. Returns false if a commit is missing in the listing. */
  async function readCommits(
    snapshot: Snapshot,
    { commits }: LogListing,
    signal: AbortSignal,
    keepStats: boolean,
  ): Promise<boolean> {
    const last = maxVersion(commits);
    for (let version = snapshot.version + 1; version <= last; version += 1) if (!commits.has(version)) return false;
    for (let version = snapshot.version + 1; version <= last; version += 1) {
      const file = commitFileName(version);
      applyActions(snapshot, version, parseCommit(await read(file, signal), displayPath(file)), keepStats);
    }
    return true;
  }

  /** Returns the version in `_last_checkpoint`, or null if the file is missing or invalid. */
  async function lastCheckpoint(signal: AbortSignal): Promise<number | null> {
    const bytes = await store.get(`${folder}${LAST_CHECKPOINT_FILE}`, signal);
    if (bytes === null) return null;
    try {
      const { version } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly version?: unknown };
      return Number.isSafeInteger(version) ? Number(version) : null;
    } catch {
      return null;
    }
  }

  /** Builds the snapshot. Returns null if a version is missing in the listing. */
  async function replay(listing: LogListing, signal: AbortSignal, keepStats: boolean): Promise<Snapshot | null> {
    const snapshot = emptySnapshot();
    const checkpoint = maxVersion(listing.checkpoints.keys());
    for (const file of listing.checkpoints.get(checkpoint) ?? []) {
      applyActions(snapshot, checkpoint, await parseCheckpoint(await read(file, signal), displayPath(file)), keepStats);
    }
    Object.assign(snapshot, { version: checkpoint, checkpoint, unknownChangesUntil: checkpoint });
    return (await readCommits(snapshot, listing, signal, keepStats)) ? snapshot : null;
  }

  async function load(signal: AbortSignal, keepStats: boolean): Promise<Snapshot> {
    const hint = await lastCheckpoint(signal);
    if (hint !== null) {
      const listing = await list(signal, hint);
      const snapshot = listing.checkpoints.size > 0 ? await replay(listing, signal, keepStats) : null;
      if (snapshot !== null) return snapshot;
    }
    const listing = await list(signal, null);
    const snapshot = await replay(listing, signal, keepStats);
    if (snapshot !== null) return snapshot;
    const reason = listing.hasV2Checkpoint
      ? "begins with a checkpoint of the second form, which needs reader version 3; we read version 1"
      : "has a hole: a version is missing in it";
    throw new ConfigError(`The log ${store.where}/${folder} ${reason}.`, {
      hint: "Look who else writes into this table; nothing was written, and the events wait.",
    });
  }

  return {
    folder,
    nameOf: displayPath,

    readAll: (signal: AbortSignal) => load(signal, true),

    /** Updates a snapshot without statistics, or loads the snapshot again if versions are missing. */
    async update(snapshot: Snapshot, signal: AbortSignal): Promise<Snapshot> {
      if (snapshot.version < 0) return load(signal, false);
      const listing = await list(signal, snapshot.version);
      const isListed = listing.commits.has(snapshot.version) || listing.checkpoints.has(snapshot.version);
      if (!isListed || !(await readCommits(snapshot, listing, signal, false))) return load(signal, false);
      snapshot.checkpoint = Math.max(snapshot.checkpoint, maxVersion(listing.checkpoints.keys()));
      return snapshot;
    },
  };
}

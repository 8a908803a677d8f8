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

export function createDeltaLogReader(store: ObjectStore, prefix: string) {
  const folder = `${prefix}_delta_log/`;
  const displayPath = (file: string) => `${store.where}/${folder}${file}`;

  async function listLogFiles(signal: AbortSignal, fromVersion: number | null): Promise<LogListing> {
    // A version without file ending sorts before the names of all files of that version.
    const afterKey = fromVersion === null ? undefined : `${folder}${padVersion(fromVersion)}`;
    const files = await store.list(folder, signal, afterKey);
    return parseLogListing(files.map(({ key }) => key.slice(folder.length)));
  }

  async function readLogFile(file: string, parse: typeof parseCommit | typeof parseCheckpoint, signal: AbortSignal) {
    const bytes = await store.get(`${folder}${file}`, signal);
    if (bytes === null) throw new Retryable(`${displayPath(file)} was there a moment ago, and is gone.`);
    return parse(bytes, displayPath(file));
  }

  /** Applies later commits. Returns false if a commit is missing in the listing. */
  async function readCommits(snapshot: Snapshot, listing: LogListing, signal: AbortSignal, keepStats: boolean) {
    const newVersions = [...listing.commits].filter((version) => version > snapshot.version).sort((a, b) => a - b);
    if (newVersions.some((version, n) => version !== snapshot.version + 1 + n)) return false;
    for (const version of newVersions) {
      const actions = await readLogFile(commitFileName(version), parseCommit, signal);
      applyActions(snapshot, version, actions, keepStats);
    }
    return true;
  }

  async function readLastCheckpoint(signal: AbortSignal): Promise<number | null> {
    const bytes = await store.get(`${folder}${LAST_CHECKPOINT_FILE}`, signal);
    if (bytes === null) return null;
    try {
      const { version } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly version?: unknown };
      return Number.isSafeInteger(version) ? Number(version) : null;
    } catch {
      return null;
    }
  }

  async function buildSnapshot(listing: LogListing, signal: AbortSignal, keepStats: boolean): Promise<Snapshot | null> {
    const snapshot = emptySnapshot();
    const checkpoint = maxVersion(listing.checkpoints.keys());
    for (const file of listing.checkpoints.get(checkpoint) ?? []) {
      applyActions(snapshot, checkpoint, await readLogFile(file, parseCheckpoint, signal), keepStats);
    }
    Object.assign(snapshot, { version: checkpoint, checkpoint, unknownChangesUntil: checkpoint });
    return (await readCommits(snapshot, listing, signal, keepStats)) ? snapshot : null;
  }

  async function loadSnapshot(signal: AbortSignal, keepStats: boolean): Promise<Snapshot> {
    const hintedVersion = await readLastCheckpoint(signal);
    if (hintedVersion !== null) {
      const listing = await listLogFiles(signal, hintedVersion);
      const snapshot = listing.checkpoints.size > 0 ? await buildSnapshot(listing, signal, keepStats) : null;
      if (snapshot !== null) return snapshot;
    }
    const listing = await listLogFiles(signal, null);
    const snapshot = await buildSnapshot(listing, signal, keepStats);
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
    readAll: (signal: AbortSignal) => loadSnapshot(signal, true),
    /** Updates a snapshot without statistics, or loads the snapshot again if versions are missing. */
    async update(snapshot: Snapshot, signal: AbortSignal): Promise<Snapshot> {
      if (snapshot.version < 0) return loadSnapshot(signal, false);
      const listing = await listLogFiles(signal, snapshot.version);
      const isListed = listing.commits.has(snapshot.version) || listing.checkpoints.has(snapshot.version);
      if (!isListed || !(await readCommits(snapshot, listing, signal, false))) return loadSnapshot(signal, false);
      snapshot.checkpoint = Math.max(snapshot.checkpoint, maxVersion(listing.checkpoints.keys()));
      return snapshot;
    },
  };
}

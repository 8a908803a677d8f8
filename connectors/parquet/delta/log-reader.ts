import { ConfigError, Retryable } from "../../../src/core/errors/errors.ts";
import type { ObjectStore } from "../object-store.ts";
import {
  commitFileName,
  type DeltaLogListing,
  findMaxVersion,
  LAST_CHECKPOINT_FILE_NAME,
  padTableVersion,
  parseCommit,
  parseDeltaLogListing,
} from "./log-format.ts";
import { applyDeltaActions, createEmptySnapshot, type DeltaSnapshot, parseCheckpoint } from "./snapshot.ts";

export function createDeltaLogReader(store: ObjectStore, prefix: string) {
  const deltaLogFolder = `${prefix}_delta_log/`;
  const buildDisplayPath = (fileName: string) => `${store.location}/${deltaLogFolder}${fileName}`;

  async function listDeltaLogFiles(signal: AbortSignal, fromVersion: number | null): Promise<DeltaLogListing> {
    // The bare version number sorts before the names of all files of that version.
    const listingStartKey = fromVersion === null ? undefined : `${deltaLogFolder}${padTableVersion(fromVersion)}`;
    const files = await store.list(deltaLogFolder, signal, listingStartKey);
    return parseDeltaLogListing(files.map(({ key }) => key.slice(deltaLogFolder.length)));
  }

  async function readLogFile(file: string, parse: typeof parseCommit | typeof parseCheckpoint, signal: AbortSignal) {
    const bytes = await store.get(`${deltaLogFolder}${file}`, signal);
    if (bytes === null) throw new Retryable(`${buildDisplayPath(file)} was there a moment ago, and is gone.`);
    return parse(bytes, buildDisplayPath(file));
  }

  /** Applies the listed commits after the snapshot's version. Returns false if a version is missing in between. */
  async function applyCommits(
    snapshot: DeltaSnapshot,
    listing: DeltaLogListing,
    signal: AbortSignal,
    keepStats: boolean,
  ) {
    const newVersions = [...listing.versions].filter((version) => version > snapshot.version).sort((a, b) => a - b);
    if (newVersions.some((version, n) => version !== snapshot.version + 1 + n)) return false;
    for (const version of newVersions) {
      const commitActions = await readLogFile(commitFileName(version), parseCommit, signal);
      applyDeltaActions(snapshot, version, commitActions, keepStats);
    }
    return true;
  }

  async function readLastCheckpointVersion(signal: AbortSignal): Promise<number | null> {
    const bytes = await store.get(`${deltaLogFolder}${LAST_CHECKPOINT_FILE_NAME}`, signal);
    if (bytes === null) return null;
    try {
      const { version } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly version?: unknown };
      return Number.isSafeInteger(version) ? Number(version) : null;
    } catch {
      return null;
    }
  }

  async function buildDeltaSnapshot(listing: DeltaLogListing, signal: AbortSignal, keepStats: boolean) {
    const snapshot = createEmptySnapshot();
    const version = findMaxVersion(listing.checkpoints.keys());
    for (const fileName of listing.checkpoints.get(version) ?? [])
      applyDeltaActions(snapshot, version, await readLogFile(fileName, parseCheckpoint, signal), keepStats);
    Object.assign(snapshot, { version, checkpointVersion: version, unknownChangesUntil: version });
    return (await applyCommits(snapshot, listing, signal, keepStats)) ? snapshot : null;
  }

  async function loadDeltaSnapshot(signal: AbortSignal, keepStats: boolean): Promise<DeltaSnapshot> {
    const lastCheckpointVersion = await readLastCheckpointVersion(signal);
    if (lastCheckpointVersion !== null) {
      const logListing = await listDeltaLogFiles(signal, lastCheckpointVersion);
      const snapshot = logListing.checkpoints.size > 0 ? await buildDeltaSnapshot(logListing, signal, keepStats) : null;
      if (snapshot !== null) return snapshot;
    }
    const logListing = await listDeltaLogFiles(signal, null);
    const snapshot = await buildDeltaSnapshot(logListing, signal, keepStats);
    if (snapshot !== null) return snapshot;
    const reason = logListing.hasV2Checkpoint
      ? "begins with a checkpoint of the second form, which needs reader version 3; we read version 1"
      : "has a hole: a version is missing in it";
    throw new ConfigError(`The log ${store.location}/${deltaLogFolder} ${reason}.`, {
      hint: "Look who else writes into this table; nothing was written, and the events wait.",
    });
  }

  return {
    folder: deltaLogFolder,
    describePath: buildDisplayPath,
    readFullSnapshot: (signal: AbortSignal) => loadDeltaSnapshot(signal, true),
    /** Applies new commits to a snapshot, without their statistics. Loads a new snapshot if the log lacks a version. */
    async updateSnapshot(snapshot: DeltaSnapshot, signal: AbortSignal): Promise<DeltaSnapshot> {
      if (snapshot.version < 0) return loadDeltaSnapshot(signal, false);
      const listing = await listDeltaLogFiles(signal, snapshot.version);
      const isListed = listing.versions.has(snapshot.version) || listing.checkpoints.has(snapshot.version);
      if (!isListed || !(await applyCommits(snapshot, listing, signal, false))) return loadDeltaSnapshot(signal, false);
      snapshot.checkpointVersion = Math.max(snapshot.checkpointVersion, findMaxVersion(listing.checkpoints.keys()));
      return snapshot;
    },
  };
}

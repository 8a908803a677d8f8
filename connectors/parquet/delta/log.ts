import { ConfigError, Retryable } from "../../../src/core/errors/errors.ts";
import type { ObjectStore } from "../object-store.ts";
import {
  commitName,
  LAST_CHECKPOINT,
  type Listing,
  maxVersion,
  paddedVersion,
  parseCommit,
  parseListing,
} from "./log-format.ts";
import { actionsInCheckpoint, applyActions, emptySnapshot, type Snapshot } from "./snapshot.ts";

/** Lists the log before each write: a commit would be unreadable if somebody had removed earlier versions. */
export function createLog(store: ObjectStore, prefix: string) {
  const folder = `${prefix}_delta_log/`;
  const nameOf = (file: string) => `${store.where}/${folder}${file}`;

  async function list(signal: AbortSignal, fromVersion: number | null): Promise<Listing> {
    // A name without its ending sorts before all names that start with that name.
    const after = fromVersion === null ? undefined : `${folder}${paddedVersion(fromVersion)}`;
    const files = await store.list(folder, signal, after);
    return parseListing(files.map(({ key }) => key.slice(folder.length)));
  }

  async function read(file: string, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = await store.get(`${folder}${file}`, signal);
    if (bytes === null) throw new Retryable(`${nameOf(file)} was there a moment ago, and is gone.`);
    return bytes;
  }

  /** Returns false where a commit is missing in the listing. */
  async function readCommits(
    snapshot: Snapshot,
    { commits }: Listing,
    signal: AbortSignal,
    keepStats: boolean,
  ): Promise<boolean> {
    const last = maxVersion(commits);
    for (let version = snapshot.version + 1; version <= last; version += 1) if (!commits.has(version)) return false;
    for (let version = snapshot.version + 1; version <= last; version += 1) {
      const file = commitName(version);
      applyActions(snapshot, version, parseCommit(await read(file, signal), nameOf(file)), keepStats);
    }
    return true;
  }

  /** Returns null without a valid hint, because the complete listing has the same information. */
  async function lastCheckpoint(signal: AbortSignal): Promise<number | null> {
    const bytes = await store.get(`${folder}${LAST_CHECKPOINT}`, signal);
    if (bytes === null) return null;
    try {
      const { version } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly version?: unknown };
      return Number.isSafeInteger(version) ? Number(version) : null;
    } catch {
      return null;
    }
  }

  /** Returns null where a version is missing in the listing. */
  async function replay(listing: Listing, signal: AbortSignal, keepStats: boolean): Promise<Snapshot | null> {
    const snapshot = emptySnapshot();
    const checkpoint = maxVersion(listing.checkpoints.keys());
    for (const file of listing.checkpoints.get(checkpoint) ?? []) {
      applyActions(snapshot, checkpoint, await actionsInCheckpoint(await read(file, signal), nameOf(file)), keepStats);
    }
    Object.assign(snapshot, { version: checkpoint, checkpoint, changedUntil: checkpoint });
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
    const reason = listing.hasUnsupported
      ? "begins with a checkpoint of the second form, which needs reader version 3; we read version 1"
      : "has a hole: a version is missing in it";
    throw new ConfigError(`The log ${store.where}/${folder} ${reason}.`, {
      hint: "Look who else writes into this table; nothing was written, and the events wait.",
    });
  }

  return {
    folder,
    nameOf,

    readAll: (signal: AbortSignal) => load(signal, true),

    /** Updates a snapshot without statistics, or loads it again where versions are missing. */
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

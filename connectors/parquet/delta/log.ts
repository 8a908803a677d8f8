import { ConfigError, Retryable } from "../../../src/core/errors/errors.ts";
import type { ObjectStore } from "../object-store.ts";
import { actionsIn, commitName, LAST_CHECKPOINT, type Listing, listingOf, maxVersion, padded } from "./log-format.ts";
import { actionsInCheckpoint, apply, emptySnapshot, type Snapshot } from "./snapshot.ts";

/**
 * Reads the log of one table: from the newest checkpoint, or from the version read last.
 *
 * Lists the log before each write: if somebody has emptied the folder or removed known versions, a further commit
 * would be unreadable.
 */
export function createLog(store: ObjectStore, prefix: string) {
  const folder = `${prefix}_delta_log/`;
  const nameOf = (file: string) => `${store.where}/${folder}${file}`;

  async function list(signal: AbortSignal, fromVersion: number | null): Promise<Listing> {
    // A name without its ending sorts before all names that start with it.
    const after = fromVersion === null ? undefined : `${folder}${padded(fromVersion)}`;
    const objects = await store.list(folder, signal, after);
    return listingOf(objects.map(({ key }) => key.slice(folder.length)));
  }

  async function read(file: string, signal: AbortSignal): Promise<Uint8Array> {
    const bytes = await store.get(`${folder}${file}`, signal);
    if (bytes === null) throw new Retryable(`${nameOf(file)} was there a moment ago, and is gone.`);
    return bytes;
  }

  async function readCommits(snapshot: Snapshot, last: number, signal: AbortSignal, keepStats: boolean): Promise<void> {
    for (let version = snapshot.version + 1; version <= last; version += 1) {
      const file = commitName(version);
      apply(snapshot, version, actionsIn(await read(file, signal), nameOf(file)), keepStats);
    }
  }

  /** Version in `_last_checkpoint`; null without a valid one. */
  async function lastCheckpoint(signal: AbortSignal): Promise<number | null> {
    const bytes = await store.get(`${folder}${LAST_CHECKPOINT}`, signal);
    if (bytes === null) return null;
    try {
      const { version } = JSON.parse(new TextDecoder().decode(bytes)) as { readonly version?: unknown };
      return Number.isSafeInteger(version) ? Number(version) : null;
    } catch {
      // The hint is optional: the complete listing has the same information.
      return null;
    }
  }

  /** Builds the snapshot from a listing; returns null where a version is missing in it. */
  async function replay(listing: Listing, signal: AbortSignal, keepStats: boolean): Promise<Snapshot | null> {
    const snapshot = emptySnapshot();
    const checkpoint = maxVersion(listing.checkpoints.keys());
    const last = Math.max(checkpoint, maxVersion(listing.commits));
    for (let version = checkpoint + 1; version <= last; version += 1) {
      if (!listing.commits.has(version)) return null;
    }
    for (const file of listing.checkpoints.get(checkpoint) ?? []) {
      apply(snapshot, checkpoint, await actionsInCheckpoint(await read(file, signal), nameOf(file)), keepStats);
    }
    snapshot.version = checkpoint;
    snapshot.checkpoint = checkpoint;
    snapshot.changedUntil = checkpoint;
    await readCommits(snapshot, last, signal, keepStats);
    return snapshot;
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

    /** Reads the complete snapshot, with column statistics. */
    whole: (signal: AbortSignal) => load(signal, true),

    /** Updates a snapshot without statistics, or loads it again where versions are missing. */
    async current(known: Snapshot, signal: AbortSignal): Promise<Snapshot> {
      if (known.version < 0) return load(signal, false);
      const listing = await list(signal, known.version);
      const isThere = listing.commits.has(known.version) || listing.checkpoints.has(known.version);
      const last = maxVersion(listing.commits);
      for (let version = known.version + 1; version <= last; version += 1) {
        if (!listing.commits.has(version)) return load(signal, false);
      }
      if (!isThere) return load(signal, false);
      await readCommits(known, last, signal, false);
      known.checkpoint = Math.max(known.checkpoint, maxVersion(listing.checkpoints.keys()));
      return known;
    },
  };
}

import type { Resolution } from "#src/core/model/building.ts";
import { createTagFilter } from "#src/engine/sync/tag-selection.ts";
import { createHistoryBuckets } from "#src/simulator/tag-history.ts";
import type { Harness } from "../loss-harness.ts";
import type { ReceivedEvents } from "../received-events.ts";

/** A promised range of a series in milliseconds since 1970, whole buckets. */
export interface PromisedRange {
  readonly tagId: string;
  readonly resolution: Resolution;
  readonly fromMs: number;
  readonly toMs: number;
  /** Id of the backfill that requested it; null for a class of the configuration. */
  readonly order: string | null;
}

/** The simulator's own buckets, so that a mistake of the worker is not repeated here. */
const buckets = createHistoryBuckets();

export function bucketAt(resolution: Resolution, zone: string, atMs: number) {
  return buckets.bucketAt(resolution, zone, atMs);
}

const NOTICED_MS = 30 * 60_000;
const GRACE_MS = 120_000;
const SLACK_MS = 180_000;

/** Returns all ranges that classes and backfills promise by now. */
export function promisedRanges(harness: Harness, { added }: ReceivedEvents): readonly PromisedRange[] {
  const { world, backfills } = harness;
  const nowMs = harness.now();
  const timeZone = world.timeZone;
  const all = [...world.tags].flatMap(([siteId, ids]) => ids.map((tagId) => ({ siteId, tagId })));
  const byClass = world.history.flatMap((entry) => {
    const { resolution } = entry;
    const isMeant = createTagFilter(entry.select);
    return all.flatMap(({ siteId, tagId }): readonly PromisedRange[] => {
      const sinceMs = added.get(tagId);
      const tag = { id: tagId, displayName: "", description: null, unit: null };
      if (sinceMs === undefined || !isMeant({ tag, siteId, systemIds: [] })) return [];
      const fromMs = bucketAt(resolution, timeZone, sinceMs - entry.backfill + NOTICED_MS).endMs;
      const dueMs = nowMs - GRACE_MS - 2 * Math.max(entry.every, 60_000) - SLACK_MS;
      const toMs = bucketAt(resolution, timeZone, dueMs).startMs;
      return fromMs < toMs ? [{ tagId, resolution, fromMs, toMs, order: null }] : [];
    });
  });
  const byBackfill = backfills.flatMap(({ id, stored, tagIds, requestedMs }) =>
    [...tagIds].flatMap((tagId): readonly PromisedRange[] => {
      const { resolution } = stored;
      if ((added.get(tagId) ?? Number.POSITIVE_INFINITY) > requestedMs) return [];
      const fromMs = bucketAt(resolution, timeZone, Date.parse(stored.from)).startMs;
      const toMs = bucketAt(resolution, timeZone, Date.parse(stored.to) - 1).endMs;
      const closedMs = bucketAt(resolution, timeZone, nowMs - GRACE_MS - SLACK_MS).startMs;
      return [{ tagId, resolution, fromMs, toMs: Math.min(toMs, closedMs), order: id }];
    }),
  );
  return [...byClass, ...byBackfill];
}

export function availableBuckets({ virtual, world }: Harness, { tagId, resolution, fromMs, toMs }: PromisedRange) {
  const { truth } = virtual.simulator;
  return truth
    .history({ tagId, fromMs, toMs, resolution, tz: world.timeZone })
    .filter(({ startMs }) => startMs >= fromMs && startMs < toMs);
}

export function hasLog({ virtual }: Harness, tagId: string): boolean {
  return virtual.simulator.truth.hasLog(tagId);
}

import { BUCKET_MS, RESOLUTIONS, type Resolution } from "../../../core/model/building.ts";
import type { Store } from "../../store/store.ts";
import { type SelectableTag, Selection, selects } from "../select.ts";
import { type StoredBackfill, type StoredHistory, type StoredPause, syncSet } from "../snapshot.ts";
import { bucketEnd, bucketStart, type Range, totalLength } from "./buckets.ts";
import { closedUntil, hasNoLog, parseTime, type SeriesRules, unfetched } from "./ledger.ts";
import { rangesIn } from "./ledger-ranges.ts";

/** A request of `plenum backfill`: a past range of some tags, in addition to what the classes follow. */
export interface BackfillRequest {
  readonly id: string;
  readonly stored: StoredBackfill;
  readonly resolution: Resolution;
  matches(candidate: SelectableTag): boolean;
}

export interface BackfillRequests {
  readonly open: readonly BackfillRequest[];
  /** Fetching of the past is paused; following continues. */
  readonly paused: boolean;
}

/** Done requests that stay listed, and for how long, in milliseconds. */
const DONE_KEPT = 20;
const DONE_KEPT_MS = 30 * 86_400_000;

/**
 * Reads the unfinished requests. The command line writes them, and the worker completes them. Unreadable requests are
 * skipped.
 */
export async function loadBackfills(store: Store, source: string): Promise<BackfillRequests> {
  const [orders, pause] = await Promise.all([
    store.documents<StoredBackfill>(syncSet("backfill", source)),
    store.document<StoredPause>(syncSet("backfill-pause", source), "pause"),
  ]);
  const open = [...orders].flatMap(([id, held]): readonly BackfillRequest[] => {
    const order = hasEnded(held) ? null : backfillOf(id, held);
    return order === null ? [] : [order];
  });
  return {
    open: open.toSorted((a, b) => (a.stored.askedAt < b.stored.askedAt ? -1 : 1)),
    paused: pause?.pausedAt != null,
  };
}

/** Returns null for an unreadable request. */
export function backfillOf(id: string, stored: StoredBackfill): BackfillRequest | null {
  const select = Selection.safeParse(stored.select);
  if (!select.success || !RESOLUTIONS.includes(stored.resolution)) return null;
  return { id, stored, resolution: stored.resolution, matches: selects(select.data) };
}

/** Requests that ended before `withoutLog` was recorded may have ended on refusals, so they count as open. */
export function hasEnded({ doneAt, withoutLog }: StoredBackfill): boolean {
  return doneAt !== null && withoutLog !== undefined;
}

export function sameBackfills(a: BackfillRequests, b: BackfillRequests): boolean {
  const ids = ({ open }: BackfillRequests) => open.map(({ id }) => id).join();
  return a.paused === b.paused && ids(a) === ids(b);
}

export interface EndedBackfill {
  readonly order: BackfillRequest;
  /** Buckets without a log according to the service, and the number of their tags. */
  readonly withoutLog: { readonly buckets: number; readonly tags: number };
}

/** Marks requests as done, except those that were deleted in the meantime. */
export async function markDone(
  store: Store,
  source: string,
  done: readonly EndedBackfill[],
  doneAt: string,
): Promise<void> {
  const set = syncSet("backfill", source);
  const known = await store.documents<StoredBackfill>(set);
  const put = done
    .filter(({ order }) => known.has(order.id))
    .map(({ order, withoutLog }) => [order.id, { ...order.stored, doneAt, withoutLog }] as const);
  await store.commit({ documents: [{ set, put }] });
}

/** Removes requests that were done long ago, so that their list stays readable. */
export async function removeOldBackfills(store: Store, source: string, nowMs: number): Promise<void> {
  const set = syncSet("backfill", source);
  const done = [...(await store.documents<StoredBackfill>(set))].flatMap(([id, held]) =>
    held.doneAt === null || !hasEnded(held) ? [] : [{ id, doneAt: held.doneAt }],
  );
  const remove = done
    .toSorted((a, b) => (a.doneAt > b.doneAt ? -1 : 1))
    .filter(({ doneAt }, place) => place >= DONE_KEPT || nowMs - parseTime(doneAt) > DONE_KEPT_MS)
    .map(({ id }) => id);
  if (remove.length > 0) await store.commit({ documents: [{ set, remove }] });
}

/** Returns the complete buckets of a request, as far as they have closed. */
export function backfillRange({ stored }: BackfillRequest, rules: SeriesRules, nowMs: number): Range {
  const { resolution, timeZone } = rules;
  const lastMs = bucketStart(Math.max(parseTime(stored.from), parseTime(stored.to) - 1), resolution, timeZone);
  return {
    fromMs: bucketStart(parseTime(stored.from), resolution, timeZone),
    toMs: Math.min(bucketEnd(lastMs, resolution, timeZone), closedUntil(rules, nowMs)),
  };
}

/** Returns true if every bucket of a request is fetched for one series, or has no log. */
export function isDone(order: BackfillRequest, ledger: StoredHistory, rules: SeriesRules, nowMs: number): boolean {
  const isClosed = closedUntil(rules, nowMs) >= parseTime(order.stored.to) || Number.isFinite(rules.everyMs);
  if (!isClosed || ledger.state === "unproven") return false;
  return hasNoLog(ledger) || pendingOf(order, ledger, rules, nowMs).length === 0;
}

/** Returns the number of buckets of a done request that have no log according to the service. */
export function withoutLogOf(order: BackfillRequest, ledger: StoredHistory, rules: SeriesRules, nowMs: number): number {
  const range = followedRange(order, ledger, rules, nowMs);
  const noLogMs = rangesIn(ledger.spans)
    .filter(({ why }) => why === "no-log")
    .map((span) => Math.min(span.toMs, range.toMs) - Math.max(span.fromMs, range.fromMs));
  const pending = hasNoLog(ledger) ? totalLength(unfetched(ledger, range)) : 0;
  const sum = noLogMs.reduce((total, each) => total + Math.max(0, each), pending);
  return Math.round(sum / BUCKET_MS[order.resolution]);
}

/** Returns the ranges of a request that are not fetched for one series. */
export function pendingOf(
  order: BackfillRequest,
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
): readonly Range[] {
  const range = followedRange(order, ledger, rules, nowMs);
  return range.fromMs < range.toMs ? unfetched(ledger, range) : [];
}

/** Returns the range of a request without the recent buckets that following fetches. */
export function followedRange(order: BackfillRequest, ledger: StoredHistory, rules: SeriesRules, nowMs: number): Range {
  const { fromMs, toMs } = backfillRange(order, rules, nowMs);
  return {
    fromMs,
    toMs: Number.isFinite(rules.everyMs) ? Math.min(toMs, parseTime(ledger.watermark)) : toMs,
  };
}

/** Rules of a series that only backfill requests need: no following, no reread. */
export function backfillRules(resolution: Resolution, timeZone: string): SeriesRules {
  return {
    resolution,
    timeZone,
    everyMs: Number.POSITIVE_INFINITY,
    backfillMs: 0,
    graceMs: 120_000,
    lookBackMs: 0,
  };
}

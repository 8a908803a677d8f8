import { BUCKET_MS, RESOLUTIONS, type Resolution } from "../../../core/model/building.ts";
import type { Store } from "../../store/store.ts";
import { type SelectableTag, Selection, selects } from "../select.ts";
import { type StoredBackfill, type StoredHistory, type StoredPause, syncSet } from "../snapshot.ts";
import { bucketEnd, bucketStart, type Range, totalLength } from "./buckets.ts";
import { closedUntil, hasNoLog, parseTime, type SeriesRules, unfetched } from "./ledger.ts";
import { rangesIn } from "./ledger-ranges.ts";

/** What a person asked for with `plenum backfill`: a stretch of the past of some tags, beside what the classes follow. */
export interface BackfillRequest {
  readonly id: string;
  readonly stored: StoredBackfill;
  readonly resolution: Resolution;
  matches(candidate: SelectableTag): boolean;
}

export interface BackfillRequests {
  readonly open: readonly BackfillRequest[];
  /** The wish that nothing of the past is fetched for now; live following goes on. */
  readonly paused: boolean;
}

/** How many orders that are done are kept, and for how long, in milliseconds. */
const DONE_KEPT = 20;
const DONE_KEPT_MS = 30 * 86_400_000;

/** Written by the command line, done by the worker. An order that nobody can read is left alone. */
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

/** Null where nobody can read it. */
export function backfillOf(id: string, stored: StoredBackfill): BackfillRequest | null {
  const select = Selection.safeParse(stored.select);
  if (!select.success || !RESOLUTIONS.includes(stored.resolution)) return null;
  return { id, stored, resolution: stored.resolution, matches: selects(select.data) };
}

/** An order that ended before refusals were told from answers may have ended for nothing: it is asked for again. */
export function hasEnded({ doneAt, withoutLog }: StoredBackfill): boolean {
  return doneAt !== null && withoutLog !== undefined;
}

export function sameBackfills(a: BackfillRequests, b: BackfillRequests): boolean {
  const ids = ({ open }: BackfillRequests) => open.map(({ id }) => id).join();
  return a.paused === b.paused && ids(a) === ids(b);
}

export interface EndedBackfill {
  readonly order: BackfillRequest;
  /** Buckets that the service says there is no log of, and of how many tags. */
  readonly withoutLog: { readonly buckets: number; readonly tags: number };
}

/** Says of orders that they are done; one that was given up in the meantime stays away. */
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

/** Forgets orders that were done long ago, so that their list stays one that a person can read. */
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

/** The whole buckets that an order means, as far as they have closed. */
export function backfillRange({ stored }: BackfillRequest, rules: SeriesRules, nowMs: number): Range {
  const { resolution, timeZone } = rules;
  const lastMs = bucketStart(
    Math.max(parseTime(stored.from), parseTime(stored.to) - 1),
    resolution,
    timeZone,
  );
  return {
    fromMs: bucketStart(parseTime(stored.from), resolution, timeZone),
    toMs: Math.min(bucketEnd(lastMs, resolution, timeZone), closedUntil(rules, nowMs)),
  };
}

/** Whether every bucket of an order is had for one series, or has no log, its last bucket included. */
export function isDone(
  order: BackfillRequest,
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
): boolean {
  const isClosed = closedUntil(rules, nowMs) >= parseTime(order.stored.to) || Number.isFinite(rules.everyMs);
  if (!isClosed || ledger.state === "unproven") return false;
  return hasNoLog(ledger) || pendingOf(order, ledger, rules, nowMs).length === 0;
}

/** How many buckets of an order that is done have no log, by the service's word. */
export function withoutLogOf(
  order: BackfillRequest,
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
): number {
  const range = followedRange(order, ledger, rules, nowMs);
  const noLogMs = rangesIn(ledger.spans)
    .filter(({ why }) => why === "no-log")
    .map((span) => Math.min(span.toMs, range.toMs) - Math.max(span.fromMs, range.fromMs));
  const pending = hasNoLog(ledger) ? totalLength(unfetched(ledger, range)) : 0;
  const sum = noLogMs.reduce((total, each) => total + Math.max(0, each), pending);
  return Math.round(sum / BUCKET_MS[order.resolution]);
}

/** What of an order is not had for one series. */
export function pendingOf(
  order: BackfillRequest,
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
): readonly Range[] {
  const range = followedRange(order, ledger, rules, nowMs);
  return range.fromMs < range.toMs ? unfetched(ledger, range) : [];
}

/** The range of an order, but for what has closed lately and is fetched by following, where there is any. */
export function followedRange(
  order: BackfillRequest,
  ledger: StoredHistory,
  rules: SeriesRules,
  nowMs: number,
): Range {
  const { fromMs, toMs } = backfillRange(order, rules, nowMs);
  return {
    fromMs,
    toMs: Number.isFinite(rules.everyMs) ? Math.min(toMs, parseTime(ledger.watermark)) : toMs,
  };
}

/** Rules of a series that only orders ask for: nothing is followed, nothing read again. */
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

import { ConfigError, LocalFailure, meaningOf, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { createWakeup, loop, WOKEN } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type SlotOffer, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { createFinalizedDays } from "../completeness/finalized-days.ts";
import type { Follower } from "../follower.ts";
import { followingPerMinute, type HistoryDemand, learningPerMinute } from "../plan/overload.ts";
import { standInLine } from "../standing.ts";
import { nextBackfill, nextFollowing, nextOrdered, nextTotal } from "./choose-request.ts";
import type { HistoryConfig } from "./config.ts";
import { createLogDiscovery } from "./log-discovery.ts";
import { type HistoryProgress, progressOf, setSeriesGauge } from "./progress.ts";
import { createHistoryRequests, type Task } from "./request.ts";
import { createLearnedWindow, createShortResponses } from "./request-size.ts";
import { createHistorySeries, followedSeries, type HistoryScope, isFollowed, type Series } from "./series.ts";
import { createHistorySettle, type OnLogged } from "./settle.ts";

/**
 * Pulls the history of one source: follows closed buckets, reads the latest ones again for late data, and backfills the
 * past. Every bucket is emitted once. Requests wait in the quota's lane `history`; what to request is decided when a slot
 * is free that writes and live reads have let pass. If the history store is down (504), only the pull backs off.
 *
 *   stale ──refreshed──▶ looking ──series found──▶ waiting for a slot ◀────────────┐
 *     ▲                     ▲                            │ slot: a task is due     │ settled
 *     │ 60 s passed, the    └──── nothing due: pass ─────┤                         │
 *     │ scope, the classes                               ▼                         │
 *     │ or backfills changed                         in flight ──reply─────────────┤
 *     └───────────── failed ◀────────────────────────────┴─ error: twice in a row ends `follow`
 */
export interface HistoryPull extends Follower {
  progress(): HistoryProgress;
  /** Uses other classes from the next request on; the ledgers stay. */
  change(next: Pick<HistoryPullOptions, "classes" | "valuesMax">): void;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics?: Pick<Metrics, "historyRefusals" | "historySeries">;
  /** Sites that the token sees; all of them by default. */
  readonly scope?: HistoryScope;
  readonly classes: HistoryConfig;
  /** IANA zone of the buildings, for classes without their own. */
  readonly timeZone: string;
  /** Receives the requests per minute that following needs. */
  readonly demand?: Pick<HistoryDemand, "setFollowing">;
  /** False pauses the past and log discovery while the sinks lag behind; true by default. */
  readonly mayFetchPast?: () => Promise<boolean>;
  /** Most values per request: as many as fit into the largest reply that is read. */
  readonly valuesMax: number;
  readonly onLogged?: OnLogged;
  /** False while some tags of a site may be unknown, so that no day of it is complete; always true by default. */
  readonly knowsTagsOf?: (siteId: number) => boolean;
}

const REFRESH_MS = 60_000;
/** Interval of looks for new backfill requests and lagging sinks, in milliseconds. */
const LOOK_MS = 1_000;
/** The same without any series: 20 idle sources would wake the worker 20 times a second. */
const IDLE_LOOK_MS = 5_000;
/** Interval at which the pull notes whether a request is due while it gets no slot, in milliseconds. */
const NOTE_DUE_MS = 5_000;
/** History replies are large, so few are in flight. */
const IN_FLIGHT_MAX = 3;
/** Failures in a row after which the history store counts as down. */
const FAILURES_MAX = 2;
/** A due request starves after three times its planned interval, within these bounds, in milliseconds. */
const STARVING_MIN_MS = 180_000;
const STARVING_MAX_MS = 900_000;
const LONG_AGO = Number.NEGATIVE_INFINITY;

/** State of the pull. Times are monotonic, in milliseconds. */
interface PullState {
  readonly refreshedAtMs: number;
  /** Wake-ups of the token's scope at the last refresh. */
  readonly scopeChanges: number;
  /** Start of the time in which a request was due and none was sent; null when none is due. */
  readonly dueSinceMs: number | null;
  readonly notedDueMs: number;
  readonly isDiscovering: boolean;
  readonly discoveredAtMs: number;
  /** The last request was for a single series that had been refused; others go first now. */
  readonly wasSingle: boolean;
  /** Failures in a row. */
  readonly failures: number;
  readonly isPastPaused: boolean;
}

type Change =
  | { readonly type: "begun" | "answered" | "failed" | "outdated" }
  | { readonly type: "refreshed"; readonly atMs: number; readonly scopeChanges: number }
  | { readonly type: "looked"; readonly mayFetchPast: boolean }
  | { readonly type: "noted"; readonly atMs: number }
  | { readonly type: "due" | "nothing-due"; readonly atMs: number }
  | { readonly type: "sent"; readonly task: Task; readonly atMs: number }
  | { readonly type: "settled"; readonly task: Task | null };

const INITIAL: PullState = {
  refreshedAtMs: LONG_AGO,
  scopeChanges: 0,
  dueSinceMs: null,
  notedDueMs: LONG_AGO,
  isDiscovering: false,
  discoveredAtMs: LONG_AGO,
  wasSingle: false,
  failures: 0,
  isPastPaused: false,
};

function transition(state: PullState, change: Change): PullState {
  switch (change.type) {
    case "begun":
    case "answered":
      return { ...state, failures: 0 };
    case "failed":
      return { ...state, failures: state.failures + 1, refreshedAtMs: LONG_AGO };
    case "outdated":
      return { ...state, refreshedAtMs: LONG_AGO };
    case "refreshed":
      return { ...state, refreshedAtMs: change.atMs, scopeChanges: change.scopeChanges };
    case "looked":
      return { ...state, isPastPaused: !change.mayFetchPast };
    case "noted":
      return { ...state, notedDueMs: change.atMs };
    case "due":
      return { ...state, dueSinceMs: state.dueSinceMs ?? change.atMs };
    case "nothing-due":
      return { ...state, dueSinceMs: null };
    case "sent":
      return "discovery" in change.task
        ? { ...state, isDiscovering: true, discoveredAtMs: change.atMs }
        : { ...state, wasSingle: change.task.request.isSingle };
    case "settled": {
      const wasDiscovery = change.task !== null && "discovery" in change.task;
      return { ...state, dueSinceMs: null, isDiscovering: state.isDiscovering && !wasDiscovery };
    }
  }
}

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log, metrics, timeZone, scope = seesEverything() } = options;
  let { classes } = options;
  const limits = { most: options.valuesMax };
  const window = createLearnedWindow(store, source.name, limits, clock);
  const book = createHistorySeries({ store, source: source.name, clock, log, scope, classes, timeZone });
  const isInSight = ({ located }: Series) => located.outOfSight !== "tag" && scope.sees(located.siteId);
  const discovery = createLogDiscovery(book, TAGS_PER_REQUEST, isInSight);
  const days = createFinalizedDays({
    ...{ store, clock, source: source.name, series: book.all },
    knowsTagsOf: options.knowsTagsOf ?? (() => true),
  });
  const settle = createHistorySettle({ store, clock, source: source.name, days, onLogged: options.onLogged });
  const short = createShortResponses({ clock, window, log });
  const requests = createHistoryRequests({
    ...{ source, clock, log, scope, book, window, discovery, settle, short, lookMs },
    ...(metrics === undefined ? {} : { metrics }),
  });
  /** Wakes the lines when there are series to fetch; without any, no line waits for a slot. */
  const seriesFound = createWakeup();
  const classesChanged = createWakeup();
  let state = INITIAL;
  let isLoaded = false;

  const apply = (change: Change) => {
    state = transition(state, change);
  };
  const isIdle = () => classes.length === 0 && book.all().length === 0;

  function lookMs(): number {
    return isIdle() ? IDLE_LOOK_MS : LOOK_MS;
  }

  async function refresh(): Promise<void> {
    if (!isLoaded) await window.load();
    isLoaded = true;
    const scopeChanges = scope.changes.wakeups();
    const retracted = await book.refresh();
    discovery.forget(retracted.map(({ located }) => located.tag.id));
    discovery.refresh();
    if (metrics !== undefined) setSeriesGauge(metrics, source.name, book.all());
    apply({ type: "refreshed", atMs: clock.monotonic(), scopeChanges });
    options.demand?.setFollowing(followingPerMinute(followedSeries(book.all()), TAGS_PER_REQUEST));
    await book.endBackfills();
  }

  const isStale = async (): Promise<boolean> =>
    clock.monotonic() - state.refreshedAtMs >= REFRESH_MS ||
    scope.changes.wakeups() !== state.scopeChanges ||
    (await book.haveBackfillsChanged());

  /** Refreshes what may have changed: tags, backfill requests, whether the sinks keep up. */
  async function look(): Promise<void> {
    const isWanted = classes.length > 0 || book.backfills().open.length > 0;
    const mayBegin = isWanted && book.all().length === 0;
    if (mayBegin || (await isStale())) await refresh();
    else if (book.backfills().open.length > 0) await book.endBackfills();
    if (book.all().length === 0) return;
    seriesFound.wakeUp();
    apply({ type: "looked", mayFetchPast: (await options.mayFetchPast?.()) ?? true });
    if (clock.monotonic() - state.notedDueMs < NOTE_DUE_MS) return;
    apply({ type: "noted", atMs: clock.monotonic() });
    // Without a slot offer, this call notes since when a request is due.
    nextTask("series", { past: false, discover: false });
    await days.look();
  }

  /** Order: short responses again, following, log discovery, `plenum backfill`, configured backfill. */
  function nextTask(
    kind: "series" | "totals",
    { past, discover }: { readonly past: boolean; readonly discover: boolean },
  ): Task | null {
    const nowMs = clock.now();
    const atMs = clock.monotonic();
    const free = book
      .all()
      .filter((series) => isFollowed(series) && !series.isBusy && series.notBeforeMs <= atMs && isInSight(series));
    const limit = {
      size: TAGS_PER_REQUEST,
      values: window.values(),
      singleFirst: !state.wasSingle,
      bucketsEach: window.bucketsEach,
    };
    if (kind === "totals") {
      const total = nextTotal(free, nowMs, limit);
      return total === null ? null : { request: total };
    }
    const { isDiscovering } = state;
    const { open, paused } = book.backfills();
    const liveDone = free.filter((series) => !short.has(series, true));
    const first = short.next(free, limit, past && !paused) ?? nextFollowing(liveDone, nowMs, limit);
    const toDiscover = isDiscovering || !discover ? null : discovery.next(nowMs);
    if (first !== null || (!isDiscovering && discovery.waiting() > 0)) apply({ type: "due", atMs });
    else if (!isDiscovering && !book.all().some(({ isBusy }) => isBusy)) apply({ type: "nothing-due", atMs });
    if (first !== null) return { request: first };
    if (toDiscover !== null) return { discovery: toDiscover };
    if (!past || paused) return null;
    const verified = free.filter((series) => !short.has(series));
    const ask = nextOrdered(verified, open, nowMs, limit) ?? nextBackfill(verified, nowMs, limit);
    // A request with 20 tags costs one slot, too: during discovery, a smaller one waits for more tags.
    const isFull = ask === null || ask.isSingle || ask.series.length === TAGS_PER_REQUEST;
    return ask === null || (isDiscovering && !isFull) ? null : { request: ask };
  }

  const discoveryRate = () => learningPerMinute(discovery.waiting(), source.quota().buckets[0]?.lastingPerMinute ?? 20);

  /** Discovery gets its planned rate even if the live reads let no slot pass. */
  const isDiscoveryDue = () => clock.monotonic() - state.discoveredAtMs >= 60_000 / Math.max(0.01, discoveryRate());

  function starving(): HistoryProgress["starving"] {
    if (state.dueSinceMs === null) return null;
    const rate = followingPerMinute(followedSeries(book.all()), TAGS_PER_REQUEST) + discoveryRate();
    const allowedMs = Math.max(STARVING_MIN_MS, (3 * 60_000) / Math.max(0.01, rate));
    const forMs = clock.monotonic() - state.dueSinceMs;
    return forMs <= Math.min(STARVING_MAX_MS, allowedMs) ? null : { since: isoUtc(clock.now() - forMs) };
  }

  /** Waits for a slot, decides what to fetch, and settles it. Throws failures that concern all series. */
  async function pullOnce(
    kind: "series" | "totals",
    begun: () => void,
    signal: AbortSignal,
    well: () => void,
  ): Promise<void> {
    while (isIdle() && !signal.aborted) await seriesFound.nextWakeup(signal);
    signal.throwIfAborted();
    let sent: Task | null = null;
    const decide = ({ own }: SlotOffer): Task | null => {
      // A slot that the live reads need is not for the past.
      const { isPastPaused } = state;
      const discover = !isPastPaused && (!own || isDiscoveryDue());
      const task = nextTask(kind, { past: !own && !isPastPaused, discover });
      sent = task;
      if (task === null) return null;
      for (const each of seriesIn(task)) each.isBusy = true;
      apply({ type: "sent", task, atMs: clock.monotonic() });
      begun();
      return task;
    };
    try {
      await requests.perform(kind, decide, signal);
      apply({ type: "answered" });
      well();
    } catch (error) {
      signal.throwIfAborted();
      for (const each of seriesIn(sent)) each.isUnsure = true;
      apply({ type: "failed" });
      const failure = meaningOf(error);
      const concernsAll =
        failure instanceof ConfigError || failure instanceof Throttled || failure instanceof LocalFailure;
      if (concernsAll || state.failures >= FAILURES_MAX) throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const each of seriesIn(sent)) each.isBusy = false;
      apply({ type: "settled", task: sent });
    }
  }

  return {
    name: "history",
    ability: "read:tags",

    async follow({ draining, forced, well }) {
      apply({ type: "begun" });
      await look();
      const over = new AbortController();
      const looking = loop({
        clock,
        signal: AbortSignal.any([draining, forced, over.signal]),
        bell: classesChanged,
        looks: true,
        async turn() {
          await look();
          return lookMs();
        },
        fault: (error) => log.warn({ err: error }, "what is to be fetched could not be looked up"),
      });
      try {
        const lines = (["series", "totals"] as const).map(
          (kind) => (begun: () => void, signal: AbortSignal) => pullOnce(kind, begun, signal, well),
        );
        await standInLine(lines, { most: () => IN_FLIGHT_MAX, draining, forced });
      } finally {
        over.abort(WOKEN);
        await looking;
      }
    },
    change(next) {
      classes = next.classes;
      limits.most = next.valuesMax;
      book.change(classes);
      apply({ type: "outdated" });
      classesChanged.wakeUp();
    },
    progress: () => ({
      ...progressOf(book.all(), book.backfills(), window.values(), discovery.waiting(), clock.now()),
      starving: starving(),
    }),
  };
}

function seriesIn(task: Task | null): readonly Series[] {
  return task !== null && "request" in task ? task.request.series : [];
}

function seesEverything(): HistoryScope {
  return { sees: () => true, explain: async () => "unexplained", changes: createWakeup() };
}

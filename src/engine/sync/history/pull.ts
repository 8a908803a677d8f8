import { asFailure, ConfigError, LocalFailure, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { createWakeup } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type SlotOffer, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { createFinalizedDays } from "../completeness/finalized-days.ts";
import type { Follower, FollowerRun } from "../job.ts";
import { type HistoryDemand, historyRequestsPerMinute, logDiscoveryPerMinute } from "../plan/overload.ts";
import { keepRequestsWaiting } from "../waiting-requests.ts";
import { chooseBackfill, chooseFollowing, chooseTotal, chooseUserBackfill } from "./choose-request.ts";
import type { HistoryConfig } from "./config.ts";
import { computeProgress, type HistoryProgress, setSeriesGauge } from "./history-progress.ts";
import { createLogDiscovery } from "./log-discovery.ts";
import { createHistoryRequests, type Task } from "./request.ts";
import { createLearnedRequestSize, createShortResponses } from "./request-size.ts";
import { countFollowedSeries, createSeriesRegistry, type HistoryScope, type Series } from "./series.ts";
import { createHistorySettle, type OnLogged } from "./settle.ts";

/**
 * Pulls the history of one source: follows closed buckets, reads the latest again for late data, and backfills the
 * past. Every bucket is emitted once. If the history store is down (504), only the pull backs off.
 *     stale ──refreshed──▶ looking ──series found──▶ waiting for a slot ◀────────────┐
 *       ▲                     ▲                            │ slot: a task is due     │ settled
 *       │ 60 s passed, the    └──── nothing due: pass ─────┤                         │
 *       │ scope, the classes                               ▼                         │
 *       │ or backfills changed                         in flight ──reply─────────────┤
 *       └───────────── failed ◀────────────────────────────┴─ error: twice in a row ends `follow`
 */
export interface HistoryPull extends Follower {
  progress(): HistoryProgress;
  change(next: Pick<HistoryPullOptions, "classes" | "valuesMax">): void;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics?: Pick<Metrics, "historyRefusals" | "historySeries">;
  readonly scope?: HistoryScope;
  readonly classes: HistoryConfig;
  readonly timeZone: string;
  readonly demand?: Pick<HistoryDemand, "setFollowing">;
  /** False pauses the past and log discovery while the sinks lag behind. */
  readonly mayFetchPast?: () => Promise<boolean>;
  readonly valuesMax: number;
  readonly onLogged?: OnLogged;
  /** False while some tags of a site may be unknown, so that no day of it is complete. */
  readonly knowsTagsOf?: (siteId: number) => boolean;
}

const REFRESH_INTERVAL_MS = 60_000;
const LOOKUP_INTERVAL_MS = 1_000;
const IDLE_LOOKUP_INTERVAL_MS = 5_000;
const DUE_CHECK_INTERVAL_MS = 5_000;
const REQUESTS_IN_FLIGHT_MAX = 3;
const FAILURES_IN_A_ROW_MAX = 2;
/** A due request starves after three times its planned interval, within these bounds. */
const STARVING_MIN_MS = 180_000;
const STARVING_MAX_MS = 900_000;
const NEVER_MS = Number.NEGATIVE_INFINITY;

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log, metrics, timeZone, scope = createUnlimitedScope() } = options;
  let { classes } = options;
  const limits = { valuesMax: options.valuesMax };
  const learnedSize = createLearnedRequestSize(store, source.name, limits, clock);
  const registry = createSeriesRegistry({ store, source: source.name, clock, log, scope, classes, timeZone });
  const isVisible = ({ located }: Series) => located.outOfSight !== "tag" && scope.sees(located.siteId);
  const discovery = createLogDiscovery(registry, isVisible);
  const { knowsTagsOf = () => true, onLogged } = options;
  const days = createFinalizedDays({ store, clock, source: source.name, series: registry.all, knowsTagsOf });
  const settle = createHistorySettle({ store, clock, source: source.name, days, onLogged });
  const isIdle = () => classes.length === 0 && registry.all().length === 0;
  const lookupIntervalMs = () => (isIdle() ? IDLE_LOOKUP_INTERVAL_MS : LOOKUP_INTERVAL_MS);
  const shortResponses = createShortResponses(clock, learnedSize, log);
  const perform = createHistoryRequests({
    ...{ source, clock, log, metrics, scope, registry, learnedSize, discovery, settle },
    ...{ shortResponses, lookupIntervalMs },
  });
  const seriesFound = createWakeup();
  const classesChanged = createWakeup();
  let isLoaded = false;
  let refreshedAtMs = NEVER_MS;
  let knownScopeChanges = 0;
  let dueSinceMs: number | null = null;
  let notedDueMs = NEVER_MS;
  let isDiscovering = false;
  let discoveredAtMs = NEVER_MS;
  let wasSingle = false;
  let failures = 0;
  let isPastPaused = false;

  async function refresh(): Promise<void> {
    if (!isLoaded) await learnedSize.load();
    isLoaded = true;
    const scopeChanges = scope.changes.wakeups();
    const retractedSeries = await registry.refresh();
    discovery.forget(retractedSeries.map(({ located }) => located.tag.id));
    discovery.refresh();
    if (metrics !== undefined) setSeriesGauge(metrics, source.name, registry.all());
    refreshedAtMs = clock.monotonic();
    knownScopeChanges = scopeChanges;
    options.demand?.setFollowing(plannedPerMinute());
    await registry.endBackfills();
  }

  async function refreshIfStale(): Promise<void> {
    const hasOpenBackfills = registry.backfills().open.length > 0;
    const mayBegin = registry.all().length === 0 && (classes.length > 0 || hasOpenBackfills);
    const isStale =
      mayBegin ||
      clock.monotonic() - refreshedAtMs >= REFRESH_INTERVAL_MS ||
      scope.changes.wakeups() !== knownScopeChanges ||
      (await registry.haveBackfillsChanged());
    if (isStale) await refresh();
    else if (hasOpenBackfills) await registry.endBackfills();
    if (registry.all().length === 0) return;
    seriesFound.wakeUp();
    isPastPaused = !((await options.mayFetchPast?.()) ?? true);
    if (clock.monotonic() - notedDueMs < DUE_CHECK_INTERVAL_MS) return;
    notedDueMs = clock.monotonic();
    // Without a slot offer, this call notes since when a request is due.
    chooseTask(false, false);
    await days.refreshIfStale();
  }

  function listFreeSeries(): readonly Series[] {
    return registry.all().filter((series) => {
      const { isBusy, notBeforeMs, ledger } = series;
      return ledger.state === "following" && !isBusy && notBeforeMs <= clock.monotonic() && isVisible(series);
    });
  }

  const requestLimits = () => ({
    ...{ values: learnedSize.values(), singleFirst: !wasSingle, bucketsPerTag: learnedSize.bucketsPerTag },
  });

  function chooseTotals(): Task | null {
    const request = chooseTotal(listFreeSeries(), clock.now(), requestLimits());
    return request && { request };
  }

  /** Order of tasks: short responses again, following, log discovery, `plenum backfill`, configured backfill. */
  function chooseTask(isPastAllowed: boolean, mayDiscover: boolean): Task | null {
    const nowMs = clock.now();
    const { open, paused } = registry.backfills();
    const freeSeries = listFreeSeries();
    const withoutLiveEnd = freeSeries.filter((series) => !shortResponses.has(series, true));
    const repeatRequest = shortResponses.next(freeSeries, requestLimits(), isPastAllowed && !paused);
    const firstRequest = repeatRequest ?? chooseFollowing(withoutLiveEnd, nowMs, requestLimits());
    const nextDiscovery = isDiscovering || !mayDiscover ? null : discovery.next(nowMs);
    if (firstRequest !== null || (!isDiscovering && discovery.waiting() > 0)) dueSinceMs ??= clock.monotonic();
    else if (!isDiscovering && !registry.all().some(({ isBusy }) => isBusy)) dueSinceMs = null;
    if (firstRequest !== null) return { request: firstRequest };
    if (nextDiscovery !== null) return { discovery: nextDiscovery };
    if (!isPastAllowed || paused) return null;
    const verified = freeSeries.filter((series) => !shortResponses.has(series));
    const request =
      chooseUserBackfill(verified, open, nowMs, requestLimits()) ?? chooseBackfill(verified, nowMs, requestLimits());
    if (request === null) return null;
    // Any request costs one slot: during discovery, a smaller one waits for more tags.
    const isFull = request.isSingle || request.series.length === TAGS_PER_REQUEST;
    return isDiscovering && !isFull ? null : { request };
  }

  const plannedPerMinute = () => historyRequestsPerMinute(countFollowedSeries(registry.all()), TAGS_PER_REQUEST);
  const discoveryRate = () =>
    logDiscoveryPerMinute(discovery.waiting(), source.quota().buckets[0]?.lastingPerMinute ?? 20);

  const isDiscoveryDue = () => clock.monotonic() - discoveredAtMs >= 60_000 / Math.max(0.01, discoveryRate());

  function findStarvation(): HistoryProgress["starving"] {
    if (dueSinceMs === null) return null;
    const perMinute = plannedPerMinute() + discoveryRate();
    const starvationLimitMs = Math.max(STARVING_MIN_MS, (3 * 60_000) / Math.max(0.01, perMinute));
    const forMs = clock.monotonic() - dueSinceMs;
    return forMs <= Math.min(STARVING_MAX_MS, starvationLimitMs) ? null : { since: isoUtc(clock.now() - forMs) };
  }

  async function pullOnce(isTotal: boolean, begun: () => void, signal: AbortSignal, well: () => void) {
    while (isIdle() && !signal.aborted) await seriesFound.nextWakeup(signal);
    signal.throwIfAborted();
    let series: readonly Series[] = [];
    let isDiscovery = false;
    const chooseForSlot = ({ isOwnSlot }: SlotOffer): Task | null => {
      // The past gets no slot that the live reads need.
      const mayDiscover = !isPastPaused && (!isOwnSlot || isDiscoveryDue());
      const task = isTotal ? chooseTotals() : chooseTask(!isOwnSlot && !isPastPaused, mayDiscover);
      if (task === null) return null;
      isDiscovery = "discovery" in task;
      if ("request" in task) {
        series = task.request.series;
        wasSingle = task.request.isSingle;
      } else {
        isDiscovering = true;
        discoveredAtMs = clock.monotonic();
      }
      for (const requestedSeries of series) requestedSeries.isBusy = true;
      begun();
      return task;
    };
    try {
      await perform(isTotal, chooseForSlot, signal);
      failures = 0;
      well();
    } catch (error) {
      signal.throwIfAborted();
      for (const singleSeries of series) singleSeries.isUnsure = true;
      failures += 1;
      refreshedAtMs = NEVER_MS;
      const failure = asFailure(error);
      const concernsAll =
        failure instanceof ConfigError || failure instanceof Throttled || failure instanceof LocalFailure;
      if (concernsAll || failures >= FAILURES_IN_A_ROW_MAX) throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const each of series) each.isBusy = false;
      if (isDiscovery) isDiscovering = false;
      dueSinceMs = null;
    }
  }

  async function follow({ draining, forced, well }: FollowerRun): Promise<void> {
    failures = 0;
    await refreshIfStale();
    const lanes = [false, true].map(
      (isTotal) => (begun: () => void, signal: AbortSignal) => pullOnce(isTotal, begun, signal, well),
    );
    const lookups = {
      ...{ clock, wakeup: classesChanged },
      async turn() {
        await refreshIfStale();
        return lookupIntervalMs();
      },
      fault: (error: unknown) => log.warn({ err: error }, "what is to be fetched could not be looked up"),
    };
    await keepRequestsWaiting(lanes, { maxUnderWay: () => REQUESTS_IN_FLIGHT_MAX, draining, forced, lookups });
  }

  return {
    name: "history",
    ability: "read:tags",
    follow,
    change(next) {
      classes = next.classes;
      limits.valuesMax = next.valuesMax;
      registry.change(classes);
      refreshedAtMs = NEVER_MS;
      classesChanged.wakeUp();
    },
    progress: () => ({
      ...computeProgress(registry.all(), registry.backfills(), learnedSize.values(), discovery.waiting(), clock.now()),
      starving: findStarvation(),
    }),
  };
}

const createUnlimitedScope = (): HistoryScope => ({
  ...{ sees: () => true, explain: async () => "unexplained", changes: createWakeup() },
});

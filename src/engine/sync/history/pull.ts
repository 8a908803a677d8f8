import { asFailure, ConfigError, LocalFailure, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { createWakeup } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type OfferedSlot, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { createFinalizedDays } from "../completeness/finalized-days.ts";
import type { LoopJob, LoopJobRun } from "../job.ts";
import { type HistoryDemand, historyRequestsPerMinute, logDiscoveryPerMinute } from "../plan/overload.ts";
import { keepLanesBusy } from "../waiting-requests.ts";
import { chooseBackfill, chooseRecentRequest, chooseTotals, chooseUserBackfill } from "./choose-request.ts";
import { createHistoryReplySettlement } from "./commit-history-reply.ts";
import type { HistoryConfig } from "./config.ts";
import { createTagLogDiscovery } from "./find-tags-with-history.ts";
import { type HistoryProgress, historyProgress, setHistorySeriesGauge } from "./history-progress.ts";
import { createHistoryRequests, type HistoryTask } from "./request.ts";
import { createLearnedRequestSize, createShortHistoryResponses } from "./request-size.ts";
import { countFollowedSeries, createHistorySeriesRegistry, type HistoryScope, type Series } from "./series-registry.ts";

/**
 * Pulls the history of one source: recent buckets, then late data, then the past. Emits every bucket once.
 *     stale ──refreshed──▶ looking ──series found──▶ waiting for a slot ◀────────────┐
 *       ▲                     ▲                            │ slot: a task is due     │ committed
 *       │ 60 s passed, the    └──── nothing due: skip ─────┤                         │
 *       │ scope, the classes                               ▼                         │
 *       │ or backfills changed                         in flight ──reply─────────────┤
 *       └───────────── failed ◀────────────────────────────┴─ error: twice in a row ends the pull
 */
export interface HistoryPull extends LoopJob {
  progress(): HistoryProgress;
  changeOptions(newOptions: Pick<HistoryPullOptions, "historyClasses" | "valuesMax">): void;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics?: Pick<Metrics, "historyRefusals" | "historySeries">;
  readonly scope?: HistoryScope;
  readonly historyClasses: HistoryConfig;
  readonly timeZone: string;
  readonly historyDemand?: Pick<HistoryDemand, "setRequestsPerMinute">;
  /** False while the sinks lag behind: pauses backfill and log discovery. */
  readonly mayFetchHistory?: () => Promise<boolean>;
  readonly valuesMax: number;
  /** False while some tags of a site may be unknown, so that no day of the site counts as complete. */
  readonly knowsTagsOf?: (siteId: number) => boolean;
}

const SERIES_REFRESH_INTERVAL_MS = 60_000;
const HISTORY_LOOKUP_INTERVAL_MS = 1_000;
const IDLE_HISTORY_LOOKUP_MS = 5_000;
const HISTORY_DUE_CHECK_MS = 5_000;
const HISTORY_REQUESTS_MAX = 3;
const HISTORY_FAILURES_IN_ROW_MAX = 2;
const HISTORY_STARVING_MIN_MS = 180_000;
const MAX_STARVING_MS = 900_000;
const NEVER_HAPPENED_MS = Number.NEGATIVE_INFINITY;

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log, metrics, timeZone, scope = createUnlimitedScope() } = options;
  let { historyClasses } = options;
  const requestSizeLimits = { valuesMax: options.valuesMax };
  const learnedSize = createLearnedRequestSize(store, source.name, requestSizeLimits, clock);
  const sourceState = { store, clock, source: source.name };
  const registry = createHistorySeriesRegistry({ ...sourceState, log, scope, historyClasses, timeZone });
  const isSeriesVisible = ({ siteTag }: Series) => siteTag.missing !== "tag" && scope.sees(siteTag.siteId);
  const discovery = createTagLogDiscovery(registry, isSeriesVisible);
  const { knowsTagsOf = () => true } = options;
  const finalizedDays = createFinalizedDays({ ...sourceState, series: registry.getAll, knowsTagsOf });
  const replySettlement = createHistoryReplySettlement({ ...sourceState, days: finalizedDays });
  const isHistoryIdle = () => historyClasses.length === 0 && registry.getAll().length === 0;
  const lookupIntervalMs = () => (isHistoryIdle() ? IDLE_HISTORY_LOOKUP_MS : HISTORY_LOOKUP_INTERVAL_MS);
  const shortResponses = createShortHistoryResponses(clock, learnedSize, log);
  const performHistoryRequest = createHistoryRequests({
    ...{ source, clock, log, metrics, scope, registry, learnedSize, discovery, replySettlement },
    ...{ shortResponses, lookupIntervalMs },
  });
  const seriesFound = createWakeup();
  const historyClassesChanged = createWakeup();
  let isRequestSizeLoaded = false;
  let seriesRefreshedAtMs = NEVER_HAPPENED_MS;
  let knownScopeChangeCount = 0;
  let historyDueSinceMs: number | null = null;
  let dueCheckedAtMs = NEVER_HAPPENED_MS;
  let isDiscoveringLogs = false;
  let lastDiscoveryMs = NEVER_HAPPENED_MS;
  let wasSingleRequest = false;
  let failuresInRow = 0;
  let isBackfillPaused = false;

  async function refreshSeries(): Promise<void> {
    if (!isRequestSizeLoaded) await learnedSize.loadRequestSize();
    isRequestSizeLoaded = true;
    const scopeChangeCount = scope.changes.wakeupCount();
    const retractedSeries = await registry.refreshSeries();
    discovery.removeFromQueue(retractedSeries.map(({ siteTag }) => siteTag.tag.id));
    discovery.queueUndiscoveredTags();
    if (metrics !== undefined) setHistorySeriesGauge(metrics, source.name, registry.getAll());
    seriesRefreshedAtMs = clock.monotonic();
    knownScopeChangeCount = scopeChangeCount;
    options.historyDemand?.setRequestsPerMinute(plannedRequestsPerMinute());
    await registry.endBackfills();
  }

  async function refreshSeriesIfStale(): Promise<void> {
    const hasOpenBackfills = registry.backfills().open.length > 0;
    const maySeriesAppear = registry.getAll().length === 0 && (historyClasses.length > 0 || hasOpenBackfills);
    const areSeriesStale =
      maySeriesAppear ||
      clock.monotonic() - seriesRefreshedAtMs >= SERIES_REFRESH_INTERVAL_MS ||
      scope.changes.wakeupCount() !== knownScopeChangeCount ||
      (await registry.haveBackfillsChanged());
    if (areSeriesStale) await refreshSeries();
    else if (hasOpenBackfills) await registry.endBackfills();
    if (registry.getAll().length === 0) return;
    seriesFound.wakeUp();
    isBackfillPaused = !((await options.mayFetchHistory?.()) ?? true);
    if (clock.monotonic() - dueCheckedAtMs < HISTORY_DUE_CHECK_MS) return;
    dueCheckedAtMs = clock.monotonic();
    // Ignore the returned task: the call records since when a request is due.
    chooseTask(false, false);
    await finalizedDays.refreshIfStale();
  }

  function listIdleSeries(): readonly Series[] {
    return registry.getAll().filter((series) => {
      const { isBusy, notBeforeMs, ledger } = series;
      return ledger.state === "following" && !isBusy && notBeforeMs <= clock.monotonic() && isSeriesVisible(series);
    });
  }

  const requestLimits = () => ({
    maxValues: learnedSize.maxValues(),
    prefersSingle: !wasSingleRequest,
    bucketsPerTag: learnedSize.bucketsPerTag,
  });

  function chooseTotalsTask(): HistoryTask | null {
    const request = chooseTotals(listIdleSeries(), clock.now(), requestLimits());
    return request && { request };
  }

  /** Chooses in this order: repeats of cut responses, recent buckets, log discovery, `plenum backfill`, backfill. */
  function chooseTask(isPastAllowed: boolean, mayDiscoverLogs: boolean): HistoryTask | null {
    const nowMs = clock.now();
    const { open, paused } = registry.backfills();
    const idleSeries = listIdleSeries();
    const seriesWithoutLiveRepeat = idleSeries.filter((series) => !shortResponses.hasUnverifiedEnds(series, true));
    const repeatRequest = shortResponses.nextRepeatRequest(idleSeries, requestLimits(), isPastAllowed && !paused);
    const urgentRequest = repeatRequest ?? chooseRecentRequest(seriesWithoutLiveRepeat, nowMs, requestLimits());
    const nextDiscoveryRequest = isDiscoveringLogs || !mayDiscoverLogs ? null : discovery.nextRequest(nowMs);
    if (urgentRequest !== null || (!isDiscoveringLogs && discovery.waitingTagCount() > 0))
      historyDueSinceMs ??= clock.monotonic();
    else if (!isDiscoveringLogs && !registry.getAll().some(({ isBusy }) => isBusy)) historyDueSinceMs = null;
    if (urgentRequest !== null) return { request: urgentRequest };
    if (nextDiscoveryRequest !== null) return { discovery: nextDiscoveryRequest };
    if (!isPastAllowed || paused) return null;
    const seriesWithoutRepeat = idleSeries.filter((series) => !shortResponses.hasUnverifiedEnds(series));
    const request =
      chooseUserBackfill(seriesWithoutRepeat, open, nowMs, requestLimits()) ??
      chooseBackfill(seriesWithoutRepeat, nowMs, requestLimits());
    if (request === null) return null;
    // During log discovery, a request for few tags waits for more tags, because each request costs one slot.
    const isRequestFull = request.isSingle || request.series.length === TAGS_PER_REQUEST;
    return isDiscoveringLogs && !isRequestFull ? null : { request };
  }

  const plannedRequestsPerMinute = () =>
    historyRequestsPerMinute(countFollowedSeries(registry.getAll()), TAGS_PER_REQUEST);
  const discoveryRate = () =>
    logDiscoveryPerMinute(discovery.waitingTagCount(), source.quota().buckets[0]?.lastingPerMinute ?? 20);

  const isLogDiscoveryDue = () => clock.monotonic() - lastDiscoveryMs >= 60_000 / Math.max(0.01, discoveryRate());

  function findHistoryStarvation(): HistoryProgress["starving"] {
    if (historyDueSinceMs === null) return null;
    const ratePerMinute = plannedRequestsPerMinute() + discoveryRate();
    const starvationLimitMs = Math.max(HISTORY_STARVING_MIN_MS, (3 * 60_000) / Math.max(0.01, ratePerMinute));
    const waitedMs = clock.monotonic() - historyDueSinceMs;
    return waitedMs <= Math.min(MAX_STARVING_MS, starvationLimitMs) ? null : { since: isoUtc(clock.now() - waitedMs) };
  }

  async function pullHistoryOnce(
    isTotal: boolean,
    onRequestStarted: () => void,
    signal: AbortSignal,
    reportSuccess: () => void,
  ) {
    while (isHistoryIdle() && !signal.aborted) await seriesFound.nextWakeup(signal);
    signal.throwIfAborted();
    let series: readonly Series[] = [];
    let isDiscoveryTask = false;
    const chooseTaskForSlot = ({ isLaneOverdue }: OfferedSlot): HistoryTask | null => {
      const mayDiscoverLogs = !isBackfillPaused && (!isLaneOverdue || isLogDiscoveryDue());
      const historyTask = isTotal
        ? chooseTotalsTask()
        : chooseTask(!isLaneOverdue && !isBackfillPaused, mayDiscoverLogs);
      if (historyTask === null) return null;
      isDiscoveryTask = "discovery" in historyTask;
      if ("request" in historyTask) {
        series = historyTask.request.series;
        wasSingleRequest = historyTask.request.isSingle;
      } else {
        isDiscoveringLogs = true;
        lastDiscoveryMs = clock.monotonic();
      }
      for (const busySeries of series) busySeries.isBusy = true;
      onRequestStarted();
      return historyTask;
    };
    try {
      await performHistoryRequest(isTotal, chooseTaskForSlot, signal);
      failuresInRow = 0;
      reportSuccess();
    } catch (error) {
      signal.throwIfAborted();
      for (const failedSeries of series) failedSeries.mustReloadLedger = true;
      failuresInRow += 1;
      seriesRefreshedAtMs = NEVER_HAPPENED_MS;
      const failure = asFailure(error);
      const concernsAllSeries =
        failure instanceof ConfigError || failure instanceof Throttled || failure instanceof LocalFailure;
      if (concernsAllSeries || failuresInRow >= HISTORY_FAILURES_IN_ROW_MAX) throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const servedSeries of series) servedSeries.isBusy = false;
      if (isDiscoveryTask) isDiscoveringLogs = false;
      historyDueSinceMs = null;
    }
  }

  async function followHistory({ draining, forced, reportSuccess }: LoopJobRun): Promise<void> {
    failuresInRow = 0;
    await refreshSeriesIfStale();
    const requestLoops = [false, true].map(
      (isTotal) => (onRequestStarted: () => void, signal: AbortSignal) =>
        pullHistoryOnce(isTotal, onRequestStarted, signal, reportSuccess),
    );
    const lookups = {
      ...{ clock, wakeup: historyClassesChanged },
      async step() {
        await refreshSeriesIfStale();
        return lookupIntervalMs();
      },
      onFault: (error: unknown) => log.warn({ err: error }, "the history series could not be refreshed"),
    };
    await keepLanesBusy(requestLoops, { maxInFlight: () => HISTORY_REQUESTS_MAX, draining, forced, lookups });
  }

  return {
    name: "history",
    ability: "read:tags",
    follow: followHistory,
    changeOptions(newOptions) {
      historyClasses = newOptions.historyClasses;
      requestSizeLimits.valuesMax = newOptions.valuesMax;
      registry.changeClasses(historyClasses);
      seriesRefreshedAtMs = NEVER_HAPPENED_MS;
      historyClassesChanged.wakeUp();
    },
    progress: () => ({
      ...historyProgress(
        registry.getAll(),
        registry.backfills(),
        learnedSize.maxValues(),
        discovery.waitingTagCount(),
        clock.now(),
      ),
      starving: findHistoryStarvation(),
    }),
  };
}

const createUnlimitedScope = (): HistoryScope => ({
  ...{ sees: () => true, explain: async () => "unexplained", changes: createWakeup() },
});

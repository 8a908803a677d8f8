import type { Clock } from "../../core/runtime/clock.ts";
import type { SourceConfig } from "../source/config.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { cronIntervalMs } from "./cron-schedule.ts";
import type { HistoryConfig } from "./history/config.ts";
import { historyProgress } from "./history/history-progress.ts";
import { INITIAL_SIZE, nextSize, valuesBelowPointLimit } from "./history/request-size.ts";
import {
  type BackfillRequest,
  createSeriesSelector,
  type LegacyHistoryLedger,
  loadBackfills,
  prepareLedger,
  type SeriesLedger,
} from "./history/series-registry.ts";
import { loadRequestableTags, loadVisibleSites, type SiteTag } from "./inventory/requestable-tags.ts";
import type { HistoryClassFacts, PollingPlanFacts, QuotaFacts, ReadClassFacts } from "./plan/report.ts";
import type { ReadConfig } from "./read/config.ts";
import type { ReadClassFreshness } from "./read/tag-schedule.ts";
import {
  type PointLimit,
  type StoredAlarm,
  type StoredLedger,
  type StoredRequestSize,
  type StoredValue,
  syncSet,
} from "./stored-documents.ts";
import { createClassFinder } from "./tag-selection.ts";
import { readTagsFromLists, type TagListProgress } from "./visible-building.ts";

export interface PlanSettings {
  readonly source: string;
  readonly read: ReadConfig;
  readonly history: HistoryConfig;
  readonly timeZone: string;
  readonly valuesMax: number;
  readonly quota: SourceConfig["quota"];
  readonly alarms?: { readonly schedule: string; readonly pageSize: number; readonly listsPerMinute: number };
}

export interface LivePlanFacts {
  readonly quota: Pick<QuotaFacts, "polls" | "shared">;
  readonly freshness: readonly ReadClassFreshness[];
}

const NULLS_UNTIL_TAG_SILENT = 6;
const SILENT_TAG_WEIGHT = 0.1;

type StoredHistoryState = Awaited<ReturnType<typeof loadHistoryState>>;

async function loadHistoryState(store: Store, source: string) {
  const [tags, ledgers, backfill, requestSize, pointLimit] = await Promise.all([
    loadRequestableTags(store, source),
    store.documents<StoredLedger | LegacyHistoryLedger>(documentSet("history", source)),
    loadBackfills(store, source),
    store.document<StoredRequestSize>(syncSet("history-window", source), "values"),
    store.document<PointLimit>(syncSet("history-window", source), "cut"),
  ]);
  return { tags, ledgers, backfill, requestSize: requestSize ?? INITIAL_SIZE, pointLimit: pointLimit ?? null };
}

export async function loadPlanFacts(
  store: Store,
  settings: PlanSettings,
  clock: Clock,
  liveFacts: LivePlanFacts | null,
) {
  const { source } = settings;
  const [history, sites, values, alarms] = await Promise.all([
    loadHistoryState(store, source),
    loadVisibleSites(store, source),
    store.documents<StoredValue>(documentSet("value", source)),
    store.documents<StoredAlarm>(documentSet("alarm", source)),
  ]);
  const tags = history.tags.filter(({ missing }) => missing === undefined);
  return buildPlanFacts(settings, {
    ...{ basis: "state", sites: sites.length, nowMs: clock.now(), live: liveFacts, history: { ...history, tags } },
    silentIds: new Set([...values].filter(([, { nulls = 0 }]) => nulls >= NULLS_UNTIL_TAG_SILENT).map(([id]) => id)),
    active: [...alarms.values()].filter(({ state }) => state === "active" || state === "missing").length,
  });
}

export async function historyProgressFromStore(store: Store, settings: PlanSettings, nowMs: number) {
  const historyState = await loadHistoryState(store, settings.source);
  const ledgers = buildSeriesLedgers(settings, historyState, nowMs);
  const valuesPerRequest = nextSize(historyState.requestSize, { valuesMax: maxValues(settings, historyState, nowMs) });
  const progress = historyProgress(ledgers, historyState.backfill, valuesPerRequest, countUnprovenTags(ledgers), nowMs);
  return { ledgers, backfill: historyState.backfill, progress };
}

export async function loadBackfillLedgers(
  store: Store,
  settings: PlanSettings,
  request: BackfillRequest,
  nowMs: number,
): Promise<readonly SeriesLedger[]> {
  const historyState = await loadHistoryState(store, settings.source);
  return buildSeriesLedgers(settings, { ...historyState, backfill: { open: [request], paused: false } }, nowMs);
}

export async function planFactsFromLists(
  source: Source,
  settings: PlanSettings,
  clock: Clock,
  signal: AbortSignal,
  onProgress: (progress: TagListProgress) => void,
): Promise<PollingPlanFacts> {
  const siteIds: number[] = [];
  for await (const page of source.sites({}, signal)) siteIds.push(...page.items.map((site) => site.id));
  const activeAlarmCount = await countActiveAlarms(source, settings, signal);
  const selectedSystemIds = [...settings.read, ...settings.history].flatMap(({ select }) => [
    ...(select.systems ?? []),
    ...(select.exclude?.systems ?? []),
  ]);
  const tags = await readTagsFromLists(source, siteIds, selectedSystemIds, signal, onProgress);
  return planFactsFromTags(settings, { sites: siteIds.length, tags, active: activeAlarmCount }, clock.now());
}

/** Returns the total of the alarm list's first page; 0 if alarms are not polled or cannot be listed. */
export async function countActiveAlarms(source: Source, settings: PlanSettings, signal: AbortSignal): Promise<number> {
  if (settings.alarms === undefined) return 0;
  try {
    for await (const page of source.alarms({ status: "active" }, signal)) return page.total ?? 0;
  } catch {
    signal.throwIfAborted();
  }
  return 0;
}

export function planFactsFromTags(
  settings: PlanSettings,
  building: { readonly sites: number; readonly tags: readonly SiteTag[]; readonly active?: number },
  nowMs: number,
): PollingPlanFacts {
  const { sites, tags, active = 0 } = building;
  const noBackfill = { open: [], paused: false };
  const history = { tags, ledgers: new Map(), backfill: noBackfill, requestSize: INITIAL_SIZE, pointLimit: null };
  return buildPlanFacts(settings, { basis: "lists", sites, active, history, silentIds: new Set(), nowMs, live: null });
}

interface PlanInputs extends Pick<PollingPlanFacts, "basis" | "sites" | "nowMs"> {
  readonly history: StoredHistoryState;
  readonly silentIds: ReadonlySet<string>;
  readonly active: number;
  readonly live: LivePlanFacts | null;
}

function buildPlanFacts(settings: PlanSettings, inputs: PlanInputs): PollingPlanFacts {
  const { basis, sites, nowMs, history, silentIds, live } = inputs;
  const ledgers = buildSeriesLedgers(settings, history, nowMs);
  const unprovenTagCount = countUnprovenTags(ledgers);
  const maxValuesPerRequest = maxValues(settings, history, nowMs);
  const logDiscoveryRequests = Math.ceil(unprovenTagCount / TAGS_PER_REQUEST);
  const countRequestsLeft = (values: number) =>
    historyProgress(ledgers, history.backfill, values, unprovenTagCount, nowMs).requestsLeft + logDiscoveryRequests;
  return {
    ...{ source: settings.source, basis, nowMs, sites, tags: history.tags.length },
    classes: buildReadClassFacts(settings.read, history.tags, silentIds, live?.freshness ?? []),
    history: buildHistoryClassFacts(settings.history, ledgers),
    tagsWithoutKnownLog: unprovenTagCount,
    backfill: {
      requestsLeft: countRequestsLeft(nextSize(history.requestSize, { valuesMax: maxValuesPerRequest })),
      requestsAtBest: countRequestsLeft(maxValuesPerRequest),
      paused: history.backfill.paused,
    },
    quota: buildQuotaFacts(settings.quota, live),
    ...alarmPollFacts(settings, inputs),
  };
}

function alarmPollFacts({ alarms }: PlanSettings, { active, nowMs }: PlanInputs) {
  if (alarms === undefined) return {};
  const { schedule, pageSize, listsPerMinute } = alarms;
  const pages = Math.max(1, Math.ceil(active / pageSize));
  return { alarms: { alarms: active, pages, everyMs: cronIntervalMs(schedule, nowMs), listsPerMinute } };
}

function buildReadClassFacts(
  read: ReadConfig,
  tags: readonly SiteTag[],
  silentIds: ReadonlySet<string>,
  freshness: readonly ReadClassFreshness[],
): readonly ReadClassFacts[] {
  const tagsByClass = Map.groupBy(tags, createClassFinder(read));
  return read.map((readClass) => {
    const { name, every, firm, importance, fresher } = readClass;
    const tagsOfClass = tagsByClass.get(readClass) ?? [];
    const silentTagCount = tagsOfClass.filter(({ tag }) => silentIds.has(tag.id)).length;
    return {
      ...{ name, everyMs: every, firm, importance, fresher },
      tags: tagsOfClass.length - silentTagCount * (1 - SILENT_TAG_WEIGHT),
      allTagCount: tagsOfClass.length,
      valueAgeMs: freshness.find((classFreshness) => classFreshness.name === name)?.achievedMs ?? null,
    };
  });
}

type ClassLedger = SeriesLedger & { readonly className: string | null };

function buildSeriesLedgers(
  settings: PlanSettings,
  storedHistory: StoredHistoryState,
  nowMs: number,
): readonly ClassLedger[] {
  const selectHistorySeries = createSeriesSelector(settings.history, settings.timeZone);
  return storedHistory.tags.flatMap((siteTag) =>
    selectHistorySeries(siteTag, storedHistory.backfill.open).map(({ key, rules, total, className }) => ({
      ...{ siteTag, rules, total, className },
      ledger: prepareLedger(storedHistory.ledgers.get(key), rules, total, nowMs),
    })),
  );
}

function buildHistoryClassFacts(history: HistoryConfig, ledgers: readonly ClassLedger[]): readonly HistoryClassFacts[] {
  const ledgersByClass = Map.groupBy(ledgers, ({ className }) => className);
  return history.map(({ name, resolution, total, every }) => {
    const ledgersOfClass = ledgersByClass.get(name) ?? [];
    const withoutLog = ledgersOfClass.filter(({ ledger }) => ledger.state === "no-log").length;
    return { name, resolution, total, everyMs: every, tags: ledgersOfClass.length - withoutLog, withoutLog };
  });
}

function countUnprovenTags(ledgers: readonly SeriesLedger[]): number {
  return new Set(ledgers.flatMap(({ ledger, siteTag }) => (ledger.state === "unproven" ? [siteTag.tag.id] : []))).size;
}

function maxValues({ valuesMax }: PlanSettings, { pointLimit }: StoredHistoryState, nowMs: number): number {
  return Math.min(valuesMax, valuesBelowPointLimit(pointLimit, nowMs));
}

function buildQuotaFacts(quota: PlanSettings["quota"], liveFacts: LivePlanFacts | null): QuotaFacts {
  const { requests_per_minute: perMinute, polite, reserve_for_writes: reserve } = quota;
  return {
    ...{ perMinute, reserve, polite, size: TAGS_PER_REQUEST },
    polls: liveFacts?.quota.polls ?? Math.max(1, perMinute * polite - reserve),
    shared: liveFacts?.quota.shared ?? !quota.separate_endpoints,
  };
}

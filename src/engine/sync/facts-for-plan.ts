import type { Clock } from "../../core/runtime/clock.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import type { HistoryConfig } from "./history/config.ts";
import { type HistoryProgress, progressOf } from "./history/progress.ts";
import { INITIAL_WINDOW, valuesBelow, windowValues } from "./history/request-size.ts";
import {
  type BackfillRequest,
  type BackfillRequests,
  type LedgerOf,
  type LegacyLedger,
  ledgerFor,
  loadBackfills,
  wantedSeries,
} from "./history/series.ts";
import { expectedTags, type LocatedTag, visibleSites } from "./inventory/held.ts";
import type { AlarmPolling, ClassFacts, HistoryFacts, PlanFacts, QuotaFacts } from "./plan/report.ts";
import type { ReadConfig } from "./read/config.ts";
import type { ClassFreshness } from "./read/tag-schedule.ts";
import { everyMsOf } from "./schedule.ts";
import { type ListProgress, tagsFromLists } from "./seen-building.ts";
import { firstMatch } from "./select.ts";
import {
  type StoredAlarm,
  type StoredCut,
  type StoredHistory,
  type StoredValue,
  type StoredWindow,
  syncSet,
} from "./snapshot.ts";

/** Options that a plan uses. */
export interface PlanSettings {
  readonly source: string;
  readonly read: ReadConfig;
  readonly history: HistoryConfig;
  readonly timeZone: string;
  /** Values that one history request may ask for at most. */
  readonly valuesMax: number;
  readonly quota: {
    readonly requests_per_minute: number;
    readonly polite: number;
    readonly reserve_for_writes: number;
    readonly separate_endpoints: boolean;
  };
  /** How the active alarms are polled; absent where they are not. */
  readonly alarms?: {
    readonly schedule: string;
    readonly pageSize: number;
    readonly listsPerMinute: number;
  };
}

/** Facts that only a running worker knows. */
export interface PlanLive {
  readonly quota: Pick<QuotaFacts, "polls" | "shared">;
  readonly freshness: readonly ClassFreshness[];
}

/** Nulls in a row after which a tag is read less often, and ten times less often in the end. */
const SILENT = 6;
const SILENT_WEIGHT = 0.1;

/** From the inventory and the ledgers that a worker keeps; the store is only read. */
export async function factsFromState(
  store: Store,
  settings: PlanSettings,
  clock: Clock,
  live: PlanLive | null,
): Promise<PlanFacts> {
  const { source } = settings;
  const [past, sites, values, alarms] = await Promise.all([
    heldPast(store, source),
    visibleSites(store, source),
    store.documents<StoredValue>(documentSet("value", source)),
    store.documents<StoredAlarm>(documentSet("alarm", source)),
  ]);
  const active = [...alarms.values()].filter(({ state }) => state === "active" || state === "missing").length;
  const silent = new Set([...values].filter(([, { nulls = 0 }]) => nulls >= SILENT).map(([id]) => id));
  return factsOf({
    settings,
    basis: "state",
    sites: sites.length,
    silent,
    active,
    ...past,
    // Invisible tags cost nothing now.
    tags: past.tags.filter(({ outOfSight }) => outOfSight === undefined),
    nowMs: clock.now(),
    live,
  });
}

async function heldPast(store: Store, source: string) {
  const [tags, ledgers, orders, window, cut] = await Promise.all([
    expectedTags(store, source),
    store.documents<StoredHistory | LegacyLedger>(documentSet("history", source)),
    loadBackfills(store, source),
    store.document<StoredWindow>(syncSet("history-window", source), "values"),
    store.document<StoredCut>(syncSet("history-window", source), "cut"),
  ]);
  return { tags, ledgers, orders, window: window ?? INITIAL_WINDOW, cut: cut ?? null };
}

/** The ledgers of every series that is wanted now, and how far they are; the store is only read. */
export async function pastFromState(
  store: Store,
  settings: PlanSettings,
  nowMs: number,
): Promise<{
  readonly ledgers: readonly LedgerOf[];
  readonly orders: BackfillRequests;
  readonly progress: HistoryProgress;
}> {
  const { tags, ledgers, orders, window, cut } = await heldPast(store, settings.source);
  const { all } = ledgersOf(settings, tags, ledgers, orders, nowMs);
  const most = Math.min(settings.valuesMax, valuesBelow(cut, nowMs));
  const values = windowValues(window, { most });
  return { ledgers: all, orders, progress: progressOf(all, orders, values, unprovenTags(all), nowMs) };
}

/** The ledgers of every series that an order means, also when it is done; the store is only read. */
export async function ledgersOfRequest(
  store: Store,
  settings: PlanSettings,
  order: BackfillRequest,
  nowMs: number,
): Promise<readonly LedgerOf[]> {
  const { tags, ledgers } = await heldPast(store, settings.source);
  return ledgersOf(settings, tags, ledgers, { open: [order], paused: false }, nowMs).all;
}

/** Reads the lists of sites and tags, which use no quota, and reports progress to `told`. */
export async function factsFromLists(
  source: Source,
  settings: PlanSettings,
  clock: Clock,
  signal: AbortSignal,
  told: (progress: ListProgress) => void,
): Promise<PlanFacts> {
  const sites: number[] = [];
  for await (const page of source.sites({}, signal)) sites.push(...page.items.map((site) => site.id));
  const active = await activeFromList(source, settings, signal);
  const tags = await tagsFromLists(source, sites, askedSystems(settings), signal, told);
  return factsFromTags(settings, { sites: sites.length, tags, active }, clock.now());
}

/** How many alarms are active, from the first page of their list; 0 where they are not polled or cannot be listed. */
export async function activeFromList(source: Source, settings: PlanSettings, signal: AbortSignal): Promise<number> {
  if (settings.alarms === undefined) return 0;
  try {
    for await (const page of source.alarms({ status: "active" }, signal)) return page.total ?? 0;
  } catch {
    // Alarm lists report their own failures; the plan is made without them.
    signal.throwIfAborted();
  }
  return 0;
}

/** From tags that somebody has listed at the service. */
export function factsFromTags(
  settings: PlanSettings,
  {
    sites,
    tags,
    active = 0,
  }: { readonly sites: number; readonly tags: readonly LocatedTag[]; readonly active?: number },
  nowMs: number,
): PlanFacts {
  return factsOf({
    settings,
    basis: "lists",
    sites,
    tags,
    active,
    silent: new Set(),
    ledgers: new Map(),
    orders: { open: [], paused: false },
    window: INITIAL_WINDOW,
    cut: null,
    nowMs,
    live: null,
  });
}

/** Ids of the systems that selections ask for. */
function askedSystems({ read, history }: PlanSettings): readonly string[] {
  return [...read, ...history].flatMap(({ select }) => [...(select.systems ?? []), ...(select.exclude?.systems ?? [])]);
}

function factsOf(known: {
  readonly settings: PlanSettings;
  readonly basis: PlanFacts["basis"];
  readonly sites: number;
  readonly tags: readonly LocatedTag[];
  readonly silent: ReadonlySet<string>;
  /** Active alarms. */
  readonly active: number;
  readonly ledgers: ReadonlyMap<string, StoredHistory | LegacyLedger>;
  readonly orders: BackfillRequests;
  readonly window: StoredWindow;
  readonly cut: StoredCut | null;
  readonly nowMs: number;
  readonly live: PlanLive | null;
}): PlanFacts {
  const { settings, tags, orders, nowMs, live } = known;
  const ledgers = ledgersOf(settings, tags, known.ledgers, orders, nowMs);
  const most = Math.min(settings.valuesMax, valuesBelow(known.cut, nowMs));
  const left = (values: number) =>
    requestsLeft(progressOf(ledgers.all, orders, values, unprovenTags(ledgers.all), nowMs));
  return {
    source: settings.source,
    basis: known.basis,
    nowMs,
    sites: known.sites,
    tags: tags.length,
    classes: classFacts(settings.read, tags, known.silent, live?.freshness ?? []),
    history: historyFacts(settings.history, ledgers.byClass),
    toLearn: unprovenTags(ledgers.all),
    backfill: {
      requestsLeft: left(windowValues(known.window, { most })),
      requestsAtBest: left(most),
      paused: orders.paused,
    },
    quota: quotaFacts(settings.quota, live),
    ...(settings.alarms === undefined ? {} : { alarms: alarmPolling(settings.alarms, known.active, nowMs) }),
  };
}

function alarmPolling(
  { schedule, pageSize, listsPerMinute }: NonNullable<PlanSettings["alarms"]>,
  alarms: number,
  nowMs: number,
): AlarmPolling {
  const pages = Math.max(1, Math.ceil(alarms / pageSize));
  return { alarms, pages, everyMs: everyMsOf(schedule, nowMs), listsPerMinute };
}

function classFacts(
  read: ReadConfig,
  tags: readonly LocatedTag[],
  silent: ReadonlySet<string>,
  freshness: readonly ClassFreshness[],
): readonly ClassFacts[] {
  const members = Map.groupBy(tags, firstMatch(read));
  return read.map((readClass) => {
    const own = members.get(readClass) ?? [];
    const quiet = own.filter(({ tag }) => silent.has(tag.id)).length;
    return {
      name: readClass.name,
      tags: own.length - quiet * (1 - SILENT_WEIGHT),
      allTags: own.length,
      everyMs: readClass.every,
      firm: readClass.firm,
      importance: readClass.importance,
      measuredMs: freshness.find(({ name }) => name === readClass.name)?.achievedMs ?? null,
    };
  });
}

interface Ledgers {
  readonly all: readonly LedgerOf[];
  readonly byClass: ReadonlyMap<string | null, readonly LedgerOf[]>;
}

/** Ledgers as the worker would start or continue them. */
function ledgersOf(
  settings: PlanSettings,
  tags: readonly LocatedTag[],
  held: ReadonlyMap<string, StoredHistory | LegacyLedger>,
  orders: BackfillRequests,
  nowMs: number,
): Ledgers {
  const seriesOf = wantedSeries(settings.history, settings.timeZone);
  const all = tags.flatMap((placed) =>
    seriesOf(placed, orders.open).map(({ key, rules, total, className }) => ({
      located: placed,
      rules,
      total,
      className,
      ledger: ledgerFor(held.get(key), rules, total, nowMs),
    })),
  );
  return { all, byClass: Map.groupBy(all, ({ className }) => className) };
}

function historyFacts(history: HistoryConfig, byClass: Ledgers["byClass"]): readonly HistoryFacts[] {
  return history.map(({ name, resolution, total, every }) => {
    const own = byClass.get(name) ?? [];
    const withoutLog = own.filter(({ ledger: held }) => held.state === "no-log").length;
    return { name, resolution, total, everyMs: every, tags: own.length - withoutLog, withoutLog };
  });
}

function unprovenTags(series: readonly LedgerOf[]): number {
  const ids = series
    .filter(({ ledger: held }) => held.state === "unproven")
    .map(({ located: placed }) => placed.tag.id);
  return new Set(ids).size;
}

/** With the probes that show which tags have a log: about one for a full group where most have one. */
function requestsLeft({ requestsLeft: values, unproven }: HistoryProgress): number {
  return values + Math.ceil(unproven / TAGS_PER_REQUEST);
}

function quotaFacts(quota: PlanSettings["quota"], live: PlanLive | null): QuotaFacts {
  const { requests_per_minute: perMinute, polite, reserve_for_writes: reserve } = quota;
  return {
    perMinute,
    reserve,
    polite,
    polls: live?.quota.polls ?? Math.max(1, perMinute * polite - reserve),
    shared: live?.quota.shared ?? !quota.separate_endpoints,
    size: TAGS_PER_REQUEST,
  };
}

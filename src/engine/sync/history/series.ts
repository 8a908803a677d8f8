import { RESOLUTIONS } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { documentSet, type Store } from "../../store/store.ts";
import { expectedTags, type LocatedTag } from "../inventory/held.ts";
import type { FollowedHistory } from "../plan/overload.ts";
import type { TokenScope } from "../scope.ts";
import { firstMatch } from "../select.ts";
import { type StoredBackfill, type StoredHistory, type StoredToken, syncSet } from "../snapshot.ts";
import {
  type BackfillRequest,
  type BackfillRequests,
  backfillRules,
  type EndedBackfill,
  isDone,
  loadBackfills,
  markDone,
  removeOldBackfills,
  sameBackfills,
  withoutLogOf,
} from "./backfills.ts";
import type { HistoryClass, HistoryConfig } from "./config.ts";
import { adaptLedger, newLedger, parseTime, retractNoLog, type SeriesRules } from "./ledger.ts";
import { storedRanges } from "./ledger-ranges.ts";

/** One series that is followed, with its ledger in memory. */
export interface Series {
  /** Key of its ledger. */
  readonly key: string;
  readonly located: LocatedTag;
  readonly rules: SeriesRules;
  /** Totals per bucket instead of values. */
  readonly total: boolean;
  ledger: StoredHistory;
  /** A request for it is in flight. */
  isBusy: boolean;
  /** The last request failed, perhaps after its commit: the next refresh reads the ledger from the store. */
  isUnsure: boolean;
  /** Monotonic time before which it is not requested, because the last response added nothing. */
  notBeforeMs: number;
  /** A recent request with it was refused: it is requested singly until a request succeeds. */
  isSuspect: boolean;
}

export type HistoryScope = Pick<TokenScope, "sees" | "explain" | "changes"> & Partial<Pick<TokenScope, "askedAtMs">>;

/**
 * All series of one source: those of the configured classes and of open backfill requests, for every known tag. Each
 * refresh reads tags, backfill requests and missing ledgers from the store.
 */
export interface HistorySeries {
  /** Returns the series whose "no log" was retracted because the token no longer sees their site. */
  refresh(): Promise<readonly Series[]>;
  /** Sorted by tag id, which is roughly the order of their hosts. */
  all(): readonly Series[];
  ofTag(tagId: string): readonly Series[];
  /** Uses other classes from the next refresh on. */
  change(classes: HistoryConfig): void;
  /** Unfinished requests of `plenum backfill`. */
  backfills(): BackfillRequests;
  /** Reports added, paused and removed backfill requests. Reads the store at most every 4.5 s. */
  haveBackfillsChanged(): Promise<boolean>;
  /** Marks backfill requests as done when no range of theirs is missing. */
  endBackfills(): Promise<void>;
  /** Earliest time for which a class or a backfill request needs a series, milliseconds since 1970. */
  neededFrom(series: Series): number;
}

/** Slightly less than the 5 s between two looks, so that an early timer does not skip one. */
const BACKFILL_LOOK_MS = 4_500;

export function historyKey(tagId: string, entry: Pick<HistoryClass, "resolution" | "total">): string {
  return `${tagId} ${entry.resolution}${entry.total ? " total" : ""}`;
}

export function createHistorySeries(options: {
  readonly store: Store;
  readonly source: string;
  readonly clock: Clock;
  readonly log: Pick<Log, "info">;
  readonly scope: HistoryScope;
  readonly classes: HistoryConfig;
  readonly timeZone: string;
}): HistorySeries {
  const { store, source, clock, log, scope } = options;
  const set = documentSet("history", source);
  let seriesOf = wantedSeries(options.classes, options.timeZone);
  let all: readonly Series[] = [];
  let byTag = new Map<string, Series[]>();
  let backfills: BackfillRequests = { open: [], paused: false };
  let backfillsLoadedAtMs = Number.NEGATIVE_INFINITY;
  /** Time of the last confirmation that the token sees a site, by site id; null before it is loaded. */
  let seenAt: Map<number, string> | null = null;
  const unseenSites = new Set<number>();

  async function refreshBackfills(): Promise<void> {
    await removeOldBackfills(store, source, clock.now());
    backfills = await loadBackfills(store, source);
    backfillsLoadedAtMs = clock.monotonic();
  }

  async function refreshLedgers(nowMs: number): Promise<void> {
    const [tags, ledgers] = await Promise.all([
      expectedTags(store, source),
      store.documents<StoredHistory | LegacyLedger>(set),
    ]);
    const known = new Map(all.map((series) => [series.key, series]));
    const next: Series[] = [];
    const changed: (readonly [string, StoredHistory])[] = [];
    for (const located of tags) {
      for (const { key, rules, total } of seriesOf(located, backfills.open)) {
        const old = known.get(key);
        const before = old?.isUnsure === false ? old.ledger : (ledgers.get(key) ?? old?.ledger);
        const ledger = ledgerFor(before, rules, total, nowMs);
        if (ledger !== before) changed.push([key, ledger]);
        const { isSuspect = false, notBeforeMs = Number.NEGATIVE_INFINITY } = old ?? {};
        next.push(
          old?.isBusy === true
            ? Object.assign(old, { located })
            : { key, located, rules, total, ledger, isBusy: false, isUnsure: false, notBeforeMs, isSuspect },
        );
      }
    }
    all = next;
    byTag = Map.groupBy(next, (series) => series.located.tag.id);
    // Stored at once, so that a restart does not move the start of following.
    if (changed.length > 0) await store.commit({ documents: [{ set, put: changed }] });
  }

  async function loadSeenSites(): Promise<Map<number, string>> {
    const token = await store.document<StoredToken>(documentSet("token", source), "token");
    return new Map((token?.info.sites ?? []).map(({ id }) => [id, token?.checkedAt ?? ""]));
  }

  /**
   * Retracts "no log" responses for tags of sites that the token no longer sees: the service also answers "no log" for
   * tags out of scope. Only responses after the last confirmed sight of the site are in question. Reopens backfill
   * requests that ended on such a response.
   */
  async function retractUnseen(): Promise<readonly Series[]> {
    seenAt ??= await loadSeenSites();
    const confirmedAtMs = scope.askedAtMs?.() ?? null;
    const retracted: Series[] = [];
    let earliest: string | null = null;
    for (const [siteId, members] of Map.groupBy(all, ({ located }) => located.siteId)) {
      if (scope.sees(siteId)) {
        unseenSites.delete(siteId);
        if (confirmedAtMs !== null) seenAt.set(siteId, isoUtc(confirmedAtMs));
        continue;
      }
      if (unseenSites.has(siteId)) continue;
      const after = seenAt.get(siteId) ?? "";
      if (earliest === null || after < earliest) earliest = after;
      for (const series of members) {
        const ledger = retractNoLog(series.ledger, after, series.total);
        if (ledger === series.ledger) continue;
        // Before the commit, so that a reply in flight is settled on the new ledger.
        series.ledger = ledger;
        retracted.push(series);
      }
      unseenSites.add(siteId);
    }
    if (earliest === null) return [];
    const reopened = await reopenedBackfills(earliest);
    await store.commit({
      documents: [
        { set, put: retracted.map(({ key, ledger }) => [key, ledger] as const) },
        { set: syncSet("backfill", source), put: reopened },
      ],
    });
    return retracted;
  }

  async function reopenedBackfills(after: string): Promise<(readonly [string, StoredBackfill])[]> {
    const stored = await store.documents<StoredBackfill>(syncSet("backfill", source));
    return [...stored].flatMap(([id, { withoutLog, ...request }]) => {
      const isInQuestion = (request.doneAt ?? "") >= after && (withoutLog?.buckets ?? 0) > 0;
      return isInQuestion ? [[id, { ...request, doneAt: null }] as const] : [];
    });
  }

  /** Returns null while a bucket of the request is neither fetched nor without a log. */
  function endOf(request: BackfillRequest, nowMs: number): EndedBackfill | null {
    const members = all.filter(
      ({ located, rules, total }) => !total && rules.resolution === request.resolution && request.matches(located),
    );
    // Before the first listing of tags there are no members, and the request is not done.
    const isEnded = members.length > 0 && members.every(({ ledger, rules }) => isDone(request, ledger, rules, nowMs));
    if (!isEnded) return null;
    const counts = members
      .map(({ ledger, rules }) => withoutLogOf(request, ledger, rules, nowMs))
      .filter((buckets) => buckets > 0);
    const buckets = counts.reduce((sum, each) => sum + each, 0);
    return { order: request, withoutLog: { buckets, tags: counts.length } };
  }

  return {
    async refresh() {
      await refreshBackfills();
      await refreshLedgers(clock.now());
      const retracted = await retractUnseen();
      if (retracted.length > 0) await refreshBackfills();
      return retracted;
    },
    all: () => all,
    ofTag: (tagId) => byTag.get(tagId) ?? [],
    change(classes) {
      seriesOf = wantedSeries(classes, options.timeZone);
    },
    backfills: () => backfills,
    async haveBackfillsChanged() {
      const nowMs = clock.monotonic();
      if (nowMs - backfillsLoadedAtMs < BACKFILL_LOOK_MS) return false;
      backfillsLoadedAtMs = nowMs;
      return !sameBackfills(await loadBackfills(store, source), backfills);
    },
    async endBackfills() {
      const nowMs = clock.now();
      const done = backfills.open.flatMap((request) => endOf(request, nowMs) ?? []);
      if (done.length === 0) return;
      await markDone(store, source, done, isoUtc(nowMs));
      for (const { order, withoutLog } of done) log.info({ order: order.id, withoutLog }, "a backfill is done");
      const ids = new Set(done.map(({ order }) => order.id));
      backfills = { ...backfills, open: backfills.open.filter(({ id }) => !ids.has(id)) };
    },
    neededFrom: ({ ledger, located }) =>
      Math.min(
        parseTime(ledger.wished),
        ...backfills.open.filter((request) => request.matches(located)).map(({ stored }) => parseTime(stored.from)),
      ),
  };
}

/** A series that the configuration or a backfill request needs. */
export interface WantedSeries {
  readonly key: string;
  readonly rules: SeriesRules;
  readonly total: boolean;
  /** The class that follows it; null if only a backfill request needs it. */
  readonly className: string | null;
}

/** Compiles the classes. Of the classes for the same series, the first that selects a tag applies. */
export function wantedSeries(
  classes: HistoryConfig,
  timeZone: string,
): (located: LocatedTag, orders: readonly BackfillRequest[]) => readonly WantedSeries[] {
  const lists = [...Map.groupBy(classes, (entry) => historyKey("", entry)).values()].map(firstMatch);
  // Series that follow the same rules share them.
  const rulesByClass = new Map(classes.map((entry) => [entry, rulesOf(entry, timeZone)]));
  const rulesByOrder = new Map(RESOLUTIONS.map((resolution) => [resolution, backfillRules(resolution, timeZone)]));
  return (located, orders) => {
    // Called for each of 50,000 tags every minute, also without any history.
    if (lists.length === 0 && orders.length === 0) return NONE;
    const wanted: WantedSeries[] = [];
    for (const entryOf of lists) {
      const entry = entryOf(located);
      if (entry === undefined) continue;
      const rules = rulesByClass.get(entry) ?? rulesOf(entry, timeZone);
      const { total, name } = entry;
      wanted.push({ key: historyKey(located.tag.id, entry), rules, total, className: name });
    }
    for (const order of orders) {
      const rules = rulesByOrder.get(order.resolution);
      if (rules === undefined) continue;
      const key = historyKey(located.tag.id, { resolution: order.resolution, total: false });
      if (wanted.some((series) => series.key === key) || !order.matches(located)) continue;
      wanted.push({ key, rules, total: false, className: null });
    }
    return wanted;
  };
}

const NONE: readonly WantedSeries[] = [];

/** Returns the stored ledger adapted to the rules, or a new one. */
export function ledgerFor(
  before: StoredHistory | LegacyLedger | undefined,
  rules: SeriesRules,
  total: boolean,
  nowMs: number,
): StoredHistory {
  const first = () => (total ? firstTotal(rules, nowMs) : newLedger(rules, nowMs));
  if (before === undefined) return first();
  const ledger = upgradeLedger(before, total);
  if (isYetToCome(ledger, nowMs)) return { ...first(), state: ledger.state, refusal: ledger.refusal };
  return adaptLedger(ledger, rules, nowMs);
}

/**
 * Returns true for a ledger that a clock ahead of time created, without points. Example: a worker starts at 12:00
 * with its clock at 16:00; without this check, four hours of a new series would never be fetched.
 */
function isYetToCome({ since, spans, watermark }: StoredHistory, nowMs: number): boolean {
  return spans.length === 0 && watermark === since && Date.parse(since) > nowMs;
}

function rulesOf(entry: HistoryClass, timeZone: string): SeriesRules {
  return {
    resolution: entry.resolution,
    timeZone: entry.time_zone ?? timeZone,
    everyMs: entry.every,
    backfillMs: entry.backfill,
    graceMs: entry.grace,
    lookBackMs: entry.look_back,
  };
}

/** Totals go forward from the depth of the backfill, period by period. */
function firstTotal(rules: SeriesRules, nowMs: number): StoredHistory {
  const first = newLedger(rules, nowMs);
  return { ...first, watermark: first.wished < first.since ? first.wished : first.since };
}

/** Counts series by resolution, kind and interval, for the plan. Series that may have a log count, too. */
export function followedSeries(all: readonly Series[]): readonly FollowedHistory[] {
  const groups = Map.groupBy(
    all.filter(({ ledger }) => ledger.state !== "no-log"),
    ({ rules, total }) => `${rules.resolution} ${total} ${rules.everyMs}`,
  );
  return [...groups.values()].flatMap((members) => {
    const [first] = members;
    if (first === undefined) return [];
    const { resolution, everyMs } = first.rules;
    return [{ resolution, everyMs, total: first.total, tags: members.length }];
  });
}

/** Returns true if the series has a log. */
export function isFollowed(series: Series): boolean {
  return series.ledger.state === "following";
}

/** A ledger in the format before ranges had a reason. */
export interface LegacyLedger extends Omit<StoredHistory, "version" | "spans" | "refusal"> {
  readonly version?: undefined;
  readonly reached: string;
}

/**
 * Upgrades a ledger of the old format, in which a refusal could pass for a response: keeps what was followed, and
 * requests the past and the log again. Points of that past are emitted again as backfill.
 */
export function upgradeLedger(stored: StoredHistory | LegacyLedger, total: boolean): StoredHistory {
  if (stored.version !== undefined) return stored;
  const { reached, ...kept } = stored;
  const { since, watermark, rememberedFrom, dailyAt, weeklyAt, wished, resolution, timeZone } = kept;
  // Totals start at the depth of the backfill, and only responses moved them forward.
  const from = total ? parseTime(reached) : parseTime(since);
  const spans = [{ fromMs: Math.min(from, parseTime(watermark)), toMs: parseTime(watermark), why: "points" as const }];
  const wasFollowed = kept.state === "following" && parseTime(watermark) > from;
  return {
    version: 2,
    resolution,
    timeZone,
    since,
    watermark: wasFollowed ? watermark : isoUtc(Math.min(from, parseTime(watermark))),
    wished,
    spans: wasFollowed ? storedRanges(spans) : [],
    rereadFrom: wasFollowed ? kept.rereadFrom : null,
    dailyAt,
    weeklyAt,
    rememberedFrom,
    state: kept.state === "no-log" ? "unproven" : kept.state,
    refusal: null,
  };
}

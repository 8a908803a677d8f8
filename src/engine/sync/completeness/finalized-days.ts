import type { Site } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { SiteCompleteFact, WaitingSeries } from "../../../core/model/history-event-data.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import { DAY_MS, subtractRanges, type TimeRange } from "../history/buckets.ts";
import { closedUntilMs } from "../history/ledger.ts";
import { fetchedRanges } from "../history/ledger-ranges.ts";
import type { Series } from "../history/series-registry.ts";
import {
  type FinalizedDay,
  type StoredCompleteness,
  type StoredDayChange,
  type StoredDayCounts,
  type StoredLedger,
  type StoredObject,
  syncSet,
} from "../stored-documents.ts";
import {
  allDayCounts,
  countEmittedPoints,
  countOfDay,
  countsBetween,
  DAY_RETENTION_DAYS,
  type DayRange,
  dateToDay,
  dayDate,
  type EmittedHistoryPoints,
  type GaplessDays,
  gaplessDays,
  getDayCount,
  intersectGaplessDays,
  mergeCounts,
  newCompleteDays,
  splitDayCounts,
  utcDay,
} from "./complete-days.ts";
import {
  buildHistoryCompleteEvent,
  countSeriesDay,
  createDayCounter,
  daySealedFact,
  type SiteDayCounts,
  seriesResolutionKey,
} from "./daily-bucket-counts.ts";

export type FinalizedDays = ReturnType<typeof createFinalizedDays>;

interface SiteUtcDay {
  readonly siteId: number;
  readonly day: number;
}

/** Maximum length of day counts in a ledger. Longer ones move to another document, as each reply writes the ledger. */
const MAX_LEDGER_COUNTS_LENGTH = 600;
const DAY_CHANGE_MERGE_MS = 300_000;
/** Time without a change after which a finalized day gets its next revision. */
const DAY_CHANGE_SETTLING_MS = 3_600_000;
/** Minimum time between two ledger comparisons: at midnight, thousands of ledgers reach the next day within seconds. */
const MIN_COMPARISON_GAP_MS = 10_000;
/** Maximum time between two comparisons of ledgers, because refusals and overdue days depend on the clock. */
const MAX_COMPARISON_GAP_MS = 600_000;
const SERIES_COUNTED_PER_YIELD = 500;
const SERIES_COUNTED_PER_REFRESH = 5_000;
const MAX_LISTED_WAITING_SERIES = 20;
const NEVER_MS = Number.NEGATIVE_INFINITY;

/**
 * Reports which UTC days of a site are complete. `history-complete` states up to which day a series or site has no gap.
 * Plenum finalizes a day when no bucket is pending and it has read the day again for late data. Then it emits
 * `day-sealed` with the day's bucket counts. After a later change and an hour without change, it emits a new revision.
 *
 *   open ──reached by all series──▶ due ──counted──▶ finalized ──a reply changes it──▶ changed
 *     ▲                              │ pending or changed meanwhile                       │ an hour without change
 *     └──────────────────────────────┘                                due ◀───────────────┘
 */
export function createFinalizedDays(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
  readonly series: () => readonly Series[];
  readonly knowsTagsOf: (siteId: number) => boolean;
}) {
  const { store, clock, source } = options;
  const historyCompleteSet = syncSet("history-complete", source);
  const finalizedDaysSet = syncSet("day-sealed", source);
  const changedDaysSet = syncSet("day-changed", source);
  const movedDayCountsSet = syncSet("history-days", source);
  const daysBySite = new Map<number, Set<number>>();
  let finalizedDays = new Map<string, FinalizedDay>();
  let dayChanges = new Map<string, StoredDayChange>();
  let emittedDates = new Map<string, StoredCompleteness>();
  let isLoaded = false;
  let haveDaysChanged = true;
  let ledgersComparedAtMs = NEVER_MS;
  let dueSiteDays: SiteUtcDay[] = [];
  const countedAtMs = new Map<string, number>();
  let dayBeingCounted: (SiteUtcDay & { hasChangedMeanwhile: boolean }) | null = null;

  async function loadFinalizedDays(): Promise<void> {
    [finalizedDays, dayChanges, emittedDates] = await Promise.all([
      store.documents<FinalizedDay>(finalizedDaysSet),
      store.documents<StoredDayChange>(changedDaysSet),
      store.documents<StoredCompleteness>(historyCompleteSet),
    ]);
    for (const key of finalizedDays.keys()) {
      const [siteId = "", date = ""] = key.split(" ");
      addSiteDay({ siteId: Number(siteId), day: dateToDay(date) });
    }
    isLoaded = true;
  }

  function addSiteDay({ siteId, day }: SiteUtcDay): void {
    daysBySite.set(siteId, (daysBySite.get(siteId) ?? new Set()).add(day));
  }

  function createSiteEventFields(siteId: number, nowMs: number) {
    const subject = eventSubject("site", null, String(siteId));
    return { source: sourceUri(source), subject, siteId, time: isoUtc(nowMs) };
  }

  async function loadSite(siteId: number): Promise<Site> {
    const storedSite = await store.document<StoredObject<Site>>(documentSet("site", source), String(siteId));
    return storedSite?.value ?? { id: siteId, displayName: String(siteId) };
  }

  /** Collects the days that history replies change, for the transaction that stores the ledgers. */
  function collectDayChanges(nowMs: number) {
    const events: Event<"history-complete">[] = [];
    const movedDayCounts = new Map<string, StoredDayCounts>();
    const newChanges = new Map<string, StoredDayChange>();
    const ledgersBefore = new Map<Series, StoredLedger>();

    async function loadMovedDayCounts({ key }: Series, ledger: StoredLedger): Promise<string> {
      if (ledger.daysMoved !== true) return "";
      const movedDays = movedDayCounts.get(key) ?? (await store.document<StoredDayCounts>(movedDayCountsSet, key));
      return movedDays?.timeZone === ledger.timeZone ? movedDays.days : "";
    }

    /** Moves day counts from a ledger to another document, except those of days that are read again for late data. */
    async function moveCountsOutOfLedger(series: Series, ledger: StoredLedger): Promise<StoredLedger> {
      const rememberedFromDay = utcDay(Date.parse(ledger.rememberedFrom));
      const [oldCountsText, recentCountsText] = splitDayCounts(ledger.days ?? "", rememberedFromDay);
      if (oldCountsText === "") return ledger;
      const allCountsText = mergeCounts(await loadMovedDayCounts(series, ledger), allDayCounts(oldCountsText));
      const [, retainedDays] = splitDayCounts(allCountsText, utcDay(nowMs) - DAY_RETENTION_DAYS);
      movedDayCounts.set(series.key, { timeZone: ledger.timeZone, days: retainedDays });
      return { ...ledger, days: recentCountsText, daysMoved: true };
    }

    async function addEvents(series: Series, ledger: StoredLedger, ranges: readonly DayRange[]): Promise<void> {
      if (ranges.length === 0) return;
      const oldDays = await loadMovedDayCounts(series, ledger);
      for (const dayRange of ranges) {
        const { fromDay, untilDay } = dayRange;
        const ledgerCounts = countsBetween(ledger.days ?? "", fromDay, untilDay);
        const counts = countsBetween(mergeCounts(oldDays, ledgerCounts), fromDay, untilDay);
        const event = buildHistoryCompleteEvent({ ...series, ledger }, source, dayRange, counts, nowMs);
        if (event !== null) events.push(event);
      }
    }

    function markChangedDays(
      siteId: number,
      fetchedTimeRanges: TimeRange[],
      emittedCountsByDay: ReturnType<typeof countEmittedPoints>,
    ) {
      for (const day of daysBySite.get(siteId) ?? []) {
        const isDayFetched = fetchedTimeRanges.some(
          ({ fromMs, toMs }) => fromMs < (day + 1) * DAY_MS && toMs > day * DAY_MS,
        );
        const points = emittedCountsByDay.get(day)?.points ?? 0;
        if (!isDayFetched && points === 0) continue;
        const key = siteDayKey({ siteId, day });
        const oldChange = newChanges.get(key) ?? dayChanges.get(key);
        const isRecent = oldChange !== undefined && nowMs - Date.parse(oldChange.at) < DAY_CHANGE_MERGE_MS;
        newChanges.set(key, { at: isRecent ? oldChange.at : isoUtc(nowMs), points: (oldChange?.points ?? 0) + points });
      }
    }

    return {
      events,
      async countReplyPoints(
        series: Series,
        ledgerBefore: StoredLedger,
        ledgerAfter: StoredLedger,
        emittedPoints: EmittedHistoryPoints,
      ) {
        if (!ledgersBefore.has(series)) ledgersBefore.set(series, series.ledger);
        const emittedByDay = countEmittedPoints(emittedPoints, ledgerAfter);
        const fetchedRangesBefore = fetchedRanges(ledgerBefore.spans);
        const hadNoDayCounts =
          ledgerBefore.days === undefined && ledgerBefore.countedFrom === undefined && fetchedRangesBefore.length > 0;
        const ledger: StoredLedger = {
          ...ledgerAfter,
          days: mergeCounts(ledgerBefore.days ?? "", emittedByDay),
          ...(hadNoDayCounts ? { countedFrom: isoUtc(fetchedRangesBefore.at(-1)?.toMs ?? nowMs) } : {}),
        };
        await addEvents(series, ledger, newCompleteDays(ledgerBefore, ledger));
        const hasNewFetchedRanges = ledgerBefore.spans !== ledger.spans;
        const fetched = hasNewFetchedRanges
          ? fetchedRanges(ledger.spans).flatMap((range) => subtractRanges(range, fetchedRangesBefore))
          : [];
        if (fetched.length > 0 || emittedByDay.size > 0) markChangedDays(series.siteTag.siteId, fetched, emittedByDay);
        return (ledger.days ?? "").length > MAX_LEDGER_COUNTS_LENGTH ? moveCountsOutOfLedger(series, ledger) : ledger;
      },
      documents: (): readonly DocumentChange[] =>
        [
          { set: movedDayCountsSet, put: [...movedDayCounts] },
          { set: changedDaysSet, put: [...newChanges] },
        ].filter(({ put }) => put.length > 0),
      afterCommit(): void {
        for (const [key, dayChange] of newChanges) dayChanges.set(key, dayChange);
        for (const [series, ledgerBefore] of ledgersBefore) recordLedgerChange(ledgerBefore, series);
      },
    };
  }

  function recordLedgerChange(ledgerBefore: StoredLedger, series: Series): void {
    const [gaplessBefore, gaplessNow] = [gaplessDays({ ...series, ledger: ledgerBefore }), gaplessDays(series)];
    haveDaysChanged ||= (Object.keys(gaplessNow) as (keyof GaplessDays)[]).some(
      (name) => gaplessBefore[name] !== gaplessNow[name],
    );
    if (dayBeingCounted?.siteId === series.siteTag.siteId)
      dayBeingCounted.hasChangedMeanwhile ||= ledgerBefore !== series.ledger;
  }

  async function emitSiteHistoryComplete(members: readonly Series[], nowMs: number): Promise<void> {
    const [firstSeries] = members;
    const { from, firstWantedDay, until } = commonDays(members);
    const fromDay = Math.max(from, firstWantedDay);
    if (firstSeries === undefined || !Number.isFinite(until) || !Number.isFinite(fromDay) || fromDay >= until) return;
    const { rules, total } = firstSeries;
    const { resolution, timeZone } = firstSeries.ledger;
    const { siteId } = firstSeries.siteTag;
    const key = `${siteId} ${seriesResolutionKey(firstSeries)}`;
    const lastDates = emittedDates.get(key);
    const dates = { from: from <= firstWantedDay ? null : dayDate(fromDay), until: dayDate(until) };
    const overdueDay = utcDay(closedUntilMs(rules, nowMs - 2 * rules.everyMs));
    const isCompletenessOverdue = until < overdueDay;
    const overdueDate = isCompletenessOverdue ? dayDate(overdueDay) : (lastDates?.heldBack ?? null);
    if (lastDates?.from === dates.from && lastDates.until === dates.until && lastDates.heldBack === overdueDate) return;
    const waitingSeries = isCompletenessOverdue ? listWaitingSeries(members, until, nowMs) : [];
    const data: SiteCompleteFact = {
      site: await loadSite(siteId),
      ...{ resolution, timeZone, total },
      ...dates,
      series: members.length,
      waiting: waitingSeries.slice(0, MAX_LISTED_WAITING_SERIES),
      waitingCount: waitingSeries.length,
    };
    const facts = [resolution, timeZone, total ? 1 : 0, dates.from, dates.until, overdueDate];
    const event = makeEvent({ ...createSiteEventFields(siteId, nowMs), type: "history-complete", data, facts });
    const newCompleteDates: StoredCompleteness = { ...dates, heldBack: overdueDate };
    await store.commit({ documents: [{ set: historyCompleteSet, put: [[key, newCompleteDates]] }], events: [event] });
    emittedDates.set(key, newCompleteDates);
  }

  function listWaitingSeries(members: readonly Series[], untilDay: number, nowMs: number): readonly WaitingSeries[] {
    return members
      .filter((series) => gaplessDays(series).until <= untilDay)
      .map((series) => {
        const { id, displayName } = series.siteTag.tag;
        const { why, refusal } = countSeriesDay(series, untilDay, undefined, nowMs);
        const { said, at } = refusal ?? { said: null, at: null };
        return { tagId: id, displayName, why: why ?? "refused", said, at };
      });
  }

  function findDueDays(siteId: number, series: readonly Series[], nowMs: number): readonly SiteUtcDay[] {
    const { firstWantedDay, finalizableFrom, finalizableUntil } = commonDays(series);
    const lookBackMs = Math.max(...series.map(({ rules }) => rules.lookBackMs));
    const firstDueDay = Math.max(firstWantedDay, finalizableFrom, utcDay(nowMs) - DAY_RETENTION_DAYS);
    const endDay = Math.min(finalizableUntil, utcDay(nowMs - lookBackMs));
    if (!Number.isFinite(firstDueDay)) return [];
    const foundDueDays: SiteUtcDay[] = [];
    for (let day = firstDueDay; day < endDay; day++) {
      const key = siteDayKey({ siteId, day });
      const dayChange = dayChanges.get(key);
      const isDayChangeSettled = dayChange !== undefined && nowMs - Date.parse(dayChange.at) >= DAY_CHANGE_SETTLING_MS;
      const wasRecentlyCounted = clock.monotonic() - (countedAtMs.get(key) ?? NEVER_MS) < MAX_COMPARISON_GAP_MS;
      if ((!finalizedDays.has(key) || isDayChangeSettled) && !wasRecentlyCounted) foundDueDays.push({ siteId, day });
    }
    return foundDueDays;
  }

  async function countBucketsOfSiteDay({ siteId, day }: SiteUtcDay, nowMs: number): Promise<SiteDayCounts> {
    const siteDayCounter = createDayCounter(day);
    let countedSeries = 0;
    for (const series of options.series()) {
      if (series.siteTag.siteId !== siteId) continue;
      const { ledger, key } = series;
      const dayCount =
        ledger.daysMoved === true
          ? await getDayCount(store, source, key, ledger, day)
          : countOfDay(ledger.days ?? "", day);
      siteDayCounter.add(series, dayCount, nowMs);
      if (++countedSeries % SERIES_COUNTED_PER_YIELD === 0) await yieldToEventLoop();
    }
    return siteDayCounter.buildCounts();
  }

  async function finalizeDay(siteUtcDay: SiteUtcDay): Promise<number> {
    const { siteId, day } = siteUtcDay;
    const nowMs = clock.now();
    const key = siteDayKey(siteUtcDay);
    const countedSiteDay = { siteId, day, hasChangedMeanwhile: false };
    dayBeingCounted = countedSiteDay;
    try {
      const siteDay = await countBucketsOfSiteDay(siteUtcDay, nowMs);
      const { account, series } = siteDay;
      if (countedSiteDay.hasChangedMeanwhile || account.pending > 0) {
        if (account.pending > 0) countedAtMs.set(key, clock.monotonic());
        haveDaysChanged = true;
        return series;
      }
      countedAtMs.delete(key);
      const dayRevision = (finalizedDays.get(key)?.revision ?? 0) + 1;
      const finalizedDay: FinalizedDay = { revision: dayRevision, sealedAt: isoUtc(nowMs), series, account };
      const data = daySealedFact(await loadSite(siteId), day, siteDay, dayRevision, dayChanges.get(key)?.points ?? 0);
      const facts = [data.date, dayRevision];
      const event = makeEvent({ ...createSiteEventFields(siteId, nowMs), type: "day-sealed", data, facts });
      await store.commit({
        documents: [
          { set: finalizedDaysSet, put: [[key, finalizedDay]], remove: forgetOldFinalizedDays(siteId, nowMs) },
          { set: changedDaysSet, remove: [key] },
        ],
        // Emit nothing for a day on which no bucket begins, such as six days a week of weekly series.
        events: account.expected === 0 ? [] : [event],
      });
      finalizedDays.set(key, finalizedDay);
      dayChanges.delete(key);
      // A reply changed the day between the count and the commit.
      if (countedSiteDay.hasChangedMeanwhile) {
        const dayChange: StoredDayChange = { at: isoUtc(clock.now()), points: 0 };
        await store.commit({ documents: [{ set: changedDaysSet, put: [[key, dayChange]] }] });
        dayChanges.set(key, dayChange);
      }
      return series;
    } finally {
      dayBeingCounted = null;
      if (!finalizedDays.has(key)) daysBySite.get(siteId)?.delete(day);
    }
  }

  function forgetOldFinalizedDays(siteId: number, nowMs: number): readonly string[] {
    const expiredDays = [...(daysBySite.get(siteId) ?? [])].filter((day) => day < utcDay(nowMs) - DAY_RETENTION_DAYS);
    const forgottenDayKeys = expiredDays.map((day) => siteDayKey({ siteId, day }));
    for (const day of expiredDays) daysBySite.get(siteId)?.delete(day);
    for (const key of forgottenDayKeys) finalizedDays.delete(key);
    return forgottenDayKeys;
  }

  async function refreshFinalizedDays(): Promise<void> {
    if (!isLoaded) await loadFinalizedDays();
    let countedSeries = 0;
    for (let dueSiteDay = dueSiteDays.shift(); dueSiteDay !== undefined; dueSiteDay = dueSiteDays.shift()) {
      countedSeries += await finalizeDay(dueSiteDay);
      if (countedSeries >= SERIES_COUNTED_PER_REFRESH) return;
    }
    const elapsedMs = clock.monotonic() - ledgersComparedAtMs;
    if (elapsedMs < MIN_COMPARISON_GAP_MS || (!haveDaysChanged && elapsedMs < MAX_COMPARISON_GAP_MS)) return;
    haveDaysChanged = false;
    ledgersComparedAtMs = clock.monotonic();
    const nowMs = clock.now();
    const seriesBySite = [...Map.groupBy(options.series(), ({ siteTag }) => siteTag.siteId)].filter(([siteId]) =>
      options.knowsTagsOf(siteId),
    );
    for (const [, series] of seriesBySite)
      for (const seriesOfGroup of Map.groupBy(series, seriesResolutionKey).values())
        await emitSiteHistoryComplete(seriesOfGroup, nowMs);
    dueSiteDays = seriesBySite.flatMap(([siteId, series]) => findDueDays(siteId, series, nowMs));
    for (const dueDay of dueSiteDays) addSiteDay(dueDay);
  }

  return { collectDayChanges, refreshIfStale: refreshFinalizedDays };
}

const commonDays = (series: readonly Series[]): GaplessDays => series.map(gaplessDays).reduce(intersectGaplessDays);
const siteDayKey = ({ siteId, day }: SiteUtcDay): string => `${siteId} ${dayDate(day)}`;

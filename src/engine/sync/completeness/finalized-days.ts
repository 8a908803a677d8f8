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
import type { Series } from "../history/series.ts";
import {
  type FinalizedDay,
  type StoredCompleteness,
  type StoredDayChange,
  type StoredDays,
  type StoredHistory,
  type StoredItem,
  syncSet,
} from "../snapshot.ts";
import {
  buildCompleteEvent,
  buildDayFact,
  countSeriesDay,
  createSiteDay,
  groupKey,
  type SiteDay,
} from "./bucket-counts-of-day.ts";
import {
  addCounts,
  allCounts,
  completedDays,
  countEmitted,
  countOn,
  countsBetween,
  DAY_RETENTION_DAYS,
  type DayRange,
  type DayReach,
  dateToDay,
  dayDate,
  dayReach,
  type EmittedCounts,
  intersectReach,
  loadCount,
  splitCounts,
  utcDay,
} from "./complete-days.ts";

export type FinalizedDays = ReturnType<typeof createFinalizedDays>;

export type DayChangeNotes = ReturnType<FinalizedDays["notes"]>;

interface SiteDate {
  readonly siteId: number;
  readonly day: number;
}

interface SeriesGroup {
  readonly members: readonly Series[];
  readonly reach: DayReach;
}

/** Longest counts inside a ledger, in characters. Longer counts move out, because each reply writes the ledger. */
const MAX_INLINE_COUNTS_LENGTH = 600;
const CHANGE_MERGE_MS = 300_000;
/** Pause between the last change of a finalized day and its next revision, in milliseconds. */
const CHANGE_SETTLING_MS = 3_600_000;
/** Shortest time between two comparisons of ledgers: around midnight thousands of ledgers reach the next day. */
const MIN_COMPARE_INTERVAL_MS = 10_000;
/** Longest time between two comparisons of ledgers, because refusals and overdue days depend on the clock. */
const MAX_COMPARE_INTERVAL_MS = 600_000;
const SERIES_PER_YIELD = 500;
const SERIES_PER_LOOK = 5_000;
const MAX_NAMED_WAITING = 20;
const NEVER_MS = Number.NEGATIVE_INFINITY;

/**
 * Reports which UTC days of a site are complete. `history-complete` states up to which day the history has no gap, of a
 * series and of a site. A day is finalized when none of its buckets is pending and late data have been looked for: then
 * `day-sealed` carries the account of the day. Later changes lead to its next revision, once for all of an hour.
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
  const completeSet = syncSet("history-complete", source);
  const finalizedSet = syncSet("day-sealed", source);
  const changedSet = syncSet("day-changed", source);
  const countsSet = syncSet("history-days", source);
  const daysBySite = new Map<number, Set<number>>();
  let finalized = new Map<string, FinalizedDay>();
  let changes = new Map<string, StoredDayChange>();
  let emittedDates = new Map<string, StoredCompleteness>();
  let isLoaded = false;
  let hasMoved = true;
  let comparedAtMs = NEVER_MS;
  let dueDates: SiteDate[] = [];
  const attemptedAtMs = new Map<string, number>();
  let counting: (SiteDate & { isDisturbed: boolean }) | null = null;

  async function load(): Promise<void> {
    [finalized, changes, emittedDates] = await Promise.all([
      store.documents<FinalizedDay>(finalizedSet),
      store.documents<StoredDayChange>(changedSet),
      store.documents<StoredCompleteness>(completeSet),
    ]);
    for (const key of finalized.keys()) {
      const [siteId = "", date = ""] = key.split(" ");
      addDay({ siteId: Number(siteId), day: dateToDay(date) });
    }
    isLoaded = true;
  }

  function addDay({ siteId, day }: SiteDate): void {
    daysBySite.set(siteId, (daysBySite.get(siteId) ?? new Set()).add(day));
  }

  function createSiteSubject(siteId: number, nowMs: number) {
    const subject = eventSubject("site", null, String(siteId));
    return { source: sourceUri(source), subject, siteId, time: isoUtc(nowMs) };
  }

  async function loadSite(siteId: number): Promise<Site> {
    const storedSite = await store.document<StoredItem<Site>>(documentSet("site", source), String(siteId));
    return storedSite?.value ?? { id: siteId, displayName: String(siteId) };
  }

  /** Collects effects of settled replies on UTC days, for the transaction that changes the ledgers. */
  function collectChanges(nowMs: number) {
    const events: Event<"history-complete">[] = [];
    const movedCounts = new Map<string, StoredDays>();
    const changeMarks = new Map<string, StoredDayChange>();
    const ledgersBefore = new Map<Series, StoredHistory>();

    async function olderCounts({ key }: Series, ledger: StoredHistory): Promise<string> {
      if (ledger.daysMoved !== true) return "";
      const movedDays = movedCounts.get(key) ?? (await store.document<StoredDays>(countsSet, key));
      return movedDays?.timeZone === ledger.timeZone ? movedDays.days : "";
    }

    /** Moves counts out of a ledger, except those of days that are read again for late data. */
    async function moveCountsOut(series: Series, ledger: StoredHistory): Promise<StoredHistory> {
      const [old, left] = splitCounts(ledger.days ?? "", utcDay(Date.parse(ledger.rememberedFrom)));
      if (old === "") return ledger;
      const all = addCounts(await olderCounts(series, ledger), allCounts(old));
      const [, retained] = splitCounts(all, utcDay(nowMs) - DAY_RETENTION_DAYS);
      movedCounts.set(series.key, { timeZone: ledger.timeZone, days: retained });
      return { ...ledger, days: left, daysMoved: true };
    }

    async function emitComplete(series: Series, ledger: StoredHistory, ranges: readonly DayRange[]): Promise<void> {
      if (ranges.length === 0) return;
      const oldDays = await olderCounts(series, ledger);
      for (const dayRange of ranges) {
        const { from, until } = dayRange;
        const counts = countsBetween(addCounts(oldDays, countsBetween(ledger.days ?? "", from, until)), from, until);
        const event = buildCompleteEvent({ ...series, ledger }, source, dayRange, counts, nowMs);
        if (event !== null) events.push(event);
      }
    }

    function markDays(siteId: number, fetched: TimeRange[], emitted: ReadonlyMap<number, { readonly points: number }>) {
      for (const day of daysBySite.get(siteId) ?? []) {
        const isFetched = fetched.some(({ fromMs, toMs }) => fromMs < (day + 1) * DAY_MS && toMs > day * DAY_MS);
        const points = emitted.get(day)?.points ?? 0;
        if (!isFetched && points === 0) continue;
        const key = dayKey({ siteId, day });
        const lastMark = changeMarks.get(key) ?? changes.get(key);
        const isSame = lastMark !== undefined && nowMs - Date.parse(lastMark.at) < CHANGE_MERGE_MS;
        changeMarks.set(key, { at: isSame ? lastMark.at : isoUtc(nowMs), points: (lastMark?.points ?? 0) + points });
      }
    }

    return {
      events,
      async count(series: Series, before: StoredHistory, after: StoredHistory, emitted: EmittedCounts) {
        if (!ledgersBefore.has(series)) ledgersBefore.set(series, series.ledger);
        const points = countEmitted(emitted, after);
        const fetchedBefore = fetchedRanges(before.spans);
        const hadNoDayCounts =
          before.days === undefined && before.countedFrom === undefined && fetchedBefore.length > 0;
        const ledger: StoredHistory = {
          ...after,
          days: addCounts(before.days ?? "", points),
          ...(hadNoDayCounts ? { countedFrom: isoUtc(fetchedBefore.at(-1)?.toMs ?? nowMs) } : {}),
        };
        await emitComplete(series, ledger, completedDays(before, ledger));
        const isFetchedMore = before.spans !== ledger.spans;
        const fetched = isFetchedMore
          ? fetchedRanges(ledger.spans).flatMap((range) => subtractRanges(range, fetchedBefore))
          : [];
        if (fetched.length > 0 || points.size > 0) markDays(series.located.siteId, fetched, points);
        return (ledger.days ?? "").length > MAX_INLINE_COUNTS_LENGTH ? moveCountsOut(series, ledger) : ledger;
      },
      documents: (): readonly DocumentChange[] =>
        [
          { set: countsSet, put: [...movedCounts] },
          { set: changedSet, put: [...changeMarks] },
        ].filter(({ put }) => put.length > 0),
      committed(): void {
        for (const [key, mark] of changeMarks) changes.set(key, mark);
        for (const [series, before] of ledgersBefore) noteMove(before, series);
      },
    };
  }

  function noteMove(before: StoredHistory, series: Series): void {
    const [old, now] = [dayReach({ ...series, ledger: before }), dayReach(series)];
    hasMoved ||= (Object.keys(now) as (keyof DayReach)[]).some((name) => old[name] !== now[name]);
    if (counting?.siteId === series.located.siteId) counting.isDisturbed ||= before !== series.ledger;
  }

  async function emitSiteComplete({ members, reach }: SeriesGroup, nowMs: number): Promise<void> {
    const [first] = members;
    const from = Math.max(reach.from, reach.begin);
    if (first === undefined || !Number.isFinite(reach.until) || !Number.isFinite(from) || from >= reach.until) return;
    const { rules, total } = first;
    const { resolution, timeZone } = first.ledger;
    const { siteId } = first.located;
    const key = `${siteId} ${groupKey(first)}`;
    const lastDates = emittedDates.get(key);
    const dates = { from: reach.from <= reach.begin ? null : dayDate(from), until: dayDate(reach.until) };
    const overdueDay = utcDay(closedUntilMs(rules, nowMs - 2 * rules.everyMs));
    const isHeldBack = reach.until < overdueDay;
    const overdueDate = isHeldBack ? dayDate(overdueDay) : (lastDates?.heldBack ?? null);
    if (lastDates?.from === dates.from && lastDates.until === dates.until && lastDates.heldBack === overdueDate) return;
    const waitingSeries = isHeldBack ? listWaitingSeries(members, reach.until, nowMs) : [];
    const data: SiteCompleteFact = {
      site: await loadSite(siteId),
      ...{ resolution, timeZone, total },
      ...dates,
      series: members.length,
      waiting: waitingSeries.slice(0, MAX_NAMED_WAITING),
      waitingCount: waitingSeries.length,
    };
    const facts = [resolution, timeZone, total ? 1 : 0, dates.from, dates.until, overdueDate];
    const event = makeEvent({ ...createSiteSubject(siteId, nowMs), type: "history-complete", data, facts });
    const newDates: StoredCompleteness = { ...dates, heldBack: overdueDate };
    await store.commit({ documents: [{ set: completeSet, put: [[key, newDates]] }], events: [event] });
    emittedDates.set(key, newDates);
  }

  function listWaitingSeries(members: readonly Series[], until: number, nowMs: number): readonly WaitingSeries[] {
    return members
      .filter((series) => dayReach(series).until <= until)
      .map((series) => {
        const { id, displayName } = series.located.tag;
        const { why, refusal } = countSeriesDay(series, until, undefined, nowMs);
        const { said, at } = refusal ?? { said: null, at: null };
        return { tagId: id, displayName, why: why ?? "refused", said, at };
      });
  }

  function dueDays(siteId: number, series: readonly Series[], nowMs: number): readonly SiteDate[] {
    const reach = combineReaches(series);
    const lookBackMs = Math.max(...series.map(({ rules }) => rules.lookBackMs));
    const firstDay = Math.max(reach.begin, reach.sealFrom, utcDay(nowMs) - DAY_RETENTION_DAYS);
    const end = Math.min(reach.sealUntil, utcDay(nowMs - lookBackMs));
    if (!Number.isFinite(firstDay)) return [];
    const foundDates: SiteDate[] = [];
    for (let day = firstDay; day < end; day++) {
      const key = dayKey({ siteId, day });
      const dayChange = changes.get(key);
      const isSettled = dayChange !== undefined && nowMs - Date.parse(dayChange.at) >= CHANGE_SETTLING_MS;
      const wasRecentlyAttempted = clock.monotonic() - (attemptedAtMs.get(key) ?? NEVER_MS) < MAX_COMPARE_INTERVAL_MS;
      if ((!finalized.has(key) || isSettled) && !wasRecentlyAttempted) foundDates.push({ siteId, day });
    }
    return foundDates;
  }

  async function accountDay({ siteId, day }: SiteDate, nowMs: number): Promise<SiteDay> {
    const siteDay = createSiteDay(day);
    let counted = 0;
    for (const series of options.series()) {
      if (series.located.siteId !== siteId) continue;
      const { ledger, key } = series;
      const count =
        ledger.daysMoved === true ? await loadCount(store, source, key, ledger, day) : countOn(ledger.days ?? "", day);
      siteDay.add(series, count, nowMs);
      if (++counted % SERIES_PER_YIELD === 0) await yieldToEventLoop();
    }
    return siteDay.done();
  }

  async function finalize(date: SiteDate): Promise<number> {
    const { siteId, day } = date;
    const nowMs = clock.now();
    const key = dayKey(date);
    const countedDate = { siteId, day, isDisturbed: false };
    counting = countedDate;
    try {
      const siteDay = await accountDay(date, nowMs);
      const { account, series } = siteDay;
      if (countedDate.isDisturbed || account.pending > 0) {
        if (account.pending > 0) attemptedAtMs.set(key, clock.monotonic());
        hasMoved = true;
        return series;
      }
      attemptedAtMs.delete(key);
      const revision = (finalized.get(key)?.revision ?? 0) + 1;
      const finalizedDay: FinalizedDay = { revision, sealedAt: isoUtc(nowMs), series, account };
      const data = buildDayFact(await loadSite(siteId), day, siteDay, revision, changes.get(key)?.points ?? 0);
      const facts = [data.date, revision];
      const event = makeEvent({ ...createSiteSubject(siteId, nowMs), type: "day-sealed", data, facts });
      await store.commit({
        documents: [
          { set: finalizedSet, put: [[key, finalizedDay]], remove: forgetOldDays(siteId, nowMs) },
          { set: changedSet, remove: [key] },
        ],
        // With weekly series only, no bucket begins on six of seven days.
        events: account.expected === 0 ? [] : [event],
      });
      finalized.set(key, finalizedDay);
      changes.delete(key);
      // A reply changed the day between the count and the commit.
      if (countedDate.isDisturbed) await markChanged(key);
      return series;
    } finally {
      counting = null;
      if (!finalized.has(key)) daysBySite.get(siteId)?.delete(day);
    }
  }

  async function markChanged(key: string): Promise<void> {
    const dayChange: StoredDayChange = { at: isoUtc(clock.now()), points: 0 };
    await store.commit({ documents: [{ set: changedSet, put: [[key, dayChange]] }] });
    changes.set(key, dayChange);
  }

  function forgetOldDays(siteId: number, nowMs: number): readonly string[] {
    const old = [...(daysBySite.get(siteId) ?? [])].filter((day) => day < utcDay(nowMs) - DAY_RETENTION_DAYS);
    const keys = old.map((day) => dayKey({ siteId, day }));
    for (const day of old) daysBySite.get(siteId)?.delete(day);
    for (const key of keys) finalized.delete(key);
    return keys;
  }

  async function refreshIfStale(): Promise<void> {
    if (!isLoaded) await load();
    let counted = 0;
    for (let dueDate = dueDates.shift(); dueDate !== undefined; dueDate = dueDates.shift()) {
      counted += await finalize(dueDate);
      if (counted >= SERIES_PER_LOOK) return;
    }
    const passedMs = clock.monotonic() - comparedAtMs;
    if (passedMs < MIN_COMPARE_INTERVAL_MS || (!hasMoved && passedMs < MAX_COMPARE_INTERVAL_MS)) return;
    hasMoved = false;
    comparedAtMs = clock.monotonic();
    const nowMs = clock.now();
    const sites = [...Map.groupBy(options.series(), ({ located }) => located.siteId)].filter(([siteId]) =>
      options.knowsTagsOf(siteId),
    );
    for (const [, series] of sites)
      for (const members of Map.groupBy(series, groupKey).values())
        await emitSiteComplete({ members, reach: combineReaches(members) }, nowMs);
    // The next look finalizes the due days. Until then, replies mark changes of these days.
    dueDates = sites.flatMap(([siteId, series]) => dueDays(siteId, series, nowMs));
    for (const date of dueDates) addDay(date);
  }

  return { notes: collectChanges, refreshIfStale };
}

const combineReaches = (series: readonly Series[]): DayReach => series.map(dayReach).reduce(intersectReach);
const dayKey = ({ siteId, day }: SiteDate): string => `${siteId} ${dayDate(day)}`;

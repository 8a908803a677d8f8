import type { Site } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { SiteCompleteFact, WaitingSeries } from "../../../core/model/history-facts.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import { DAY_MS, type Range, subtract } from "../history/buckets.ts";
import { closedUntilMs } from "../history/ledger.ts";
import { fetchedRanges } from "../history/ledger-ranges.ts";
import type { Series } from "../history/series.ts";
import {
  type FinalizedDay,
  type Listed,
  type StoredCompleteness,
  type StoredDayChange,
  type StoredDays,
  type StoredHistory,
  syncSet,
} from "../snapshot.ts";
import { buildCompleteEvent, buildDayFact, countSeriesDay, createSiteDay, groupKey, type SiteDay } from "./account.ts";
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
  type EmittedCounts,
  getReach,
  intersectReach,
  loadCount,
  splitCounts,
  utcDay,
} from "./days.ts";

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
  const days = new Map<number, Set<number>>();
  let finalized = new Map<string, FinalizedDay>();
  let changes = new Map<string, StoredDayChange>();
  let complete = new Map<string, StoredCompleteness>();
  let isLoaded = false;
  let hasMoved = true;
  let comparedAtMs = NEVER_MS;
  let due: SiteDate[] = [];
  const attempts = new Map<string, number>();
  let counting: (SiteDate & { isDisturbed: boolean }) | null = null;

  async function load(): Promise<void> {
    [finalized, changes, complete] = await Promise.all([
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
    days.set(siteId, (days.get(siteId) ?? new Set()).add(day));
  }

  function aboutSite(siteId: number, nowMs: number) {
    const subject = eventSubject("site", null, String(siteId));
    return { source: sourceUri(source), subject, siteId, time: isoUtc(nowMs) };
  }

  async function siteOf(siteId: number): Promise<Site> {
    const stored = await store.document<Listed<Site>>(documentSet("site", source), String(siteId));
    return stored?.value ?? { id: siteId, displayName: String(siteId) };
  }

  /** Collects effects of settled replies on UTC days, for the transaction that changes the ledgers. */
  function notes(nowMs: number) {
    const events: Event<"history-complete">[] = [];
    const moved = new Map<string, StoredDays>();
    const marks = new Map<string, StoredDayChange>();
    const ledgersBefore = new Map<Series, StoredHistory>();

    async function olderCounts({ key }: Series, ledger: StoredHistory): Promise<string> {
      if (ledger.daysMoved !== true) return "";
      const older = moved.get(key) ?? (await store.document<StoredDays>(countsSet, key));
      return older?.timeZone === ledger.timeZone ? older.days : "";
    }

    /** Moves counts out of a ledger, except those of days that are read again for late data. */
    async function moveOut(series: Series, ledger: StoredHistory): Promise<StoredHistory> {
      const [old, left] = splitCounts(ledger.days ?? "", utcDay(Date.parse(ledger.rememberedFrom)));
      if (old === "") return ledger;
      const all = addCounts(await olderCounts(series, ledger), allCounts(old));
      const [, retained] = splitCounts(all, utcDay(nowMs) - DAY_RETENTION_DAYS);
      moved.set(series.key, { timeZone: ledger.timeZone, days: retained });
      return { ...ledger, days: left, daysMoved: true };
    }

    async function emitComplete(series: Series, ledger: StoredHistory, ranges: readonly DayRange[]): Promise<void> {
      if (ranges.length === 0) return;
      const older = await olderCounts(series, ledger);
      for (const range of ranges) {
        const { from, until } = range;
        const counts = countsBetween(addCounts(older, countsBetween(ledger.days ?? "", from, until)), from, until);
        const event = buildCompleteEvent({ ...series, ledger }, source, range, counts, nowMs);
        if (event !== null) events.push(event);
      }
    }

    function markDays(siteId: number, fetched: Range[], emitted: ReadonlyMap<number, { readonly points: number }>) {
      for (const day of days.get(siteId) ?? []) {
        const isFetched = fetched.some(({ fromMs, toMs }) => fromMs < (day + 1) * DAY_MS && toMs > day * DAY_MS);
        const points = emitted.get(day)?.points;
        if (!isFetched && points === undefined) continue;
        const key = dayKey({ siteId, day });
        const before = marks.get(key) ?? changes.get(key);
        const isSame = before !== undefined && nowMs - Date.parse(before.at) < CHANGE_MERGE_MS;
        marks.set(key, { at: isSame ? before.at : isoUtc(nowMs), points: (before?.points ?? 0) + (points ?? 0) });
      }
    }

    return {
      events,
      async count(series: Series, before: StoredHistory, after: StoredHistory, emitted: EmittedCounts) {
        if (!ledgersBefore.has(series)) ledgersBefore.set(series, series.ledger);
        const points = countEmitted(emitted, after);
        const fetchedBefore = fetchedRanges(before.spans);
        const wasUncounted = before.days === undefined && before.countedFrom === undefined && fetchedBefore.length > 0;
        const ledger: StoredHistory = {
          ...after,
          days: addCounts(before.days ?? "", points),
          ...(wasUncounted ? { countedFrom: isoUtc(fetchedBefore.at(-1)?.toMs ?? nowMs) } : {}),
        };
        await emitComplete(series, ledger, completedDays(before, ledger));
        const isFetchedMore = before.spans !== ledger.spans;
        const fetched = isFetchedMore
          ? fetchedRanges(ledger.spans).flatMap((range) => subtract(range, fetchedBefore))
          : [];
        if (fetched.length > 0 || points.size > 0) markDays(series.located.siteId, fetched, points);
        return (ledger.days ?? "").length > MAX_INLINE_COUNTS_LENGTH ? moveOut(series, ledger) : ledger;
      },
      documents: (): readonly DocumentChange[] =>
        [
          { set: countsSet, put: [...moved] },
          { set: changedSet, put: [...marks] },
        ].filter(({ put }) => put.length > 0),
      committed(): void {
        for (const [key, mark] of marks) changes.set(key, mark);
        for (const [series, before] of ledgersBefore) noteMove(before, series);
      },
    };
  }

  function noteMove(before: StoredHistory, series: Series): void {
    const [old, now] = [getReach({ ...series, ledger: before }), getReach(series)];
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
    const before = complete.get(key);
    const dates = { from: reach.from <= reach.begin ? null : dayDate(from), until: dayDate(reach.until) };
    // Buckets that closed two fetch intervals ago are overdue.
    const overdue = utcDay(closedUntilMs(rules, nowMs - 2 * rules.everyMs));
    const isHeldBack = reach.until < overdue;
    const heldBack = isHeldBack ? dayDate(overdue) : (before?.heldBack ?? null);
    if (before?.from === dates.from && before.until === dates.until && before.heldBack === heldBack) return;
    const waiting = isHeldBack ? waitingFor(members, reach.until, nowMs) : [];
    const data: SiteCompleteFact = {
      site: await siteOf(siteId),
      ...{ resolution, timeZone, total },
      ...dates,
      series: members.length,
      waiting: waiting.slice(0, MAX_NAMED_WAITING),
      waitingCount: waiting.length,
    };
    const facts = [resolution, timeZone, total ? 1 : 0, dates.from, dates.until, heldBack];
    const event = makeEvent({ ...aboutSite(siteId, nowMs), type: "history-complete", data, facts });
    const emitted: StoredCompleteness = { ...dates, heldBack };
    await store.commit({ documents: [{ set: completeSet, put: [[key, emitted]] }], events: [event] });
    complete.set(key, emitted);
  }

  function waitingFor(members: readonly Series[], until: number, nowMs: number): readonly WaitingSeries[] {
    return members
      .filter((series) => getReach(series).until <= until)
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
    const first = Math.max(reach.begin, reach.sealFrom, utcDay(nowMs) - DAY_RETENTION_DAYS);
    const end = Math.min(reach.sealUntil, utcDay(nowMs - lookBackMs));
    if (!Number.isFinite(first)) return [];
    const found: SiteDate[] = [];
    for (let day = first; day < end; day++) {
      const key = dayKey({ siteId, day });
      const change = changes.get(key);
      const isSettled = change !== undefined && nowMs - Date.parse(change.at) >= CHANGE_SETTLING_MS;
      const wasTried = clock.monotonic() - (attempts.get(key) ?? NEVER_MS) < MAX_COMPARE_INTERVAL_MS;
      if ((!finalized.has(key) || isSettled) && !wasTried) found.push({ siteId, day });
    }
    return found;
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
    const watched = { siteId, day, isDisturbed: false };
    counting = watched;
    try {
      const siteDay = await accountDay(date, nowMs);
      const { account, series } = siteDay;
      if (watched.isDisturbed || account.pending > 0) {
        if (account.pending > 0) attempts.set(key, clock.monotonic());
        hasMoved = true;
        return series;
      }
      attempts.delete(key);
      const revision = (finalized.get(key)?.revision ?? 0) + 1;
      const stored: FinalizedDay = { revision, sealedAt: isoUtc(nowMs), series, account };
      const data = buildDayFact(await siteOf(siteId), day, siteDay, revision, changes.get(key)?.points ?? 0);
      const facts = [data.date, revision];
      const event = makeEvent({ ...aboutSite(siteId, nowMs), type: "day-sealed", data, facts });
      await store.commit({
        documents: [
          { set: finalizedSet, put: [[key, stored]], remove: forgetOldDays(siteId, nowMs) },
          { set: changedSet, remove: [key] },
        ],
        // With weekly series only, no bucket begins on six of seven days.
        events: account.expected === 0 ? [] : [event],
      });
      finalized.set(key, stored);
      changes.delete(key);
      // A reply changed the day between the count and the commit.
      if (watched.isDisturbed) await markChanged(key);
      return series;
    } finally {
      counting = null;
      if (!finalized.has(key)) days.get(siteId)?.delete(day);
    }
  }

  async function markChanged(key: string): Promise<void> {
    const change: StoredDayChange = { at: isoUtc(clock.now()), points: 0 };
    await store.commit({ documents: [{ set: changedSet, put: [[key, change]] }] });
    changes.set(key, change);
  }

  function forgetOldDays(siteId: number, nowMs: number): readonly string[] {
    const old = [...(days.get(siteId) ?? [])].filter((day) => day < utcDay(nowMs) - DAY_RETENTION_DAYS);
    const keys = old.map((day) => dayKey({ siteId, day }));
    for (const day of old) days.get(siteId)?.delete(day);
    for (const key of keys) finalized.delete(key);
    return keys;
  }

  /** Emits due events. Compares ledgers only after a ledger has reached another day. */
  async function look(): Promise<void> {
    if (!isLoaded) await load();
    let counted = 0;
    for (let next = due.shift(); next !== undefined; next = due.shift()) {
      counted += await finalize(next);
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
    due = sites.flatMap(([siteId, series]) => dueDays(siteId, series, nowMs));
    for (const date of due) addDay(date);
  }

  return { notes, refreshIfStale: look };
}

function combineReaches(series: readonly Series[]): DayReach {
  return series.map(getReach).reduce(intersectReach);
}

function dayKey({ siteId, day }: SiteDate): string {
  return `${siteId} ${dayDate(day)}`;
}

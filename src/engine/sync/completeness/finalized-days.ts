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
import { accountOf, createSiteDay, dayFinalized, groupName, type SiteDay, seriesCompleteEvent } from "./account.ts";
import {
  addCounts,
  allCounts,
  commonReach,
  countEmitted,
  countFor,
  countOn,
  countsIn,
  type Days,
  dateOf,
  dayOf,
  dayOfDate,
  type EmittedCounts,
  newlyComplete,
  RETAINED_DAYS,
  type Reach,
  reachOf,
  splitCounts,
} from "./days.ts";

export type FinalizedDays = ReturnType<typeof createFinalizedDays>;

export type DayNotes = ReturnType<FinalizedDays["notes"]>;

interface SiteDate {
  readonly siteId: number;
  readonly day: number;
}

interface Group {
  readonly members: readonly Series[];
  readonly reach: Reach;
}

/** Longest counts inside a ledger, in characters: a ledger is written with each reply, so longer counts move out. */
const INLINE_COUNTS_MAX = 600;
const SAME_CHANGE_MS = 300_000;
/** Pause between the last change of a finalized day and its next revision, in milliseconds. */
const SETTLING_MS = 3_600_000;
/** Shortest time between two comparisons: around midnight thousands of ledgers reach the next day. */
const SHORTEST_COMPARE_MS = 10_000;
/** Longest time between two comparisons, because refusals and overdue days depend on the clock. */
const LONGEST_COMPARE_MS = 600_000;
const SERIES_PER_SLICE = 500;
/** Series per look; a year of backfill is finalized in many looks. */
const COUNTED_PER_LOOK = 5_000;
const WAITING_MAX = 20;
const LONG_AGO = Number.NEGATIVE_INFINITY;

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
  let comparedAtMs = LONG_AGO;
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
      addDay({ siteId: Number(siteId), day: dayOfDate(date) });
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

  /** Effects of settled replies on the UTC days of their series; part of the transaction that changes the ledgers. */
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
      const [old, left] = splitCounts(ledger.days ?? "", dayOf(Date.parse(ledger.rememberedFrom)));
      if (old === "") return ledger;
      const all = addCounts(await olderCounts(series, ledger), allCounts(old));
      const [, retained] = splitCounts(all, dayOf(nowMs) - RETAINED_DAYS);
      moved.set(series.key, { timeZone: ledger.timeZone, days: retained });
      return { ...ledger, days: left, daysMoved: true };
    }

    async function emitComplete(series: Series, ledger: StoredHistory, ranges: readonly Days[]): Promise<void> {
      if (ranges.length === 0) return;
      const older = await olderCounts(series, ledger);
      for (const range of ranges) {
        const { from, until } = range;
        const counts = countsIn(addCounts(older, countsIn(ledger.days ?? "", from, until)), from, until);
        const event = seriesCompleteEvent({ ...series, ledger }, source, range, counts, nowMs);
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
        const isSame = before !== undefined && nowMs - Date.parse(before.at) < SAME_CHANGE_MS;
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
        await emitComplete(series, ledger, newlyComplete(before, ledger));
        const isFetchedMore = before.spans !== ledger.spans;
        const fetched = isFetchedMore
          ? fetchedRanges(ledger.spans).flatMap((range) => subtract(range, fetchedBefore))
          : [];
        if (fetched.length > 0 || points.size > 0) markDays(series.located.siteId, fetched, points);
        return (ledger.days ?? "").length > INLINE_COUNTS_MAX ? moveOut(series, ledger) : ledger;
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
    const [old, now] = [reachOf({ ...series, ledger: before }), reachOf(series)];
    hasMoved ||= (Object.keys(now) as (keyof Reach)[]).some((name) => old[name] !== now[name]);
    if (counting?.siteId === series.located.siteId) counting.isDisturbed ||= before !== series.ledger;
  }

  async function emitSiteComplete({ members, reach }: Group, nowMs: number): Promise<void> {
    const [first] = members;
    const from = Math.max(reach.from, reach.begin);
    if (first === undefined || !Number.isFinite(reach.until) || !Number.isFinite(from) || from >= reach.until) return;
    const { rules, total } = first;
    const { resolution, timeZone } = first.ledger;
    const { siteId } = first.located;
    const key = `${siteId} ${groupName(first)}`;
    const before = complete.get(key);
    const dates = { from: reach.from <= reach.begin ? null : dateOf(from), until: dateOf(reach.until) };
    // Buckets that closed two fetches ago are overdue.
    const overdue = dayOf(closedUntilMs(rules, nowMs - 2 * rules.everyMs));
    const isHeldBack = reach.until < overdue;
    const heldBack = isHeldBack ? dateOf(overdue) : (before?.heldBack ?? null);
    if (before?.from === dates.from && before.until === dates.until && before.heldBack === heldBack) return;
    const waiting = isHeldBack ? waitingFor(members, reach.until, nowMs) : [];
    const data: SiteCompleteFact = {
      site: await siteOf(siteId),
      ...{ resolution, timeZone, total },
      ...dates,
      series: members.length,
      waiting: waiting.slice(0, WAITING_MAX),
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
      .filter((series) => reachOf(series).until <= until)
      .map((series) => {
        const { id, displayName } = series.located.tag;
        const { why, refusal } = accountOf(series, until, undefined, nowMs);
        const { said, at } = refusal ?? { said: null, at: null };
        return { tagId: id, displayName, why: why ?? "refused", said, at };
      });
  }

  function dueDays(siteId: number, series: readonly Series[], nowMs: number): readonly SiteDate[] {
    const reach = reachOfAll(series);
    const lookBackMs = Math.max(...series.map(({ rules }) => rules.lookBackMs));
    const first = Math.max(reach.begin, reach.sealFrom, dayOf(nowMs) - RETAINED_DAYS);
    const end = Math.min(reach.sealUntil, dayOf(nowMs - lookBackMs));
    if (!Number.isFinite(first)) return [];
    const found: SiteDate[] = [];
    for (let day = first; day < end; day++) {
      const key = dayKey({ siteId, day });
      const change = changes.get(key);
      const isSettled = change !== undefined && nowMs - Date.parse(change.at) >= SETTLING_MS;
      const wasTried = clock.monotonic() - (attempts.get(key) ?? LONG_AGO) < LONGEST_COMPARE_MS;
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
      // Most ledgers contain the count, so the loop does not await.
      const count =
        ledger.daysMoved === true ? await countFor(store, source, key, ledger, day) : countOn(ledger.days ?? "", day);
      siteDay.add(series, count, nowMs);
      if (++counted % SERIES_PER_SLICE === 0) await yieldToEventLoop();
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
      const data = dayFinalized(await siteOf(siteId), day, siteDay, revision, changes.get(key)?.points ?? 0);
      const facts = [data.date, revision];
      const event = makeEvent({ ...aboutSite(siteId, nowMs), type: "day-sealed", data, facts });
      await store.commit({
        documents: [
          { set: finalizedSet, put: [[key, stored]], remove: forgetOldDays(siteId, nowMs) },
          { set: changedSet, remove: [key] },
        ],
        // No bucket begins on six of seven days if only weeks are followed.
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
    const old = [...(days.get(siteId) ?? [])].filter((day) => day < dayOf(nowMs) - RETAINED_DAYS);
    const keys = old.map((day) => dayKey({ siteId, day }));
    for (const day of old) days.get(siteId)?.delete(day);
    for (const key of keys) finalized.delete(key);
    return keys;
  }

  /** Emits what is due. Compares ledgers only after one of them has reached another day. */
  async function look(): Promise<void> {
    if (!isLoaded) await load();
    let counted = 0;
    for (let next = due.shift(); next !== undefined; next = due.shift()) {
      counted += await finalize(next);
      if (counted >= COUNTED_PER_LOOK) return;
    }
    const passedMs = clock.monotonic() - comparedAtMs;
    if (passedMs < SHORTEST_COMPARE_MS || (!hasMoved && passedMs < LONGEST_COMPARE_MS)) return;
    hasMoved = false;
    comparedAtMs = clock.monotonic();
    const nowMs = clock.now();
    const sites = [...Map.groupBy(options.series(), ({ located }) => located.siteId)].filter(([siteId]) =>
      options.knowsTagsOf(siteId),
    );
    for (const [, series] of sites)
      for (const members of Map.groupBy(series, groupName).values())
        await emitSiteComplete({ members, reach: reachOfAll(members) }, nowMs);
    // The next look counts them. Until then, replies note that these days are about to be finalized.
    due = sites.flatMap(([siteId, series]) => dueDays(siteId, series, nowMs));
    for (const date of due) addDay(date);
  }

  return { notes, refreshIfStale: look };
}

function reachOfAll(series: readonly Series[]): Reach {
  return series.map(reachOf).reduce(commonReach);
}

function dayKey({ siteId, day }: SiteDate): string {
  return `${siteId} ${dateOf(day)}`;
}

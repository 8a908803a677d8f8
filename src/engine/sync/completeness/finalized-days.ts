import type { Site } from "../../../core/model/building.ts";
import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import type { SiteCompleteFact, WaitingSeries } from "../../../core/model/history-facts.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet, type Store } from "../../store/store.ts";
import { type Range, subtract } from "../history/buckets.ts";
import { closedUntil } from "../history/ledger.ts";
import { fetchedIn } from "../history/ledger-ranges.ts";
import type { HistoryLedgers, Series } from "../history/series.ts";
import {
  type FinalizedDay,
  type Listed,
  type StoredCompleteness,
  type StoredDayChange,
  type StoredDays,
  type StoredHistory,
  syncSet,
} from "../snapshot.ts";
import {
  accountOf,
  addAccounts,
  commonReach,
  createSiteDay,
  type Days,
  dayFinalized,
  EMPTY_ACCOUNT,
  newlyComplete,
  RETAINED_DAYS,
  type Reach,
  reachOf,
  type SiteDay,
} from "./account.ts";
import {
  addCounts,
  countEmitted,
  countOn,
  countsIn,
  DAY_MS,
  type DayCount,
  type DayCounts,
  dateOf,
  dayOf,
  dayOfDate,
  type EmittedCounts,
  splitCounts,
} from "./days.ts";

/**
 * What a settled answer means for the UTC days of its series: the points are counted, days that are complete now are
 * told, and days of the site that were sealed before are marked. All of it belongs into the transaction that changes
 * the ledger.
 */
export interface DayNotes {
  /** Counts, as they are to be written with a ledger; `before` is the ledger that the answer met. */
  count(
    series: Series,
    before: StoredHistory,
    after: StoredHistory,
    told: EmittedCounts,
  ): Promise<StoredHistory>;
  readonly events: readonly Event<"history-complete">[];
  /** To be committed with the ledgers. */
  documents(): readonly DocumentChange[];
  /** After the commit, when the series have their new ledgers. */
  committed(): void;
}

/** Days of each site that are sealed, or about to be. */
export interface FinalizedDays {
  of(siteId: number): ReadonlySet<number>;
  /** The mark that stands already. */
  mark(key: string): StoredDayChange | undefined;
  /** What a commit has marked, by the key of the day. */
  changed(marks: ReadonlyMap<string, StoredDayChange>): void;
  /** A commit has changed a ledger. */
  moved(before: StoredHistory, series: Series): void;
}

export const NO_FINALIZED_DAYS: FinalizedDays = {
  of: () => new Set(),
  mark: () => undefined,
  changed: () => undefined,
  moved: () => undefined,
};

/** A ledger is written with each reply: counts that are longer, in characters, move to a document of their own. */
const INLINE_MAX = 600;
const EVER = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY] as const;
/** Changes within this time share a mark, in milliseconds. */
const SAME_CHANGE_MS = 300_000;

export function finalizedKey(siteId: number, day: number): string {
  return `${siteId} ${dateOf(day)}`;
}

export function createDayNotes(options: {
  readonly store: Pick<Store, "document">;
  readonly source: string;
  readonly nowMs: number;
  readonly sealed: FinalizedDays;
}): DayNotes {
  const { store, source, nowMs, sealed } = options;
  const daysSet = syncSet("history-days", source);
  const events: Event<"history-complete">[] = [];
  const moved = new Map<string, StoredDays>();
  const marks = new Map<string, StoredDayChange>();
  const noted = new Map<Series, StoredHistory>();

  /** Counts that were moved out of the ledger. */
  async function olderCounts({ key }: Series, ledger: StoredHistory): Promise<string> {
    if (ledger.daysMoved !== true) return "";
    const older = moved.get(key) ?? (await store.document<StoredDays>(daysSet, key));
    return older?.timeZone === ledger.timeZone ? older.days : "";
  }

  async function move(series: Series, ledger: StoredHistory): Promise<StoredHistory> {
    // What may still be read again changes still.
    const [old, left] = splitCounts(ledger.days ?? "", dayOf(Date.parse(ledger.rememberedFrom)));
    if (old === "") return ledger;
    const all = addCounts(await olderCounts(series, ledger), countsIn(old, ...EVER));
    const [, kept] = splitCounts(all, dayOf(nowMs) - RETAINED_DAYS);
    moved.set(series.key, { timeZone: ledger.timeZone, days: kept });
    return { ...ledger, days: left, daysMoved: true };
  }

  async function tellWhole(series: Series, ledger: StoredHistory, stretches: readonly Days[]) {
    const older = await olderCounts(series, ledger);
    for (const stretch of stretches) {
      const { from, until } = stretch;
      const text = addCounts(older, countsIn(ledger.days ?? "", from, until));
      const counts = countsIn(text, from, until);
      const event = completeEvent({ ...series, ledger }, source, stretch, counts, nowMs);
      if (event !== null) events.push(event);
    }
  }

  /** Marks the days of what was learned that were sealed before. */
  function mark(
    { located }: Series,
    before: StoredHistory,
    after: StoredHistory,
    points: ReadonlyMap<number, { readonly points: number }>,
  ) {
    const days = sealed.of(located.siteId);
    if (days.size === 0) return;
    const touched = new Set([...points.keys()].filter((day) => days.has(day)));
    for (const { fromMs, toMs } of learned(before, after)) {
      for (const day of days) if (fromMs < (day + 1) * DAY_MS && toMs > day * DAY_MS) touched.add(day);
    }
    for (const day of touched) {
      const key = finalizedKey(located.siteId, day);
      const known = marks.get(key) ?? sealed.mark(key);
      const isSame = known !== undefined && nowMs - Date.parse(known.at) < SAME_CHANGE_MS;
      marks.set(key, {
        at: isSame ? known.at : isoUtc(nowMs),
        points: (known?.points ?? 0) + (points.get(day)?.points ?? 0),
      });
    }
  }

  return {
    events,
    async count(series, before, after, told) {
      if (!noted.has(series)) noted.set(series, series.ledger);
      const { resolution, timeZone } = after;
      const points = countEmitted(told, resolution, timeZone);
      const wasUncounted =
        before.days === undefined && before.countedFrom === undefined && fetchedIn(before.spans).length > 0;
      const ledger: StoredHistory = {
        ...after,
        days: addCounts(before.days ?? "", points),
        ...(wasUncounted ? { countedFrom: isoUtc(fetchedIn(before.spans).at(-1)?.toMs ?? nowMs) } : {}),
      };
      const stretches = newlyComplete(before, ledger);
      if (stretches.length > 0) await tellWhole(series, ledger, stretches);
      mark(series, before, ledger, points);
      return (ledger.days?.length ?? 0) > INLINE_MAX ? move(series, ledger) : ledger;
    },
    documents: () =>
      [
        { set: daysSet, put: [...moved] },
        { set: syncSet("day-changed", source), put: [...marks] },
      ].filter(({ put }) => put.length > 0),
    committed() {
      sealed.changed(marks);
      for (const [series, before] of noted) sealed.moved(before, series);
    },
  };
}

/** What is had now and was not before. */
function learned(before: StoredHistory, after: StoredHistory): readonly Range[] {
  if (before.spans === after.spans) return [];
  const had = fetchedIn(before.spans);
  return fetchedIn(after.spans).flatMap((range) => subtract(range, had));
}

/** Null where no bucket begins in these days, as on six of seven days where weeks are followed. */
function completeEvent(
  series: Series,
  source: string,
  { from, until }: Days,
  counts: DayCounts,
  nowMs: number,
): Event<"history-complete"> | null {
  const { located, ledger, total } = series;
  const { resolution, timeZone } = ledger;
  let sum = EMPTY_ACCOUNT;
  for (let day = from; day < until; day++)
    sum = addAccounts(sum, accountOf(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const days = { firstDate: dateOf(from), lastDate: dateOf(until - 1) };
  return makeEvent({
    type: "history-complete",
    source: sourceUri(source),
    // That of the history itself, so that it stays behind it wherever order is kept by subject.
    subject: `${subjectOf("tag", located.siteId, located.tag.id)}/${total ? "total" : "history"}/${resolution}`,
    time: isoUtc(nowMs),
    siteId: located.siteId,
    data: { tag: located.tag, resolution, timeZone, total, ...days, ...sum },
    facts: [resolution, timeZone, days.firstDate, days.lastDate, sum.had, sum.null, sum.withoutLog],
  });
}

/** The count of a series on one day, wherever it is kept. */
export async function countFor(
  store: Pick<Store, "document">,
  source: string,
  key: string,
  ledger: StoredHistory,
  day: number,
): Promise<DayCount | undefined> {
  const text = ledger.days ?? "";
  const older =
    ledger.daysMoved === true
      ? await store.document<StoredDays>(syncSet("history-days", source), key)
      : undefined;
  if (older === undefined || older.timeZone !== ledger.timeZone) return countOn(text, day);
  return countOn(addCounts(older.days, countsIn(text, day, day + 1)), day);
}

/**
 * Says of each site up to which day its history is complete, and seals days: when nothing of a UTC day is unknown any
 * more and late data have been looked for, the ledgers' whole account of it is told as `day-sealed`. What changes a
 * sealed day afterwards is told as the next revision, once for all that came within an hour.
 *
 * Looked at are the ledgers in memory, and only when one of them has reached another day; a day is counted once, when it
 * is sealed. What is told is remembered in the same transaction, so nothing is told twice, and what a crash prevents is
 * told at the next look.
 */
export interface CompleteDays {
  readonly sealed: FinalizedDays;
  /** Tells what is to be told; costs nothing while no ledger has reached another day. */
  look(): Promise<void>;
}

/** After the last change of a sealed day it is left alone for so long, in milliseconds. */
const SETTLING_MS = 3_600_000;
/** Ledgers are compared at most so often, in milliseconds: around midnight thousands of them reach the next day. */
const COMPARE_MS = 10_000;
/** The hour passes, too: refusals and what is held back are looked at so often, in milliseconds. */
const CLOCK_MS = 600_000;
/** Series of which the account is made before others have their turn. */
const AT_ONCE = 500;
/** A look ends when so many were counted; a year of backfill is sealed in many of them. */
const COUNTED_PER_LOOK = 5_000;
/** Series that are named as holding back. */
const WAITING_MAX = 20;

export function createCompleteDays(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly source: string;
  readonly book: Pick<HistoryLedgers, "series">;
  /** A site of which only a part of the tags may be known has no complete day. */
  readonly knowsTagsOf: (siteId: number) => boolean;
}): CompleteDays {
  const { store, clock, source, book, knowsTagsOf } = options;
  const completeSet = syncSet("history-complete", source);
  const sealedSet = syncSet("day-sealed", source);
  const changedSet = syncSet("day-changed", source);
  const uri = sourceUri(source);
  const days = new Map<number, Set<number>>();
  let sealed = new Map<string, FinalizedDay>();
  let marks = new Map<string, StoredDayChange>();
  let complete = new Map<string, StoredCompleteness>();
  let isLoaded = false;
  let isMoved = true;
  let comparedAtMs = Number.NEGATIVE_INFINITY;
  /** Days that are to be sealed, those that waited longest first. */
  let due: { readonly siteId: number; readonly day: number }[] = [];
  /** Days that could not be sealed, and when that was tried, on the monotonic clock. */
  const tried = new Map<string, number>();
  /** The day that is being counted, and whether something of it has changed meanwhile. */
  let counting: { readonly siteId: number; readonly day: number; isDisturbed: boolean } | null = null;

  async function load(): Promise<void> {
    [sealed, marks, complete] = await Promise.all([
      store.documents<FinalizedDay>(sealedSet),
      store.documents<StoredDayChange>(changedSet),
      store.documents<StoredCompleteness>(completeSet),
    ]);
    for (const key of sealed.keys()) noteSealed(key);
    isLoaded = true;
  }

  function noteSealed(key: string): void {
    const [siteId = "", date = ""] = key.split(" ");
    const known = days.get(Number(siteId)) ?? new Set();
    days.set(Number(siteId), known.add(dayOfDate(date)));
  }

  async function siteOf(siteId: number): Promise<Site> {
    const held = await store.document<Listed<Site>>(documentSet("site", source), String(siteId));
    return held?.value ?? { id: siteId, displayName: String(siteId) };
  }

  /** What is to be told of the series of one site with one resolution; null when it was told already. */
  async function completeness({ first, reach, size }: Group, nowMs: number) {
    const { located, ledger, rules, total } = first;
    const { resolution, timeZone } = ledger;
    const from = Math.max(reach.from, reach.begin);
    if (!Number.isFinite(reach.until) || !Number.isFinite(from) || from >= reach.until) return null;
    const key = `${located.siteId} ${resolution} ${timeZone}${total ? " total" : ""}`;
    const before = complete.get(key);
    const dates = { from: reach.from <= reach.begin ? null : dateOf(from), until: dateOf(reach.until) };
    // What closed two fetches ago and is not had is held back by somebody.
    const overdue = dayOf(closedUntil(rules, nowMs - 2 * rules.everyMs));
    const isHeldBack = reach.until < overdue;
    const heldBack = isHeldBack ? dateOf(overdue) : (before?.heldBack ?? null);
    const isTold =
      before?.from === dates.from && before.until === dates.until && before.heldBack === heldBack;
    if (isTold) return null;
    const waiting = isHeldBack ? waitingFor(first, reach.until, nowMs) : [];
    const data: SiteCompleteFact = {
      site: await siteOf(located.siteId),
      ...{ resolution, timeZone, total },
      ...dates,
      series: size,
      waiting: waiting.slice(0, WAITING_MAX),
      waitingCount: waiting.length,
    };
    const event = makeEvent({
      type: "history-complete",
      source: uri,
      subject: subjectOf("site", null, String(located.siteId)),
      time: isoUtc(nowMs),
      siteId: located.siteId,
      data,
      facts: [resolution, timeZone, total ? 1 : 0, dates.from, dates.until, heldBack],
    });
    return { key, event, told: { ...dates, heldBack } satisfies StoredCompleteness };
  }

  function waitingFor(like: Series, until: number, nowMs: number): readonly WaitingSeries[] {
    return book.series().flatMap((series) => {
      if (groupName(series) !== groupName(like) || reachOf(series).until > until) return [];
      if (series.located.siteId !== like.located.siteId) return [];
      const { tag } = series.located;
      const { why, refusal } = accountOf(series, until, undefined, nowMs);
      const word = { said: refusal?.said ?? null, at: refusal?.at ?? null };
      return [{ tagId: tag.id, displayName: tag.displayName, why: why ?? "refused", ...word }];
    });
  }

  async function tellComplete(sites: ReadonlyMap<number, SiteReach>, nowMs: number): Promise<void> {
    for (const { groups } of sites.values()) {
      for (const group of groups.values()) {
        const news = await completeness(group, nowMs);
        if (news === null) continue;
        const put = [[news.key, news.told] as const];
        await store.commit({ documents: [{ set: completeSet, put }], events: [news.event] });
        complete.set(news.key, news.told);
      }
    }
  }

  /** Days that can be sealed by what the ledgers reach, oldest first. */
  function sealable(sites: ReadonlyMap<number, SiteReach>, nowMs: number) {
    const found: { siteId: number; day: number }[] = [];
    for (const [siteId, { reach, lookBackMs }] of sites) {
      const first = Math.max(reach.begin, reach.sealFrom, dayOf(nowMs) - RETAINED_DAYS);
      const end = Math.min(reach.sealUntil, dayOf(nowMs - lookBackMs));
      if (!Number.isFinite(first)) continue;
      for (let day = first; day < end; day++) {
        const key = finalizedKey(siteId, day);
        const mark = marks.get(key);
        const isSettled = mark !== undefined && nowMs - Date.parse(mark.at) >= SETTLING_MS;
        const isTried = clock.monotonic() - (tried.get(key) ?? Number.NEGATIVE_INFINITY) < CLOCK_MS;
        if ((!sealed.has(key) || isSettled) && !isTried) found.push({ siteId, day });
      }
    }
    return found;
  }

  async function count(siteId: number, day: number, nowMs: number): Promise<SiteDay> {
    const siteDay = createSiteDay(day);
    let counted = 0;
    for (const series of book.series()) {
      if (series.located.siteId !== siteId) continue;
      const { ledger, key } = series;
      // Most have it in the ledger, and nothing is waited for.
      const count =
        ledger.daysMoved === true
          ? await countFor(store, source, key, ledger, day)
          : countOn(ledger.days ?? "", day);
      siteDay.add(series, count, nowMs);
      if (++counted % AT_ONCE === 0) await yieldToEventLoop();
    }
    return siteDay.done();
  }

  /** Counts a day, and tells it where nothing of it is pending; how many series were counted. */
  async function seal(siteId: number, day: number): Promise<number> {
    const nowMs = clock.now();
    const key = finalizedKey(siteId, day);
    const watched = { siteId, day, isDisturbed: false };
    counting = watched;
    try {
      const siteDay = await count(siteId, day, nowMs);
      const { account, series } = siteDay;
      if (watched.isDisturbed || account.pending > 0) {
        if (account.pending > 0) tried.set(key, clock.monotonic());
        isMoved = true;
        return series;
      }
      tried.delete(key);
      const revision = (sealed.get(key)?.revision ?? 0) + 1;
      const finalized: FinalizedDay = { revision, sealedAt: isoUtc(nowMs), series, account };
      const data = dayFinalized(await siteOf(siteId), day, siteDay, revision, marks.get(key)?.points ?? 0);
      const event = makeEvent({
        type: "day-sealed",
        source: uri,
        subject: subjectOf("site", null, String(siteId)),
        time: isoUtc(nowMs),
        siteId,
        data,
        facts: [data.date, revision],
      });
      await store.commit({
        documents: [
          { set: sealedSet, put: [[key, finalized]], remove: forgotten(siteId, nowMs) },
          { set: changedSet, remove: [key] },
        ],
        // Of some days nobody wants anything, as of six of seven where weeks are followed.
        events: account.expected === 0 ? [] : [event],
      });
      sealed.set(key, finalized);
      marks.delete(key);
      // It changed between the count and the disk.
      if (watched.isDisturbed) await markAgain(key);
      return series;
    } finally {
      counting = null;
      if (!sealed.has(key)) days.get(siteId)?.delete(day);
    }
  }

  async function markAgain(key: string): Promise<void> {
    const mark: StoredDayChange = { at: isoUtc(clock.now()), points: 0 };
    await store.commit({ documents: [{ set: changedSet, put: [[key, mark]] }] });
    marks.set(key, mark);
  }

  /** Seals of days that are not remembered any more; removed from memory, too. */
  function forgotten(siteId: number, nowMs: number): readonly string[] {
    const known = days.get(siteId) ?? new Set();
    const old = [...known].filter((day) => day < dayOf(nowMs) - RETAINED_DAYS);
    for (const day of old) known.delete(day);
    const keys = old.map((day) => finalizedKey(siteId, day));
    for (const key of keys) sealed.delete(key);
    return keys;
  }

  return {
    sealed: {
      of: (siteId) => days.get(siteId) ?? NO_DAYS,
      mark: (key) => marks.get(key),
      changed(put) {
        for (const [key, mark] of put) marks.set(key, mark);
      },
      moved(before, series) {
        const [old, now] = [reachOf({ ...series, ledger: before }), reachOf(series)];
        isMoved ||= (Object.keys(now) as (keyof Reach)[]).some((name) => old[name] !== now[name]);
        if (counting?.siteId === series.located.siteId) counting.isDisturbed ||= before !== series.ledger;
      },
    },
    async look() {
      if (!isLoaded) await load();
      let counted = 0;
      for (let next = due.shift(); next !== undefined; next = due.shift()) {
        counted += await seal(next.siteId, next.day);
        if (counted >= COUNTED_PER_LOOK) return;
      }
      const passedMs = clock.monotonic() - comparedAtMs;
      if (!((isMoved && passedMs >= COMPARE_MS) || passedMs >= CLOCK_MS)) return;
      isMoved = false;
      comparedAtMs = clock.monotonic();
      const nowMs = clock.now();
      const sites = reachOfSites(book.series(), knowsTagsOf);
      await tellComplete(sites, nowMs);
      // Counted at the next look: until then whatever is settled notes that they are about to be sealed.
      due = sealable(sites, nowMs);
      for (const { siteId, day } of due) days.set(siteId, (days.get(siteId) ?? new Set()).add(day));
    },
  };
}

const NO_DAYS: ReadonlySet<number> = new Set();

/** What the series of a site reach, and those of each resolution, zone and kind. */
interface SiteReach {
  reach: Reach;
  lookBackMs: number;
  readonly groups: Map<string, Group>;
}

interface Group {
  readonly first: Series;
  reach: Reach;
  size: number;
}

function groupName({ rules, total }: Series): string {
  return total ? `${rules.resolution} ${rules.timeZone} total` : `${rules.resolution} ${rules.timeZone}`;
}

/** Series with the same rules share them, and mostly reach the same: what they add is looked up, not made anew. */
function reachOfSites(
  all: readonly Series[],
  knowsTagsOf: (siteId: number) => boolean,
): ReadonlyMap<number, SiteReach> {
  const sites = new Map<number, SiteReach>();
  for (const series of all) {
    const { siteId } = series.located;
    const reach = reachOf(series);
    const site = sites.get(siteId) ?? { reach, lookBackMs: 0, groups: new Map<string, Group>() };
    const name = groupName(series);
    const group = site.groups.get(name) ?? { first: series, reach, size: 0 };
    site.reach = commonReach(site.reach, reach);
    site.lookBackMs = Math.max(site.lookBackMs, series.rules.lookBackMs);
    group.reach = commonReach(group.reach, reach);
    group.size++;
    if (group.size === 1) site.groups.set(name, group);
    if (!sites.has(siteId)) sites.set(siteId, site);
  }
  for (const siteId of sites.keys()) if (!knowsTagsOf(siteId)) sites.delete(siteId);
  return sites;
}

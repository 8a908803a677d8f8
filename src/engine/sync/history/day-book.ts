import { type Event, makeEvent, sourceUri, subjectOf } from "../../../core/model/event.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { accountOf, addAccounts, NOTHING } from "../completeness/account.ts";
import {
  addCounts,
  countEmitted,
  countOn,
  countsIn,
  type DayCount,
  type DayCounts,
  type EmittedCounts,
  splitCounts,
} from "../completeness/counts.ts";
import { DAY_MS, dateOf, dayOf } from "../completeness/days.ts";
import { type Days, newlyComplete, RETAINED_DAYS } from "../completeness/reach.ts";
import { type StoredDayChange, type StoredDays, type StoredHistory, syncSet } from "../snapshot.ts";
import { fetchedIn } from "./ledger-ranges.ts";
import type { Series } from "./ledgers.ts";
import { type Range, subtract } from "./ranges.ts";

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
  async function olderCounts({ key }: Series, held: StoredHistory): Promise<string> {
    if (held.daysMoved !== true) return "";
    const older = moved.get(key) ?? (await store.document<StoredDays>(daysSet, key));
    return older?.timeZone === held.timeZone ? older.days : "";
  }

  async function move(series: Series, held: StoredHistory): Promise<StoredHistory> {
    // What may still be read again changes still.
    const [old, left] = splitCounts(held.days ?? "", dayOf(Date.parse(held.rememberedFrom)));
    if (old === "") return held;
    const all = addCounts(await olderCounts(series, held), countsIn(old, ...EVER));
    const [, kept] = splitCounts(all, dayOf(nowMs) - RETAINED_DAYS);
    moved.set(series.key, { timeZone: held.timeZone, days: kept });
    return { ...held, days: left, daysMoved: true };
  }

  async function tellWhole(series: Series, held: StoredHistory, stretches: readonly Days[]) {
    const older = await olderCounts(series, held);
    for (const stretch of stretches) {
      const { from, until } = stretch;
      const text = addCounts(older, countsIn(held.days ?? "", from, until));
      const counts = countsIn(text, from, until);
      const event = completeEvent({ ...series, held }, source, stretch, counts, nowMs);
      if (event !== null) events.push(event);
    }
  }

  /** Marks the days of what was learned that were sealed before. */
  function mark(
    { placed }: Series,
    before: StoredHistory,
    after: StoredHistory,
    points: ReadonlyMap<number, { readonly points: number }>,
  ) {
    const days = sealed.of(placed.siteId);
    if (days.size === 0) return;
    const touched = new Set([...points.keys()].filter((day) => days.has(day)));
    for (const { fromMs, toMs } of learned(before, after)) {
      for (const day of days) if (fromMs < (day + 1) * DAY_MS && toMs > day * DAY_MS) touched.add(day);
    }
    for (const day of touched) {
      const key = finalizedKey(placed.siteId, day);
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
      if (!noted.has(series)) noted.set(series, series.held);
      const { resolution, timeZone } = after;
      const points = countEmitted(told, resolution, timeZone);
      const wasUncounted =
        before.days === undefined && before.countedFrom === undefined && fetchedIn(before.spans).length > 0;
      const held: StoredHistory = {
        ...after,
        days: addCounts(before.days ?? "", points),
        ...(wasUncounted ? { countedFrom: isoUtc(fetchedIn(before.spans).at(-1)?.toMs ?? nowMs) } : {}),
      };
      const stretches = newlyComplete(before, held);
      if (stretches.length > 0) await tellWhole(series, held, stretches);
      mark(series, before, held, points);
      return (held.days?.length ?? 0) > INLINE_MAX ? move(series, held) : held;
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
  const { placed, held, total } = series;
  const { resolution, timeZone } = held;
  let sum = NOTHING;
  for (let day = from; day < until; day++)
    sum = addAccounts(sum, accountOf(series, day, counts.get(day), nowMs));
  if (sum.expected === 0) return null;
  const days = { firstDate: dateOf(from), lastDate: dateOf(until - 1) };
  return makeEvent({
    type: "history-complete",
    source: sourceUri(source),
    // That of the history itself, so that it stays behind it wherever order is kept by subject.
    subject: `${subjectOf("tag", placed.siteId, placed.tag.id)}/${total ? "total" : "history"}/${resolution}`,
    time: isoUtc(nowMs),
    siteId: placed.siteId,
    data: { tag: placed.tag, resolution, timeZone, total, ...days, ...sum },
    facts: [resolution, timeZone, days.firstDate, days.lastDate, sum.had, sum.null, sum.withoutLog],
  });
}

/** The count of a series on one day, wherever it is kept. */
export async function countFor(
  store: Pick<Store, "document">,
  source: string,
  key: string,
  held: StoredHistory,
  day: number,
): Promise<DayCount | undefined> {
  const text = held.days ?? "";
  const older =
    held.daysMoved === true
      ? await store.document<StoredDays>(syncSet("history-days", source), key)
      : undefined;
  if (older === undefined || older.timeZone !== held.timeZone) return countOn(text, day);
  return countOn(addCounts(older.days, countsIn(text, day, day + 1)), day);
}

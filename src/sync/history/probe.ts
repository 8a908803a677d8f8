import type { TagLog } from "../../building.ts";
import { isoUtc } from "../../clock.ts";
import type { HistoryQuery } from "../../source/source.ts";
import type { HeldHistory } from "../snapshot.ts";
import type { HistoryBook, Series } from "./book.ts";
import { bucketBefore, bucketStart, rangeTime } from "./buckets.ts";
import { createGroupTesting, type Verdicts } from "./grouping.ts";
import { ms, withoutLog } from "./ledger.ts";

/**
 * Learns which tags have a log before anything big is fetched, with the cheapest query there is: a few monthly
 * values. So a tag without a log never spoils a large request, and the first month with data bounds the backfill.
 */
export interface HistoryProbe {
  /** Takes in tags about which nothing is known yet. */
  refresh(): void;
  /** The next request, or null when there is nothing to learn. The same until it is settled. */
  next(nowMs: number): Probe | null;
  /** What an answer, or a refusal (null), means for the ledgers. */
  settle(probe: Probe, logs: readonly TagLog[] | null, nowMs: number): ReadonlyMap<Series, HeldHistory>;
  /** What was settled could not be recorded: these are to be learned again. */
  forget(series: readonly Series[]): void;
  /** Tags about which nothing is known yet. */
  waiting(): number;
}

export interface Probe {
  readonly query: HistoryQuery;
  /** A tag that had no log before, asked again alone. */
  readonly again: boolean;
}

/** `wantedFrom`: from when on anybody wants the series, milliseconds since 1970. */
export function createHistoryProbe(
  book: HistoryBook,
  size: number,
  wantedFrom: (series: Series) => number = ({ held }) => ms(held.wished),
): HistoryProbe {
  const testing = createGroupTesting<string>(size);
  const known = new Set<string>();

  const queryFor = (tagIds: readonly string[], nowMs: number): HistoryQuery | null => {
    const series = tagIds.flatMap((id) => book.ofTag(id));
    const [first] = series;
    if (first === undefined) return null;
    const { timeZone } = first.rules;
    const fromMs = Math.min(...series.map(wantedFrom), nowMs - 24 * 3_600_000);
    return {
      tagIds,
      // One month more than needed, because the interface does not say whether a bucket at the start is included.
      from: rangeTime(bucketBefore(fromMs, "1mo", timeZone)),
      to: rangeTime(nowMs),
      resolution: "1mo",
      timeZone,
    };
  };

  /** What a tag's ledgers become, now that it has a log. */
  const proven = (series: Series, log: TagLog | undefined): HeldHistory => {
    const { held, total } = series;
    const first = log?.measurements.find(({ value }) => value !== null)?.time;
    const noticed: HeldHistory = { ...held, state: "following", askAgainAt: null, refusals: 0 };
    if (log === undefined || total || held.target >= held.reached) return noticed;
    const startMs =
      first === undefined ? ms(held.reached) : bucketStart(Date.parse(first), "1mo", held.timeZone);
    return { ...noticed, target: isoUtc(Math.min(ms(held.reached), Math.max(ms(held.target), startMs))) };
  };

  const settleVerdicts = (verdicts: Verdicts<string>, logs: readonly TagLog[], nowMs: number) => {
    const changed = new Map<Series, HeldHistory>();
    const byId = new Map(logs.map((log) => [log.id, log]));
    for (const id of verdicts.good) {
      for (const series of book.ofTag(id)) changed.set(series, proven(series, byId.get(id)));
    }
    for (const id of verdicts.bad) {
      for (const series of book.ofTag(id)) changed.set(series, withoutLog(series.held, nowMs));
    }
    return changed;
  };

  return {
    refresh() {
      const unproven = book
        .series()
        .filter((series) => series.held.state === "unproven" && !known.has(series.placed.tag.id))
        .map((series) => series.placed.tag.id);
      const fresh = [...new Set(unproven)];
      for (const id of fresh) known.add(id);
      testing.add(fresh);
    },
    next(nowMs) {
      for (let group = testing.next(); group.length > 0; group = testing.next()) {
        const query = queryFor(group, nowMs);
        if (query !== null) return { query, again: false };
        // All of them have left the building meanwhile.
        testing.settle(true);
      }
      const due = book
        .series()
        .find(
          ({ held }) => held.state === "no-log" && held.askAgainAt !== null && ms(held.askAgainAt) <= nowMs,
        );
      const query = due === undefined ? null : queryFor([due.placed.tag.id], nowMs);
      return query === null ? null : { query, again: true };
    },
    settle({ query, again }, logs, nowMs) {
      if (!again) return settleVerdicts(testing.settle(logs !== null), logs ?? [], nowMs);
      const verdicts = logs === null ? { good: [], bad: query.tagIds } : { good: query.tagIds, bad: [] };
      return settleVerdicts(verdicts, logs ?? [], nowMs);
    },
    forget(all) {
      for (const { placed } of all) known.delete(placed.tag.id);
    },
    waiting: () => testing.waiting(),
  };
}

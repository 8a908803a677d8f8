import type { TagLog } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { HistoryQuery } from "../../source/source.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketBefore, bucketStart, rangeTime } from "./buckets.ts";
import { createGroupTesting } from "./grouping.ts";
import { ms, settleEmpty } from "./ledger.ts";
import type { HistoryLedgers, Series } from "./ledgers.ts";
import { isResting, refusedNow, withoutLog } from "./refusals.ts";
import { answeredPoints } from "./unreadable.ts";

/**
 * Learns which tags have a log before anything big is fetched, with the cheapest query there is: a few monthly
 * values. So a tag without a log never spoils a large request, and the first month that is listed bounds the backfill.
 */
export interface LogDiscovery {
  /** Takes in tags about which nothing is known yet. */
  refresh(): void;
  /** The next request, or null when there is nothing to learn. The same until it is settled. */
  next(nowMs: number): DiscoveryRequest | null;
  /** The tags that have no log, now that a probe was answered for some tags, or refused because of a log: null. */
  settle(probe: DiscoveryRequest, answered: ReadonlySet<string> | null): readonly string[];
  /** What the answer for some tags means for their ledgers. */
  proven(
    tagIds: readonly string[],
    logs: readonly TagLog[],
    nowMs: number,
  ): ReadonlyMap<Series, StoredHistory>;
  /** What it means for the ledgers of tags that they have no log, or were refused alone for another reason. */
  refused(tagIds: readonly string[], refusal: Said, nowMs: number): ReadonlyMap<Series, StoredHistory>;
  /** The same question about other tags; null when none of them is there any more. */
  about(tagIds: readonly string[], nowMs: number): HistoryQuery | null;
  /** These are learned in another way, or later: with the next refresh, as far as nothing is known of them then. */
  forget(tagIds: readonly string[]): void;
  /** Tags about which nothing is known yet. */
  waiting(): number;
}

export interface DiscoveryRequest {
  readonly query: HistoryQuery;
  /** A tag that was refused before, asked again alone. */
  readonly again: boolean;
}

interface Said {
  readonly why: "no-log" | "refused";
  readonly said: string;
}

const FROM_OVERVIEW = "the monthly overview lists nothing so early";

/** `wantedFrom`: from when on anybody wants the series, milliseconds since 1970. `isInSight`: whether it can be asked for now. */
export function createLogDiscovery(
  book: HistoryLedgers,
  size: number,
  wantedFrom: (series: Series) => number = ({ held }) => ms(held.wished),
  isInSight: (series: Series) => boolean = () => true,
): LogDiscovery {
  const testing = createGroupTesting<string>(size);
  /** Tags that wait for their verdict. One that had it is asked again when a new series of it is wanted. */
  const waiting = new Set<string>();

  const about = (tagIds: readonly string[], nowMs: number): HistoryQuery | null => {
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

  const isSeen = (tagId: string) => {
    const [series] = book.ofTag(tagId);
    return series === undefined || isInSight(series);
  };

  /** Series that are followed learn of their log by following, and may be under way just now. */
  const toLearn = (tagId: string) => book.ofTag(tagId).filter(({ held }) => held.state !== "following");

  const forget = (tagIds: readonly string[]) => {
    testing.leave(new Set(tagIds));
    for (const id of tagIds) waiting.delete(id);
  };

  /** What a tag's ledgers become, now that it has a log. */
  const provenLedger = (series: Series, log: TagLog | undefined, nowMs: number): StoredHistory => {
    const noticed: StoredHistory = { ...series.held, state: "following", refusal: null };
    // A month that is listed without a value says only that there may be something; no month at all says nothing.
    const listed = log === undefined ? null : answeredPoints(log);
    const firstMs = Math.min(...Array.from(listed ?? [], ({ time }) => Date.parse(time)));
    const { resolution, timeZone, since, wished } = noticed;
    if (series.total || !Number.isFinite(firstMs)) return noticed;
    // Where a month is a sample, the first that is listed may be the one after the first value.
    const monthMs = bucketBefore(firstMs, "1mo", timeZone);
    const toMs = Math.min(bucketStart(monthMs, resolution, timeZone), ms(since));
    if (toMs <= ms(wished)) return noticed;
    const word = { why: "null" as const, said: FROM_OVERVIEW, at: isoUtc(nowMs) };
    return settleEmpty(noticed, { fromMs: ms(wished), toMs }, word);
  };

  return {
    about,
    forget,
    refresh() {
      const unproven = book
        .series()
        .filter(
          (series) =>
            series.held.state === "unproven" &&
            series.held.refusal === null &&
            isInSight(series) &&
            !waiting.has(series.placed.tag.id),
        )
        .map((series) => series.placed.tag.id);
      const fresh = [...new Set(unproven)];
      for (const id of fresh) waiting.add(id);
      testing.add(fresh);
    },
    next(nowMs) {
      for (let group = testing.next(); group.length > 0; group = testing.next()) {
        const unseen = group.filter((id) => !isSeen(id));
        if (unseen.length > 0) {
          forget(unseen);
          continue;
        }
        const query = about(group, nowMs);
        if (query !== null) return { query, again: false };
        // All of them have left the building meanwhile.
        for (const id of group) waiting.delete(id);
        testing.settle(true);
      }
      const due = book
        .series()
        .find(
          (series) =>
            series.held.state !== "following" &&
            series.held.refusal !== null &&
            !isResting(series.held, nowMs) &&
            isInSight(series),
        );
      const query = due === undefined ? null : about([due.placed.tag.id], nowMs);
      return query === null ? null : { query, again: true };
    },
    settle({ query, again }, answered) {
      if (again) return answered === null ? query.tagIds : [];
      // One that the answer leaves out is not cleared by it, or another would be guilty in its place.
      if (answered !== null && query.tagIds.some((id) => !answered.has(id))) {
        forget(query.tagIds);
        return [];
      }
      const { good, bad } = testing.settle(answered !== null);
      for (const id of [...good, ...bad]) waiting.delete(id);
      return bad;
    },
    proven(tagIds, logs, nowMs) {
      const byId = new Map(logs.map((log) => [log.id, log]));
      const changed = new Map<Series, StoredHistory>();
      for (const id of tagIds) {
        for (const series of toLearn(id)) changed.set(series, provenLedger(series, byId.get(id), nowMs));
      }
      return changed;
    },
    refused(tagIds, { why, said }, nowMs) {
      const ledger = why === "no-log" ? withoutLog : refusedNow;
      const changed = new Map<Series, StoredHistory>();
      for (const series of tagIds.flatMap(toLearn)) {
        changed.set(series, ledger(series.held, said, nowMs));
      }
      return changed;
    },
    waiting: () => testing.waiting(),
  };
}

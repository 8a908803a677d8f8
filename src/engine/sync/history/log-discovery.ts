import type { TagLog } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { HistoryQuery } from "../../source/source.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketBefore, bucketStart, rangeTime } from "./buckets.ts";
import { isBackingOff, parseTime, recordEmpty, recordNoLog, recordRefusal } from "./ledger.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { HistorySeries, Series } from "./series.ts";

/**
 * Finds out which tags have a log before any large request, with the cheapest query there is: a few monthly values. So a
 * tag without a log does not spoil a large request, and the first listed month limits the backfill.
 */
export interface LogDiscovery {
  /** Adds tags of which it is not known yet whether they have a log. */
  refresh(): void;
  /** Returns the next request, the same one until it is settled; null when every tag is known. */
  next(nowMs: number): DiscoveryRequest | null;
  /** Returns the tags without a log. `listed`: tags in the response; null after a refusal because of a log. */
  settle(request: DiscoveryRequest, listed: ReadonlySet<string> | null): readonly string[];
  /** Returns the ledgers of tags that have a log. */
  proven(tagIds: readonly string[], logs: readonly TagLog[], nowMs: number): ReadonlyMap<Series, StoredHistory>;
  /** Returns the ledgers of tags that have no log, or were refused singly for another reason. */
  refused(
    tagIds: readonly string[],
    isNoLog: boolean,
    message: string,
    nowMs: number,
  ): ReadonlyMap<Series, StoredHistory>;
  /** Returns the query for other tags; null when all of them have left the building. */
  queryFor(tagIds: readonly string[], nowMs: number): HistoryQuery | null;
  /** Removes tags. The next refresh adds those of which nothing is known then. */
  forget(tagIds: readonly string[]): void;
  /** Number of tags of which nothing is known. */
  waiting(): number;
}

export interface DiscoveryRequest {
  readonly query: HistoryQuery;
  /** A single tag that was refused before. */
  readonly isRetry: boolean;
}

const FROM_OVERVIEW = "the monthly overview lists nothing so early";

export function createLogDiscovery(
  book: Pick<HistorySeries, "all" | "ofTag" | "neededFrom">,
  size: number,
  isInSight: (series: Series) => boolean,
): LogDiscovery {
  const testing = createGroupTesting<string>(size);
  const waiting = new Set<string>();

  const queryFor = (tagIds: readonly string[], nowMs: number): HistoryQuery | null => {
    const series = tagIds.flatMap((id) => book.ofTag(id));
    const [first] = series;
    if (first === undefined) return null;
    const { timeZone } = first.rules;
    const fromMs = Math.min(...series.map(book.neededFrom), nowMs - 24 * 3_600_000);
    // The query starts a month early, because the interface does not say whether the start is included.
    const from = rangeTime(bucketBefore(fromMs, "1mo", timeZone));
    return { tagIds, from, to: rangeTime(nowMs), resolution: "1mo", timeZone };
  };

  const isTagInSight = (tagId: string) => {
    const [series] = book.ofTag(tagId);
    return series === undefined || isInSight(series);
  };

  /** A followed series learns about its log by following, perhaps right now. */
  const undecided = (tagId: string) => book.ofTag(tagId).filter(({ ledger }) => ledger.state !== "following");

  const forget = (tagIds: readonly string[]) => {
    testing.leave(new Set(tagIds));
    for (const id of tagIds) waiting.delete(id);
  };

  const provenLedger = (series: Series, log: TagLog | undefined, nowMs: number): StoredHistory => {
    const proven: StoredHistory = { ...series.ledger, state: "following", refusal: null };
    const listed = log === undefined ? null : answeredPoints(log);
    const firstMs = Math.min(...Array.from(listed ?? [], ({ time }) => Date.parse(time)));
    const { resolution, timeZone, since, wished } = proven;
    if (series.total || !Number.isFinite(firstMs)) return proven;
    // If a month is a sample, the first listed month may be the one after the first value.
    const monthMs = bucketBefore(firstMs, "1mo", timeZone);
    const toMs = Math.min(bucketStart(monthMs, resolution, timeZone), parseTime(since));
    if (toMs <= parseTime(wished)) return proven;
    const empty = { why: "null" as const, said: FROM_OVERVIEW, at: isoUtc(nowMs) };
    return recordEmpty(proven, { fromMs: parseTime(wished), toMs }, empty);
  };

  return {
    queryFor,
    forget,
    refresh() {
      const unknown = book
        .all()
        .filter(
          (series) =>
            series.ledger.state === "unproven" &&
            series.ledger.refusal === null &&
            isInSight(series) &&
            !waiting.has(series.located.tag.id),
        );
      const fresh = [...new Set(unknown.map(({ located }) => located.tag.id))];
      for (const id of fresh) waiting.add(id);
      testing.add(fresh);
    },
    next(nowMs) {
      for (let group = testing.next(); group.length > 0; group = testing.next()) {
        const unseen = group.filter((id) => !isTagInSight(id));
        if (unseen.length > 0) {
          forget(unseen);
          continue;
        }
        const query = queryFor(group, nowMs);
        if (query !== null) return { query, isRetry: false };
        // All of them have left the building in the meantime.
        for (const id of group) waiting.delete(id);
        testing.settle(true);
      }
      const due = book
        .all()
        .find(
          (series) =>
            series.ledger.state !== "following" &&
            series.ledger.refusal !== null &&
            !isBackingOff(series.ledger, nowMs) &&
            isInSight(series),
        );
      const query = due === undefined ? null : queryFor([due.located.tag.id], nowMs);
      return query === null ? null : { query, isRetry: true };
    },
    settle({ query, isRetry }, listed) {
      if (isRetry) return listed === null ? query.tagIds : [];
      // A response that leaves out a tag does not clear it: another tag would be found guilty in its place.
      if (listed !== null && query.tagIds.some((id) => !listed.has(id))) {
        forget(query.tagIds);
        return [];
      }
      const { good, bad } = testing.settle(listed !== null);
      for (const id of [...good, ...bad]) waiting.delete(id);
      return bad;
    },
    proven(tagIds, logs, nowMs) {
      const byId = new Map(logs.map((log) => [log.id, log]));
      return new Map(
        tagIds.flatMap((id) =>
          undecided(id).map((series) => [series, provenLedger(series, byId.get(id), nowMs)] as const),
        ),
      );
    },
    refused(tagIds, isNoLog, message, nowMs) {
      const record = isNoLog ? recordNoLog : recordRefusal;
      return new Map(
        tagIds.flatMap(undecided).map((series) => [series, record(series.ledger, message, nowMs)] as const),
      );
    },
    waiting: () => testing.waiting(),
  };
}

/**
 * Finds the tags without a log ("bad" members) when one of them makes a complete request fail with 404: adaptive group
 * testing for members in the order of their hosts. Pure.
 *
 * A group with a response clears all its members. A refused group has at least one bad member: parts of it are tested
 * until one is found. The last member left of a refused group is bad without a test of its own. Neighbours of a bad
 * member are tested singly, because tags without a log come in runs (a host that logs nothing).
 *
 * Two learned shares decide all sizes: bad members right after a good one, and right after a bad one.
 * Tests per member: `npm run bench:history`.
 */
export interface GroupTesting<T> {
  /** Adds members to test, in their order. The caller leaves out those that wait already. */
  add(members: readonly T[]): void;
  /** Returns the next group to test, the same one until it is settled; empty when every member is known. */
  next(): readonly T[];
  /** Returns the members whose verdict follows from the test of the last group. */
  settle(answered: boolean): Verdicts<T>;
  waiting(): number;
  /** Removes members. The test of a group with one of them no longer counts. */
  leave(members: ReadonlySet<T>): void;
}

export interface Verdicts<T> {
  readonly good: readonly T[];
  readonly bad: readonly T[];
}

/** Prior of both shares: counts as so many members seen. */
const AFTER_GOOD = { share: 0.02, seen: 20 };
const AFTER_BAD = { share: 0.5, seen: 1 };
/** A neighbour of a bad member is tested singly if it is good with less than this probability. */
const DOUBTFUL = 0.65;
/** Worth of a bad member found and of a member cleared, in bits of information; found by simulation. */
const WORTH_OF_CULPRIT = 0.3;
const WORTH_OF_CLEARED = 0.01;
/** Known members behind the candidates that the probabilities use. */
const LOOK_AHEAD = 60;

interface Spot<T> {
  readonly member: T;
  verdict: Verdict | null;
}

export function createGroupTesting<T>(size: number): GroupTesting<T> {
  /** Unknown members, and known ones among and right before them. */
  let line: Spot<T>[] = [];
  /** Places with at least one bad member among them, and places under test; ascending. */
  let suspects: readonly number[] = [];
  let tested: readonly number[] = [];
  const seen = { good: { good: 0, bad: 0 }, bad: { good: 0, bad: 0 } };

  const shares = (): Shares => ({
    afterGood: learnedShare(seen.good, AFTER_GOOD),
    afterBad: learnedShare(seen.bad, AFTER_BAD),
  });
  const verdictAt = (place: number) => line[place]?.verdict ?? null;

  const classify = (place: number, verdict: Verdict) => {
    const own = line[place];
    if (own === undefined) return;
    own.verdict = verdict;
    const left = verdictAt(place - 1);
    const right = verdictAt(place + 1);
    if (left !== null) seen[left][verdict]++;
    if (right !== null) seen[verdict][right]++;
  };

  /** The first unknown places. */
  const candidates = (): readonly number[] => {
    const places: number[] = [];
    for (let place = 0; place < line.length && places.length < size; place++) {
      if (verdictAt(place) === null) places.push(place);
    }
    return places;
  };

  const chainUpTo = (last: number): Chain =>
    createChain(
      line.slice(0, last + LOOK_AHEAD).map(({ verdict }) => verdict),
      shares(),
    );

  const choose = (): readonly number[] => {
    const places = suspects.length > 0 ? suspects : candidates();
    const last = places.at(-1);
    if (last === undefined) return [];
    const chain = chainUpTo(last);
    if (suspects.length > 0) return mostInformative(suspects, chain);
    const doubtful = places.find(
      (place) =>
        (verdictAt(place - 1) === "bad" || verdictAt(place + 1) === "bad") && chain.allGood([place]) < DOUBTFUL,
    );
    return doubtful === undefined ? evenOdds(places, chain) : [doubtful];
  };

  /** Drops known members up to the one right before the first unknown member. */
  const forget = () => {
    const unknown = line.findIndex(({ verdict }) => verdict === null);
    const keepFrom = Math.max(0, unknown === -1 ? line.length - 1 : unknown - 1);
    line = line.slice(keepFrom);
    suspects = suspects.map((place) => place - keepFrom);
  };

  return {
    add(members) {
      for (const member of members) line.push({ member, verdict: null });
    },
    next() {
      if (tested.length === 0) tested = choose();
      return membersAt(line, tested);
    },
    settle(answered) {
      if (tested.length === 0) return { good: [], bad: [] };
      const good = answered ? tested : [];
      for (const place of good) classify(place, "good");
      const left = answered ? suspects.filter((place) => verdictAt(place) === null) : tested;
      const bad = left.length === 1 ? left : [];
      for (const place of bad) classify(place, "bad");
      const verdicts = { good: membersAt(line, good), bad: membersAt(line, bad) };
      suspects = bad.length > 0 ? [] : left;
      tested = [];
      forget();
      return verdicts;
    },
    waiting: () => line.filter(({ verdict }) => verdict === null).length,
    leave(members) {
      if (!line.some(({ member }) => members.has(member))) return;
      const [suspected, asked] = [membersAt(line, suspects), membersAt(line, tested)];
      const isTouched = [...suspected, ...asked].some((member) => members.has(member));
      line = line.filter(({ member }) => !members.has(member));
      const placesOf = (of: readonly T[]) => line.flatMap(({ member }, place) => (of.includes(member) ? [place] : []));
      suspects = isTouched ? [] : placesOf(suspected);
      tested = isTouched ? [] : placesOf(asked);
    },
  };
}

function membersAt<T>(line: readonly Spot<T>[], places: readonly number[]): readonly T[] {
  return places.flatMap((place) => line[place]?.member ?? []);
}

function learnedShare(seen: Readonly<Record<Verdict, number>>, prior: { share: number; seen: number }): number {
  const share = (seen.bad + prior.share * prior.seen) / (seen.good + seen.bad + prior.seen);
  return Math.min(0.999, Math.max(0.0001, share));
}

/** Returns the longest prefix that is good with a probability of about one half (Golomb's rule for run lengths). */
function evenOdds(places: readonly number[], chain: Chain): readonly number[] {
  let count = 1;
  let before = chain.allGood(places.slice(0, 1));
  for (; count < places.length; count++) {
    const withNext = chain.allGood(places.slice(0, count + 1));
    if (before + withNext <= 1) break;
    before = withNext;
  }
  return places.slice(0, count);
}

/** Returns the part of a bad group whose test gives most information, with a preference for single members. */
function mostInformative(suspects: readonly number[], chain: Chain): readonly number[] {
  const noCulprit = chain.allGood(suspects);
  let best = suspects.slice(0, 1);
  let bestWorth = Number.NEGATIVE_INFINITY;
  for (let from = 0; from < suspects.length; from++) {
    for (let to = from + 1; to <= suspects.length; to++) {
      const count = to - from;
      if (count === suspects.length) continue;
      const part = suspects.slice(from, to);
      const clears = Math.min(1, Math.max(0, (chain.allGood(part) - noCulprit) / (1 - noCulprit)));
      const settles = (count === 1 ? 1 - clears : 0) + (count === suspects.length - 1 ? clears : 0);
      const worth = informationOf(clears) + WORTH_OF_CULPRIT * settles + WORTH_OF_CLEARED * count * clears;
      // Ignore rounding differences, so that every machine chooses the same.
      if (worth <= bestWorth + 1e-3) continue;
      best = part;
      bestWorth = worth;
    }
  }
  return best;
}

/** Information of a test that passes with this probability, in bits. */
function informationOf(share: number): number {
  if (share <= 0 || share >= 1) return 0;
  return -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
}

/** Verdicts of members in a row follow a Markov chain with two states, because bad members come in runs. Pure. */
export type Verdict = "good" | "bad";

export interface Shares {
  /** Share of bad members right after a good member, and right after a bad one. */
  readonly afterGood: number;
  readonly afterBad: number;
}

export interface Chain {
  /** Returns the probability that these places, ascending, are all good. */
  allGood(places: readonly number[]): number;
}

/** Probabilities of one place, from the verdicts on one side of it. */
interface Belief {
  readonly good: number;
  readonly bad: number;
}

const NO_EVIDENCE: Belief = { good: 1, bad: 1 };
const scaled = ({ good, bad }: Belief, by: number): Belief => ({ good: good / by, bad: bad / by });

/** `known`: verdict of each place in a row, null if unknown. The place before the first is good. */
function createChain(known: readonly (Verdict | null)[], { afterGood, afterBad }: Shares): Chain {
  const possible = (place: number, { good, bad }: Belief): Belief => {
    const verdict = known[place] ?? null;
    return { good: verdict === "bad" ? 0 : good, bad: verdict === "good" ? 0 : bad };
  };
  const forward = ({ good, bad }: Belief): Belief => ({
    good: good * (1 - afterGood) + bad * (1 - afterBad),
    bad: good * afterGood + bad * afterBad,
  });
  const back = ({ good, bad }: Belief): Belief => ({
    good: (1 - afterGood) * good + afterGood * bad,
    bad: (1 - afterBad) * good + afterBad * bad,
  });

  /** Forward and backward pass by place, in the same scale. */
  const before: Belief[] = [];
  const scale: number[] = [];
  let belief: Belief = { good: 1, bad: 0 };
  for (let place = 0; place < known.length; place++) {
    const unscaled = possible(place, forward(belief));
    const sum = unscaled.good + unscaled.bad;
    belief = scaled(unscaled, sum);
    before.push(belief);
    scale.push(sum);
  }
  const after: Belief[] = known.map(() => NO_EVIDENCE);
  for (let place = known.length - 2; place >= 0; place--) {
    const next = possible(place + 1, after[place + 1] ?? NO_EVIDENCE);
    after[place] = scaled(back(next), scale[place + 1] ?? 1);
  }

  return {
    allGood(places) {
      const [first] = places;
      if (first === undefined) return 1;
      let at = first;
      let good: Belief = { good: before[first]?.good ?? 0, bad: 0 };
      for (const place of places.slice(1)) {
        while (at < place) {
          at++;
          good = scaled(possible(at, forward(good)), scale[at] ?? 1);
        }
        good = { good: good.good, bad: 0 };
      }
      return good.good * (after[at]?.good ?? 1);
    },
  };
}

import type { TagLog } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { HistoryQuery } from "../../source/source.ts";
import type { StoredHistory } from "../snapshot.ts";
import { bucketBefore, bucketStart, rangeTime } from "./buckets.ts";
import { isBackingOff, parseTime, recordEmpty, recordNoLog, recordRefusal } from "./ledger.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { HistoryLedgers, Series } from "./series.ts";

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
  wantedFrom: (series: Series) => number = ({ ledger }) => parseTime(ledger.wished),
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
  const toLearn = (tagId: string) => book.ofTag(tagId).filter(({ ledger }) => ledger.state !== "following");

  const forget = (tagIds: readonly string[]) => {
    testing.leave(new Set(tagIds));
    for (const id of tagIds) waiting.delete(id);
  };

  /** What a tag's ledgers become, now that it has a log. */
  const provenLedger = (series: Series, log: TagLog | undefined, nowMs: number): StoredHistory => {
    const noticed: StoredHistory = { ...series.ledger, state: "following", refusal: null };
    // A month that is listed without a value says only that there may be something; no month at all says nothing.
    const listed = log === undefined ? null : answeredPoints(log);
    const firstMs = Math.min(...Array.from(listed ?? [], ({ time }) => Date.parse(time)));
    const { resolution, timeZone, since, wished } = noticed;
    if (series.total || !Number.isFinite(firstMs)) return noticed;
    // Where a month is a sample, the first that is listed may be the one after the first value.
    const monthMs = bucketBefore(firstMs, "1mo", timeZone);
    const toMs = Math.min(bucketStart(monthMs, resolution, timeZone), parseTime(since));
    if (toMs <= parseTime(wished)) return noticed;
    const word = { why: "null" as const, said: FROM_OVERVIEW, at: isoUtc(nowMs) };
    return recordEmpty(noticed, { fromMs: parseTime(wished), toMs }, word);
  };

  return {
    about,
    forget,
    refresh() {
      const unproven = book
        .series()
        .filter(
          (series) =>
            series.ledger.state === "unproven" &&
            series.ledger.refusal === null &&
            isInSight(series) &&
            !waiting.has(series.located.tag.id),
        )
        .map((series) => series.located.tag.id);
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
            series.ledger.state !== "following" &&
            series.ledger.refusal !== null &&
            !isBackingOff(series.ledger, nowMs) &&
            isInSight(series),
        );
      const query = due === undefined ? null : about([due.located.tag.id], nowMs);
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
      const ledger = why === "no-log" ? recordNoLog : recordRefusal;
      const changed = new Map<Series, StoredHistory>();
      for (const series of tagIds.flatMap(toLearn)) {
        changed.set(series, ledger(series.ledger, said, nowMs));
      }
      return changed;
    },
    waiting: () => testing.waiting(),
  };
}

/**
 * Finds the tags without a log when one of them makes a whole request answer 404: adaptive group testing with
 * inference, for members that stand in the order of their hosts. Pure.
 *
 * A group that is answered clears all its members. A group that is refused holds at least one culprit: parts of it
 * are tested until one is found. The last member left of a refused group is a culprit without being asked. What
 * stands beside a culprit is asked alone, because tags without a log come in runs (a host that logs nothing); what
 * is left over between two runs joins the next group.
 *
 * All sizes come from two shares that are learned: of culprits right after a good member and right after a culprit.
 * Tests per member: `npm run bench:history`.
 */
export interface GroupTesting<T> {
  /** Members to be tested, in their order; those that wait already are left out by the caller. */
  add(members: readonly T[]): void;
  /** The group to ask for next; empty when all is known. The same until it is settled. */
  next(): readonly T[];
  /** What the last group's answer means: members that are known from now on. */
  settle(answered: boolean): Verdicts<T>;
  waiting(): number;
  /** Takes members out, known or not; what was asked of a group with one of them says nothing any more. */
  leave(members: ReadonlySet<T>): void;
}

export interface Verdicts<T> {
  readonly good: readonly T[];
  readonly bad: readonly T[];
}

/** Shares are believed as if so many members had been seen before the first. */
const AFTER_GOOD = { share: 0.02, seen: 20 };
const AFTER_BAD = { share: 0.5, seen: 1 };
/** A neighbour of a culprit that is good with less than this likelihood is asked alone. */
const DOUBTFUL = 0.65;
/** What finding a culprit and what clearing a member is worth beside a bit of information; found by simulation. */
const WORTH_OF_CULPRIT = 0.3;
const WORTH_OF_CLEARED = 0.01;
/** Members behind the ones that may be tested next that are looked at for what is known of them. */
const LOOK_AHEAD = 60;

interface Spot<T> {
  readonly member: T;
  verdict: Verdict | null;
}

export function createGroupTesting<T>(size: number): GroupTesting<T> {
  /** Everybody who is unknown, and whoever stands among them or right before them. */
  let line: Spot<T>[] = [];
  /** Places that hold a culprit together, and those under test; ascending. */
  let suspects: readonly number[] = [];
  let tested: readonly number[] = [];
  const seen = { good: { good: 0, bad: 0 }, bad: { good: 0, bad: 0 } };

  const shares = (): Shares => ({
    afterGood: leaning(seen.good, AFTER_GOOD),
    afterBad: leaning(seen.bad, AFTER_BAD),
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
    if (suspects.length > 0) return mostTelling(suspects, chain);
    const doubtful = places.find(
      (place) =>
        (verdictAt(place - 1) === "bad" || verdictAt(place + 1) === "bad") &&
        chain.allGood([place]) < DOUBTFUL,
    );
    return doubtful === undefined ? evenOdds(places, chain) : [doubtful];
  };

  /** Those who are known are forgotten up to the one right before the first who is not. */
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
      const placesOf = (of: readonly T[]) =>
        line.flatMap(({ member }, place) => (of.includes(member) ? [place] : []));
      suspects = isTouched ? [] : placesOf(suspected);
      tested = isTouched ? [] : placesOf(asked);
    },
  };
}

function membersAt<T>(line: readonly Spot<T>[], places: readonly number[]): readonly T[] {
  return places.flatMap((place) => line[place]?.member ?? []);
}

function leaning(seen: Readonly<Record<Verdict, number>>, prior: { share: number; seen: number }): number {
  const share = (seen.bad + prior.share * prior.seen) / (seen.good + seen.bad + prior.seen);
  return Math.min(0.999, Math.max(0.0001, share));
}

/** As many from the first on as are answered about as often as they are refused (Golomb's rule for run lengths). */
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

/** The part of a group with a culprit whose answer tells most, with a liking for a single one that settles it. */
function mostTelling(suspects: readonly number[], chain: Chain): readonly number[] {
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
      // Differences of rounding are none: the same on every machine.
      if (worth <= bestWorth + 1e-3) continue;
      best = part;
      bestWorth = worth;
    }
  }
  return best;
}

/** Bits in the answer to a question that is answered with yes so often. */
function informationOf(share: number): number {
  if (share <= 0 || share >= 1) return 0;
  return -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
}

/**
 * What is likely of members in a row when tags without a log come in runs (a host that logs nothing): a chain with
 * two states, of which some members are known. Pure.
 */
export type Verdict = "good" | "bad";

export interface Shares {
  /** Share of culprits right after a good member, and right after a culprit. */
  readonly afterGood: number;
  readonly afterBad: number;
}

export interface Chain {
  /** How likely it is that these places, ascending, are all good. */
  allGood(places: readonly number[]): number;
}

/** Likelihoods of one place, as far as one side of it tells. */
interface Belief {
  readonly good: number;
  readonly bad: number;
}

const NO_EVIDENCE: Belief = { good: 1, bad: 1 };
const scaled = ({ good, bad }: Belief, by: number): Belief => ({ good: good / by, bad: bad / by });

/** `known`: the verdict of each place in a row, null where there is none; what stands before the first is good. */
export function createChain(known: readonly (Verdict | null)[], { afterGood, afterBad }: Shares): Chain {
  const possible = (place: number, { good, bad }: Belief): Belief => {
    const verdict = known[place] ?? null;
    return { good: verdict === "bad" ? 0 : good, bad: verdict === "good" ? 0 : bad };
  };
  const onward = ({ good, bad }: Belief): Belief => ({
    good: good * (1 - afterGood) + bad * (1 - afterBad),
    bad: good * afterGood + bad * afterBad,
  });
  const back = ({ good, bad }: Belief): Belief => ({
    good: (1 - afterGood) * good + afterGood * bad,
    bad: (1 - afterBad) * good + afterBad * bad,
  });

  /** By place: what it and all before it tell; then what all after it tell, in the same scale. */
  const before: Belief[] = [];
  const scale: number[] = [];
  let belief: Belief = { good: 1, bad: 0 };
  for (let place = 0; place < known.length; place++) {
    const unscaled = possible(place, onward(belief));
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
          good = scaled(possible(at, onward(good)), scale[at] ?? 1);
        }
        good = { good: good.good, bad: 0 };
      }
      return good.good * (after[at]?.good ?? 1);
    },
  };
}

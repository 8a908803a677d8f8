import type { TagLog } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { StoredLedger } from "../snapshot.ts";
import { bucketBefore, bucketStart, DAY_MS, formatUtc, parseTime } from "./buckets.ts";
import { addRanges, isBackingOff, recordNoLog, recordRefusal } from "./ledger.ts";
import { answeredPoints } from "./ledger-ranges.ts";
import type { Series, SeriesRegistry } from "./series.ts";

export type LogDiscovery = ReturnType<typeof createLogDiscovery>;

export interface DiscoveryRequest {
  readonly query: HistoryQuery;
  readonly isRetry: boolean;
}

const NO_EARLIER_MONTH = "the monthly overview lists nothing so early";

/** Finds tags without a log with a query for a few monthly values. The first listed month limits the backfill. */
export function createLogDiscovery(registry: SeriesRegistry, isVisible: (series: Series) => boolean) {
  const testing = createGroupTesting<string>(TAGS_PER_REQUEST);

  function buildDiscoveryQuery(tagIds: readonly string[], nowMs: number): HistoryQuery | null {
    const series = tagIds.flatMap((id) => registry.ofTag(id));
    const [first] = series;
    if (first === undefined) return null;
    const { timeZone } = first.rules;
    const fromMs = Math.min(...series.map(registry.neededFrom), nowMs - DAY_MS);
    // The interface does not say whether the start is included: begin a month early.
    const from = formatUtc(bucketBefore(fromMs, { resolution: "1mo", timeZone }));
    return { tagIds, from, to: formatUtc(nowMs), resolution: "1mo", timeZone };
  }

  const listUndecided = (tagId: string) => registry.ofTag(tagId).filter(({ ledger }) => ledger.state !== "following");

  function provenLedger(series: Series, log: TagLog | undefined, nowMs: number): StoredLedger {
    const followedLedger: StoredLedger = { ...series.ledger, state: "following", refusal: null };
    const listedPoints = log === undefined ? null : answeredPoints(log);
    const firstMs = Math.min(...Array.from(listedPoints ?? [], ({ time }) => Date.parse(time)));
    if (series.total || !Number.isFinite(firstMs)) return followedLedger;
    // If a month is a sample, the first listed month may be the one after the first value.
    const firstMonthMs = bucketBefore(firstMs, { resolution: "1mo", timeZone: followedLedger.timeZone });
    const fromMs = parseTime(followedLedger.wished);
    const toMs = Math.min(bucketStart(firstMonthMs, followedLedger), parseTime(followedLedger.since));
    if (toMs <= fromMs) return followedLedger;
    return addRanges(followedLedger, [{ fromMs, toMs, why: "null", said: NO_EARLIER_MONTH, at: isoUtc(nowMs) }]);
  }

  return {
    queryFor: buildDiscoveryQuery,
    refresh(): void {
      const waitingIds = new Set(testing.waiting());
      const undiscoveredIds = registry
        .all()
        .filter((series) => series.ledger.state === "unproven" && series.ledger.refusal === null && isVisible(series))
        .map(({ located }) => located.tag.id);
      testing.add([...new Set(undiscoveredIds)].filter((id) => !waitingIds.has(id)));
    },
    next(nowMs: number): DiscoveryRequest | null {
      for (let group = testing.next(); group.length > 0; group = testing.next()) {
        const hiddenIds = group.filter((id) => !registry.ofTag(id).some(isVisible));
        const query = hiddenIds.length > 0 ? null : buildDiscoveryQuery(group, nowMs);
        if (query !== null) return { query, isRetry: false };
        testing.leave(new Set(hiddenIds));
      }
      const dueSeries = registry.all().find((series) => {
        const { state, refusal } = series.ledger;
        return state !== "following" && refusal !== null && !isBackingOff(series.ledger, nowMs) && isVisible(series);
      });
      const query = dueSeries === undefined ? null : buildDiscoveryQuery([dueSeries.located.tag.id], nowMs);
      return query === null ? null : { query, isRetry: true };
    },
    /** Returns the tags without a log. `listed`: tags in the response; null after a refusal because of a log. */
    settle({ query, isRetry }: DiscoveryRequest, listed: ReadonlySet<string> | null): readonly string[] {
      if (isRetry) return listed === null ? query.tagIds : [];
      if (listed === null || query.tagIds.every((id) => listed.has(id))) return testing.settle(listed !== null).bad;
      // A response that leaves out a tag does not clear the tag: another tag would be found guilty.
      testing.leave(new Set(query.tagIds));
      return [];
    },
    proven(tagIds: readonly string[], logs: readonly TagLog[], nowMs: number): ReadonlyMap<Series, StoredLedger> {
      const logsById = new Map(logs.map((log) => [log.id, log]));
      const undecided = tagIds.flatMap(listUndecided);
      return new Map(undecided.map((one) => [one, provenLedger(one, logsById.get(one.located.tag.id), nowMs)]));
    },
    refused(tagIds: readonly string[], isNoLog: boolean, message: string, nowMs: number) {
      const record = isNoLog ? recordNoLog : recordRefusal;
      return new Map(tagIds.flatMap(listUndecided).map((series) => [series, record(series.ledger, message, nowMs)]));
    },
    forget: (tagIds: readonly string[]) => testing.leave(new Set(tagIds)),
    waiting: () => testing.waiting().length,
  };
}

type MemberVerdict = "good" | "bad";

interface TestedMember<T> {
  readonly member: T;
  verdict: MemberVerdict | null;
}

/** Assumed share of bad members after a good or a bad member; `seen`: weight of the assumption in members. */
const PRIOR_BAD_SHARES = { good: { share: 0.02, seen: 20 }, bad: { share: 0.5, seen: 1 } };
/** A neighbour of a bad member is tested singly if it is good with less than this probability. */
const DOUBTFUL_PROBABILITY_MAX = 0.65;
/** Bits of information that a bad member found and a member cleared are worth; found by simulation. */
const BITS_PER_BAD_MEMBER = 0.3;
const BITS_PER_CLEARED_MEMBER = 0.01;
const KNOWN_MEMBERS_USED = 60;

/**
 * Adaptive group testing for tags without a log ("bad" members), which make a complete request fail with 404. Parts of
 * a refused group are tested until one bad member is found. Neighbours of a bad member are tested singly, because hosts
 * that log nothing are neighbours. Learned shares decide all sizes (`npm run bench:history`).
 */
export function createGroupTesting<T>(size: number) {
  let line: TestedMember<T>[] = [];
  /** Members of a refused group that are not cleared: at least one member is bad. */
  let suspects: readonly TestedMember<T>[] = [];
  let tested: readonly TestedMember<T>[] = [];
  const pairCounts = { good: { good: 0, bad: 0 }, bad: { good: 0, bad: 0 } };

  function classify(spot: TestedMember<T>, verdict: MemberVerdict): void {
    spot.verdict = verdict;
    const at = line.indexOf(spot);
    const [left, right] = [line[at - 1]?.verdict, line[at + 1]?.verdict];
    if (left != null) pairCounts[left][verdict]++;
    if (right != null) pairCounts[verdict][right]++;
  }

  const badShareAfter = (left: MemberVerdict) => {
    const badShare =
      (pairCounts[left].bad + PRIOR_BAD_SHARES[left].share * PRIOR_BAD_SHARES[left].seen) /
      (pairCounts[left].good + pairCounts[left].bad + PRIOR_BAD_SHARES[left].seen);
    return Math.min(0.999, Math.max(0.0001, badShare));
  };

  function chooseGroup(): readonly TestedMember<T>[] {
    const untested = suspects.length > 0 ? suspects : line.filter(({ verdict }) => verdict === null).slice(0, size);
    const lastUntested = untested.at(-1);
    if (lastUntested === undefined) return [];
    const lastIndex = line.indexOf(lastUntested);
    const knownIndex = line.slice(0, lastIndex + KNOWN_MEMBERS_USED).findLastIndex(({ verdict }) => verdict !== null);
    const contextMembers = line.slice(0, Math.max(lastIndex, knownIndex) + 1);
    const shares = { good: badShareAfter("good"), bad: badShareAfter("bad") };
    const allGood = (spots: readonly TestedMember<T>[]) => probabilityOfAllGood(contextMembers, new Set(spots), shares);
    if (suspects.length > 0) return chooseMostInformativePart(suspects, allGood);
    const doubtfulMember = untested.find((spot) => {
      const at = line.indexOf(spot);
      const isNextToBad = line[at - 1]?.verdict === "bad" || line[at + 1]?.verdict === "bad";
      return isNextToBad && allGood([spot]) < DOUBTFUL_PROBABILITY_MAX;
    });
    return doubtfulMember === undefined ? chooseEvenOddsPrefix(untested, allGood) : [doubtfulMember];
  }

  const toMembers = (spots: readonly TestedMember<T>[]) => spots.map(({ member }) => member);

  return {
    add(members: readonly T[]): void {
      for (const member of members) line.push({ member, verdict: null });
    },
    next(): readonly T[] {
      if (tested.length === 0) tested = chooseGroup();
      return toMembers(tested);
    },
    settle(answered: boolean): { readonly good: readonly T[]; readonly bad: readonly T[] } {
      const goodMembers = answered ? tested : [];
      const openSuspects = answered ? suspects.filter((spot) => !tested.includes(spot)) : tested;
      const badMembers = openSuspects.length === 1 ? openSuspects : [];
      for (const spot of goodMembers) classify(spot, "good");
      for (const spot of badMembers) classify(spot, "bad");
      suspects = badMembers.length > 0 ? [] : openSuspects;
      tested = [];
      const untestedIndex = line.findIndex(({ verdict }) => verdict === null);
      line = line.slice(Math.max(0, (untestedIndex === -1 ? line.length : untestedIndex) - 1));
      return { good: toMembers(goodMembers), bad: toMembers(badMembers) };
    },
    waiting: () => toMembers(line.filter(({ verdict }) => verdict === null)),
    leave(members: ReadonlySet<T>): void {
      line = line.filter(({ member }) => !members.has(member));
      if (![...suspects, ...tested].some(({ member }) => members.has(member))) return;
      suspects = [];
      tested = [];
    },
  };
}

/** Returns the longest prefix whose members are all good with a probability of about one half (Golomb's rule). */
function chooseEvenOddsPrefix<S>(spots: readonly S[], allGood: (spots: readonly S[]) => number): readonly S[] {
  let count = 1;
  let oddsBefore = allGood(spots.slice(0, 1));
  for (; count < spots.length; count++) {
    const oddsWithNext = allGood(spots.slice(0, count + 1));
    if (oddsBefore + oddsWithNext <= 1) break;
    oddsBefore = oddsWithNext;
  }
  return spots.slice(0, count);
}

/** Returns the part of a bad group whose test gives most information, preferring single members. */
function chooseMostInformativePart<S>(suspects: readonly S[], allGood: (spots: readonly S[]) => number): readonly S[] {
  const noCulprit = allGood(suspects);
  let bestPart = suspects.slice(0, 1);
  let bestScore = Number.NEGATIVE_INFINITY;
  for (let from = 0; from < suspects.length; from++) {
    for (let to = from + 1; to <= suspects.length; to++) {
      const count = to - from;
      if (count === suspects.length) continue;
      const testedPart = suspects.slice(from, to);
      const goodOdds = Math.min(1, Math.max(0, (allGood(testedPart) - noCulprit) / (1 - noCulprit)));
      const foundOdds = (count === 1 ? 1 - goodOdds : 0) + (count === suspects.length - 1 ? goodOdds : 0);
      const bonusBits = BITS_PER_BAD_MEMBER * foundOdds + BITS_PER_CLEARED_MEMBER * count * goodOdds;
      const score = entropyBits(goodOdds) + bonusBits;
      // Ignore rounding differences, so that every machine chooses the same.
      if (score <= bestScore + 1e-3) continue;
      bestPart = testedPart;
      bestScore = score;
    }
  }
  return bestPart;
}

function entropyBits(share: number): number {
  if (share <= 0 || share >= 1) return 0;
  return -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
}

/** Uses a Markov chain, because bad members come in runs. `badAfter`: share of bad members after a good or bad one. */
function probabilityOfAllGood<T>(
  line: readonly TestedMember<T>[],
  spots: ReadonlySet<TestedMember<T>>,
  badAfter: Readonly<Record<MemberVerdict, number>>,
): number {
  let [good, bad] = [1, 0];
  let [goodIf, badIf] = [1, 0];
  for (const testedMember of line) {
    const [canBeGood, canBeBad] = [Number(testedMember.verdict !== "bad"), Number(testedMember.verdict !== "good")];
    const canBeBadIf = spots.has(testedMember) ? 0 : canBeBad;
    const nextGood = canBeGood * (good * (1 - badAfter.good) + bad * (1 - badAfter.bad));
    const nextBad = canBeBad * (good * badAfter.good + bad * badAfter.bad);
    const nextGoodIf = canBeGood * (goodIf * (1 - badAfter.good) + badIf * (1 - badAfter.bad));
    const nextBadIf = canBeBadIf * (goodIf * badAfter.good + badIf * badAfter.bad);
    const sum = nextGood + nextBad;
    [good, bad, goodIf, badIf] = [nextGood / sum, nextBad / sum, nextGoodIf / sum, nextBadIf / sum];
  }
  return goodIf + badIf;
}

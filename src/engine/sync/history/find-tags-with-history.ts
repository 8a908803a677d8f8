import type { TagLog } from "../../../core/model/building.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type HistoryQuery, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { StoredLedger } from "../stored-documents.ts";
import { bucketBefore, bucketStart, DAY_MS, formatUtc, parseTime } from "./buckets.ts";
import { addLedgerRanges, isBackingOff, recordNoLog, recordRefusal } from "./ledger.ts";
import { pointsOfTagLog } from "./ledger-ranges.ts";
import type { HistorySeriesRegistry, Series } from "./series-registry.ts";

export type TagLogDiscovery = ReturnType<typeof createTagLogDiscovery>;

export interface LogDiscoveryRequest {
  readonly query: HistoryQuery;
  readonly isRetry: boolean;
}

const NO_EARLIER_MONTH = "the monthly overview lists nothing so early";

/** Finds tags without history by requesting monthly values. The first listed month limits the backfill. */
export function createTagLogDiscovery(registry: HistorySeriesRegistry, isVisible: (series: Series) => boolean) {
  const groupTests = createGroupTesting<string>(TAGS_PER_REQUEST);

  function buildDiscoveryQuery(tagIds: readonly string[], nowMs: number): HistoryQuery | null {
    const series = tagIds.flatMap((id) => registry.getSeriesOfTag(id));
    const [firstSeries] = series;
    if (firstSeries === undefined) return null;
    const { timeZone } = firstSeries.rules;
    const fromMs = Math.min(...series.map(registry.neededFromMs), nowMs - DAY_MS);
    // The service does not document whether the start is included: begin a month early.
    const fromTime = formatUtc(bucketBefore(fromMs, { resolution: "1mo", timeZone }));
    return { tagIds, from: fromTime, to: formatUtc(nowMs), resolution: "1mo", timeZone };
  }

  const seriesWithUnknownLog = (tagId: string) =>
    registry.getSeriesOfTag(tagId).filter(({ ledger }) => ledger.state !== "following");

  function ledgerOfLoggedTag(series: Series, log: TagLog | undefined, nowMs: number): StoredLedger {
    const followedLedger: StoredLedger = { ...series.ledger, state: "following", refusal: null };
    const listedPoints = log === undefined ? null : pointsOfTagLog(log);
    const firstPointMs = Math.min(...Array.from(listedPoints ?? [], ({ time }) => Date.parse(time)));
    if (series.total || !Number.isFinite(firstPointMs)) return followedLedger;
    // The first value may be older than the first listed month by one month.
    const firstMonthMs = bucketBefore(firstPointMs, { resolution: "1mo", timeZone: followedLedger.timeZone });
    const fromMs = parseTime(followedLedger.wished);
    const toMs = Math.min(bucketStart(firstMonthMs, followedLedger), parseTime(followedLedger.since));
    if (toMs <= fromMs) return followedLedger;
    return addLedgerRanges(followedLedger, [{ fromMs, toMs, why: "null", said: NO_EARLIER_MONTH, at: isoUtc(nowMs) }]);
  }

  return {
    queryFor: buildDiscoveryQuery,
    queueUndiscoveredTags(): void {
      const waitingTagIds = new Set(groupTests.waitingMembers());
      const undiscoveredTagIds = registry
        .getAll()
        .filter((series) => series.ledger.state === "unproven" && series.ledger.refusal === null && isVisible(series))
        .map(({ siteTag }) => siteTag.tag.id);
      groupTests.addMembers([...new Set(undiscoveredTagIds)].filter((id) => !waitingTagIds.has(id)));
    },
    nextRequest(nowMs: number): LogDiscoveryRequest | null {
      for (let group = groupTests.nextTest(); group.length > 0; group = groupTests.nextTest()) {
        const invisibleTagIds = group.filter((id) => !registry.getSeriesOfTag(id).some(isVisible));
        const query = invisibleTagIds.length > 0 ? null : buildDiscoveryQuery(group, nowMs);
        if (query !== null) return { query, isRetry: false };
        groupTests.removeMembers(new Set(invisibleTagIds));
      }
      const dueSeries = registry.getAll().find((series) => {
        const { state, refusal } = series.ledger;
        return state !== "following" && refusal !== null && !isBackingOff(series.ledger, nowMs) && isVisible(series);
      });
      const query = dueSeries === undefined ? null : buildDiscoveryQuery([dueSeries.siteTag.tag.id], nowMs);
      return query === null ? null : { query, isRetry: true };
    },
    /** Returns tags without a log. `listedTagIds`: tags in the response; null if the request was refused. */
    settleReply({ query, isRetry }: LogDiscoveryRequest, listedTagIds: ReadonlySet<string> | null): readonly string[] {
      if (isRetry) return listedTagIds === null ? query.tagIds : [];
      if (listedTagIds === null || query.tagIds.every((id) => listedTagIds.has(id)))
        return groupTests.settleTest(listedTagIds !== null).bad;
      // A response without a requested tag proves nothing about the tag.
      groupTests.removeMembers(new Set(query.tagIds));
      return [];
    },
    ledgersOfLoggedTags(tagIds: readonly string[], logs: readonly TagLog[], nowMs: number) {
      const logsById = new Map(logs.map((log) => [log.id, log]));
      const pendingSeries = tagIds.flatMap(seriesWithUnknownLog);
      return new Map(
        pendingSeries.map((series) => [series, ledgerOfLoggedTag(series, logsById.get(series.siteTag.tag.id), nowMs)]),
      );
    },
    ledgersOfRefusedTags(tagIds: readonly string[], isNoLog: boolean, message: string, nowMs: number) {
      const record = isNoLog ? recordNoLog : recordRefusal;
      return new Map(
        tagIds.flatMap(seriesWithUnknownLog).map((series) => [series, record(series.ledger, message, nowMs)]),
      );
    },
    removeFromQueue: (tagIds: readonly string[]) => groupTests.removeMembers(new Set(tagIds)),
    waitingTagCount: () => groupTests.waitingMembers().length,
  };
}

type TestedMemberVerdict = "good" | "bad";

interface TestedMember<T> {
  readonly member: T;
  verdict: TestedMemberVerdict | null;
}

/** Assumed share of tags without history (bad) after a good or bad tag. It weighs as much as `seen` test results. */
const PRIOR_BAD_MEMBER_SHARES = { good: { share: 0.02, seen: 20 }, bad: { share: 0.5, seen: 1 } };
const SINGLE_TEST_PROBABILITY_MAX = 0.65;
/** Bonus, in bits of information, for a test that proves a member bad or proves a member good; chosen by simulation. */
const BITS_PER_BAD_MEMBER = 0.3;
const BITS_PER_CLEARED_MEMBER = 0.01;
const CLASSIFIED_MEMBERS_USED = 60;

/**
 * Finds the tags without a history log ("bad" members), which make a complete request fail, by adaptive group testing:
 * tests parts of a refused group until one bad member is found, then its neighbours, which are often bad too.
 */
export function createGroupTesting<T>(maxSize: number) {
  let queue: TestedMember<T>[] = [];
  /** Members of a refused group, of which at least one is bad. */
  let suspects: readonly TestedMember<T>[] = [];
  let membersInTest: readonly TestedMember<T>[] = [];
  const neighbourVerdictCounts = { good: { good: 0, bad: 0 }, bad: { good: 0, bad: 0 } };

  function classifyMember(member: TestedMember<T>, verdict: TestedMemberVerdict): void {
    member.verdict = verdict;
    const memberIndex = queue.indexOf(member);
    const [verdictBefore, verdictAfter] = [queue[memberIndex - 1]?.verdict, queue[memberIndex + 1]?.verdict];
    if (verdictBefore != null) neighbourVerdictCounts[verdictBefore][verdict]++;
    if (verdictAfter != null) neighbourVerdictCounts[verdict][verdictAfter]++;
  }

  const badMemberShareAfter = (verdictBefore: TestedMemberVerdict) => {
    const { good, bad } = neighbourVerdictCounts[verdictBefore];
    const { share, seen } = PRIOR_BAD_MEMBER_SHARES[verdictBefore];
    const badMemberShare = (bad + share * seen) / (good + bad + seen);
    return Math.min(0.999, Math.max(0.0001, badMemberShare));
  };

  function chooseMembersToTest(): readonly TestedMember<T>[] {
    const untested = suspects.length > 0 ? suspects : queue.filter(({ verdict }) => verdict === null).slice(0, maxSize);
    const lastUntestedMember = untested.at(-1);
    if (lastUntestedMember === undefined) return [];
    const lastUntestedIndex = queue.indexOf(lastUntestedMember);
    const lastClassifiedIndex = queue
      .slice(0, lastUntestedIndex + CLASSIFIED_MEMBERS_USED)
      .findLastIndex(({ verdict }) => verdict !== null);
    const contextMembers = queue.slice(0, Math.max(lastUntestedIndex, lastClassifiedIndex) + 1);
    const badShareAfter = { good: badMemberShareAfter("good"), bad: badMemberShareAfter("bad") };
    const allGoodProbability = (members: readonly TestedMember<T>[]) =>
      probabilityOfAllGood(contextMembers, new Set(members), badShareAfter);
    if (suspects.length > 0) return chooseMostInformativePart(suspects, allGoodProbability);
    const singlyTestedMember = untested.find((member) => {
      const memberIndex = queue.indexOf(member);
      const isNextToBadMember = queue[memberIndex - 1]?.verdict === "bad" || queue[memberIndex + 1]?.verdict === "bad";
      return isNextToBadMember && allGoodProbability([member]) < SINGLE_TEST_PROBABILITY_MAX;
    });
    return singlyTestedMember === undefined
      ? chooseEvenOddsMembers(untested, allGoodProbability)
      : [singlyTestedMember];
  }

  const toMembers = (testedMembers: readonly TestedMember<T>[]) => testedMembers.map(({ member }) => member);

  return {
    addMembers(members: readonly T[]): void {
      for (const member of members) queue.push({ member, verdict: null });
    },
    nextTest(): readonly T[] {
      if (membersInTest.length === 0) membersInTest = chooseMembersToTest();
      return toMembers(membersInTest);
    },
    settleTest(hasSucceeded: boolean): { readonly good: readonly T[]; readonly bad: readonly T[] } {
      const goodMembers = hasSucceeded ? membersInTest : [];
      const remainingSuspects = hasSucceeded
        ? suspects.filter((member) => !membersInTest.includes(member))
        : membersInTest;
      const badMembers = remainingSuspects.length === 1 ? remainingSuspects : [];
      for (const member of goodMembers) classifyMember(member, "good");
      for (const member of badMembers) classifyMember(member, "bad");
      suspects = badMembers.length > 0 ? [] : remainingSuspects;
      membersInTest = [];
      const firstUntestedIndex = queue.findIndex(({ verdict }) => verdict === null);
      queue = queue.slice(Math.max(0, (firstUntestedIndex === -1 ? queue.length : firstUntestedIndex) - 1));
      return { good: toMembers(goodMembers), bad: toMembers(badMembers) };
    },
    waitingMembers: () => toMembers(queue.filter(({ verdict }) => verdict === null)),
    removeMembers(members: ReadonlySet<T>): void {
      queue = queue.filter(({ member }) => !members.has(member));
      if (![...suspects, ...membersInTest].some(({ member }) => members.has(member))) return;
      suspects = [];
      membersInTest = [];
    },
  };
}

/** Returns the longest prefix whose members are all good with a probability of about one half (Golomb's rule). */
function chooseEvenOddsMembers<S>(members: readonly S[], allGoodProbability: (members: readonly S[]) => number) {
  let memberCount = 1;
  let probabilityBefore = allGoodProbability(members.slice(0, 1));
  for (; memberCount < members.length; memberCount++) {
    const probabilityWithNext = allGoodProbability(members.slice(0, memberCount + 1));
    if (probabilityBefore + probabilityWithNext <= 1) break;
    probabilityBefore = probabilityWithNext;
  }
  return members.slice(0, memberCount);
}

/** Returns the part of a bad group whose test gives most information, preferring single members. */
function chooseMostInformativePart<S>(suspects: readonly S[], allGoodProbability: (members: readonly S[]) => number) {
  const noBadProbability = allGoodProbability(suspects);
  let bestPartToTest = suspects.slice(0, 1);
  let bestInformationScore = Number.NEGATIVE_INFINITY;
  for (let partStart = 0; partStart < suspects.length; partStart++) {
    for (let partEnd = partStart + 1; partEnd <= suspects.length; partEnd++) {
      const count = partEnd - partStart;
      if (count === suspects.length) continue;
      const testedPart = suspects.slice(partStart, partEnd);
      const goodProbability = Math.min(
        1,
        Math.max(0, (allGoodProbability(testedPart) - noBadProbability) / (1 - noBadProbability)),
      );
      const decisionProbability =
        (count === 1 ? 1 - goodProbability : 0) + (count === suspects.length - 1 ? goodProbability : 0);
      const bonusInformationBits =
        BITS_PER_BAD_MEMBER * decisionProbability + BITS_PER_CLEARED_MEMBER * count * goodProbability;
      const partInformationScore = entropyBits(goodProbability) + bonusInformationBits;
      // Ignore rounding differences of the score, so that every machine tests the same part.
      if (partInformationScore <= bestInformationScore + 1e-3) continue;
      bestPartToTest = testedPart;
      bestInformationScore = partInformationScore;
    }
  }
  return bestPartToTest;
}

function entropyBits(share: number): number {
  if (share <= 0 || share >= 1) return 0;
  return -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
}

/** Probability that all tested members are good, by a Markov chain: bad members are often neighbours. */
function probabilityOfAllGood<T>(
  orderedMembers: readonly TestedMember<T>[],
  testedMembers: ReadonlySet<TestedMember<T>>,
  badShareAfter: Readonly<Record<TestedMemberVerdict, number>>,
): number {
  /** Probabilities that the last member is good or bad; `ifTestedGood`: and that all tested members are good. */
  let last = { good: 1, bad: 0 };
  let ifTestedGood = { good: 1, bad: 0 };
  const nextMember = ({ good, bad }: typeof last, mayBeGood: boolean, mayBeBad: boolean) => ({
    good: mayBeGood ? good * (1 - badShareAfter.good) + bad * (1 - badShareAfter.bad) : 0,
    bad: mayBeBad ? good * badShareAfter.good + bad * badShareAfter.bad : 0,
  });
  for (const member of orderedMembers) {
    const [mayBeGood, mayBeBad] = [member.verdict !== "bad", member.verdict !== "good"];
    const next = nextMember(last, mayBeGood, mayBeBad);
    const nextIfTestedGood = nextMember(ifTestedGood, mayBeGood, mayBeBad && !testedMembers.has(member));
    const sum = next.good + next.bad;
    last = { good: next.good / sum, bad: next.bad / sum };
    ifTestedGood = { good: nextIfTestedGood.good / sum, bad: nextIfTestedGood.bad / sum };
  }
  return ifTestedGood.good + ifTestedGood.bad;
}

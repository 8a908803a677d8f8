import { type Chain, createChain, type Shares, type Verdict } from "./chain.ts";

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

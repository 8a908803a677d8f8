/**
 * Finds the tags without a log when one of them makes a whole request answer 404: adaptive group testing (nested,
 * after Sobel and Groll) with inference, for members that stand in the order of their hosts. Pure.
 *
 * A group that is answered clears all its members. A group that is refused holds at least one culprit, and is
 * tested by prefixes: an answered prefix is cleared and the rest is known to hold the culprit; of a refused prefix
 * the rest is unknown again. The last member left of a refused group is a culprit without being asked.
 *
 * The sizes come from two learned shares: of culprits after a good member and after a culprit, because tags
 * without a log come in runs (a host that logs nothing).
 */
export interface GroupTesting<T> {
  /** Members to be tested, in their order; those that wait already are left out by the caller. */
  add(members: readonly T[]): void;
  /** The group to ask for next; empty when all is known. The same until it is settled. */
  next(): readonly T[];
  /** What the last group's answer means: members that are known from now on. */
  settle(answered: boolean): Verdicts<T>;
  waiting(): number;
}

export interface Verdicts<T> {
  readonly good: readonly T[];
  readonly bad: readonly T[];
}

type Before = "good" | "bad";

/** Shares are believed as if this many members had been seen before the first. */
const PRIOR_SEEN = 40;
const PRIOR_SHARE = 0.02;
/** The share after a culprit leans on the overall share until this many neighbours of culprits are known. */
const NEIGHBOURS_SEEN = 4;

export function createGroupTesting<T>(size: number): GroupTesting<T> {
  const queue: T[] = [];
  /** The first members of the queue that are known to hold a culprit. */
  let suspects = 0;
  let tested = 0;
  let before: Before = "good";
  const seen = { good: { good: 0, bad: 0 }, bad: { good: 0, bad: 0 } };
  let plan: SizePlan | null = null;
  let plannedFor: readonly [number, number] = [0, 0];

  const shares = (): readonly [number, number] => {
    const bad = seen.good.bad + seen.bad.bad;
    const all = bad + seen.good.good + seen.bad.good;
    const overall = (bad + PRIOR_SHARE * PRIOR_SEEN) / (all + PRIOR_SEEN);
    const afterGood =
      (seen.good.bad + PRIOR_SHARE * PRIOR_SEEN) / (seen.good.bad + seen.good.good + PRIOR_SEEN);
    const afterBad =
      (seen.bad.bad + overall * NEIGHBOURS_SEEN) / (seen.bad.bad + seen.bad.good + NEIGHBOURS_SEEN);
    return [afterGood, afterBad];
  };
  const currentPlan = (): SizePlan => {
    const now = shares();
    const moved = now.some((share, i) => Math.abs(share / (plannedFor[i] ?? 0) - 1) > 0.1);
    if (plan === null || moved) {
      plan = planSizes(now[0], now[1], size);
      plannedFor = now;
    }
    return plan;
  };
  const classify = (member: T, verdict: Before, into: { good: T[]; bad: T[] }) => {
    into[verdict].push(member);
    seen[before][verdict]++;
    before = verdict;
  };

  return {
    add(members) {
      queue.push(...members);
    },
    next() {
      if (queue.length === 0) return [];
      const sizes = currentPlan();
      if (tested === 0) {
        tested = suspects > 1 ? sizes.split(before, suspects) : Math.min(queue.length, sizes.first(before));
      }
      return queue.slice(0, tested);
    },
    settle(answered) {
      const verdicts = { good: [] as T[], bad: [] as T[] };
      if (tested === 0) return verdicts;
      if (answered) {
        for (const member of queue.splice(0, tested)) classify(member, "good", verdicts);
        suspects = Math.max(0, suspects - tested);
      } else {
        suspects = tested;
      }
      if (suspects === 1) {
        for (const member of queue.splice(0, 1)) classify(member, "bad", verdicts);
        suspects = 0;
      }
      tested = 0;
      return verdicts;
    },
    waiting: () => queue.length,
  };
}

interface SizePlan {
  /** Size of a test of members about whom nothing is known. */
  first(before: Before): number;
  /** Size of the prefix to test of `count` members that hold a culprit. */
  split(before: Before, count: number): number;
}

/**
 * The sizes that cost least per member in the long run. `cost` is the least number of tests per member for which
 * "tests minus cost × members classified" can be kept at zero; it is found by bisection, and for each try the best
 * sizes by dynamic programming over the groups that hold a culprit. `worth` is what it is worth (negative: cheaper)
 * to stand behind a culprit instead of behind a good member.
 */
function planSizes(afterGood: number, afterBad: number, size: number): SizePlan {
  const good = clamp(afterGood);
  const bad = clamp(afterBad);
  let low = 1 / (size * 2);
  let high = 1;
  let solution = solve(high, good, bad, size);
  for (let step = 0; step < 12; step++) {
    const cost = (low + high) / 2;
    const attempt = solve(cost, good, bad, size);
    if (attempt.behindGood > 0) {
      low = cost;
    } else {
      high = cost;
      solution = attempt;
    }
  }
  const { first, split } = solution;
  return {
    first: (before) => first[before],
    split: (before, count) => split[before][count] ?? 1,
  };
}

interface Solution {
  readonly behindGood: number;
  readonly first: Readonly<Record<Before, number>>;
  readonly split: Readonly<Record<Before, readonly number[]>>;
}

function solve(cost: number, afterGood: number, afterBad: number, size: number): Solution {
  // Chance that the first k members are all good, by what stands before them.
  const allGood = (before: Before, k: number) =>
    k === 0 ? 1 : (1 - (before === "good" ? afterGood : afterBad)) * (1 - afterGood) ** (k - 1);
  let worth = 0;
  let best = pass(worth);
  for (let round = 0; round < 6; round++) {
    const next = best.bad;
    if (Math.abs(next - worth) < 1e-4) break;
    worth = next;
    best = pass(worth);
  }
  return { behindGood: best.good, first: best.first, split: best.split };

  function pass(behindBad: number) {
    const found: Record<Before, number[]> = { good: [0, behindBad - cost], bad: [0, behindBad - cost] };
    const split: Record<Before, number[]> = { good: [0, 1], bad: [0, 1] };
    for (let count = 2; count <= size; count++) {
      for (const before of ["good", "bad"] as const) {
        const holdsCulprit = 1 - allGood(before, count);
        let least = Number.POSITIVE_INFINITY;
        let leastAt = 1;
        for (let prefix = 1; prefix < count; prefix++) {
          const clears = (allGood(before, prefix) - allGood(before, count)) / holdsCulprit;
          const value =
            1 +
            clears * ((found.good[count - prefix] ?? 0) - cost * prefix) +
            (1 - clears) * (found[before][prefix] ?? 0);
          if (value < least) {
            least = value;
            leastAt = prefix;
          }
        }
        found[before][count] = least;
        split[before][count] = leastAt;
      }
    }
    const first: Record<Before, number> = { good: 1, bad: 1 };
    const value: Record<Before, number> = { good: 0, bad: 0 };
    for (const before of ["good", "bad"] as const) {
      let least = Number.POSITIVE_INFINITY;
      for (let group = 1; group <= size; group++) {
        const clears = allGood(before, group);
        const expected = 1 - clears * cost * group + (1 - clears) * (found[before][group] ?? 0);
        if (expected < least) {
          least = expected;
          first[before] = group;
        }
      }
      value[before] = least;
    }
    return { good: value.good, bad: value.bad, first, split };
  }
}

function clamp(share: number): number {
  return Math.min(0.999, Math.max(0.0001, share));
}

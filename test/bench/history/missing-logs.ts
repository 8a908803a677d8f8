import { createGroupTesting } from "#src/engine/sync/history/find-tags-with-history.ts";
import { seededRandom } from "../../commands/seeded-random.ts";

export const TAGS = 3_000;
export const GROUP_SIZE = 20;
const RUN = 8;

/** Returns which tags have no log: at random, or in separate runs of mean length 8. */
export function tagsWithoutLog(share: number, clustered: boolean, seed: number): readonly boolean[] {
  const random = seededRandom(seed);
  const count = Math.round(share * TAGS);
  const loggedCount = TAGS - count;
  const runs: number[] = [];
  for (let remainingTags = count; remainingTags > 0; remainingTags -= runs.at(-1) ?? 1) {
    const runLength = clustered ? 1 + Math.floor(Math.log(1 - random()) / Math.log(1 - 1 / RUN)) : 1;
    runs.push(Math.min(remainingTags, runLength));
  }
  const runsByPosition = new Map<number, number>();
  for (const length of runs) {
    let at = Math.floor(random() * (loggedCount + 1));
    while (clustered && runsByPosition.has(at)) at = Math.floor(random() * (loggedCount + 1));
    runsByPosition.set(at, (runsByPosition.get(at) ?? 0) + length);
  }
  return Array.from({ length: loggedCount + 1 }, (_, at) => [
    ...Array.from({ length: runsByPosition.get(at) ?? 0 }, () => true),
    ...(at < loggedCount ? [false] : []),
  ]).flat();
}

export interface StrategyOutcome {
  readonly requests: number;
  readonly wrong: number;
}

/** The worker's strategy: requests until every tag is fetched once or known to have no log. */
export function workerStrategy(bad: readonly boolean[]): StrategyOutcome {
  const testing = createGroupTesting<number>(GROUP_SIZE);
  testing.addMembers(bad.map((_, i) => i));
  let requests = 0;
  let wrongResults = 0;
  for (let group = testing.nextTest(); group.length > 0; group = testing.nextTest()) {
    requests++;
    const verdicts = testing.settleTest(!group.some((i) => bad[i]));
    wrongResults += verdicts.good.filter((i) => bad[i]).length + verdicts.bad.filter((i) => !bad[i]).length;
  }
  return { requests, wrong: wrongResults };
}

/** Groups of 20 in order, each halved until the tags without a log are found. */
export function halvingStrategy(bad: readonly boolean[]): StrategyOutcome {
  let requests = 0;
  const isGood = (group: readonly number[]) => {
    requests++;
    return !group.some((i) => bad[i]);
  };
  for (let groupStart = 0; groupStart < bad.length; groupStart += GROUP_SIZE) {
    const group = Array.from({ length: Math.min(GROUP_SIZE, bad.length - groupStart) }, (_, i) => groupStart + i);
    if (!isGood(group)) halve(group, isGood);
  }
  return { requests, wrong: 0 };
}

function halve(refused: readonly number[], isGood: (group: readonly number[]) => boolean): void {
  if (refused.length <= 1) return;
  const middleIndex = Math.floor(refused.length / 2);
  const [first, second] = [refused.slice(0, middleIndex), refused.slice(middleIndex)];
  const isFirstGood = isGood(first);
  if (!isFirstGood) halve(first, isGood);
  if (isFirstGood || !isGood(second)) halve(second, isGood);
}

/** Groups of 20 in order, the members of a refused group one by one. */
export function oneByOneStrategy(bad: readonly boolean[]): StrategyOutcome {
  let requests = 0;
  for (let groupStart = 0; groupStart < bad.length; groupStart += GROUP_SIZE) {
    const group = bad.slice(groupStart, groupStart + GROUP_SIZE);
    requests += 1 + (group.some((isBad) => isBad) ? group.length : 0);
  }
  return { requests, wrong: 0 };
}

/** Minimum requests of any strategy, by information theory. */
export function leastRequests(share: number, clustered: boolean): number {
  const bad = share * TAGS;
  const minResponses = (TAGS - bad) / GROUP_SIZE;
  const neededBits = computeNeededBits(share, clustered);
  let requests = Math.max(minResponses, 1);
  // Bits of information in `count` responses, with at least `bad` refusals and at least `answered` successes.
  const tells = (count: number) => {
    const refusedCount = Math.min(Math.max(count / 2, bad), count - minResponses);
    return refusedCount < bad - 1e-9 ? 0 : count * entropy(refusedCount / count);
  };
  while (tells(requests) < neededBits) requests++;
  return requests;
}

/** Bits needed to identify the tags without a log; in runs, those of a Markov chain with this share and mean length. */
function computeNeededBits(share: number, clustered: boolean): number {
  if (!clustered) return TAGS * entropy(share);
  const runStartShare = share / (1 - share) / RUN;
  return TAGS * ((1 - share) * entropy(runStartShare) + share * entropy(1 / RUN));
}

function entropy(share: number): number {
  if (share <= 0 || share >= 1) return 0;
  return -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
}

export function computeMean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

export const MISSING_LOG_GOALS: readonly { share: number; clustered: boolean; atMost: number }[] = [
  { share: 0.001, clustered: false, atMost: 168 },
  { share: 0.01, clustered: false, atMost: 308 },
  { share: 0.05, clustered: false, atMost: 885 },
  { share: 0.1, clustered: false, atMost: 1_445 },
  { share: 0.2, clustered: false, atMost: 2_230 },
  { share: 0.01, clustered: true, atMost: 210 },
  { share: 0.05, clustered: true, atMost: 400 },
  { share: 0.1, clustered: true, atMost: 620 },
  { share: 0.2, clustered: true, atMost: 1_050 },
];
export const SEEDS = Array.from({ length: 40 }, (_, i) => i + 1);

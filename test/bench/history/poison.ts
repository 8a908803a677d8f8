import { createGroupTesting } from "#src/sync/history/grouping.ts";
import { culprits } from "#src/sync/plan/split.ts";

/** The repeatable random numbers of the benchmarks (mulberry32). */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

export const TAGS = 3_000;
export const SIZE = 20;
/** Mean length of a run of tags without a log where they cluster by host. */
const RUN = 8;

/**
 * Which tags have no log: independently, or in runs of mean length 8 that begin anywhere, as hosts without logging
 * make them. Runs that overlap are one longer run, so the share that comes out is a little smaller than asked for.
 */
export function defects(share: number, clustered: boolean, seed: number): readonly boolean[] {
  const random = randomFrom(seed);
  if (!clustered) return Array.from({ length: TAGS }, () => random() < share);
  let left = 0;
  return Array.from({ length: TAGS }, () => {
    if (random() < share / RUN)
      left = Math.max(left, 1 + Math.floor(Math.log(1 - random()) / Math.log(1 - 1 / RUN)));
    left--;
    return left >= 0;
  });
}

export interface Outcome {
  readonly requests: number;
  readonly wrong: number;
}

/** Our way: requests until every tag is fetched once or known to have no log. */
export function ours(bad: readonly boolean[]): Outcome {
  const testing = createGroupTesting<number>(SIZE);
  testing.add(bad.map((_, i) => i));
  let requests = 0;
  let wrong = 0;
  for (let group = testing.next(); group.length > 0; group = testing.next()) {
    requests++;
    const verdicts = testing.settle(!group.some((i) => bad[i]));
    wrong += verdicts.good.filter((i) => bad[i]).length + verdicts.bad.filter((i) => !bad[i]).length;
  }
  return { requests, wrong };
}

/** Groups of 20 in order, each halved until the culprits are found. */
export function halving(bad: readonly boolean[]): Outcome {
  let requests = 0;
  const isGood = (group: readonly number[]) => {
    requests++;
    return !group.some((i) => bad[i]);
  };
  for (let from = 0; from < bad.length; from += SIZE) {
    const group = Array.from({ length: Math.min(SIZE, bad.length - from) }, (_, i) => from + i);
    if (isGood(group)) continue;
    const search = culprits(group);
    for (let step = search.next(); !step.done; ) step = search.next(isGood(step.value));
  }
  return { requests, wrong: 0 };
}

/** Groups of 20 in order, the members of a refused one asked one by one. */
export function singles(bad: readonly boolean[]): Outcome {
  let requests = 0;
  for (let from = 0; from < bad.length; from += SIZE) {
    const group = bad.slice(from, from + SIZE);
    requests += 1 + (group.some((isBad) => isBad) ? group.length : 0);
  }
  return { requests, wrong: 0 };
}

/** No strategy can ask less: the information in the verdicts, and the groups that carry the payload. */
export function bound(share: number): number {
  const entropy = -share * Math.log2(share) - (1 - share) * Math.log2(1 - share);
  return Math.max(TAGS * entropy, (TAGS * (1 - share)) / SIZE);
}

export function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The committed goals: average requests of 40 seeds. */
export const POISON_GOALS: readonly { share: number; clustered: boolean; atMost: number }[] = [
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

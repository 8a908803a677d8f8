import { expect, test } from "vitest";
import { createSharingEvidence } from "#src/source/quota/sharing.ts";
import { LIMITERS, type LimiterName } from "../bench/quota/limiters.ts";
import { createRandom } from "../bench/quota/random.ts";

const COUNTING: readonly LimiterName[] = [
  "first-hit window",
  "calendar minute",
  "sliding log",
  "sliding log, 429s count",
  "token bucket 20",
  "weighted counter",
];

/** Two hours of reads with some history among them; answers when the counts were found to be separate. */
function separateAfterMs(
  limiter: LimiterName,
  separate: boolean,
  seed: number,
  longestGapMs = 20_000,
): number | null {
  const random = createRandom(seed);
  const evidence = createSharingEvidence();
  const shared = LIMITERS[limiter]();
  const limiters = separate
    ? { read: LIMITERS[limiter](), history: LIMITERS[limiter]() }
    : { read: shared, history: shared };
  const historyShare = random.between(0.05, 0.5);
  const gapMs = random.between(3_000, longestGapMs);
  for (let now = random.between(0, 60_000); now < 7_200_000; now += Math.max(50, random.after(gapMs))) {
    const endpoint = random.next() < historyShare ? "history" : "read";
    const { ok, remaining } = limiters[endpoint].arrive(now);
    if (ok && remaining !== null && evidence.separate(endpoint, 20 - remaining, now)) return now;
  }
  return null;
}

test.each(COUNTING)("%s: one shared count is never taken for separate ones", (limiter) => {
  for (let seed = 1; seed <= 40; seed += 1) {
    expect(separateAfterMs(limiter, false, seed), `seed ${seed}`).toBeNull();
  }
});

// A token bucket refills so fast that its counts seldom differ by enough; it may stay shared for an hour or two.
const CLEAR = COUNTING.filter((limiter) => limiter !== "token bucket 20");

test.each(CLEAR)("%s: separate counts are found soon when the shared one is used up", (limiter) => {
  const found = Array.from({ length: 40 }, (_, seed) => separateAfterMs(limiter, true, seed, 4_000));
  expect(found.filter((at) => at !== null && at < 600_000).length).toBeGreaterThanOrEqual(36);
});

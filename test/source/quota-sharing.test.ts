import { expect, test } from "vitest";
import { createQuotaSharingEvidence } from "#src/engine/source/quota/quota.ts";
import { LIMITERS, type LimiterName } from "../bench/quota/limiters.ts";
import { createRandom } from "../bench/quota/random.ts";

const COUNTING: readonly LimiterName[] = [
  ...(["first-hit window", "calendar minute", "sliding log", "sliding log, 429s count"] as const),
  ...(["token bucket 20", "weighted counter"] as const),
];

/** Returns when two hours of requests prove separate counts; null if never. */
function separateAfterMs(
  limiter: LimiterName,
  separate: boolean,
  seed: number,
  { longestGapMs = 20_000, longestTripMs = 0 } = {},
): number | null {
  const random = createRandom(seed);
  const evidence = createQuotaSharingEvidence();
  const shared = LIMITERS[limiter]();
  const limiters = separate
    ? { read: LIMITERS[limiter](), history: LIMITERS[limiter]() }
    : { read: shared, history: shared };
  const historyShare = random.between(0.05, 0.5);
  const gapMs = random.between(3_000, longestGapMs);
  const requests: { endpoint: "read" | "history"; sentMs: number; countedMs: number; repliedMs: number }[] = [];
  for (let now = random.between(0, 60_000); now < 7_200_000; now += Math.max(50, random.after(gapMs))) {
    const endpoint = random.next() < historyShare ? "history" : "read";
    const countedMs = now + random.between(0, longestTripMs);
    requests.push({ endpoint, sentMs: now, countedMs, repliedMs: countedMs + random.between(0, longestTripMs) });
  }
  const answers = requests
    .toSorted((a, b) => a.countedMs - b.countedMs)
    .map((request) => ({ ...request, ...limiters[request.endpoint].arrive(request.countedMs) }));
  for (const { endpoint, sentMs, repliedMs, ok, remaining } of answers.toSorted((a, b) => a.repliedMs - b.repliedMs)) {
    if (ok && remaining !== null && evidence.areCountsSeparate(endpoint, 20 - remaining, sentMs, repliedMs))
      return repliedMs;
  }
  return null;
}

test.each(COUNTING)(
  "limiter %s: one count for all endpoints is never taken for separate counts when replies arrive out of order",
  (limiter) => {
    for (let seed = 1; seed <= 40; seed += 1) {
      const longestTripMs = (seed % 8) * 1_000;
      const found = separateAfterMs(limiter, false, seed, { longestGapMs: 4_000, longestTripMs });
      expect(found, `seed ${seed}`).toBeNull();
    }
  },
);

// Counts of a token bucket seldom differ by enough.
const CLEAR = COUNTING.filter((limiter) => limiter !== "token bucket 20");

test.each(CLEAR)("limiter %s: separate counts per endpoint are detected within ten minutes of full use", (limiter) => {
  const found = Array.from({ length: 40 }, (_, seed) => separateAfterMs(limiter, true, seed, { longestGapMs: 4_000 }));
  expect(found.filter((at) => at !== null && at < 600_000).length).toBeGreaterThanOrEqual(36);
});

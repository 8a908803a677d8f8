import { expect, test } from "vitest";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import {
  bucketsEach,
  INITIAL_COUNTS,
  provenLimit,
  valuesBelow,
  withEnd,
} from "#src/engine/sync/history/request-size.ts";

const NOW = Date.UTC(2026, 10, 2);
const DAY_MS = 86_400_000;
const AT = isoUtc(NOW);

test("withEnd accepts a round count as no limit after two complete responses, and any other count after one", () => {
  const once = withEnd(INITIAL_COUNTS, { series: 1_000, answer: 4_108 });
  expect(once.safe).toEqual({ series: 99, answer: 4_108 });
  expect(withEnd(once, { series: 1_000, answer: 0 }).safe).toEqual({ series: 1_000, answer: 4_108 });
  const another = withEnd(withEnd(once, { series: 2_048, answer: 0 }), { series: 1_000, answer: 0 });
  expect(another.safe.series).toBe(99);
});

test("provenLimit takes the count that repeats as the limit; until then requests use the larger count", () => {
  const first = provenLimit(null, { series: 250, answer: 5_000 }, AT);
  expect([20, 1].map((tags) => bucketsEach(first, tags, NOW))).toEqual([247, 4_997]);
  const ofEach = provenLimit(first, { series: 250, answer: 500 }, AT);
  expect(ofEach).toEqual({ series: 250, answer: null, either: false, at: AT });
  const ofAll = provenLimit(first, { series: 2_500, answer: 5_000 }, AT);
  expect(ofAll).toEqual({ series: null, answer: 5_000, either: false, at: AT });
  expect([20, 2].map((tags) => bucketsEach(ofAll, tags, NOW))).toEqual([247, 2_497]);
  const both = provenLimit(ofEach, { series: 0, answer: 1_000 }, AT);
  expect(both).toEqual({ series: 250, answer: 1_000, either: false, at: AT });
  expect([20, 2].map((tags) => bucketsEach(both, tags, NOW))).toEqual([47, 247]);
});

test("a response limit expires after 30 days, and one bucket per tag is always allowed", () => {
  const cut = provenLimit(null, { series: 100, answer: 0 }, AT);
  expect(valuesBelow(cut, NOW + 30 * DAY_MS)).toBe(20 * 97);
  expect(valuesBelow(cut, NOW + 30 * DAY_MS + 1)).toBe(Number.POSITIVE_INFINITY);
  expect(bucketsEach(provenLimit(null, { series: 0, answer: 30 }, AT), 20, NOW)).toBe(1);
});

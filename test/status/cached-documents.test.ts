import { expect, test } from "vitest";
import {
  createCachedDocuments,
  SLOW_DATA_AGE_MS,
  WATCHED_DATA_AGE_MS,
} from "#src/ui/status/cache-of-stored-documents.ts";
import { createVirtualClock } from "../virtual-clock.ts";

/** A set of documents that counts how often it is read. */
function readCounting(count: number) {
  const set = { version: 1, count, reads: 0 };
  return {
    set,
    store: {
      version: async () => set.version,
      async documents<T>() {
        set.reads += 1;
        return new Map(Array.from({ length: set.count }, (_, n) => [String(n), n as T] as const));
      },
    },
  };
}

test("the document cache reads an unchanged document set at most every 15 s, and a changed set within 1 s", async () => {
  const clock = createVirtualClock(0);
  const { set, store } = readCounting(0);
  const cache = createCachedDocuments(store, clock);
  const knownSize = async () => (await cache.documents("tag/main", SLOW_DATA_AGE_MS)).size;
  expect(await knownSize()).toBe(0);
  Object.assign(set, { version: 2, count: 3 });
  await clock.advance(WATCHED_DATA_AGE_MS - 1);
  expect(await knownSize()).toBe(0);
  await clock.advance(1);
  expect([await knownSize(), set.reads]).toEqual([3, 2]);
  await clock.advance(SLOW_DATA_AGE_MS - 1);
  expect([await knownSize(), set.reads]).toEqual([3, 2]);
  // Also without a change that is known of: another process may have made one.
  set.count = 4;
  await clock.advance(1);
  expect([await knownSize(), set.reads]).toEqual([4, 3]);
});

test("the document cache recomputes a derived value within 1 s of a local change", async () => {
  const clock = createVirtualClock(0);
  const { set, store } = readCounting(0);
  const cache = createCachedDocuments(store, clock);
  const plan = () => cache.memoizeFrom("tag/main", "plan of main", SLOW_DATA_AGE_MS, async () => set.count);
  await cache.documents("tag/main", SLOW_DATA_AGE_MS);
  expect(await plan()).toBe(0);
  Object.assign(set, { version: 2, count: 3 });
  await clock.advance(WATCHED_DATA_AGE_MS);
  await cache.documents("tag/main", SLOW_DATA_AGE_MS);
  expect(await plan()).toBe(3);
});

test("the document cache reads a set of 30,000 documents at most every 30 s", async () => {
  const clock = createVirtualClock(0);
  const { set, store } = readCounting(30_000);
  const cache = createCachedDocuments(store, clock);
  await cache.documents("tag/main", SLOW_DATA_AGE_MS);
  for (let second = 0; second < 29; second += 1) {
    set.version += 1;
    await clock.advance(1_000);
    await cache.documents("tag/main", SLOW_DATA_AGE_MS);
  }
  expect(set.reads).toBe(1);
  await clock.advance(1_000);
  await cache.documents("tag/main", SLOW_DATA_AGE_MS);
  expect(set.reads).toBe(2);
});

import { beforeEach, describe, expect, test } from "vitest";
import { encodeEvent } from "#src/core/codec/stored-event.ts";
import type { Event } from "#src/core/model/event.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import { stateFilePath } from "#src/engine/store/state-folder.ts";
import type { Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { drain, rejectAll, settle, values } from "./store-steps.ts";

const OFFER_BYTES = 1024 ** 2;
const HOUR_MS = 3_600_000;
const BEGIN = Date.parse("2026-11-02T06:00:00Z");

let now = BEGIN;
let folder: string;
let store: Store;
beforeEach(async () => {
  now = BEGIN;
  const sleep = () => Promise.reject(new Error("The store must not wait."));
  const clock = { now: () => now, monotonic: () => now, sleep };
  folder = testFolder();
  store = closeAfterTest(await openStore({ folder, clock }));
  await store.outbox.register("a", "beginning");
});

function eventOf(bytes: number, n: number): Event {
  const small = { ...valueEvent(n), source: "" };
  return { ...small, source: "s".repeat(bytes - Buffer.byteLength(encodeEvent(small))) };
}

async function offered(limit = 10) {
  const offer = await store.outbox.next("a", limit);
  await settle(store, "a", offer.events.at(-1)?.position ?? 0, { isRepeat: offer.isRepeat });
  return [offer.isRepeat, offer.events.length] as const;
}

const lag = async () => (await store.outbox.lag())[0];

describe("a batch from the outbox", () => {
  test("contains at most 1 MiB, or a single larger event", async () => {
    await store.commit({ events: [eventOf(OFFER_BYTES + 1, 0), valueEvent(1)] });
    expect([await offered(), await offered(), await offered()]).toEqual([
      [false, 1],
      [false, 1],
      [false, 0],
    ]);
    await store.commit({ events: [2, 3, 4].map((n) => eventOf(OFFER_BYTES / 2 - 1_000, n)) });
    expect([await offered(), await offered()]).toEqual([
      [false, 2],
      [false, 1],
    ]);
  });

  test("contains at most 1 MiB of replayed events", async () => {
    const half = OFFER_BYTES / 2;
    await store.commit({ events: [eventOf(OFFER_BYTES + 1, 0), eventOf(half, 1), eventOf(half, 2)] });
    await store.commit({ events: [eventOf(half, 3), eventOf(half + 1, 4)] });
    await drain(store, "a", 1_000);
    expect(await store.outbox.replay("a", "2026-11-01T00:00:00Z")).toBe(5);
    const offers = [await offered(), await offered(), await offered(), await offered(), await offered()];
    expect(offers).toEqual([
      [true, 1],
      [true, 2],
      [true, 1],
      [true, 1],
      [false, 0],
    ]);
  });

  test("is settled without effect for an unknown sink", async () => {
    await store.outbox.settle("nobody", { isRepeat: true, through: 9, rejected: [] });
    expect(await lag()).toMatchObject({ sink: "a", position: 0, again: 0 });
  });
});

describe("a requested replay", () => {
  test("includes all of 10,001 events in the log", async () => {
    await store.commit({ events: values(0, 10_001) });
    await drain(store, "a", 1_000);
    expect(await store.outbox.replay("a", "2026-11-01T00:00:00Z")).toBe(10_001);
    expect(await lag()).toMatchObject({ again: 10_001, depth: 0 });
    await store.outbox.setEnded("a", "gone");
    await store.outbox.setEnded("a", null);
    expect(await store.outbox.replayBetween("a", 0, 10_001)).toBe(10_001);
  });
});

describe("dead letters", () => {
  test("are listed up to 100 per call by default", async () => {
    await store.commit({ events: values(0, 101) });
    expect(await rejectAll(store, "a", "no")).toBe(101);
    expect(await store.outbox.deadLetters("a")).toHaveLength(100);
    expect(await store.outbox.deadLetters("a", 101)).toHaveLength(101);
  });
});

describe("a gap in the deliveries that was published as an event", () => {
  test("is stored for an hour", async () => {
    const bounds = { maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, replayMs: 0, ranMs: 0 };
    await store.commit({ events: values(0, 1) });
    await store.outbox.prune(bounds);
    await store.outbox.prune({ ...bounds, maxAgeMs: 1, ranMs: 2 });
    expect(await store.outbox.latest(9, ["delivery-gap"])).toHaveLength(1);
    const storedAfter = async (ms: number) => {
      now = BEGIN + ms;
      await store.outbox.prune(bounds);
      using database = openDatabase(stateFilePath(folder), { readOnly: true });
      return database.number("select count(*) from gap");
    };
    expect(await storedAfter(HOUR_MS)).toBe(1);
    expect(await storedAfter(HOUR_MS + 1)).toBe(0);
  });
});

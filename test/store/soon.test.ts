import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { deferWrites } from "#src/engine/store/deferred-writes.ts";
import { createStore, openStore } from "#src/engine/store/open.ts";
import { salvage } from "#src/engine/store/salvage.ts";
import { prepareSchema } from "#src/engine/store/schema.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Settlement, Store } from "#src/engine/store/store.ts";
import { createTail } from "#src/engine/store/tail.ts";
import { valueEvent } from "../sample-events.ts";
import { describeDurableStore } from "../suites/durable-store-suite.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

let folder: string;
let clock: VirtualClock;
let store: Store;
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "plenum-soon-"));
  clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  store = await openStore({ folder, clock });
  await store.outbox.register("sink", "beginning");
});
afterEach(async () => {
  await store.close();
  rmSync(folder, { recursive: true });
});

const commit = (from: number, count: number) =>
  store.commit({ events: Array.from({ length: count }, (_, n) => valueEvent(from + n)) });
const settle = (through: number, more: Partial<Settlement> = {}) =>
  store.outbox.settle("sink", { again: false, through, rejected: [], soon: true, ...more });
const offered = async (limit = 1_000) =>
  (await store.outbox.next("sink", limit)).events.map(({ position }) => position);

async function afterKill<T>(look: (left: Store) => Promise<T>): Promise<T> {
  const left = await openStore({ folder, clock, readOnly: true });
  try {
    return await look(left);
  } finally {
    await left.close();
  }
}

describeDurableStore("SQLite", async (virtual) => {
  const place = mkdtempSync(join(tmpdir(), "plenum-cursors-"));
  let opened = await openStore({ folder: place, clock: virtual });
  return {
    store: opened,
    async afterKill(look) {
      const left = await openStore({ folder: place, clock: virtual, readOnly: true });
      try {
        return await look(left);
      } finally {
        await left.close();
      }
    },
    async reopen() {
      await opened.close();
      opened = await openStore({ folder: place, clock: virtual });
      return opened;
    },
    async dispose() {
      await opened.close();
      rmSync(place, { recursive: true });
    },
  };
});

describe("a deferred cursor", () => {
  test("is written at once after a failed deferred write, so that the failure is reported", async () => {
    const inner = openDatabase(join(folder, "full.db"));
    prepareSchema(inner, true);
    let isFull = false;
    const transaction = <T>(work: () => T): T => {
      if (isFull) throw new Retryable("The disk is full.");
      return inner.transaction(work);
    };
    const full = createStore({ ...inner, transaction }, clock, {});
    await full.outbox.register("sink", "beginning");
    await full.commit({ events: [0, 1, 2].map((n) => valueEvent(n)) });
    await full.outbox.next("sink", 10);
    const plain = { again: false, rejected: [], soon: true };
    isFull = true;
    await full.outbox.settle("sink", { ...plain, through: 1 });
    await clock.advance(5_100);
    await expect(full.outbox.settle("sink", { ...plain, through: 2 })).rejects.toThrow("The disk is full.");
    isFull = false;
    await full.outbox.settle("sink", { ...plain, through: 2 });
    expect(inner.number("select position from sink")).toBe(2);
    await full.close();
  });
});

describe("the cached tail of the log", () => {
  test("offers committed events and no event of a failed transaction", async () => {
    await commit(0, 3);
    expect(await offered()).toEqual([1, 2, 3]);
    const unspeakable = { ...valueEvent(5), time: 5n as unknown as string };
    await expect(store.commit({ events: [valueEvent(3), unspeakable] })).rejects.toThrow("BigInt");
    expect(await offered()).toEqual([1, 2, 3]);
    await commit(3, 1);
    const { events } = await store.outbox.next("sink", 10);
    expect(events.map(({ event }) => event)).toEqual([0, 1, 2, 3].map((n) => valueEvent(n)));
    const again = await afterKill(async (left) => (await left.outbox.next("sink", 10)).events);
    expect(again).toStrictEqual(events);
  });

  test("has no gap after a commit of another process: recovered events are offered at their positions", async () => {
    const aside = join(folder, "aside");
    const damaged = await openStore({ folder: aside, clock });
    await damaged.commit({ events: [valueEvent(900), valueEvent(901)] });
    await damaged.close();
    await commit(0, 2);
    expect(await offered()).toEqual([1, 2]);
    await settle(2);
    await salvage(folder, join(aside, "plenum.db"), clock);
    await commit(2, 2);
    const { events } = await store.outbox.next("sink", 10);
    expect(events.map(({ event }) => event.id)).toEqual([900, 901, 2, 3].map((n) => valueEvent(n).id));
  });

  test("drops pruned events, and drops its oldest events when the cache becomes large", async () => {
    await commit(0, 50);
    expect(await offered()).toHaveLength(50);
    const bounds = { maxBytes: 1, maxAgeMs: 1e12, replayMs: 1e12, ranMs: 0 };
    await store.outbox.prune(bounds);
    const kinds = (await store.outbox.next("sink", 100)).events.map(({ event }) => event.type);
    expect(kinds).toEqual(["delivery-gap"]);

    const tail = createTail();
    const add = (position: number, characters: number) => {
      tail.add({ position, committedAt: "", body: JSON.stringify(valueEvent(1)), characters });
      tail.committed();
    };
    for (let position = 1; position <= 300; position++) add(position, 4_000);
    expect(tail.after(49, 10, 1e9)).toBeNull();
    expect(tail.after(50, 3, 1e9)?.map(({ position }) => position)).toEqual([51, 52, 53]);
    expect(tail.after(50, 10, 9_000)).toHaveLength(2);
    expect(tail.after(50, 1_000, 1e9)).toHaveLength(250);

    add(301, 5_000);
    expect(tail.after(300, 10, 1e9)).toBeNull();
    add(302, 4_000);
    expect(tail.after(300, 10, 1e9)).toBeNull();
    expect(tail.after(301, 10, 1e9)?.map(({ position }) => position)).toEqual([302]);
  });

  test("drops events that all readers have passed, and returns an empty list when no event follows", () => {
    const tail = createTail();
    const add = (from: number, to: number) => {
      for (let position = from; position <= to; position++)
        tail.add({ position, committedAt: "", body: JSON.stringify(valueEvent(position)), characters: 600 });
      tail.committed();
    };
    const behind = (position: number) => tail.after(position, 100, 1e9)?.map((row) => row.position) ?? null;
    add(1, 10);
    tail.passed(4);
    expect(behind(3)).toBeNull();
    expect(behind(4)).toEqual([5, 6, 7, 8, 9, 10]);
    tail.passed(10);
    expect(behind(9)).toBeNull();
    expect(behind(10)).toEqual([]);
    // Positions have gaps where an event was a repeat.
    add(13, 14);
    expect(behind(10)).toEqual([13, 14]);
    tail.removed(12);
    expect(behind(12)).toEqual([13, 14]);
    tail.removed(13);
    expect(behind(13)).toBeNull();
  });

  test("offers every event to the slower of two sinks", async () => {
    const positions = async (sink: string) =>
      (await store.outbox.next(sink, 100)).events.map(({ position }) => position);
    await store.outbox.register("slow", "beginning");
    await commit(0, 3);
    expect(await positions("slow")).toEqual([1, 2, 3]);
    expect(await offered()).toEqual([1, 2, 3]);
    await settle(3);
    await commit(3, 2);
    expect(await offered()).toEqual([4, 5]);
    await settle(5);
    expect(await offered()).toEqual([]);
    expect(await positions("slow")).toEqual([1, 2, 3, 4, 5]);
    await store.outbox.settle("slow", { again: false, through: 5, rejected: [] });
    expect(await positions("slow")).toEqual([]);
    await commit(5, 1);
    expect(await positions("slow")).toEqual([6]);
    expect(await offered()).toEqual([6]);
  });

  test("offers events again that another process has marked for replay", async () => {
    await commit(0, 3);
    await offered();
    await settle(3);
    await commit(3, 1);
    expect(await offered()).toEqual([4]);
    const operator = await openStore({ folder, clock, lock: false });
    expect(await operator.outbox.replay("sink", "2026-01-01T00:00:00Z")).toBe(3);
    await operator.close();
    expect(await store.outbox.next("sink", 10)).toMatchObject({ again: true, events: [{}, {}, {}] });
  });
});

test("a deferred write replaces an earlier write with the same key, and a failed write blocks no other write", async () => {
  const file = join(folder, "other.db");
  const database = openDatabase(file);
  database.exec("create table t (v integer) strict");
  const soon = deferWrites(database, clock);
  const write = (value: number) => () => void database.prepare("insert into t values (?)").run(value);
  const done = [soon.write("a", write(1)), soon.write("a", write(2)), soon.write("b", write(3))];
  expect(database.prepare("select v from t").all()).toEqual([]);
  expect(() =>
    database.transaction(() => {
      throw new Error("no");
    }),
  ).toThrow("no");
  soon.flush();
  await Promise.all(done);
  expect(database.prepare("select v from t order by v").all()).toEqual([{ v: 2 }, { v: 3 }]);

  const wrong = soon.write("c", () => database.exec("insert into nothing values (1)"));
  const right = soon.write("d", write(4));
  expect(database.transaction(() => "done")).toBe("done");
  await expect(wrong).rejects.toThrow("syntax error");
  await right;
  database.close();
});

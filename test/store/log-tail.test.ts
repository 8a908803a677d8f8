import { join } from "node:path";
import { beforeEach, describe, expect, test } from "vitest";
import { recoverEvents } from "#src/engine/store/damaged-state-recovery.ts";
import { createEventLogTail } from "#src/engine/store/newest-events-cache.ts";
import { openStore } from "#src/engine/store/open.ts";
import type { Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import { positionsOf, settle, values } from "./store-steps.ts";

let folder: string;
let clock: VirtualClock;
let store: Store;
beforeEach(async () => {
  folder = testFolder();
  clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  store = closeAfterTest(await openStore({ folder, clock }));
  await store.outbox.register("sink", "beginning");
});

const commit = (from: number, count: number) => store.commit({ events: values(from, count) });
const offered = async (sink = "sink") => positionsOf((await store.outbox.next(sink, 1_000)).events);

describe("the cached latest events of the log", () => {
  test("include committed events and no event of a failed transaction", async () => {
    await commit(0, 3);
    expect(await offered()).toEqual([1, 2, 3]);
    const unspeakable = { ...valueEvent(5), time: 5n as unknown as string };
    await expect(store.commit({ events: [valueEvent(3), unspeakable] })).rejects.toThrow("BigInt");
    expect(await offered()).toEqual([1, 2, 3]);
    await commit(3, 1);
    const { events } = await store.outbox.next("sink", 10);
    expect(events.map(({ event }) => event)).toEqual(values(0, 4));
    const reader = await openStore({ folder, clock, readOnly: true });
    expect((await reader.outbox.next("sink", 10)).events).toStrictEqual(events);
    await reader.close();
  });

  test("have no gap after another process recovered events into the log: these events are offered at their positions", async () => {
    const aside = join(folder, "aside");
    const damaged = await openStore({ folder: aside, clock });
    await damaged.commit({ events: [valueEvent(900), valueEvent(901)] });
    await damaged.close();
    await commit(0, 2);
    expect(await offered()).toEqual([1, 2]);
    await settle(store, "sink", 2, { mayDefer: true });
    await recoverEvents(folder, join(aside, "plenum.db"), clock);
    await commit(2, 2);
    const { events } = await store.outbox.next("sink", 10);
    expect(events.map(({ event }) => event.id)).toEqual([900, 901, 2, 3].map((n) => valueEvent(n).id));
  });

  test("lose the oldest events when the cache becomes large", () => {
    const tail = createEventLogTail();
    const add = (position: number, characters: number) => {
      tail.add({ position, committedAt: "", body: JSON.stringify(valueEvent(1)), characters });
      tail.onCommit();
    };
    for (let position = 1; position <= 300; position++) add(position, 4_000);
    expect(tail.eventsAfter(49, 10, 1e9)).toBeNull();
    expect(tail.eventsAfter(50, 3, 1e9)?.map(({ position }) => position)).toEqual([51, 52, 53]);
    expect(tail.eventsAfter(50, 10, 9_000)).toHaveLength(2);
    expect(tail.eventsAfter(50, 1_000, 1e9)).toHaveLength(250);

    add(301, 5_000);
    expect(tail.eventsAfter(300, 10, 1e9)).toBeNull();
    add(302, 4_000);
    expect(tail.eventsAfter(300, 10, 1e9)).toBeNull();
    expect(tail.eventsAfter(301, 10, 1e9)?.map(({ position }) => position)).toEqual([302]);
  });

  test("lose events that all readers have passed, and are an empty list when no event follows", () => {
    const tail = createEventLogTail();
    const add = (from: number, to: number) => {
      for (let position = from; position <= to; position++)
        tail.add({ position, committedAt: "", body: JSON.stringify(valueEvent(position)), characters: 600 });
      tail.onCommit();
    };
    const behind = (position: number) => tail.eventsAfter(position, 100, 1e9)?.map((row) => row.position) ?? null;
    add(1, 10);
    tail.dropThrough(4);
    expect(behind(3)).toBeNull();
    expect(behind(4)).toEqual([5, 6, 7, 8, 9, 10]);
    tail.dropThrough(10);
    expect(behind(9)).toBeNull();
    expect(behind(10)).toEqual([]);
    // Positions have gaps where an event was a repeat.
    add(13, 14);
    expect(behind(10)).toEqual([13, 14]);
    tail.noteRemoved(12);
    expect(behind(12)).toEqual([13, 14]);
    tail.noteRemoved(13);
    expect(behind(13)).toBeNull();
  });

  test("are all offered to the slower of two sinks", async () => {
    await store.outbox.register("slow", "beginning");
    await commit(0, 3);
    expect(await offered("slow")).toEqual([1, 2, 3]);
    expect(await offered()).toEqual([1, 2, 3]);
    await settle(store, "sink", 3, { mayDefer: true });
    await commit(3, 2);
    expect(await offered()).toEqual([4, 5]);
    await settle(store, "sink", 5, { mayDefer: true });
    expect(await offered()).toEqual([]);
    expect(await offered("slow")).toEqual([1, 2, 3, 4, 5]);
    await settle(store, "slow", 5);
    expect(await offered("slow")).toEqual([]);
    await commit(5, 1);
    expect(await offered("slow")).toEqual([6]);
    expect(await offered()).toEqual([6]);
  });
});

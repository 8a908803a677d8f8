import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { SettledBatch, Store } from "#src/engine/store/store.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { positionsOf, values } from "../store/store-steps.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";
import type { StoreUnderTest } from "./store-suite.ts";

export interface DurableStore extends StoreUnderTest {
  /** Opens the state as a process does that starts after this one was killed. */
  afterKill<T>(inspect: (left: Store) => Promise<T>): Promise<T>;
}

/** Deferred cursor writes, of which a crash loses 100 events at most, and sequence numbers. */
export function describeDurableStore(name: string, make: (clock: VirtualClock) => Promise<DurableStore>): void {
  let clock: VirtualClock;
  let testedStore: DurableStore;
  let store: Store;

  beforeEach(async () => {
    clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
    testedStore = await make(clock);
    store = testedStore.store;
    await store.outbox.register("sink", "beginning");
  });
  afterEach(() => testedStore.dispose());

  const commit = (from: number, count: number) => store.commit({ events: values(from, count) });
  const settle = (through: number, more: Partial<SettledBatch> = {}) =>
    store.outbox.settle("sink", { isRepeat: false, through, rejected: [], mayDefer: true, ...more });
  const listOffers = async (limit = 1_000, sink = "sink") => positionsOf((await store.outbox.next(sink, limit)).events);
  const repeats = () => testedStore.afterKill(async (left) => (await left.outbox.next("sink", 1_000)).events.length);

  describe(`${name}: the cursor of a sink, whose writes are deferred`, () => {
    test("moves at once in memory, and is stored with the next transaction", async () => {
      await commit(0, 20);
      expect(await listOffers()).toHaveLength(20);
      await settle(20);
      expect(await listOffers()).toEqual([]);
      expect((await store.outbox.lag())[0]).toMatchObject({ depth: 0, position: 20 });
      expect(await repeats()).toBe(20);
      await commit(20, 1);
      expect(await repeats()).toBe(1);
    });

    test("moves for each of two sinks when one transaction stores both", async () => {
      await store.outbox.register("other", "beginning");
      await commit(0, 3);
      await listOffers();
      await listOffers(10, "other");
      await settle(3);
      await store.outbox.settle("other", { isRepeat: false, through: 3, rejected: [], mayDefer: true });
      await commit(3, 1);
      await new Promise((resolve) => setImmediate(resolve));
      expect(await listOffers()).toEqual([4]);
      expect(await listOffers(10, "other")).toEqual([4]);
    });

    test("is stored together with its sequence number", async () => {
      await commit(0, 20);
      const { counted } = await store.outbox.next("sink", 10);
      expect(counted).toEqual({ epoch: expect.stringMatching(/./), number: 0 });
      const later = counted && { ...counted, number: counted.number + 10 };
      await settle(10, { counted: later });
      expect((await store.outbox.next("sink", 10)).counted).toEqual(later);
      await commit(20, 1);
      expect(await testedStore.afterKill(async (left) => (await left.outbox.next("sink", 10)).counted)).toEqual(later);
      const lastSequence = later && { ...later, number: later.number + 3 };
      await settle(13, { counted: lastSequence, mayDefer: false });
      expect((await store.outbox.next("sink", 10)).counted).toEqual(lastSequence);
    });

    test("is stored after five seconds without another transaction, and when the store closes", async () => {
      await commit(0, 20);
      await listOffers();
      await settle(10);
      await clock.advance(4_900);
      expect(await repeats()).toBe(20);
      await clock.advance(200);
      await expect.poll(repeats).toBe(10);
      await settle(15);
      store = await testedStore.reopen();
      expect(await listOffers()).toEqual([16, 17, 18, 19, 20]);
    });

    test.each([7, 20, 60, 100, 250])(
      "repeats at most 100 events after a kill at any moment, in batches of %i",
      async (batch) => {
        await commit(0, 700);
        for (;;) {
          const positions = await listOffers(batch);
          const lastPosition = positions.at(-1);
          if (lastPosition === undefined) break;
          const repeated = await testedStore.afterKill(async (left) => (await left.outbox.next("sink", 1_000)).events);
          const had = repeated.filter(({ position }) => position <= lastPosition).length;
          expect(had).toBeLessThanOrEqual(Math.max(100, batch));
          await settle(lastPosition);
          expect((await repeats()) - (700 - lastPosition)).toBeLessThanOrEqual(100);
        }
      },
    );

    test("is stored at once together with a dead letter or sink state, and for replayed events", async () => {
      await commit(0, 30);
      await listOffers();
      await settle(10, { rejected: [{ position: 10, reason: "no" }] });
      expect(await repeats()).toBe(20);
      await settle(20, { documents: [{ set: "memory/sink", put: [["a", 1]] }] });
      expect(await repeats()).toBe(10);
      expect(await testedStore.afterKill((left) => left.document("memory/sink", "a"))).toBe(1);
      await store.outbox.replay("sink", "2026-01-01T00:00:00Z");
      const { isRepeat: again, events } = await store.outbox.next("sink", 5);
      expect([again, events.length]).toEqual([true, 5]);
      await settle(events.at(-1)?.position ?? 0, { isRepeat: again });
      expect(await testedStore.afterKill(async (left) => (await left.outbox.lag())[0]?.again)).toBe(15);
    });
  });

  test(`${name}: settling an urgent event stores its cursor and the deferred cursor at once`, async () => {
    await commit(0, 10);
    await listOffers();
    await settle(4);
    expect(await repeats()).toBe(10);
    await store.commit({ events: [sampleEvent("alarm-raised", {}, 1), valueEvent(10)] });
    await settle(6);
    const { counted, events, urgent } = await store.outbox.nextUrgent("sink", 10);
    expect([events.map(({ position }) => position), urgent]).toEqual([[11], true]);
    const number = counted && { ...counted, number: counted.number + 1 };
    await settle(11, { urgent: true, counted: number });
    const storedState = await testedStore.afterKill(async (reader) => ({
      next: await reader.outbox.next("sink", 1_000),
      urgent: await reader.outbox.nextUrgent("sink", 1_000),
    }));
    expect(storedState.next).toMatchObject({ urgentThrough: 11, counted: number });
    expect(storedState.next.events.map(({ position }) => position)).toEqual([7, 8, 9, 10, 11, 12]);
    expect(storedState.urgent.events).toEqual([]);
  });

  test.each([1, 50])(`${name}: %i pruned events are not offered, only one delivery-gap event`, async (count) => {
    await commit(0, count);
    expect(await listOffers()).toHaveLength(count);
    await store.outbox.prune({ maxBytes: 1, maxAgeMs: 1e12, replayMs: 1e12, ranMs: 0 });
    const { events } = await store.outbox.next("sink", 100);
    expect(events.map(({ event }) => event.type)).toEqual(["delivery-gap"]);
  });

  test(`${name}: a dead letter that is sent again has its original sequence number, if it had one`, async () => {
    await commit(0, 2);
    const { counted } = await store.outbox.next("sink", 10);
    const sequence = counted && { ...counted, number: 1 };
    const rejectedEvents = [
      { position: 1, reason: "no", sequence },
      { position: 2, reason: "no" },
    ];
    await settle(2, { rejected: rejectedEvents, counted: sequence });
    const numbers = (some: readonly { readonly sequence?: unknown }[]) => some.map((each) => each.sequence);
    expect(numbers(await store.outbox.deadLetters("sink"))).toEqual([undefined, sequence]);
    await store.outbox.resendDeadLetters("sink", "all");
    expect(numbers((await store.outbox.next("sink", 10)).events)).toEqual([sequence, undefined]);
    expect(sequence).toBeDefined();
  });
}

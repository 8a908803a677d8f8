import { describe, expect, test } from "vitest";
import { ConfigError } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { joinSourceStores } from "#src/engine/store/joined-stores.ts";
import { documentSet, type Store, sinkStateSet } from "#src/engine/store/store.ts";
import { createMemoryStore, type MemoryStore } from "../sync/memory-store.ts";
import { idsOf, settle } from "./store-steps.ts";

const START = Date.parse("2026-11-02T12:00:00Z");

function event(source: string, second: number): Event {
  return {
    id: `${source}-${second}`,
    type: "alarm-raised",
    source: `/plenum/${source}`,
    subject: `site/1/alarm/${second}`,
    time: new Date(START + second * 1_000).toISOString(),
    data: {},
  } as unknown as Event;
}

/** Two sources, with one event at each of these seconds of the same clock. */
async function createHarness(seconds: { readonly north: readonly number[]; readonly south: readonly number[] }) {
  let nowMs = START;
  const stores = { north: createMemoryStore(() => nowMs), south: createMemoryStore(() => nowMs) };
  for (const store of Object.values(stores)) await store.outbox.register("broker", "beginning");
  const all = (["north", "south"] as const).flatMap((source) => seconds[source].map((second) => ({ source, second })));
  for (const { source, second } of all.toSorted((a, b) => a.second - b.second)) {
    nowMs = START + second * 1_000;
    await stores[source].commit({ events: [event(source, second)] });
  }
  const parts = Object.entries(stores).map(([source, store]) => ({ source, store }));
  return { ...stores, all: joinSourceStores(parts) };
}

const both = async ({ north, south }: Record<"north" | "south", MemoryStore>, set: string, key: string) => [
  await north.document(set, key),
  await south.document(set, key),
];

describe("joinStores", () => {
  test("returns the store itself for a single source", async () => {
    const store = createMemoryStore();
    expect(joinSourceStores([{ source: "north", store }])).toBe(store);
  });

  test("stores a document set whose name contains a source at that source, and other sets at every source", async () => {
    const stores = await createHarness({ north: [], south: [] });
    const { all, north, south } = stores;
    const tags = documentSet("tag", "south");
    await all.commit({
      documents: [
        { set: tags, put: [["1", "of south"]] },
        { set: "sync/day-sealed/north", put: [["1", "of north"]] },
        { set: "silence", put: [["s1", "of all"]] },
        { set: "elsewhere/west", put: [["1", "of nobody"]] },
      ],
    });
    expect(await both(stores, tags, "1")).toEqual([undefined, "of south"]);
    expect(await both(stores, "sync/day-sealed/north", "1")).toEqual(["of north", undefined]);
    expect(await both(stores, "silence", "s1")).toEqual(["of all", "of all"]);
    expect(await both(stores, "elsewhere/west", "1")).toEqual(["of nobody", "of nobody"]);

    await north.commit({ documents: [{ set: tags, put: [["2", "strange"]] }] });
    expect(await all.document(tags, "1")).toBe("of south");
    expect(await all.document(tags, "2")).toBeUndefined();
    expect([...(await all.documents(tags))]).toEqual([["1", "of south"]]);

    await south.commit({ documents: [{ set: "silence", put: [["s2", "of south"]] }] });
    expect(await all.document("silence", "s2")).toBe("of south");
    expect([...(await all.documents("silence")).keys()]).toEqual(["s1", "s2"]);
    await all.commit({ documents: [{ set: "silence", remove: ["s1", "s2"] }] });
    expect([...(await all.documents("silence"))]).toEqual([]);
  });

  test("stores sink state at every source when the sink has the name of a source", async () => {
    const stores = await createHarness({ north: [], south: [] });
    const set = sinkStateSet("north");
    await stores.south.commit({ documents: [{ set, put: [["ticket", 7]] }] });
    expect(await stores.all.document(set, "ticket")).toBe(7);
    await stores.all.commit({ documents: [{ set, put: [["ticket", 8]] }] });
    expect(await both(stores, set, "ticket")).toEqual([8, 8]);
    expect(await stores.all.version(set)).toBe((await stores.north.version(set)) + (await stores.south.version(set)));
  });

  test("returns the lag as the sum over the sources, with the oldest event of all sources", async () => {
    const { all, north, south } = await createHarness({ north: [5, 6], south: [2, 3, 4] });
    await settle(south, "broker", 1, { rejected: [{ position: 1, reason: "size" }] });
    await north.outbox.setEnded("broker", "410 Gone");
    expect(await all.outbox.lag()).toEqual([
      expect.objectContaining({
        sink: "broker",
        depth: 4,
        oldest: event("south", 3).time,
        deadLetters: 1,
        ended: "410 Gone",
      }),
    ]);
    await all.outbox.setEnded("broker", null);
    for (const store of [north, south])
      expect(await store.outbox.lag()).toEqual([expect.objectContaining({ ended: null })]);

    const [a, b] = [await north.outbox.pressure(), await south.outbox.pressure()];
    expect((await all.outbox.pressure()).bytes).toBe(a.bytes + b.bytes);
    expect((await all.outbox.pressure()).pendingBytes).toBe(Math.max(a.pendingBytes, b.pendingBytes));
  });

  test("requests a replay in each source and returns the sum of the replayed events", async () => {
    const { all, north, south } = await createHarness({ north: [5, 6], south: [2, 3, 4] });
    await settle(north, "broker", 2);
    await settle(south, "broker", 3);
    expect(await all.outbox.replay("broker", event("south", 3).time)).toBe(4);
    expect(idsOf((await north.outbox.next("broker", 10)).events)).toEqual(["north-5", "north-6"]);
    expect(idsOf((await south.outbox.next("broker", 10)).events)).toEqual(["south-3", "south-4"]);
    expect(await all.outbox.lag()).toEqual([expect.objectContaining({ again: 4 })]);
  });

  test("lists dead letters of all sources, newest first", async () => {
    const { all, north, south } = await createHarness({ north: [2], south: [1, 3] });
    const refuse = (store: Store, position: number) =>
      settle(store, "broker", position, { rejected: [{ position, reason: `no ${position}` }] });
    await refuse(north, 1);
    await refuse(south, 1);
    await refuse(south, 2);
    const letters = await all.outbox.deadLetters("broker");
    expect(letters.map(({ event: of }) => of?.id).toSorted()).toEqual(["north-2", "south-1", "south-3"]);
    const times = letters.map(({ at }) => at);
    expect(times).toEqual(times.toSorted().toReversed());
    expect(await all.outbox.deadLetters("broker", 2)).toEqual(letters.slice(0, 2));
    expect(await all.outbox.resendDeadLetters("broker", "all")).toBe(3);
    expect(await all.outbox.deadLetters("broker")).toEqual([]);
  });

  test("returns the latest events by commit time, regardless of their positions", async () => {
    const { all } = await createHarness({ north: [1, 5, 6], south: [2, 3, 7] });
    expect(idsOf(await all.outbox.latest(4))).toEqual(["south-7", "north-6", "north-5", "south-3"]);
    expect(idsOf(await all.outbox.latest(9))).toHaveLength(6);
  });

  test("rejects queries by log position, and rejects events to append", async () => {
    const { all, north, south } = await createHarness({ north: [1], south: [2] });
    const { outbox, quotaStore } = all;
    const asked: readonly (() => Promise<unknown>)[] = [
      () => all.commit({ events: [event("north", 9)] }),
      () => all.commit({ documents: [{ set: "silence", put: [["s1", 1]] }], records: [{ log: "audit", body: 1 }] }),
      () => all.records("audit", 0, 1),
      () => all.lastRecord("audit"),
      () => outbox.register("broker", "now"),
      () => outbox.next("broker", 1),
      () => outbox.after(0, 1),
      () => outbox.settle("broker", { isRepeat: false, through: 1, rejected: [] }),
      () => outbox.replayBetween("broker", 0, 1),
      () => outbox.prune({ maxBytes: 1, ranMs: 0, maxAgeMs: 0, replayMs: 0 }),
      () => quotaStore.forgetSlots("north", 0),
    ];
    for (const query of asked) {
      const error = await query().catch((thrown: unknown) => thrown);
      expect(error, String(query)).toBeInstanceOf(ConfigError);
      expect(String(error)).toContain("one source of the fleet; add --source and one of north, south.");
    }
    for (const store of [north, south]) {
      expect(store.events).toHaveLength(1);
      expect(await store.documents("silence")).toEqual(new Map());
    }
  });
});

import { beforeEach, describe, expect, test } from "vitest";
import { FencedError } from "#src/engine/store/fenced-store.ts";
import { CHECKED_TABLE_NAMES } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { connectTo } from "../../query-postgres.ts";
import { programPath } from "../../real-servers.ts";
import { valueEvent } from "../../sample-events.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { createHarness, type Harness, SOURCE, startServerForTests } from "./postgres-harness.ts";

const WRITING: Readonly<Record<string, (store: Store) => Promise<unknown>>> = {
  "commit of documents": (store) => store.commit({ documents: [{ set: "a", put: [["k", 2]] }] }),
  "commit of an insert": (store) => store.commit({ documents: [{ set: "a", insert: [["new", 2]] }] }),
  "commit of a removal": (store) => store.commit({ documents: [{ set: "a", remove: ["k"] }] }),
  "commit of events": (store) => store.commit({ events: [valueEvent(99)] }),
  "commit of records": (store) => store.commit({ records: [{ log: "audit", body: 2 }] }),
  register: (store) => store.outbox.register("another", "now"),
  settle: (store) => store.outbox.settle("sink", { isRepeat: false, through: 3, rejected: [] }),
  "settle with a refusal": (store) =>
    store.outbox.settle("sink", { isRepeat: false, through: 3, rejected: [{ position: 3, reason: "no" }] }),
  "settle of what was offered again": async (store) => {
    await store.outbox.next("again", 9);
    await store.outbox.settle("again", { isRepeat: true, through: 9, rejected: [] });
  },
  "settle soon": async (store) => {
    await store.outbox.settle("sink", { isRepeat: false, through: 3, rejected: [], mayDefer: true });
    await store.commit({});
    await store.commit({ records: [{ log: "audit", body: 3 }] });
  },
  setEnded: (store) => store.outbox.setEnded("sink", "410 Gone"),
  resendDeadLetters: (store) => store.outbox.resendDeadLetters("sink", "all"),
  discardDeadLetters: (store) => store.outbox.discardDeadLetters("sink", "all"),
  replay: (store) => store.outbox.replay("sink", "2020-01-01T00:00:00Z"),
  replayBetween: (store) => store.outbox.replayBetween("sink", 0, 2),
  prune: (store) => store.outbox.prune({ maxBytes: 1, maxAgeMs: 1, replayMs: 1, ranMs: 10 }),
  "quota slot": (store) => store.quotaStore.save("main", { id: 9, sentAtMs: 1, countedByMs: 2 }),
  "quota slot soon": async (store) => {
    void store.quotaStore.saveDeferred("main", { id: 8, sentAtMs: 1, countedByMs: 2 });
    await store.quotaStore.save("main", { id: 9, sentAtMs: 1, countedByMs: 2 });
  },
  "quota hold": (store) => store.quotaStore.savePause("main", { orderedAtMs: 1, untilMs: 2 }),
  "quota clock": (store) => store.quotaStore.saveClock("main", "boot", { wallMs: 1, sinceBootMs: 2 }),
};

const TABLES = [...CHECKED_TABLE_NAMES, "quota_clock"];

describe.skipIf(programPath("postgres") === null)("a fleet member that lost the lease of a source", () => {
  const server = startServerForTests();
  let harness: Harness;
  let database: StateDatabase;
  let epoch = 1;

  beforeEach(async () => {
    harness = closeAfterTest(createHarness(server()));
    database = await harness.open();
    epoch = 1;
    await harness.acquire(epoch);
  });

  async function furnished(): Promise<Store> {
    const store = await harness.shard(database);
    await store.commit({
      documents: [{ set: "a", put: [["k", 1]] }],
      events: [1, 2, 3].map((n) => valueEvent(n)),
      records: [{ log: "audit", body: 1 }],
    });
    for (const sink of ["sink", "again"]) {
      await store.outbox.register(sink, "beginning");
      const rejected = [{ position: 2, reason: "no" }];
      await store.outbox.settle(sink, { isRepeat: false, through: 2, rejected });
    }
    await store.outbox.replayBetween("again", 0, 1);
    await store.quotaStore.save("main", { id: 1, sentAtMs: 1, countedByMs: 2 });
    return store;
  }

  async function everything(): Promise<unknown> {
    const rows = TABLES.map((table) => harness.query(`select * from ${harness.schema}.${table} as t order by t::text`));
    const row = harness.query(`select last_position, bytes, written from ${harness.schema}.source`);
    return Promise.all([...rows, row]);
  }

  test("cannot write by any method of the store", async () => {
    await (await furnished()).close();
    const before = await everything();
    for (const [name, write] of Object.entries(WRITING)) {
      const old = await harness.shard(database, { epoch });
      epoch += 1;
      await harness.acquire(epoch);
      await expect(write(old), name).rejects.toThrow(FencedError);
      await expect(old.commit({ events: [valueEvent(98)] }), name).rejects.toThrow(FencedError);
      await old.close();
      expect(await everything(), name).toEqual(before);
    }
    await expect(harness.shard(database, { epoch: 1 })).rejects.toThrow(FencedError);
    // The same calls by the holder succeed, so no call fails for another reason.
    for (const [name, write] of Object.entries(WRITING)) {
      const holder = await harness.shard(database, { epoch });
      await expect(write(holder), name).resolves.not.toThrow();
      await holder.close();
    }
  });

  test("cannot write when another process with the same epoch has already written", async () => {
    const one = await harness.shard(database);
    const two = await harness.shard(database);
    await one.commit({ events: [valueEvent(1)] });
    await expect(two.commit({ events: [valueEvent(2)] })).rejects.toThrow(FencedError);
    await one.commit({ events: [valueEvent(3)] });
    expect(await one.outbox.latest(9)).toHaveLength(2);
  });

  test("cannot write with a read-only store, and reports a source that is missing in the database", async () => {
    const reader = await harness.shard(database, "reader");
    await expect(reader.commit({ events: [valueEvent(1)] })).rejects.toThrow("reading only");
    expect(await reader.outbox.next("sink", 9)).toMatchObject({ events: [] });
    await harness.query(`delete from ${harness.schema}.source`);
    await expect(harness.shard(database, "operator")).rejects.toThrow("no source main");
  });

  test("loses no event of a transaction that is running when another member takes over the source", async () => {
    const old = await harness.shard(database);
    await old.outbox.register("sink", "now");
    await old.commit({ events: [valueEvent(1)] });
    const [[mark] = []] = await harness.query(`select last_commit from ${harness.schema}.source`);
    // The old holder has appended its event, and its commit is on the way.
    const slow = await connectTo(server());
    await slow.query(`set search_path = ${harness.schema}; begin`);
    await slow.query("select fence($1, 1, $2, 'slow')", [SOURCE, mark]);
    await slow.query(
      `with base as (update source set last_position = last_position + 1 where name = $1 returning last_position)
       insert into event select $1, last_position, $2, $3, true, 0, 1, 1, $4 from base`,
      [SOURCE, valueEvent(2).id, valueEvent(2).type, JSON.stringify(valueEvent(2))],
    );
    const takeover = harness.acquire(2);
    await expect
      .poll(() => harness.query("select 1 from pg_stat_activity where wait_event_type = 'Lock'"))
      .toHaveLength(1);
    await expect(harness.shard(database, { epoch: 2 })).rejects.toThrow(FencedError);
    await slow.query("commit");
    await takeover;
    await slow.end();
    const next = await harness.shard(database, { epoch: 2 });
    await next.commit({ events: [valueEvent(3)] });
    const { events } = await next.outbox.next("sink", 9);
    expect(events.map(({ event }) => event.id)).toEqual([1, 2, 3].map((n) => valueEvent(n).id));
  });

  test("delivers every event when two processes append at once", async () => {
    const holder = await harness.shard(database);
    const operator = await harness.shard(await harness.open(), "operator");
    await holder.outbox.register("sink", "beginning");
    const append = async (store: Store, from: number) => {
      for (let n = from; n < from + 60; n += 1) await store.commit({ events: [valueEvent(n)] });
    };
    const writing = Promise.all([append(holder, 0), append(operator, 1_000)]);
    const positions: number[] = [];
    while (positions.length < 120) {
      const { events } = await holder.outbox.next("sink", 10);
      positions.push(...events.map(({ position }) => position));
      const through = positions.at(-1) ?? 0;
      if (events.length > 0) await holder.outbox.settle("sink", { isRepeat: false, through, rejected: [] });
      else await holder.outbox.waitForChange(AbortSignal.timeout(2_000));
    }
    await writing;
    expect(positions).toEqual(Array.from({ length: 120 }, (_, n) => n + 1));
  });
});

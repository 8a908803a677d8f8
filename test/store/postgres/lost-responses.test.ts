import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { errorText, Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { CommitUnknown } from "#src/core/postgres/transaction.ts";
import { DocumentKeyConflict, type Store } from "#src/engine/store/store.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { programPath } from "../../real-servers.ts";
import { valueEvent } from "../../sample-events.ts";
import { idsOf, positionsOf, settle } from "../store-steps.ts";
import { type CuttingProxy, startCuttingProxy } from "./cutting-proxy.ts";
import { createHarness, type Harness, startServerForTests } from "./postgres-harness.ts";

describe.skipIf(programPath("postgres") === null)("a lost connection to the state database", () => {
  const server = startServerForTests();
  let proxy: CuttingProxy;
  let harness: Harness;
  let database: StateDatabase;
  let store: Store;

  beforeAll(async () => {
    proxy = await startCuttingProxy(server().port);
  });
  afterAll(() => proxy?.close());
  beforeEach(async () => {
    harness = createHarness(server(), proxy.port);
    database = await harness.open();
    await harness.acquire(1);
    store = await harness.shard(database);
    await store.outbox.register("sink", "beginning");
  });
  afterEach(async () => {
    await store.close();
    await harness.close();
  });

  const change = (n: number) => ({
    documents: [{ set: "journal", insert: [[String(n), n]] as const }],
    events: [valueEvent(n)],
    records: [{ log: "audit", body: n }],
  });

  const told = async () => idsOf((await store.outbox.next("sink", 100)).events);
  const recorded = async () => (await store.records<number>("audit", 0, 100)).map(({ body }) => body);
  const ids = (...events: readonly Event[]) => events.map(({ id }) => id);

  test("rejects a commit that never arrived, and accepts the repeated commit", async () => {
    await store.commit(change(1));
    const cut = proxy.cut("unsent");
    const failed = store.commit(change(2));
    await cut;
    await expect(failed).rejects.toThrow(Retryable);
    expect(await recorded()).toEqual([1]);
    expect(await store.commit(change(2))).toEqual({ lastPosition: 2, repeated: [] });
    expect(await recorded()).toEqual([1, 2]);
    expect(await told()).toEqual(ids(valueEvent(1), valueEvent(2)));
  });

  test("returns the result of a commit whose response was lost", async () => {
    await store.commit(change(1));
    const cut = proxy.cut("unanswered");
    const done = store.commit({ ...change(2), events: [valueEvent(1), valueEvent(2), valueEvent(2)] });
    await cut;
    expect(await done).toEqual({ lastPosition: 2, repeated: ids(valueEvent(1), valueEvent(2)) });
    await expect(store.commit(change(2))).rejects.toThrow(DocumentKeyConflict);
    expect(await store.commit(change(3))).toEqual({ lastPosition: 3, repeated: [] });
    expect(await recorded()).toEqual([1, 2, 3]);
    expect(await told()).toEqual(ids(valueEvent(1), valueEvent(2), valueEvent(3)));
  });

  test("ignores the packet of a commit that arrives after the query for that commit's result", async () => {
    const cut = proxy.cut("late");
    const failed = store.commit(change(1));
    await cut;
    await expect(failed).rejects.toThrow(Retryable);
    expect(await proxy.release()).toContain("PLF01");
    expect(await recorded()).toEqual([]);
    await store.commit(change(1));
    expect(await recorded()).toEqual([1]);
    expect(await told()).toEqual(ids(valueEvent(1)));
  });

  test("finds the result of two commits although two queries for each result fail too", async () => {
    let questions = 0;
    const forgetful: StateDatabase = {
      ...database,
      async query(...asked) {
        const reply = await database.query(...asked);
        if (!asked[0].startsWith("update source set last_commit")) return reply;
        questions += 1;
        if (questions < 3) throw new Retryable("The response was lost.");
        return reply;
      },
    };
    store = await harness.shard(forgetful);
    const cut = proxy.cut("unanswered");
    const done = store.commit(change(1));
    await cut;
    expect(await done).toEqual({ lastPosition: 1, repeated: [] });
    expect(questions).toBe(3);
    await store.commit(change(2));

    questions = 0;
    const cutAgain = proxy.cut("unsent");
    const failed = store.commit(change(3));
    await cutAgain;
    await expect(failed).rejects.toThrow(Retryable);
    expect(questions).toBe(3);
    await store.commit(change(3));
    expect(await recorded()).toEqual([1, 2, 3]);
  });

  test("rejects a commit that did not happen, and includes the advice for the database error", async () => {
    const away: StateDatabase = {
      ...database,
      transact: () => Promise.reject(new CommitUnknown("It is away.", { hint: "Look at its disk." })),
    };
    const error = await (await harness.shard(away)).commit(change(1)).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(Retryable);
    expect(errorText(error)).toBe("It is away. Look at its disk.");
    store = await harness.shard(database);
    expect(await recorded()).toEqual([]);
  });

  test("applies a settlement exactly once although its response was lost", async () => {
    await store.commit(change(1));
    await store.commit(change(2));
    await store.outbox.next("sink", 1);
    const cut = proxy.cut("unanswered");
    const settled = settle(store, "sink", 1, { rejected: [{ position: 1, reason: "no" }] });
    await cut;
    await settled;
    expect(await told()).toEqual(ids(valueEvent(2)));
    const resending = proxy.cut("unanswered");
    const marked = store.outbox.resendDeadLetters("sink", "all");
    await resending;
    expect(await marked).toBe(1);
    expect((await store.outbox.next("sink", 9)).isRepeat).toBe(true);
  });

  test("informs the operator that the result of a command is unknown", async () => {
    const operator = await harness.shard(database, "operator");
    const cut = proxy.cut("unanswered");
    const failed = operator.commit({ documents: [{ set: "silence", put: [["a", 1]] }] });
    await cut;
    await expect(failed).rejects.toMatchObject({ hint: expect.stringContaining("look before you repeat it") });
    expect(await store.document("silence", "a")).toBe(1);
  });

  test("loses no commit and applies none twice when the server is killed and restarted", async () => {
    let committed = 0;
    let failures = 0;
    let isOver = false;
    const writing = (async () => {
      while (!isOver) {
        try {
          await store.commit(change(committed + 1));
          committed += 1;
        } catch (error) {
          expect(error).toBeInstanceOf(Retryable);
          failures += 1;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
    })();
    const until = async (n: number) => {
      while (committed < n) await new Promise((resolve) => setTimeout(resolve, 5));
    };
    for (const round of [1, 2]) {
      await until(round * 20);
      await server().kill();
      await server().startAgain();
      await until(committed + 5);
    }
    isOver = true;
    await writing;
    const all = Array.from({ length: committed }, (_, n) => n + 1);
    expect(failures).toBeGreaterThan(0);
    expect((await store.records<number>("audit", 0, 10_000)).map(({ body }) => body)).toEqual(all);
    const offer = await store.outbox.next("sink", 10_000);
    expect(idsOf(offer.events)).toEqual(all.map((n) => valueEvent(n).id));
    expect(positionsOf(offer.events)).toEqual(all);
  });
});

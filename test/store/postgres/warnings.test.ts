import { randomBytes } from "node:crypto";
import { beforeEach, describe, expect, test } from "vitest";
import type { Store } from "#src/engine/store/store.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { programPath } from "../../real-servers.ts";
import { AWKWARD_TEXTS, valueEvent } from "../../sample-events.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { settle } from "../store-steps.ts";
import { createHarness, type Harness, startServerForTests } from "./postgres-harness.ts";

const LISTENING = "(query ilike 'listen%' or query = 'select 1') and state = 'idle'";

describe.skipIf(programPath("postgres") === null)(
  "the store of an operator's command while a worker holds the source",
  () => {
    const server = startServerForTests();
    let harness: Harness;
    let database: StateDatabase;
    let holder: Store;
    let operator: Store;

    beforeEach(async () => {
      harness = closeAfterTest(createHarness(server()));
      database = await harness.open();
      await harness.acquire(1);
      holder = closeAfterTest(await harness.shard(database));
      operator = await harness.shard(await harness.open(), "operator");
      await holder.outbox.register("sink", "beginning");
      await holder.commit({ events: [1, 2, 3].map((n) => valueEvent(n)) });
      await holder.outbox.settle("sink", { isRepeat: false, through: 3, rejected: [] });
      expect(await holder.outbox.next("sink", 9)).toMatchObject({ events: [] });
    });

    const isListening = () =>
      expect
        .poll(() => harness.query(`select count(*)::int from pg_stat_activity where ${LISTENING}`))
        .not.toEqual([[0]]);

    test("notifies the worker at once of a replay, a changed document and an ended sink", async () => {
      await isListening();
      const [changes, version] = [await holder.changes(), await holder.version("silence")];
      const tooLate = AbortSignal.timeout(60_000);
      const marked = holder.outbox.waitForChange(tooLate);
      expect(await operator.outbox.replay("sink", "2020-01-01T00:00:00Z")).toBe(3);
      await marked;
      expect(tooLate.aborted).toBe(false);
      await expect.poll(() => holder.outbox.next("sink", 9)).toMatchObject({ isRepeat: true, events: [{}, {}, {}] });
      expect(await holder.changes()).not.toBe(changes);

      await operator.commit({ documents: [{ set: "silence", put: [["alarm", { until: 1 }]] }] });
      await expect.poll(() => holder.version("silence")).not.toBe(version);
      await operator.outbox.setEnded("sink", "taken out");
      await expect.poll(() => holder.outbox.register("sink", "now")).toMatchObject({ ended: "taken out" });
    });

    test("notifies the worker of a replay once the worker's listening connection is back", async () => {
      await isListening();
      await harness.query(`select pg_terminate_backend(pid) from pg_stat_activity where ${LISTENING}`);
      await operator.outbox.replay("sink", "2020-01-01T00:00:00Z");
      await expect.poll(() => holder.outbox.next("sink", 9)).toMatchObject({ isRepeat: true });
    });

    test("returns a new change number after the worker has committed a document", async () => {
      const before = await operator.changes();
      expect(await operator.changes()).toBe(before);
      await holder.commit({ documents: [{ set: "a", put: [["k", 1]] }] });
      expect(await operator.changes()).not.toBe(before);
      expect(await operator.version("a")).not.toBe(before);
    });

    test("reads cursors on each call, while the worker caches cursors and sends no query for a sink without lag", async () => {
      await holder.commit({ events: [valueEvent(4)] });
      expect((await operator.outbox.next("sink", 9)).events).toHaveLength(1);
      await holder.outbox.settle("sink", { isRepeat: false, through: 4, rejected: [] });
      expect((await operator.outbox.next("sink", 9)).events).toEqual([]);

      let questions = 0;
      const counting: StateDatabase = {
        ...database,
        query(...asked) {
          questions += 1;
          return database.query(...asked);
        },
      };
      const following = await harness.shard(counting);
      expect((await following.outbox.next("sink", 9)).events).toEqual([]);
      const before = questions;
      for (const n of [5, 6, 7]) {
        await following.commit({ events: [valueEvent(n)] });
        expect((await following.outbox.next("sink", 9)).events).toHaveLength(1);
        await following.outbox.settle("sink", { isRepeat: false, through: n, rejected: [], mayDefer: n === 6 });
        expect((await following.outbox.next("sink", 9)).events).toEqual([]);
      }
      expect(questions).toBe(before);
      await following.close();
      const version = await holder.version("silence");
      await isListening();
      await operator.commit({ documents: [{ set: "silence", put: [["a", 1]] }] });
      await expect.poll(() => holder.version("silence")).not.toBe(version);
      expect(questions).toBe(before);
    });

    test("calls only the listeners of the notified topic, and no removed listener", async () => {
      const called: string[] = [];
      const stop = database.onNotified("one", () => called.push("one"));
      database.onNotified("two", () => called.push("two"));
      await isListening();
      await database.transact([database.notify("one")]);
      await expect.poll(() => called).toEqual(["one"]);
      stop();
      await database.transact([database.notify("one"), database.notify("two")]);
      await expect.poll(() => called).toEqual(["one", "two"]);
    });

    test("reads names and texts with any characters unchanged", async () => {
      const long = randomBytes(5_000).toString("base64");
      const texts = [
        ...AWKWARD_TEXTS,
        long,
        `${long}!`,
        "\0",
        "a\0b",
        "\ud800",
        "\ue000",
        '\ue000"x"',
        "{a,b}",
        "null",
        '"',
        "\\",
      ];
      const unique = [...new Set(texts)];
      const events = unique.map((text, n) => ({ ...valueEvent(1_000 + n), id: `id ${text}`, subject: text }));
      await holder.commit({
        documents: [{ set: "names", put: unique.map((text) => [text, { text }] as const) }],
        records: unique.map((text) => ({ log: "names", body: text })),
        events,
      });
      expect(await holder.documents("names")).toEqual(new Map(unique.map((text) => [text, { text }])));
      expect((await holder.records("names", 0, 999)).map(({ body }) => body)).toEqual(unique);
      const reader = await harness.shard(database, "reader");
      const told = (await reader.outbox.after(3, 999)).map(({ event }) => event);
      expect(told.map(({ id }) => id)).toEqual(unique.map((text) => `id ${text}`));
      expect(told.map(({ subject }) => subject)).toEqual(unique);
      for (const text of unique) {
        expect(await holder.document("names", text), JSON.stringify(text.slice(0, 99))).toEqual({ text });
        // `recent` skips an event of this size.
        if (text.length > 7_000) continue;
        const about = { source: valueEvent(1).source, subjects: [text] };
        const found = await holder.outbox.recent(about, ["tag-value"], { sinceMs: 0, maxSearched: 999, limit: 9 });
        const subjects = found.map(({ event }) => event.subject);
        expect(subjects, JSON.stringify(text.slice(0, 99))).toEqual([text]);
      }
      expect((await holder.commit({ events })).repeated).toHaveLength(unique.length);
      const insert = unique.map((text) => [text, 1] as const);
      await expect(holder.commit({ documents: [{ set: "names", insert }] })).rejects.toMatchObject({
        name: "Conflict",
        set: "names",
      });
      await settle(holder, "sink", 4, { rejected: [{ position: 4, reason: "\0 \ud800" }] });
      expect(await holder.outbox.deadLetters()).toMatchObject([{ reason: "\ufffd \ufffd" }]);
    });
  },
);

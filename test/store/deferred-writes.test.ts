import { join } from "node:path";
import { expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createDeferredWrites, createSqliteDeferredWrites } from "#src/engine/store/deferred-writes.ts";
import { createStore } from "#src/engine/store/open.ts";
import { prepareSchema } from "#src/engine/store/schema.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { createTransactionWriter } from "#src/scale/postgres/transaction-writer.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { values } from "./store-steps.ts";

function writing() {
  const clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  const commits: string[][] = [];
  const database = { isAway: false };
  const deferredWrites = createDeferredWrites<string, Promise<void>>(clock, async () => {
    const taken = deferredWrites.takeWaiting();
    if (database.isAway) throw new Error("away");
    commits.push([...taken.writes]);
    taken.resolveWrites();
  });
  const write = (key: string, text: string) => {
    const state = { isDurable: false };
    void deferredWrites.write(key, text).then(() => {
      state.isDurable = true;
    });
    return state;
  };
  return { clock, commits, database, soon: deferredWrites, write };
}

test("deferred writes are committed after five seconds with the latest value of each key, and leave no timer", async () => {
  const { clock, commits, write } = writing();
  const first = write("a", "one");
  write("b", "two");
  await clock.advance(4_999);
  const later = write("a", "three");
  expect([commits, first.isDurable]).toEqual([[], false]);
  await clock.advance(2);
  expect(commits).toEqual([["three", "two"]]);
  expect([first.isDurable, later.isDurable]).toEqual([true, true]);
  await clock.advance(60_000);
  expect([commits.length, clock.sleepers()]).toEqual([1, 0]);
  write("a", "four");
  await clock.advance(5_001);
  expect(commits.slice(1)).toEqual([["four"]]);
});

test("a deferred write with a key that a running commit writes is part of the next transaction", async () => {
  const { soon, write } = writing();
  const first = write("a", "one");
  const taken = soon.takeWaiting();
  write("a", "two");
  taken.resolveWrites();
  expect(soon.takeWaiting().writes).toEqual(["two"]);
  await Promise.resolve();
  expect(first.isDurable).toBe(false);
  soon.takeWaiting().resolveWrites();
  await new Promise((resolve) => setImmediate(resolve));
  expect([first.isDurable, soon.takeWaiting().writes]).toEqual([true, []]);
});

test("deferred writes are reported as unsaved after a failed commit, and retried every five seconds", async () => {
  const { clock, commits, database, soon, write } = writing();
  database.isAway = true;
  write("a", "one");
  expect(soon.isBehind()).toBe(false);
  await clock.advance(5_001);
  expect(soon.isBehind()).toBe(true);
  database.isAway = false;
  await clock.advance(4_998);
  expect(commits).toEqual([]);
  await clock.advance(2);
  expect([commits, soon.isBehind()]).toEqual([[["one"]], false]);
});

function onDisk() {
  const database = closeAfterTest(openDatabase(join(testFolder(), "plenum.db")));
  return { clock: createVirtualClock(Date.parse("2026-11-22T06:00:00Z")), database };
}

test("after a failed deferred write, the next cursor of a sink is written at once, so that the failure is reported", async () => {
  const { clock, database: inner } = onDisk();
  prepareSchema(inner, true);
  let isFull = false;
  const transaction = <T>(work: () => T): T => {
    if (isFull) throw new Retryable("The disk is full.");
    return inner.transaction(work);
  };
  const full = createStore({ ...inner, transaction }, clock, {});
  await full.outbox.register("sink", "beginning");
  await full.commit({ events: values(0, 3) });
  await full.outbox.next("sink", 10);
  const plain = { isRepeat: false, rejected: [], mayDefer: true };
  isFull = true;
  await full.outbox.settle("sink", { ...plain, through: 1 });
  await clock.advance(5_100);
  await expect(full.outbox.settle("sink", { ...plain, through: 2 })).rejects.toThrow("The disk is full.");
  isFull = false;
  await full.outbox.settle("sink", { ...plain, through: 2 });
  expect(inner.number("select position from sink")).toBe(2);
  await full.close();
});

test("a deferred write replaces an earlier write with the same key, and a failed write blocks no other write", async () => {
  const { clock, database } = onDisk();
  database.exec("create table t (v integer) strict");
  const soon = createSqliteDeferredWrites(database, clock);
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
});

test("closing the PostgreSQL writer commits waiting writes, leaves no timer and takes at most three seconds", async () => {
  const clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  const sent: (readonly string[])[] = [];
  const writerOf = (reply: () => Promise<[]>) =>
    createTransactionWriter({
      ...{ source: "main", access: { epoch: 1 }, clock, log: createLog({ level: "silent" }), lastCommit: "" },
      database: {
        transact(statements: readonly { readonly text: string }[]) {
          sent.push(statements.map(({ text }) => text));
          return reply();
        },
      } as unknown as StateDatabase,
    });
  const writer = writerOf(async () => []);
  void writer.deferredWrites.write("a", () => ({ text: "one" }));
  await writer.close();
  expect(sent.map((texts) => texts.slice(1))).toEqual([["one"]]);
  await clock.advance(10_000);
  expect([sent.length, clock.sleepers()]).toEqual([1, 0]);

  const silent = writerOf(() => new Promise(() => {}));
  void silent.deferredWrites.write("a", () => ({ text: "one" }));
  let isClosed = false;
  void silent.close().then(() => {
    isClosed = true;
  });
  await clock.advance(2_999);
  expect(isClosed).toBe(false);
  await clock.advance(2);
  expect(isClosed).toBe(true);
});

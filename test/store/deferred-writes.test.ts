import { expect, test } from "vitest";
import { createLog } from "#src/core/runtime/log.ts";
import { createDeferredWrites } from "#src/engine/store/deferred-writes.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { createWriter } from "#src/scale/postgres/writer.ts";
import { createVirtualClock } from "../virtual-clock.ts";

function writing() {
  const clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  const commits: string[][] = [];
  const database = { isAway: false };
  const soon = createDeferredWrites<string, Promise<void>>(clock, async () => {
    const taken = soon.take();
    if (database.isAway) throw new Error("away");
    commits.push([...taken.writes]);
    taken.committed();
  });
  const write = (key: string, text: string) => {
    const state = { isDurable: false };
    void soon.write(key, text).then(() => {
      state.isDurable = true;
    });
    return state;
  };
  return { clock, commits, database, soon, write };
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

test("a deferred write with the same key as a running commit joins the next transaction", async () => {
  const { soon, write } = writing();
  const first = write("a", "one");
  const taken = soon.take();
  write("a", "two");
  taken.committed();
  expect(soon.take().writes).toEqual(["two"]);
  await Promise.resolve();
  expect(first.isDurable).toBe(false);
  soon.take().committed();
  await new Promise((resolve) => setImmediate(resolve));
  expect([first.isDurable, soon.take().writes]).toEqual([true, []]);
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

test("flushing deferred writes opens no transaction when no write is waiting", async () => {
  const { commits, soon, write } = writing();
  await soon.flush();
  write("a", "one");
  await soon.flush();
  await soon.flush();
  expect(commits).toEqual([["one"]]);
});

test("closing a writer commits waiting writes, leaves no timer and takes at most three seconds", async () => {
  const clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  const sent: (readonly string[])[] = [];
  const writerOf = (reply: () => Promise<[]>) =>
    createWriter({
      ...{ source: "main", as: { epoch: 1 }, clock, log: createLog({ level: "silent" }), lastCommit: "" },
      database: {
        transact(statements: readonly { readonly text: string }[]) {
          sent.push(statements.map(({ text }) => text));
          return reply();
        },
      } as unknown as StateDatabase,
    });
  const writer = writerOf(async () => []);
  void writer.soon.write("a", () => ({ text: "one" }));
  await writer.close();
  expect(sent.map((texts) => texts.slice(1))).toEqual([["one"]]);
  await clock.advance(10_000);
  expect([sent.length, clock.sleepers()]).toEqual([1, 0]);

  const silent = writerOf(() => new Promise(() => {}));
  void silent.soon.write("a", () => ({ text: "one" }));
  let isClosed = false;
  void silent.close().then(() => {
    isClosed = true;
  });
  await clock.advance(2_999);
  expect(isClosed).toBe(false);
  await clock.advance(2);
  expect(isClosed).toBe(true);
});

import { expect, test } from "vitest";
import { createDeferredWrites } from "#src/scale/postgres/deferred-writes.ts";
import { createVirtualClock } from "../../virtual-clock.ts";

/** Commits what waits, as the writer does; `isAway` makes a commit fail. */
function writing() {
  const clock = createVirtualClock(Date.parse("2026-11-22T06:00:00Z"));
  const commits: string[][] = [];
  const database = { isAway: false };
  const soon = createDeferredWrites(clock, async () => {
    const taken = soon.take();
    if (database.isAway) throw new Error("away");
    commits.push(taken.asked.map(({ text }) => text));
    taken.committed();
  });
  const write = (key: string, text: string) => {
    const state = { isDurable: false };
    void soon
      .write(key, () => ({ text }))
      .then(() => {
        state.isDurable = true;
      });
    return state;
  };
  return { clock, commits, database, soon, write };
}

test("what waits is committed after five seconds, of each key the latest, and nothing is left to wake for", async () => {
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

test("a write that comes while its forerunner is committed has the next transaction", async () => {
  const { soon, write } = writing();
  const first = write("a", "one");
  const taken = soon.take();
  write("a", "two");
  taken.committed();
  expect(soon.take().asked).toEqual([{ text: "two" }]);
  await Promise.resolve();
  expect(first.isDurable).toBe(false);
  soon.take().committed();
  await new Promise((resolve) => setImmediate(resolve));
  expect([first.isDurable, soon.take().asked]).toEqual([true, []]);
});

test("what could not be written in its time is behind until it is, and is tried every five seconds", async () => {
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

test("a flush without anything that waits makes no transaction", async () => {
  const { commits, soon, write } = writing();
  await soon.flush();
  write("a", "one");
  await soon.flush();
  await soon.flush();
  expect(commits).toEqual([["one"]]);
});

test("closing commits what waits, tries nothing later, and waits three seconds at most", async () => {
  const { clock, commits, soon, write } = writing();
  write("a", "one");
  await soon.close();
  expect(commits).toEqual([["one"]]);
  await clock.advance(10_000);
  expect([commits.length, clock.sleepers()]).toEqual([1, 0]);
  await soon.close();
  expect(commits).toHaveLength(1);

  const silent = createDeferredWrites(clock, () => new Promise(() => {}));
  void silent.write("a", () => ({ text: "one" }));
  let isClosed = false;
  void silent.close().then(() => {
    isClosed = true;
  });
  await clock.advance(2_999);
  expect(isClosed).toBe(false);
  await clock.advance(2);
  expect(isClosed).toBe(true);
});

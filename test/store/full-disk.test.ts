import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";
import { smallDisk } from "../small-disk.ts";
import { testFolder } from "../test-resources.ts";

async function fill(store: Store, from: number): Promise<{ readonly committed: number; readonly error: unknown }> {
  for (let n = from; ; n += 1) {
    const event = { ...valueEvent(n), subject: "x".repeat(20_000) };
    try {
      await store.commit({ documents: [{ set: "last", put: [["n", n]] }], events: [event] });
    } catch (error) {
      return { committed: n, error };
    }
  }
}

async function expectComplete(store: Store, count: number): Promise<void> {
  expect(await store.outbox.latest(100_000)).toHaveLength(count);
  expect(await store.document("last", "n")).toBe(count - 1);
}

describe("a full disk", () => {
  test("rejects a commit with a clear message, stores no partial commit, and recovers when there is space", async (context) => {
    const disk = smallDisk(4);
    if (disk === null) return context.skip();
    const store = await openStore({ folder: join(disk, "state"), clock: systemClock });
    const ballast = join(disk, "ballast");
    writeFileSync(ballast, Buffer.alloc(1_500_000));
    const { committed, error } = await fill(store, 0);
    expect(error).toBeInstanceOf(Retryable);
    expect(error).toMatchObject({ hint: expect.stringMatching(/space|disk/) });
    await expectComplete(store, committed);
    rmSync(ballast);
    const more = await fill(store, committed);
    expect(more.committed).toBeGreaterThan(committed);
    await expectComplete(store, more.committed);
    await store.close();
  });

  test("simulated by a page limit, rolls a transaction back, and accepts the transaction once the limit is raised", () => {
    const database = openDatabase(join(testFolder(), "small.db"));
    database.exec("pragma max_page_count = 20; create table a (n integer primary key, text text)");
    const insert = database.prepare("insert into a (text) values (?)");
    expect(() =>
      database.transaction(() => {
        for (;;) insert.run("x".repeat(1_000));
      }),
    ).toThrow(Retryable);
    expect(database.number("select count(*) from a")).toBe(0);
    database.exec("pragma max_page_count = 1000");
    database.transaction(() => insert.run("x"));
    expect(database.number("select count(*) from a")).toBe(1);
    database.close();
  });
});

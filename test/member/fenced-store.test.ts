import { expect, test } from "vitest";
import { isStopping } from "#src/core/runtime/lifecycle.ts";
import { Fenced, fencedStore } from "#src/engine/store/fenced-store.ts";
import type { Store } from "#src/engine/store/store.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

/** A store of which every call but `close` is refused, because somebody else holds the source. */
function lostStore(store: Store): Store {
  const lost = <T extends object>(part: T): T =>
    Object.fromEntries(
      Object.entries(part).map(([name, member]) => [
        name,
        typeof member === "function" ? async () => Promise.reject(new Fenced("north")) : member,
      ]),
    ) as T;
  return {
    ...lost(store),
    outbox: lost(store.outbox),
    quotaStore: lost(store.quotaStore),
    close: store.close,
  };
}

test("the fenced store throws Stopping and reports the lost lease when another member holds the store", async () => {
  let heard = 0;
  const store = fencedStore(lostStore(createMemoryStore()), () => {
    heard += 1;
  });
  const asked = [
    () => store.commit({}),
    () => store.document("a", "b"),
    () => store.outbox.lag(),
    () => store.outbox.changed(new AbortController().signal),
    () => store.quotaStore.load("north/read"),
  ];
  for (const ask of asked) {
    const error = await ask().catch((reason: unknown) => reason);
    expect(isStopping(error)).toBe(true);
  }
  expect(heard).toBe(asked.length);
});

test("the fenced store passes other errors on unchanged", async () => {
  const broken = { ...createMemoryStore(), document: () => Promise.reject(new Error("The disk is full.")) };
  const store = fencedStore(broken, () => expect.unreachable());
  await expect(store.document("a", "b")).rejects.toThrow("The disk is full.");
  expect(await store.outbox.lag()).toEqual([]);
  await store.close();
});

import { expect, test } from "vitest";
import { isOrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createFencedStore, FencedError } from "#src/engine/store/fenced-store.ts";
import { createMemoryStore } from "../sync/memory-store.ts";

/** Every function of the result rejects with `FencedError`. */
function fencedPart<T extends object>(part: T): T {
  const fail = () => Promise.reject(new FencedError("north"));
  return Object.fromEntries(
    Object.entries(part).map(([name, member]) => [name, typeof member === "function" ? fail : member]),
  ) as T;
}

test("the fenced store throws OrderlyStop and reports the lost lease when another member holds the store", async () => {
  const inner = createMemoryStore();
  const lost = { outbox: fencedPart(inner.outbox), quotaStore: fencedPart(inner.quotaStore) };
  let reports = 0;
  const store = createFencedStore({ ...fencedPart(inner), ...lost }, () => {
    reports += 1;
  });
  const calls = [
    () => store.commit({}),
    () => store.document("a", "b"),
    () => store.outbox.lag(),
    () => store.outbox.waitForChange(new AbortController().signal),
    () => store.quotaStore.load("north/read"),
  ];
  for (const call of calls) expect(isOrderlyStop(await call().catch((reason: unknown) => reason))).toBe(true);
  expect(reports).toBe(calls.length);
});

test("the fenced store passes other errors on unchanged", async () => {
  const broken = { ...createMemoryStore(), document: () => Promise.reject(new Error("The disk is full.")) };
  const store = createFencedStore(broken, () => expect.unreachable());
  await expect(store.document("a", "b")).rejects.toThrow("The disk is full.");
  expect(await store.outbox.lag()).toEqual([]);
  await store.close();
});

import { cpSync, renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemClock } from "#src/core/runtime/clock.ts";
import { type OpenStoreOptions, openStore } from "#src/engine/store/open.ts";
import type { KnownStateCopy } from "#src/engine/store/store.ts";
import { testFolder } from "../test-resources.ts";

function place() {
  const base = testFolder();
  return { first: join(base, "first"), second: join(base, "second"), base };
}

async function opened(folder: string, options: Partial<OpenStoreOptions> = {}): Promise<KnownStateCopy | undefined> {
  const store = await openStore({ folder, clock: systemClock, machine: () => "one", ...options });
  const { copy } = await store.describe();
  await store.close();
  return copy;
}

test("a copied state next to its original is detected, has a stable identity, and reports whether the original exists", async () => {
  const { first, second, base } = place();
  expect(await opened(first)).toBeUndefined();
  cpSync(first, second, { recursive: true });
  const copy = await opened(second);
  expect(copy).toEqual({
    identity: expect.stringMatching(/^[0-9a-f]{8}$/),
    at: expect.stringMatching(/Z$/),
    from: { folder: first, host: expect.any(String) },
    isHere: true,
    isOriginalThere: true,
  });
  expect(await opened(second)).toEqual(copy);
  expect(await opened(second, { readOnly: true })).toEqual(copy);
  expect(await opened(first), "the original is none").toBeUndefined();

  const third = join(base, "third");
  cpSync(second, third, { recursive: true });
  const again = await opened(third);
  expect(again?.from.folder).toBe(second);
  expect(again?.identity).not.toBe(copy?.identity);

  rmSync(first, { recursive: true });
  expect(await opened(second)).toEqual({ ...copy, isOriginalThere: false });
});

test("a state that was moved or restored, or whose original was deleted, is not a copy", async () => {
  const { first, second, base } = place();
  await opened(first);
  renameSync(first, second);
  expect(await opened(second)).toBeUndefined();

  cpSync(second, first, { recursive: true });
  rmSync(second, { recursive: true });
  expect(await opened(first)).toBeUndefined();

  const backup = join(base, "backup");
  cpSync(first, backup, { recursive: true });
  renameSync(first, join(base, "away"));
  cpSync(backup, first, { recursive: true });
  expect(await opened(first)).toBeUndefined();
});

test("a state from another machine is a copy without a visible original", async () => {
  const { first, second } = place();
  await opened(first);
  cpSync(first, second, { recursive: true });
  rmSync(first, { recursive: true });
  expect(await opened(second, { machine: () => "another" })).toMatchObject({ isHere: false, isOriginalThere: false });
});

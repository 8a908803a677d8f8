import { expect, test } from "vitest";
import { createEntryCode } from "#src/ui/setup/entry-code.ts";
import { createVirtualClock } from "../virtual-clock.ts";

test("the code is good once, however it is typed, and for its key only", () => {
  const entry = createEntryCode(createVirtualClock(0));
  expect(entry.code).toMatch(/^[A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4}$/);
  expect(entry.isKey(undefined)).toBe(false);
  expect(entry.enter("")).toBeNull();
  const key = entry.enter(` ${entry.code.toLowerCase().replace("-", " ")} `);
  expect(key).toMatch(/^[\w-]{43}$/);
  expect([entry.isKey(String(key)), entry.isKey("x"), entry.isKey(undefined)]).toEqual([true, false, false]);
  expect(entry.enter(entry.code)).toBeNull();
  expect(createEntryCode(createVirtualClock(0)).code).not.toBe(entry.code);
});

test("five guesses, and then two a minute; while it waits the right one is not looked at either", async () => {
  const clock = createVirtualClock(0);
  const entry = createEntryCode(clock);
  for (let n = 0; n < 5; n += 1) expect(entry.enter(`WRONG${n}`)).toBeNull();
  expect(entry.enter(entry.code)).toEqual({ waitMs: 30_000 });
  await clock.advance(30_000);
  expect(entry.enter("WRONG")).toBeNull();
  expect(entry.enter(entry.code)).toEqual({ waitMs: 30_000 });
  await clock.advance(30_000);
  expect(entry.enter(entry.code)).toMatch(/^[\w-]{43}$/);
});

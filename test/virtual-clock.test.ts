import { expect, test } from "vitest";
import { createVirtualClock } from "./virtual-clock.ts";

test("sleepers wake in order of time, then of call, and promise chains run in between", async () => {
  const clock = createVirtualClock(1_000);
  const wakeOrder: string[] = [];
  const sleeper = async (name: string, ms: number) => {
    await clock.sleep(ms);
    for (let i = 0; i < 50; i += 1) await Promise.resolve();
    wakeOrder.push(`${name} ${clock.monotonic()} ${clock.now()}`);
    if (name === "a") void sleeper("nested", 5);
  };
  for (const [name, ms] of [
    ["c", 30],
    ["a", 10],
    ["b", 10],
    ["late", 99],
  ] as const)
    void sleeper(name, ms);
  await clock.run(50);
  expect(wakeOrder).toEqual(["a 10 1010", "b 10 1010", "nested 15 1015", "c 30 1030"]);
  expect(clock.monotonic()).toBe(50);
  expect(clock.sleepers()).toBe(1);
});

test("an aborted sleep rejects at once with the signal's reason", async () => {
  const clock = createVirtualClock(0);
  const caller = new AbortController();
  const sleep = clock.sleep(10, caller.signal);
  caller.abort(new Error("enough"));
  await expect(sleep).rejects.toThrow("enough");
  await expect(clock.sleep(10, caller.signal)).rejects.toThrow("enough");
  expect(clock.sleepers()).toBe(0);
});

test("sleepers that become due during a suspension wake late and in order", async () => {
  const clock = createVirtualClock(1_000);
  const wakeOrder: string[] = [];
  const sleeper = (name: string, ms: number) =>
    clock.sleep(ms).then(() => wakeOrder.push(`${name} ${clock.monotonic()} ${clock.now()}`));
  const all = [sleeper("b", 20), sleeper("a", 10), sleeper("c", 600)];
  clock.suspend(500);
  expect(wakeOrder).toEqual([]);
  await clock.advance(100);
  await Promise.all(all);
  expect(wakeOrder).toEqual(["a 500 1500", "b 500 1500", "c 600 1600"]);
});

test("a step of the wall clock does not change measured time", async () => {
  const clock = createVirtualClock(1_000);
  await clock.advance(500);
  clock.stepWall(-700);
  expect([clock.now(), clock.monotonic()]).toEqual([800, 500]);
});

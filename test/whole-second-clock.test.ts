import { describe, expect, test, vi } from "vitest";
import { createWakeup, runLoop, wholeSecondClock } from "#src/core/runtime/waiting.ts";
import { createVirtualClock } from "./virtual-clock.ts";

const never = new AbortController().signal;

describe("wholeSecondClock", () => {
  test("ends each sleep of 1 s or more at the last full second before its requested end, with one timer per second", async () => {
    const clock = createVirtualClock(0);
    const ends: (readonly [string, number])[] = [];
    const sleep = async (name: string, ms: number) => {
      await wholeSecondClock(clock).sleep(ms, never);
      ends.push([name, clock.monotonic()]);
    };
    const sleeps: Promise<void>[] = [];
    await clock.advance(300);
    sleeps.push(sleep("a second, at 0.3", 1_000), sleep("5 s, at 0.3", 5_000), sleep("half a second", 500));
    await clock.advance(400);
    sleeps.push(sleep("a second, at 0.7", 1_000));
    // Timers: the next full second, the fifth one, and the exact half second.
    expect(clock.sleepers()).toBe(3);
    await clock.advance(3_400);
    sleeps.push(sleep("a second, at 4.1", 1_000));
    expect(clock.sleepers()).toBe(1);
    await clock.advance(2_000);
    await Promise.all(sleeps);
    expect(ends).toEqual([
      ["half a second", 800],
      ["a second, at 0.3", 1_000],
      ["a second, at 0.7", 1_000],
      ["5 s, at 0.3", 5_000],
      ["a second, at 4.1", 5_000],
    ]);
  });

  test("extends a sleep that ends just before a full second to that full second", async () => {
    const clock = createVirtualClock(0);
    await clock.advance(996);
    const slept = wholeSecondClock(clock).sleep(1_000, never);
    await clock.advance(1_003);
    const stillAsleep = await Promise.race([slept.then(() => false), Promise.resolve(true)]);
    expect(stillAsleep).toBe(true);
    await clock.advance(1);
    await slept;
  });

  test("continues other sleeps when one is aborted, and stops the timer when no sleep is left", async () => {
    const clock = createVirtualClock(0);
    const [one, other] = [new AbortController(), new AbortController()];
    const { sleep } = wholeSecondClock(clock);
    const [first, second] = [sleep(2_000, one.signal), sleep(2_000, other.signal)];
    one.abort(new Error("one"));
    await expect(first).rejects.toThrow("one");
    expect(clock.sleepers()).toBe(1);
    other.abort(new Error("other"));
    await expect(second).rejects.toThrow("other");
    expect(clock.sleepers()).toBe(0);
    await expect(sleep(2_000, one.signal)).rejects.toThrow("one");
    const nextSleep = sleep(2_000, never);
    await clock.advance(2_000);
    await nextSleep;
  });

  test("rejects all sleepers when the clock fails, and uses the clock again for the next sleeper", async () => {
    const clock = createVirtualClock(0);
    const fault = vi.spyOn(clock, "sleep").mockRejectedValueOnce(new RangeError("no timer"));
    const { sleep } = wholeSecondClock(clock);
    const results = await Promise.allSettled([sleep(1_000, never), sleep(1_000, never)]);
    expect(results.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    fault.mockRestore();
    const nextSleep = sleep(1_000, never);
    await clock.advance(1_000);
    await nextSleep;
  });
});

test("loops that wait in full seconds share one timer per second and react to a wake-up or abort at once", async () => {
  const clock = createVirtualClock(0);
  const stop = new AbortController();
  const loopWakeup = createWakeup();
  const ticks = Array.from({ length: 8 }, () => 0);
  const runs = ticks.map(async (_, n) => {
    await clock.sleep(n * 110);
    return runLoop({
      clock,
      signal: stop.signal,
      ...(n === 0 ? { wakeup: loopWakeup } : {}),
      alignSleeps: true,
      step: async () => {
        ticks[n] = (ticks[n] ?? 0) + 1;
        return n < 4 ? 1_000 : 5_000;
      },
      onFault: () => expect.unreachable(),
    });
  });
  await clock.advance(950);
  const woken = clock.woken();
  await clock.advance(60_000);
  expect(clock.woken() - woken).toBe(60);
  // The first run, then 60 full seconds, or 12 steps of five seconds.
  expect(ticks).toEqual([61, 61, 61, 61, 13, 13, 13, 13]);
  loopWakeup.wakeUp();
  await clock.advance(0);
  expect(ticks[0]).toBe(62);
  stop.abort();
  await Promise.all(runs);
  expect(clock.sleepers()).toBe(0);
});

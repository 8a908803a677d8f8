import { getEventListeners } from "node:events";
import { describe, expect, test, vi } from "vitest";
import {
  abortAfter,
  combineSignals,
  combineWakeups,
  createSerialRunner,
  createWakeup,
  endsWithin,
  rejectOnAbort,
  runInSlices,
  runLoop,
  sleepFor,
  sleepUntilWoken,
} from "#src/core/runtime/waiting.ts";
import { createVirtualClock } from "./virtual-clock.ts";

const never = new AbortController().signal;

describe("waiting functions", () => {
  test("sleepFor returns true after the complete time and false when a signal aborts", async () => {
    const clock = createVirtualClock(0);
    const stop = new AbortController();
    const fullSleep = sleepFor(clock, 1_000, never, stop.signal);
    const cutSleep = sleepFor(clock, 5_000, stop.signal);
    await clock.advance(1_000);
    stop.abort();
    const lateSleep = sleepFor(clock, 1, AbortSignal.abort());
    expect(await Promise.all([fullSleep, cutSleep, lateSleep])).toEqual([true, false, false]);
    expect(clock.sleepers()).toBe(0);
  });

  test("runInSlices yields after each slice and ends when the signal aborts", async () => {
    const clock = createVirtualClock(0);
    let stepCount = 0;
    function* work() {
      for (; stepCount < 1_000; stepCount += 1) yield;
      return "done";
    }
    const finishedWork = runInSlices(work(), 250, clock, never);
    expect(stepCount).toBe(249);
    await clock.advance(0);
    expect(await finishedWork).toBe("done");
    // The fourth wake-up comes after the last step.
    expect(clock.woken()).toBe(4);
    stepCount = 0;
    const stop = new AbortController();
    const abortedWork = runInSlices(work(), 250, clock, stop.signal);
    stop.abort(new Error("stop"));
    await expect(abortedWork).rejects.toThrow("stop");
    expect(stepCount).toBe(249);
  });

  test("sleepUntilWoken ends at a wake-up and leaves no sleeper", async () => {
    const clock = createVirtualClock(0);
    const signal = createWakeup();
    const wokenSleep = sleepUntilWoken(clock, 60_000, signal, never);
    const forEver = sleepUntilWoken(clock, Number.POSITIVE_INFINITY, signal, never);
    await clock.advance(10);
    signal.wakeUp();
    await Promise.all([wokenSleep, forEver]);
    expect(clock.monotonic()).toBe(10);
    expect(clock.sleepers()).toBe(0);
    const timed = sleepUntilWoken(clock, 50, signal, never);
    await clock.advance(50);
    await timed;
  });

  test("combineWakeups wakes once for each wake-up and removes its listeners", async () => {
    const bells = [createWakeup(), createWakeup()] as const;
    const anyWakeup = combineWakeups(...bells);
    for (const signal of bells) {
      const rings = anyWakeup.wakeupCount();
      const heard = anyWakeup.nextWakeup(never);
      let calls = 0;
      anyWakeup.listen(() => (calls += 1));
      const unlisten = anyWakeup.listen(() => (calls += 100));
      unlisten();
      signal.wakeUp();
      await heard;
      for (const each of bells) each.wakeUp();
      expect([calls, anyWakeup.wakeupCount() - rings]).toEqual([1, 3]);
    }
    const stop = new AbortController();
    const abortedWait = anyWakeup.nextWakeup(stop.signal);
    stop.abort();
    await abortedWait;
    expect(getEventListeners(stop.signal, "abort")).toEqual([]);
  });

  test("abortAfter aborts with the timeout or the signal's reason and removes its listeners", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const stop = new AbortController();
      const limits = [abortAfter(stop.signal, 1_000), abortAfter(stop.signal, 1_000, () => "too late")];
      const endedLimit = abortAfter(stop.signal, 1_000);
      endedLimit[Symbol.dispose]();
      vi.advanceTimersByTime(999);
      expect(limits.map(({ signal }) => signal.aborted)).toEqual([false, false]);
      vi.advanceTimersByTime(1);
      expect(limits.map(({ signal }) => signal.reason)).toMatchObject([{ name: "TimeoutError" }, "too late"]);
      const lateLimit = abortAfter(stop.signal, 1_000);
      stop.abort("stopped");
      expect([lateLimit.signal.reason, abortAfter(stop.signal, 1_000).signal.reason]).toEqual(["stopped", "stopped"]);
      for (const limit of [...limits, lateLimit]) limit[Symbol.dispose]();
      expect([endedLimit.signal.aborted, getEventListeners(stop.signal, "abort")]).toEqual([false, []]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("combineSignals aborts with the first reason and removes its listeners", () => {
    const [one, other] = [new AbortController(), new AbortController()];
    const combined = combineSignals(one.signal, other.signal);
    other.abort("other");
    one.abort("one");
    expect(combined.signal.reason).toBe("other");
    const abortedSignal = combineSignals(one.signal);
    expect(abortedSignal.signal.reason).toBe("one");
    const controller = new AbortController();
    const endedSignal = combineSignals(controller.signal, never);
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(1);
    endedSignal[Symbol.dispose]();
    expect(getEventListeners(controller.signal, "abort")).toEqual([]);
    expect(getEventListeners(never, "abort")).toEqual([]);
    controller.abort();
    expect(endedSignal.signal.aborted).toBe(false);
    endedSignal.abort("own");
    expect(endedSignal.signal.reason).toBe("own");
  });

  test("endsWithin and rejectOnAbort do not wait for work that takes too long", async () => {
    const clock = createVirtualClock(0);
    const endlessWork = endsWithin(clock, 100, new Promise(() => undefined));
    await clock.advance(100);
    expect(await endlessWork).toBe(false);
    expect(await endsWithin(clock, 100, Promise.reject(new Error("done, badly")))).toBe(true);
    const stop = new AbortController();
    const endlessPromise = rejectOnAbort(new Promise(() => undefined), stop.signal);
    stop.abort(new Error("stopping"));
    await expect(endlessPromise).rejects.toThrow("stopping");
    const lateRejection = Promise.reject(new Error("late"));
    await expect(rejectOnAbort(lateRejection, stop.signal)).rejects.toThrow("stopping");
  });

  test("serialRunner runs work in order, also after a failure", async () => {
    const runAlone = createSerialRunner();
    const order: number[] = [];
    const step = (n: number) => runAlone(async () => void order.push(n));
    const failingWork = runAlone(() => Promise.reject(new Error("broken")));
    await Promise.all([expect(failingWork).rejects.toThrow("broken"), step(1), step(2)]);
    expect(order).toEqual([1, 2]);
  });
});

describe("runLoop", () => {
  test("backs off while iterations fail and ends when the signal aborts", async () => {
    const clock = createVirtualClock(0);
    const stop = new AbortController();
    const faults: number[] = [];
    const loopEnd = runLoop({
      clock,
      signal: stop.signal,
      random: () => 1,
      step: () => Promise.reject(new Error("the state cannot be read")),
      onFault: (_error, inMs) => faults.push(inMs),
    });
    await clock.advance(600_000);
    expect(faults.slice(0, 8)).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
    expect(faults.length).toBeLessThan(17);
    stop.abort();
    await loopEnd;
    expect(clock.sleepers()).toBe(0);
  });

  test("iterates again after a wake-up during an iteration, and yields after an iteration that returns 0", async () => {
    const clock = createVirtualClock(0);
    const stop = new AbortController();
    const signal = createWakeup();
    let ticks = 0;
    const loopEnd = runLoop({
      clock,
      signal: stop.signal,
      wakeup: signal,
      async step() {
        ticks += 1;
        if (ticks === 1) signal.wakeUp();
        if (ticks < 4) return ticks === 2 ? 0 : Number.POSITIVE_INFINITY;
        return 1_000;
      },
      onFault: () => expect.unreachable(),
    });
    await clock.advance(10);
    expect(ticks).toBe(3);
    signal.wakeUp();
    await clock.advance(2_500);
    expect(ticks).toBe(6);
    stop.abort();
    await loopEnd;
  });
});

import { addAbortListener } from "node:events";
import { backoffMs } from "./backoff.ts";
import type { Clock } from "./clock.ts";

/** Wakes waiting code. A loop that compares `wakeupCount` before and after its work misses no wake-up. */
export interface Wakeup {
  wakeUp(): void;
  wakeupCount(): number;
  nextWakeup(signal: AbortSignal): Promise<void>;
  /** Calls `onWakeup` once, at the next wake-up. Returns a function that cancels it. */
  listen(onWakeup: () => void): () => void;
}

/** Abort reason of a wait that ends early. One shared object, because creating an error with a stack is slow. */
export const WAIT_ENDED_EARLY: unknown = Object.freeze(new Error("This wait was ended early."));

export function createWakeup(): Wakeup {
  const wakeupListeners = new Set<() => void>();
  let wakeupCount = 0;
  const listenForWakeup = (onWakeup: () => void): (() => void) => {
    const wakeListener = () => {
      wakeupListeners.delete(wakeListener);
      onWakeup();
    };
    wakeupListeners.add(wakeListener);
    return () => void wakeupListeners.delete(wakeListener);
  };
  return {
    wakeUp() {
      wakeupCount += 1;
      for (const notifyListener of [...wakeupListeners]) notifyListener();
    },
    wakeupCount: () => wakeupCount,
    listen: listenForWakeup,
    nextWakeup: (signal) => waitForWakeup(listenForWakeup, signal),
  };
}

function waitForWakeup(listen: Wakeup["listen"], signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const resolveWait = () => {
      cancelListening();
      signal.removeEventListener("abort", resolveWait);
      resolve();
    };
    const cancelListening = listen(resolveWait);
    signal.addEventListener("abort", resolveWait, { once: true });
  });
}

/** Wakes when any of `sources` wakes. `wakeUp` wakes the first source. */
export function combineWakeups(...sources: readonly [Wakeup, ...Wakeup[]]): Wakeup {
  const listenForWakeup = (onWakeup: () => void): (() => void) => {
    const cancelAllListeners = () => {
      for (const cancelListener of listenerCancellers) cancelListener();
    };
    const listenerCancellers = sources.map((wakeup) =>
      wakeup.listen(() => {
        cancelAllListeners();
        onWakeup();
      }),
    );
    return cancelAllListeners;
  };
  return {
    wakeUp: sources[0].wakeUp,
    wakeupCount: () => sources.reduce((sum, source) => sum + source.wakeupCount(), 0),
    listen: listenForWakeup,
    nextWakeup: (signal) => waitForWakeup(listenForWakeup, signal),
  };
}

/** Sleeps until a signal aborts, for `ms` at most. Returns true when the complete time has passed. */
export async function sleepFor(clock: Pick<Clock, "sleep">, ms: number, ...signals: readonly AbortSignal[]) {
  if (signals.some((signal) => signal.aborted)) return false;
  const [onlySignal] = signals;
  if (onlySignal !== undefined && signals.length === 1) return sleepUnlessAborted(clock, ms, onlySignal);
  using combinedSignal = combineSignals(...signals);
  return await sleepUnlessAborted(clock, ms, combinedSignal.signal);
}

async function sleepUnlessAborted(clock: Pick<Clock, "sleep">, ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await clock.sleep(ms, signal);
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  }
}

/** Sleeps until the wake-up, for `ms` at most (infinity: without limit), or until the signal aborts. */
export async function sleepUntilWoken(clock: Pick<Clock, "sleep">, ms: number, wakeup: Wakeup, signal: AbortSignal) {
  if (!Number.isFinite(ms)) return wakeup.nextWakeup(signal);
  if (signal.aborted) return;
  using sleepSignal = combineSignals(signal);
  const cancelListening = wakeup.listen(() => sleepSignal.abort(WAIT_ENDED_EARLY));
  try {
    await sleepUnlessAborted(clock, ms, sleepSignal.signal);
  } finally {
    cancelListening();
  }
}

/** Waits for work, for `ms` at most. Returns true when the work has ended, also with an error. */
export async function endsWithin(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  const timerController = new AbortController();
  const workEnded = Promise.allSettled([work]).then(() => true);
  const timerExpired = sleepFor(clock, ms, timerController.signal).then(() => false);
  try {
    return await Promise.race([workEnded, timerExpired]);
  } finally {
    timerController.abort(WAIT_ENDED_EARLY);
  }
}

/** A signal whose listeners are removed when the object is disposed. */
export interface CombinedSignal extends Disposable {
  readonly signal: AbortSignal;
  abort(reason: unknown): void;
}

/** Aborts when the first signal aborts. `AbortSignal.any` would be slower and free its listeners late. */
export function combineSignals(...signals: readonly AbortSignal[]): CombinedSignal {
  const combinedAbortController = new AbortController();
  const listenerRemovers = signals.map((signal) => {
    const abortCombined = () => combinedAbortController.abort(signal.reason);
    if (signal.aborted) abortCombined();
    else signal.addEventListener("abort", abortCombined, { once: true });
    return () => signal.removeEventListener("abort", abortCombined);
  });
  return {
    signal: combinedAbortController.signal,
    abort: (reason) => combinedAbortController.abort(reason),
    [Symbol.dispose]() {
      for (const removeListener of listenerRemovers) removeListener();
    },
  };
}

/** Aborts after `ms`. `AbortSignal.timeout` would keep its listeners in memory until the time is up. */
export function abortAfter(signal: AbortSignal, ms: number, createError?: () => unknown): CombinedSignal {
  const createTimeoutError = () => new DOMException("The operation was aborted due to timeout", "TimeoutError");
  const timeLimitedSignal = combineSignals(signal);
  const timer = setTimeout(() => timeLimitedSignal.abort((createError ?? createTimeoutError)()), ms);
  return {
    ...timeLimitedSignal,
    [Symbol.dispose]() {
      clearTimeout(timer);
      timeLimitedSignal[Symbol.dispose]();
    },
  };
}

/** Waits for a promise, or rejects with the signal's reason as soon as it aborts. */
export function rejectOnAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const rejectWithAbortReason = () => reject(signal.reason);
    if (signal.aborted) rejectWithAbortReason();
    else signal.addEventListener("abort", rejectWithAbortReason, { once: true });
    // Handle the promise also after an abort, because its later rejection would otherwise be unhandled.
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", rejectWithAbortReason));
  });
}

/** Runs pieces of work one after the other, e.g. two polls that compare with the same snapshot. */
export type SerialRunner = <T>(work: () => Promise<T>) => Promise<T>;

export function createSerialRunner(): SerialRunner {
  let lastWork: Promise<unknown> = Promise.resolve();
  return (work) => {
    const currentWork = lastWork.then(work, work);
    lastWork = currentWork.catch((error: unknown) => error);
    return currentWork;
  };
}

export interface LoopOptions {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly wakeup?: Wakeup;
  /** Returns the milliseconds until the next step; infinity waits for a wake-up, null ends the loop. */
  step(): Promise<number | null>;
  /** True if steps only check for changes: they start together at full seconds, which saves wake-ups (0.15 ms each). */
  readonly alignSleeps?: boolean;
  onFault(error: unknown, retryDelayMs: number): void;
  /** Wait after consecutive faults; 1 s to 1 min by default. */
  readonly backoff?: { readonly firstMs: number; readonly maxMs: number };
  readonly random?: () => number;
}

const LOOP_FAULT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };

/** Calls `step` until the signal aborts. Waits longer after each fault, and yields to the event loop between steps. */
export async function runLoop(options: LoopOptions): Promise<void> {
  const { clock, signal, wakeup = createWakeup(), backoff = LOOP_FAULT_BACKOFF } = options;
  let consecutiveFaults = 0;
  while (!signal.aborted) {
    const wakeupsBeforeStep = wakeup.wakeupCount();
    try {
      const delayMs = await options.step();
      consecutiveFaults = 0;
      if (signal.aborted || delayMs === null) return;
      if (delayMs <= 0 || wakeup.wakeupCount() !== wakeupsBeforeStep) await sleepFor(clock, 0, signal);
      else
        await sleepUntilWoken(options.alignSleeps === true ? wholeSecondClock(clock) : clock, delayMs, wakeup, signal);
    } catch (error) {
      if (signal.aborted) return;
      consecutiveFaults += 1;
      const retryDelayMs = backoffMs(backoff, consecutiveFaults, options.random);
      options.onFault(error, retryDelayMs);
      await sleepFor(clock, retryDelayMs, signal);
    }
  }
}

export interface RetryOptions<T> extends Pick<LoopOptions, "clock" | "signal" | "backoff" | "random"> {
  work(): Promise<T>;
  /** Called after the n-th failure; the next attempt starts after `retryDelayMs` milliseconds. */
  onFault(error: unknown, retryDelayMs: number, failedAttempts: number): void;
}

/** Retries `work` until it succeeds or the signal aborts. Tries once even if the signal aborted before. */
export async function retryUntilDone<T>(options: RetryOptions<T>): Promise<T> {
  const { clock, signal, backoff = LOOP_FAULT_BACKOFF } = options;
  for (let failedAttempts = 1; ; failedAttempts += 1) {
    try {
      return await options.work();
    } catch (error) {
      signal.throwIfAborted();
      const retryDelayMs = backoffMs(backoff, failedAttempts, options.random);
      options.onFault(error, retryDelayMs, failedAttempts);
      await sleepFor(clock, retryDelayMs, signal);
      signal.throwIfAborted();
    }
  }
}

export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A loop over at least this many objects takes 5 to 30 ms, so the code around it yields to the event loop. */
const YIELD_OBJECT_COUNT = 10_000;

export async function yieldIfManyObjects(objectCount: number): Promise<void> {
  if (objectCount >= YIELD_OBJECT_COUNT) await yieldToEventLoop();
}

/** Maps items in their order and yields after each `itemsAtOnce`: reports of 200 sources take 90 ms. */
export async function mapInSlices<T, R>(
  items: readonly T[],
  map: (item: T) => R | Promise<R>,
  itemsAtOnce = 20,
): Promise<R[]> {
  const results: R[] = [];
  for (let sliceStart = 0; sliceStart < items.length; sliceStart += itemsAtOnce) {
    if (sliceStart > 0) await yieldToEventLoop();
    results.push(...(await Promise.all(items.slice(sliceStart, sliceStart + itemsAtOnce).map(map))));
  }
  return results;
}

export async function yieldUnlessAborted(clock: Clock, signal: AbortSignal): Promise<void> {
  await sleepFor(clock, 0, signal);
  signal.throwIfAborted();
}

/** Runs a generator and yields after every `stepsAtOnce` steps. Rejects with the signal's reason when it aborts. */
export async function runInSlices<T>(
  steps: Generator<unknown, T, undefined>,
  stepsAtOnce: number,
  clock: Clock,
  signal: AbortSignal,
): Promise<T> {
  for (let stepCount = 1; ; stepCount += 1) {
    const { done, value } = steps.next();
    if (done === true) return value;
    if (stepCount % stepsAtOnce === 0) await yieldUnlessAborted(clock, signal);
  }
}

const SECOND_MS = 1_000;
/** Timers may fire some milliseconds early. A wake-up in the last 50 ms of a second counts for the next second. */
const TIMER_TOLERANCE_MS = 50;

const ALL_SLEEPERS_LEFT: unknown = Object.freeze(new Error("All sleepers of this second have left."));

type SleepClock = Pick<Clock, "sleep">;

interface SharedSleep {
  readonly sleepers: Set<PromiseWithResolvers<void>>;
  readonly abandonController: AbortController;
}

const wholeSecondClocks = new WeakMap<Clock, SleepClock>();

/** Ends sleeps of a second or more at a full second, up to a second early, so that all sleepers share one wake-up. */
export function wholeSecondClock(clock: Clock): SleepClock {
  const secondClock = wholeSecondClocks.get(clock) ?? { sleep: createWholeSecondSleep(clock) };
  wholeSecondClocks.set(clock, secondClock);
  return secondClock;
}

function createWholeSecondSleep(clock: Clock): Clock["sleep"] {
  const sharedSleeps = new Map<number, SharedSleep>();
  async function wakeSleepers(secondNumber: number, { sleepers, abandonController }: SharedSleep): Promise<void> {
    try {
      await clock.sleep(secondNumber * SECOND_MS - clock.monotonic(), abandonController.signal);
      for (const { resolve } of sleepers) resolve();
    } catch (error) {
      for (const { reject } of sleepers) reject(error);
    } finally {
      if (sharedSleeps.get(secondNumber)?.sleepers === sleepers) sharedSleeps.delete(secondNumber);
    }
  }

  function getSharedSleep(secondNumber: number): SharedSleep {
    const existingSleep = sharedSleeps.get(secondNumber);
    if (existingSleep !== undefined) return existingSleep;
    const sharedSleep: SharedSleep = { sleepers: new Set(), abandonController: new AbortController() };
    sharedSleeps.set(secondNumber, sharedSleep);
    void wakeSleepers(secondNumber, sharedSleep);
    return sharedSleep;
  }
  return async (ms, signal) => {
    if (ms < SECOND_MS) return clock.sleep(ms, signal);
    signal?.throwIfAborted();
    const secondNumber = Math.floor((clock.monotonic() + ms + TIMER_TOLERANCE_MS) / SECOND_MS);
    const sharedSleep = getSharedSleep(secondNumber);
    const sleeper = Promise.withResolvers<void>();
    sharedSleep.sleepers.add(sleeper);
    const removeSleeper = () => {
      sharedSleep.sleepers.delete(sleeper);
      sleeper.reject(signal?.reason);
      if (sharedSleep.sleepers.size > 0) return;
      sharedSleeps.delete(secondNumber);
      sharedSleep.abandonController.abort(ALL_SLEEPERS_LEFT);
    };
    using _abortListener = signal && addAbortListener(signal, removeSleeper);
    await sleeper.promise;
  };
}

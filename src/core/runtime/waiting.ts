import { backoffMs } from "./backoff.ts";
import type { Clock } from "./clock.ts";

/** Wakes waiting code. A loop that compares `wakeups` before and after its work misses none. */
export interface Wakeup {
  wakeUp(): void;
  wakeups(): number;
  nextWakeup(signal: AbortSignal): Promise<void>;
  /** Calls `onWakeup` once, at the next wake-up. Returns a function that cancels it. */
  listen(onWakeup: () => void): () => void;
}

/** Abort reason of a wait that ends early. It is shared, because an abort without a reason creates an error with a stack. */
export const ENDED_EARLY: unknown = Object.freeze(new Error("This wait was ended early."));

export function createWakeup(): Wakeup {
  const listeners = new Set<() => void>();
  let count = 0;
  const listen = (hear: () => void): (() => void) => {
    const wake = () => {
      listeners.delete(wake);
      hear();
    };
    listeners.add(wake);
    return () => void listeners.delete(wake);
  };
  return {
    wakeUp() {
      count += 1;
      for (const wake of [...listeners]) wake();
    },
    wakeups: () => count,
    listen,
    nextWakeup: (signal) => waitForWakeup(listen, signal),
  };
}

function waitForWakeup(listen: Wakeup["listen"], signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve();
    const wake = () => {
      unlisten();
      signal.removeEventListener("abort", wake);
      resolve();
    };
    const unlisten = listen(wake);
    signal.addEventListener("abort", wake, { once: true });
  });
}

/** Wakes up when any of the given ones does; `wakeUp` wakes the first. */
export function combineWakeups(...sources: readonly [Wakeup, ...Wakeup[]]): Wakeup {
  const listen = (hear: () => void): (() => void) => {
    const unlisten = () => {
      for (const stop of cancelFunctions) stop();
    };
    const cancelFunctions = sources.map((wakeup) =>
      wakeup.listen(() => {
        unlisten();
        hear();
      }),
    );
    return unlisten;
  };
  return {
    wakeUp: sources[0].wakeUp,
    wakeups: () => sources.reduce((sum, source) => sum + source.wakeups(), 0),
    listen,
    nextWakeup: (signal) => waitForWakeup(listen, signal),
  };
}

/** Sleeps for `ms` or until a signal aborts. Returns true when the complete time has passed. */
export async function sleepFor(clock: Pick<Clock, "sleep">, ms: number, ...signals: readonly AbortSignal[]) {
  if (signals.some((signal) => signal.aborted)) return false;
  const [only] = signals;
  if (only !== undefined && signals.length === 1) return sleepUnlessAborted(clock, ms, only);
  const earlyEnd = combineSignals(...signals);
  try {
    return await sleepUnlessAborted(clock, ms, earlyEnd.signal);
  } finally {
    earlyEnd.end();
  }
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
  const earlyEnd = combineSignals(signal);
  const unlisten = wakeup.listen(() => earlyEnd.abort(ENDED_EARLY));
  try {
    await sleepUnlessAborted(clock, ms, earlyEnd.signal);
  } finally {
    unlisten();
    earlyEnd.end();
  }
}

/** Waits for work, for `ms` at most. Returns true when the work has ended, also with an error. */
export async function endsWithin(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  const timerAbort = new AbortController();
  const finished = Promise.allSettled([work]).then(() => true);
  const timeUp = sleepFor(clock, ms, timerAbort.signal).then(() => false);
  try {
    return await Promise.race([finished, timeUp]);
  } finally {
    timerAbort.abort(ENDED_EARLY);
  }
}

export interface WorkSignal {
  readonly signal: AbortSignal;
  abort(reason: unknown): void;
  end(): void;
}

/** Aborts like the first signal. `AbortSignal.any` keeps listeners until a full collection, at 30 times the cost. */
export function combineSignals(...signals: readonly AbortSignal[]): WorkSignal {
  const controller = new AbortController();
  const cancelFunctions = signals.map((signal) => {
    const cut = () => controller.abort(signal.reason);
    if (signal.aborted) cut();
    else signal.addEventListener("abort", cut, { once: true });
    return () => signal.removeEventListener("abort", cut);
  });
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    end() {
      for (const stop of cancelFunctions) stop();
    },
  };
}

/** `AbortSignal.timeout` keeps its listeners until the time is up: 4 MB at 2 writes of 64 KiB a second and 30 s. */
export function timeLimit(signal: AbortSignal, ms: number, late?: () => unknown): WorkSignal {
  const timeout = () => new DOMException("The operation was aborted due to timeout", "TimeoutError");
  const limit = combineSignals(signal);
  const timer = setTimeout(() => limit.abort((late ?? timeout)()), ms);
  return {
    ...limit,
    end() {
      clearTimeout(timer);
      limit.end();
    },
  };
}

/** Waits for a promise, or rejects with the signal's reason as soon as it aborts. */
export function rejectOnAbort<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    // Also after an abort, so that a late rejection is handled.
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Runs pieces of work one after the other, e.g. two polls that compare with the same snapshot. */
export type OneAtATime = <T>(work: () => Promise<T>) => Promise<T>;

export function oneAtATime(): OneAtATime {
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
  /** Returns the milliseconds until the next turn; infinity waits for a wake-up, null ends the loop. */
  turn(): Promise<number | null>;
  /** True if turns only check for changes: they start together at full seconds, which saves wake-ups (0.15 ms each). */
  readonly onlyChecks?: boolean;
  fault(error: unknown, inMs: number): void;
  /** Wait after consecutive faults; 1 s to 1 min by default. */
  readonly backoff?: { readonly firstMs: number; readonly maxMs: number };
  readonly random?: () => number;
}

const FAULT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };

/** Runs turns until the signal aborts. It backs off after faults and yields to the event loop between turns, so it never spins. */
export async function runLoop(options: LoopOptions): Promise<void> {
  const { clock, signal, wakeup = createWakeup(), backoff = FAULT_BACKOFF } = options;
  let faults = 0;
  while (!signal.aborted) {
    const count = wakeup.wakeups();
    try {
      const againMs = await options.turn();
      faults = 0;
      if (signal.aborted || againMs === null) return;
      if (againMs <= 0 || wakeup.wakeups() !== count) await sleepFor(clock, 0, signal);
      else await sleepUntilWoken(options.onlyChecks === true ? inFullSeconds(clock) : clock, againMs, wakeup, signal);
    } catch (error) {
      if (signal.aborted) return;
      faults += 1;
      const inMs = backoffMs(backoff, faults, options.random);
      options.fault(error, inMs);
      await sleepFor(clock, inMs, signal);
    }
  }
}

export interface RetryOptions<T> extends Pick<LoopOptions, "clock" | "signal" | "backoff" | "random"> {
  work(): Promise<T>;
  /** Called after the n-th failure; the next attempt starts after `inMs` milliseconds. */
  fault(error: unknown, inMs: number, failed: number): void;
}

/** Tries once even after the signal aborted, and rejects with the signal's reason if that attempt fails. */
export async function retryUntilDone<T>(options: RetryOptions<T>): Promise<T> {
  const { clock, signal, backoff = FAULT_BACKOFF } = options;
  for (let failed = 1; ; failed += 1) {
    try {
      return await options.work();
    } catch (error) {
      signal.throwIfAborted();
      const inMs = backoffMs(backoff, failed, options.random);
      options.fault(error, inMs, failed);
      await sleepFor(clock, inMs, signal);
      signal.throwIfAborted();
    }
  }
}

export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** One pass over so many objects takes 5 to 30 ms; several passes over 50,000 tags blocked the event loop for 80 ms. */
const MANY_OBJECTS = 10_000;

export async function yieldIfMany(things: number): Promise<void> {
  if (things >= MANY_OBJECTS) await yieldToEventLoop();
}

/** Lets the event loop run other work. Rejects with the signal's reason when it has aborted. */
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
  for (let walked = 1; ; walked += 1) {
    const { done, value } = steps.next();
    if (done === true) return value;
    if (walked % stepsAtOnce === 0) await yieldUnlessAborted(clock, signal);
  }
}

const SECOND_MS = 1_000;
/** Timers may fire some milliseconds early. A wake-up in the last 50 ms of a second counts for the next second. */
const TIMER_TOLERANCE_MS = 50;

const ABANDONED_SECOND: unknown = Object.freeze(new Error("All sleepers of this second have left."));

type SleepClock = Pick<Clock, "sleep">;

/** A full second, and the sleepers that it wakes. */
interface SharedSecond {
  readonly sleepers: Set<PromiseWithResolvers<void>>;
  readonly abandoned: AbortController;
}

const secondClocks = new WeakMap<Clock, SleepClock>();

/** Ends sleeps of a second or more at a full second, up to a second early, so that all sleepers share one wake-up. */
export function inFullSeconds(clock: Clock): SleepClock {
  const sleep = secondClocks.get(clock) ?? { sleep: sleepBySeconds(clock) };
  secondClocks.set(clock, sleep);
  return sleep;
}

function sleepBySeconds(clock: Clock): Clock["sleep"] {
  const seconds = new Map<number, SharedSecond>();
  async function wakeSleepers(number: number, { sleepers, abandoned }: SharedSecond): Promise<void> {
    try {
      await clock.sleep(number * SECOND_MS - clock.monotonic(), abandoned.signal);
      for (const { resolve } of sleepers) resolve();
    } catch (error) {
      for (const { reject } of sleepers) reject(error);
    } finally {
      if (seconds.get(number)?.sleepers === sleepers) seconds.delete(number);
    }
  }

  function sharedSecond(number: number): SharedSecond {
    const existingSecond = seconds.get(number);
    if (existingSecond !== undefined) return existingSecond;
    const fullSecond: SharedSecond = { sleepers: new Set(), abandoned: new AbortController() };
    seconds.set(number, fullSecond);
    void wakeSleepers(number, fullSecond);
    return fullSecond;
  }
  return async (ms, signal) => {
    if (ms < SECOND_MS) return clock.sleep(ms, signal);
    signal?.throwIfAborted();
    const number = Math.floor((clock.monotonic() + ms + TIMER_TOLERANCE_MS) / SECOND_MS);
    const fullSecond = sharedSecond(number);
    const sleeper = Promise.withResolvers<void>();
    fullSecond.sleepers.add(sleeper);
    const leave = () => {
      fullSecond.sleepers.delete(sleeper);
      sleeper.reject(signal?.reason);
      if (fullSecond.sleepers.size > 0) return;
      seconds.delete(number);
      fullSecond.abandoned.abort(ABANDONED_SECOND);
    };
    signal?.addEventListener("abort", leave, { once: true });
    try {
      await sleeper.promise;
    } finally {
      signal?.removeEventListener("abort", leave);
    }
  };
}

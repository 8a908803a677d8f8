import { backoffMs } from "./backoff.ts";
import type { Clock } from "./clock.ts";
import { inFullSeconds } from "./full-seconds.ts";

/**
 * Waiting: until a time has passed, until somebody rings, until a signal aborts, one after the other, and the loop
 * that does it over and over. All of it by a `Clock`, so that a test can move the time.
 */

/** Wakes waiting code. A loop that compares `wakeups` does not miss one that came while it worked. */
export interface Wakeup {
  wakeUp(): void;
  /** How often it was rung: a loop that notes it before it looks sees whether something came while it looked. */
  wakeups(): number;
  /** Resolves at the next ring, or when the signal aborts. */
  nextWakeup(signal: AbortSignal): Promise<void>;
  /** Calls at the next ring, once, unless the function that it returns is called before. */
  listen(onWakeup: () => void): () => void;
}

/** Why a wait of our own ended early. One for all: without a reason each abort makes an error with its stack. */
export const WOKEN: unknown = Object.freeze(new Error("This wait was ended early."));

export function createWakeup(): Wakeup {
  const waiting = new Set<() => void>();
  let rings = 0;
  const listen = (hear: () => void): (() => void) => {
    const wake = () => {
      waiting.delete(wake);
      hear();
    };
    waiting.add(wake);
    return () => void waiting.delete(wake);
  };
  return {
    wakeUp() {
      rings += 1;
      for (const wake of [...waiting]) wake();
    },
    wakeups: () => rings,
    listen,
    nextWakeup: (signal) => heardBy(listen, signal),
  };
}

function heardBy(listen: Wakeup["listen"], signal: AbortSignal): Promise<void> {
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

/** Rings when any of them does; ringing it rings the first. */
export function anyOf(...bells: readonly [Wakeup, ...Wakeup[]]): Wakeup {
  const listen = (hear: () => void): (() => void) => {
    const unlisten = () => {
      for (const stop of stops) stop();
    };
    const stops = bells.map((wakeup) =>
      wakeup.listen(() => {
        unlisten();
        hear();
      }),
    );
    return unlisten;
  };
  return {
    wakeUp: bells[0].wakeUp,
    wakeups: () => bells.reduce((sum, bell) => sum + bell.wakeups(), 0),
    listen,
    nextWakeup: (signal) => heardBy(listen, signal),
  };
}

/** Waits for a time in milliseconds, or less when one of the signals aborts; true when the whole time has passed. */
export async function sleepFor(
  clock: Pick<Clock, "sleep">,
  ms: number,
  ...signals: readonly AbortSignal[]
): Promise<boolean> {
  if (signals.some((signal) => signal.aborted)) return false;
  const [only] = signals;
  if (only !== undefined && signals.length === 1) return asleep(clock, ms, only);
  const early = firstOf(...signals);
  try {
    return await asleep(clock, ms, early.signal);
  } finally {
    early.end();
  }
}

async function asleep(clock: Pick<Clock, "sleep">, ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await clock.sleep(ms, signal);
    return true;
  } catch (error) {
    if (signal.aborted) return false;
    throw error;
  }
}

/** Waits until the bell rings, a time in milliseconds has passed (for ever when infinite), or the signal aborts. */
export async function sleepUntilWoken(
  clock: Pick<Clock, "sleep">,
  ms: number,
  bell: Wakeup,
  signal: AbortSignal,
): Promise<void> {
  if (!Number.isFinite(ms)) return bell.nextWakeup(signal);
  if (signal.aborted) return;
  const early = firstOf(signal);
  const unlisten = bell.listen(() => early.abort(WOKEN));
  try {
    await asleep(clock, ms, early.signal);
  } finally {
    unlisten();
    early.end();
  }
}

/** Waits for some work, though not longer than a time in milliseconds; true when the work is done, well or not. */
export async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  const done = new AbortController();
  const finished = work.then(
    () => true,
    () => true,
  );
  const timeUp = sleepFor(clock, ms, done.signal).then(() => false);
  try {
    return await Promise.race([finished, timeUp]);
  } finally {
    done.abort(WOKEN);
  }
}

/** A signal for one piece of work. */
export interface WorkSignal {
  readonly signal: AbortSignal;
  /** Aborts it for a reason of its own. */
  abort(reason: unknown): void;
  /** The work is done, well or not: the signal follows no other any more. */
  end(): void;
}

/**
 * Aborts with the reason of the first signal that aborts. `end` removes all listeners at once. `AbortSignal.any` leaves that
 * to the garbage collector: a batch of 100 events then survives until a full collection, which costs thirty times as much
 * (test/let-go.test.ts).
 */
export function firstOf(...signals: readonly AbortSignal[]): WorkSignal {
  const first = new AbortController();
  const listening = signals.map((signal) => {
    const cut = () => first.abort(signal.reason);
    if (signal.aborted) cut();
    else signal.addEventListener("abort", cut, { once: true });
    return () => signal.removeEventListener("abort", cut);
  });
  return {
    signal: first.signal,
    abort: (reason) => first.abort(reason),
    end() {
      for (const stop of listening) stop();
    },
  };
}

/**
 * Time limit in milliseconds for one request, in addition to its signal. `AbortSignal.timeout` keeps listeners until the
 * time is up: 4 MB at 2 writes of 64 KiB a second and 30 s.
 */
export function timeLimit(signal: AbortSignal, ms: number, late: () => unknown = timeout): WorkSignal {
  const limit = firstOf(signal);
  const timer = setTimeout(() => limit.abort(late()), ms);
  return {
    ...limit,
    end() {
      clearTimeout(timer);
      limit.end();
    },
  };
}

/** As `AbortSignal.timeout` says it. */
function timeout(): DOMException {
  return new DOMException("The operation was aborted due to timeout", "TimeoutError");
}

/** Waits for a promise, or rejects with the signal's reason as soon as it aborts. */
export function abortable<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
    // Also after an abort, so that a late rejection is handled.
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

/** Runs what it is given one after the other: two polls that compare with the same snapshot must not cross. */
export type OneAtATime = <T>(work: () => Promise<T>) => Promise<T>;

export function oneAtATime(): OneAtATime {
  let last: Promise<unknown> = Promise.resolve();
  return (work) => {
    const mine = last.then(work, work);
    last = mine.catch((error: unknown) => error);
    return mine;
  };
}

export interface Loop {
  readonly clock: Clock;
  /** Ends the loop: no turn begins after it, and a wait ends at once. */
  readonly signal: AbortSignal;
  /** A turn is due at once when it rings. */
  readonly bell?: Wakeup;
  /**
   * Does what there is to do and returns after how many milliseconds it is to be called again at the latest; infinite
   * when only the bell can bring something new. 0 is called again after everything else had its turn; null ends the
   * loop.
   */
  turn(): Promise<number | null>;
  /**
   * Its turns look whether something is new. They are called at full seconds, together with all others that do, so up to
   * a second earlier than they ask for: to be woken up costs a resting machine more than most looks do (0.15 ms).
   */
  readonly looks?: boolean;
  /** A turn has thrown; the next comes after `inMs` milliseconds, bell or not. What this throws ends the loop. */
  fault(error: unknown, inMs: number): void;
  /** Waits after faults in a row; 1 s at first and a minute at most unless told otherwise. */
  readonly backoff?: { readonly firstMs: number; readonly maxMs: number };
  readonly random?: () => number;
}

const FAULT_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };

/**
 * Turns until the signal aborts, and owns every wait, so that no fault can make it spin and no turn can keep timers
 * and a stop from being heard: after a fault it rests, ever longer, and between any two turns the event loop runs.
 */
export async function loop(options: Loop): Promise<void> {
  const { clock, signal, bell = createWakeup(), backoff = FAULT_BACKOFF } = options;
  let faults = 0;
  while (!signal.aborted) {
    const rings = bell.wakeups();
    try {
      const againMs = await options.turn();
      faults = 0;
      if (signal.aborted || againMs === null) return;
      if (againMs <= 0 || bell.wakeups() !== rings) await sleepFor(clock, 0, signal);
      else await sleepUntilWoken(options.looks === true ? inFullSeconds(clock) : clock, againMs, bell, signal);
    } catch (error) {
      if (signal.aborted) return;
      faults += 1;
      const inMs = backoffMs(backoff, faults, options.random);
      options.fault(error, inMs);
      await sleepFor(clock, inMs, signal);
    }
  }
}

/** Work that is retried until it succeeds. */
export interface Persistence<T> {
  readonly clock: Clock;
  readonly signal: AbortSignal;
  work(): Promise<T>;
  /** It has failed, so often in a row; it is tried again after `inMs` milliseconds. */
  fault(error: unknown, inMs: number, failed: number): void;
  readonly backoff?: Loop["backoff"];
  readonly random?: () => number;
}

/**
 * Tries until it succeeds, and rests ever longer after each failure. Tries once even when the signal has aborted; only
 * what fails then, or while it rests, is given up and rejects with the signal's reason.
 */
export async function persist<T>(options: Persistence<T>): Promise<T> {
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

/** One turn of the event loop, for work that goes on at once: a long backlog must not keep everything else from running. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Things of which a step over all takes 5 to 30 ms: with 50,000 tags several in a row stopped everything for 80 ms. */
const MANY_THINGS = 10_000;

/** The same between two steps over all of so many things, where they are many. */
export async function yieldIfMany(things: number): Promise<void> {
  if (things >= MANY_THINGS) await yieldToEventLoop();
}

/** Lets the event loop run other work. Rejects with the signal's reason when it has aborted. */
export async function yieldUnlessAborted(clock: Clock, signal: AbortSignal): Promise<void> {
  await sleepFor(clock, 0, signal);
  signal.throwIfAborted();
}

/**
 * Runs a generator of long work and returns its result. After every `stepsAtOnce` steps the event loop runs other work.
 * Rejects with the signal's reason when it aborts.
 */
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

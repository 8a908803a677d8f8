import type { Failing } from "../../../src/core/connector.ts";
import { type Failure, Throttled } from "../../../src/core/errors/errors.ts";
import { backoffMs } from "../../../src/core/runtime/backoff.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Call, Rate } from "./receiver.ts";

/** Back-off for the receiver: about a second after the first failure, at most five minutes. */
const BACKOFF = { firstMs: 1_000, maxMs: 300_000 };
/** Back-off for one incident; others continue, so a minute is long enough. */
const OWN_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };
/** Consecutive failed incidents that mean the receiver is down. With 40 % of calls failing, one time in 240. */
const DOWN_AFTER = 6;
/** Longest pause that a receiver can request, in milliseconds; a wrong header must not stop a sink for years. */
const LONGEST_PAUSE_MS = 86_400_000;

export type Retries = ReturnType<typeof createRetries>;

/**
 * Decides when to call a receiver again after failures. Each failed incident has its own back-off.
 *
 *     up ──► 6 different incidents failed in a row ──► down: one call at a time, longer waits ──► one succeeds ──► up
 *
 * A receiver that requests a pause (429 with `Retry-After`) gets no calls for that time. A success resets everything.
 */
export function createRetries(nowMs: () => number, random: () => number = Math.random) {
  const own = new Map<string, { readonly attempts: number; readonly atMs: number }>();
  /** Incidents that failed since the last delivery. */
  const streak = new Set<string>();
  let calls = 0;
  let probes = 0;
  let pauses = 0;
  let waitUntilMs = Number.NEGATIVE_INFINITY;
  let last: Failure | null = null;

  const isDown = () => streak.size >= DOWN_AFTER;
  const waitMs = () => Math.max(0, waitUntilMs - nowMs());

  function earliest(): string | undefined {
    let first: string | undefined;
    let firstMs = Number.POSITIVE_INFINITY;
    for (const [key, { atMs }] of own) if (atMs < firstMs) [first, firstMs] = [key, atMs];
    return first;
  }

  return {
    /** Milliseconds until the receiver may be called again; 0 for now. */
    waitMs,
    /** Time of the next attempt for an incident; undefined without a failure. */
    againMs: (key: string) => own.get(key)?.atMs,
    /** True while only one call at a time probes the receiver. */
    isDown,
    /** Returns the failed incident with the earliest retry. */
    earliest,

    failed(key: string, failure: Failure): void {
      last = failure;
      calls += 1;
      // A 503 without a time may concern one request only.
      if (failure.kind === "throttled" && (failure.scope === "allowance" || failure.retryAfterMs !== null)) {
        pauses += 1;
        const ms = failure.retryAfterMs ?? backoffMs(BACKOFF, pauses, random);
        waitUntilMs = nowMs() + Math.min(ms, LONGEST_PAUSE_MS);
        return;
      }
      const attempts = (own.get(key)?.attempts ?? 0) + 1;
      own.set(key, { attempts, atMs: nowMs() + backoffMs(OWN_BACKOFF, attempts, random) });
      streak.add(key);
      if (!isDown()) return;
      probes += 1;
      waitUntilMs = nowMs() + backoffMs(BACKOFF, probes, random);
    },

    /** Resets everything. Returns the incidents that failed only because the receiver was down. */
    delivered(): readonly string[] {
      const released = isDown() ? [...streak] : [];
      for (const key of released) own.delete(key);
      streak.clear();
      calls = 0;
      probes = 0;
      pauses = 0;
      last = null;
      waitUntilMs = Number.NEGATIVE_INFINITY;
      return released;
    },

    forget: (key: string) => void own.delete(key),
    /** Number of failed incidents. */
    size: () => own.size,

    /** Present failure; undefined after a success and when no retry is pending. */
    failing(): Failing | undefined {
      if (last === null || (own.size === 0 && waitMs() === 0)) return undefined;
      const ownMs = (own.get(earliest() ?? "")?.atMs ?? Number.NEGATIVE_INFINITY) - nowMs();
      return { error: last, attempts: calls, inMs: Math.max(0, waitMs() || ownMs) };
    },
  };
}

/** Longest wait for the rate limit inside one incident, in milliseconds: a search and an opening are two calls. */
const LONGEST_WAIT_MS = 2_500;

export type Calls = ReturnType<typeof createCalls>;

/** Calls a receiver within its rate limits. `onDelivered` runs after each successful call that sends something. */
export function createCalls(rates: readonly Rate[], clock: Clock, onDelivered: () => void) {
  const limits = rates.map((rate) => ({ rate, times: [] as number[] }));
  const limitsOf = (kind: Call) => limits.filter(({ rate }) => rate.of?.includes(kind) ?? true);
  const thrown = new WeakSet<object>();

  /** Milliseconds until a call is within the limits; 0 for now. */
  function waitMs(kind: Call): number {
    const waits = limitsOf(kind).map(({ rate, times }) => {
      const [oldest] = times.length < rate.count ? [] : times;
      return oldest === undefined ? 0 : oldest + rate.inMs - clock.monotonic();
    });
    return Math.max(0, ...waits);
  }

  async function callWithinLimits<T>(kind: Call, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const ms = waitMs(kind);
    if (ms > LONGEST_WAIT_MS) throw new Throttled("The receiver's rate limit is used up for now.", ms);
    if (ms > 0) await clock.sleep(ms, signal);
    const counting = limitsOf(kind);
    for (const { rate, times } of counting) {
      times.push(clock.monotonic());
      if (times.length > rate.count) times.shift();
    }
    try {
      const result = await work();
      if (kind !== "find") onDelivered();
      return result;
    } finally {
      // An edit may include a reply, which is another message, so count it at its end.
      if (kind === "update" || kind === "close")
        for (const { times } of counting) times[times.length - 1] = clock.monotonic();
    }
  }

  return {
    waitMs,
    /** True for an error of the receiver, as opposed to an error of the stored state. */
    threw: (error: unknown) => typeof error === "object" && error !== null && thrown.has(error),
    async call<T>(kind: Call, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
      try {
        return await callWithinLimits(kind, signal, work);
      } catch (error) {
        if (typeof error === "object" && error !== null) thrown.add(error);
        throw error;
      }
    },
  };
}

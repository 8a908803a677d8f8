import type { Failing } from "../../../src/core/connector.ts";
import { type Failure, Throttled } from "../../../src/core/errors/errors.ts";
import { backoffMs } from "../../../src/core/runtime/backoff.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Call, Rate, Receiver } from "./receiver.ts";

/** Back-off for the receiver: about a second after the first failure, at most five minutes. */
const BACKOFF = { firstMs: 1_000, maxMs: 300_000 };
/** Back-off for one incident; others continue, so a minute is long enough. */
const OWN_BACKOFF = { firstMs: 1_000, maxMs: 60_000 };
/**
 * Failures of different incidents in a row that mean the receiver is down. With 40 % of calls failing, one time in
 * 240.
 */
const DOWN_AFTER = 6;
/**
 * Longest pause that a receiver can request, in milliseconds; a wrong header must not stop a sink for years.
 */
const LONGEST_PAUSE_MS = 86_400_000;

/**
 * Decides when to call a receiver again after failures. Each failed incident has its own back-off.
 *
 *     up ──► 6 different incidents failed in a row ──► down: one call at a time, longer waits ──► one succeeds ──► up
 *
 * A receiver that requests a pause (429 with `Retry-After`) gets no calls for that time. A success resets everything.
 */
export interface Retries {
  /** Milliseconds until the receiver may be called again; 0 when it may be now. */
  waitMs(): number;
  /** When an incident that failed is tried again; undefined when it has not failed. */
  againMs(key: string): number | undefined;
  /** True while only one call at a time probes the receiver. */
  isDown(): boolean;
  /** The failed incident with the earliest retry. */
  earliest(): string | undefined;
  /** A call failed. `key`: the incident that it was about. */
  failed(key: string, failure: Failure): void;
  /** A call succeeded. Returns incidents that failed only because the receiver was down. */
  delivered(): readonly string[];
  /** There is nothing left to send of an incident. */
  forget(key: string): void;
  /** Number of incidents that failed and wait. */
  size(): number;
  /** Present failure; undefined after a success and when no retry is pending. */
  failing(): Failing | undefined;
}

export function createRetries(nowMs: () => number, random: () => number = Math.random): Retries {
  const own = new Map<string, { readonly attempts: number; readonly atMs: number }>();
  /** Incidents that failed since the last delivery. */
  const streak = new Set<string>();
  let calls = 0;
  let probes = 0;
  let pauses = 0;
  let waitUntilMs = Number.NEGATIVE_INFINITY;
  let last: Failure | null = null;

  const isDown = () => streak.size >= DOWN_AFTER;
  const earliest = () =>
    [...own].reduce<readonly [string, number] | undefined>(
      (first, [key, { atMs }]) => (first === undefined || atMs < first[1] ? [key, atMs] : first),
      undefined,
    );
  const waitMs = () => Math.max(0, waitUntilMs - nowMs());

  return {
    waitMs,
    againMs: (key) => own.get(key)?.atMs,
    isDown,
    earliest: () => earliest()?.[0],

    failed(key, failure) {
      last = failure;
      calls += 1;
      if (asksForPause(failure)) {
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

    delivered() {
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

    forget: (key) => void own.delete(key),
    size: () => own.size,

    failing() {
      if (last === null || (own.size === 0 && waitMs() === 0)) return undefined;
      const ownMs = (earliest()?.[1] ?? Number.NEGATIVE_INFINITY) - nowMs();
      return { error: last, attempts: calls, inMs: Math.max(0, waitMs() || ownMs) };
    },
  };
}

/**
 * True when the receiver requests a pause for all calls. A 503 without a time may concern one request only.
 */
function asksForPause(failure: Failure): failure is Extract<Failure, { kind: "throttled" }> {
  return failure.kind === "throttled" && (failure.scope === "allowance" || failure.retryAfterMs !== null);
}

/**
 * Longest wait for the rate limit inside one incident, in milliseconds: a search and an opening are two calls.
 */
const LONGEST_WAIT_MS = 2_500;

/** Applies all rate limits of a receiver. */
interface RateLimiter {
  /** Milliseconds until a call is within the limits; 0 when it is now. */
  waitMs(call: Call): number;
  /**
   * Waits briefly for the limit and counts the call; throws `Throttled` when the wait would be long. The returned
   * function moves the counted time to the end of the call.
   */
  enter(call: Call, signal: AbortSignal): Promise<() => void>;
}

export function createRateLimiter(rates: readonly Rate[], clock: Clock): RateLimiter {
  const limits = rates.map((rate) => ({ rate, last: [] as number[] }));
  const limitsOf = (call: Call) => limits.filter(({ rate }) => rate.of?.includes(call) ?? true);

  function waitMs(call: Call): number {
    const waits = limitsOf(call).map(({ rate, last }) => {
      const oldest = last.length < rate.count ? undefined : last[0];
      return oldest === undefined ? 0 : oldest + rate.inMs - clock.monotonic();
    });
    return Math.max(0, ...waits);
  }

  return {
    waitMs,
    async enter(call, signal) {
      const ms = waitMs(call);
      if (ms > LONGEST_WAIT_MS) throw new Throttled("The receiver's rate limit is used up for now.", ms);
      if (ms > 0) await clock.sleep(ms, signal);
      const counting = limitsOf(call);
      for (const { rate, last } of counting) {
        last.push(clock.monotonic());
        if (last.length > rate.count) last.shift();
      }
      return () => {
        for (const { last } of counting) last[last.length - 1] = clock.monotonic();
      };
    },
  };
}

/** A receiver behind its rate limits. */
interface LimitedReceiver {
  readonly receiver: Omit<Receiver, "probe" | "dispose">;
  /** True for errors of the receiver, as opposed to our own state. */
  threw(error: unknown): boolean;
}

/** `delivered` is called after each successful call. */
export function limitReceiver(receiver: Receiver, rates: RateLimiter, delivered: () => void): LimitedReceiver {
  const thrown = new WeakSet<object>();

  async function call<T>(what: Call, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      const leave = await rates.enter(what, signal);
      try {
        const result = await work();
        if (what !== "find") delivered();
        return result;
      } finally {
        // An edit may include a reply, which is another message.
        if (what === "update" || what === "close") leave();
      }
    } catch (error) {
      if (typeof error === "object" && error !== null) thrown.add(error);
      throw error;
    }
  }

  return {
    threw: (error) => typeof error === "object" && error !== null && thrown.has(error),
    receiver: {
      opensAgain: receiver.opensAgain,
      ...(receiver.identify === undefined ? {} : { identify: (told) => receiver.identify?.(told) }),
      open: (told, signal, identity) => call("open", signal, () => receiver.open(told, signal, identity)),
      update: (told, place, signal) => call("update", signal, () => receiver.update(told, place, signal)),
      close: (told, place, signal) => call("close", signal, () => receiver.close(told, place, signal)),
      ...(receiver.find === undefined
        ? {}
        : {
            find: (told, sinceMs, signal) =>
              call("find", signal, async () => (await receiver.find?.(told, sinceMs, signal)) ?? null),
          }),
    },
  };
}

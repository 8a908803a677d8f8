import { Throttled } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import type { Call, Rate, Receiver } from "./receiver.ts";

/** One incident may need two calls, such as a search and an opening; the second waits no longer than this. */
const LONGEST_WAIT_MS = 2_500;

/** Keeps to the limits of a receiver, all of them at once. */
export interface RateLimiter {
  /** Milliseconds until a call is within the limits; 0 when it is now. */
  waitMs(call: Call): number;
  /**
   * Counts a call, after a short wait where there has to be one; throws `Throttled` where that would be long. The function
   * that it resolves to counts the call from that moment on: its last request came later than its first.
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

/** A receiver that is called no faster than its limits allow. */
export interface Calls {
  readonly receiver: Omit<Receiver, "probe" | "dispose">;
  /** Whether a failure came from the receiver, as opposed to our own state. */
  haveThrown(error: unknown): boolean;
}

/** `delivered`: the receiver took something. */
export function createCalls(receiver: Receiver, rates: RateLimiter, delivered: () => void): Calls {
  const thrown = new WeakSet<object>();

  async function call<T>(what: Call, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    try {
      const leave = await rates.enter(what, signal);
      try {
        const result = await work();
        if (what !== "find") delivered();
        return result;
      } finally {
        // An edit may be followed by a reply, which is a message as well.
        if (what === "update" || what === "close") leave();
      }
    } catch (error) {
      if (typeof error === "object" && error !== null) thrown.add(error);
      throw error;
    }
  }

  return {
    haveThrown: (error) => typeof error === "object" && error !== null && thrown.has(error),
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

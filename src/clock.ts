/**
 * Time is passed in, never read from the air, so that a day can be driven through the worker in a second.
 */
export interface Clock {
  /** Wall time in milliseconds since 1970 UTC; may jump. For stamps, never for measuring. */
  now(): number;
  /** Milliseconds since some fixed point; never jumps back. For waiting and measuring. */
  monotonic(): number;
  /** Resolves after `ms`, or rejects with the signal's reason as soon as it aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** The longest delay that a timer of the runtime accepts, in milliseconds (a signed 32-bit number). */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  async sleep(ms, signal) {
    let left = ms;
    do {
      const part = Math.min(left, LONGEST_TIMER_MS);
      await timer(part, signal);
      left -= part;
    } while (left > 0);
  },
};

function timer(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const abort = () => {
      clearTimeout(handle);
      reject(signal?.reason);
    };
    const handle = setTimeout(
      () => {
        signal?.removeEventListener("abort", abort);
        resolve();
      },
      Math.max(0, ms),
    );
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** Milliseconds since 1970 as ISO 8601 UTC with milliseconds and a trailing `Z`. */
export function isoUtc(ms: number): string {
  return new Date(ms).toISOString();
}

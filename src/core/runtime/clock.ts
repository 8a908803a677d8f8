import { readFileSync } from "node:fs";
import { uptime } from "node:os";
import { valueOr } from "../values/value-or-fallback.ts";

/** Source of time, passed as a parameter so that tests can run a day in a second. */
export interface Clock {
  /** Wall time in milliseconds since 1970 UTC; may jump. For time stamps only. */
  now(): number;
  /** Milliseconds since some fixed point; never jumps back. For waiting and measuring. */
  monotonic(): number;
  /** Resolves after `ms`, or rejects with the signal's reason as soon as it aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  sinceBoot?(): TimeSinceBoot | null;
}

export interface TimeSinceBoot {
  readonly bootId: string;
  readonly ms: number;
}

const MAX_TIMER_DELAY_MS = 2 ** 31 - 1;

/** Contains an id that changes when the machine starts: https://man7.org/linux/man-pages/man5/proc_sys_kernel.5.html */
const BOOT_ID_FILE = "/proc/sys/kernel/random/boot_id";
let bootId: string | null | undefined;

const readBootId = (): string | null => valueOr(() => readFileSync(BOOT_ID_FILE, "utf8").trim(), null);

export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sinceBoot() {
    if (bootId === undefined) bootId = readBootId();
    return bootId === null ? null : { bootId, ms: uptime() * 1_000 };
  },
  async sleep(ms, signal) {
    let remainingMs = ms;
    do {
      const timerDelayMs = Math.min(remainingMs, MAX_TIMER_DELAY_MS);
      await waitForTimer(timerDelayMs, signal);
      remainingMs -= timerDelayMs;
    } while (remainingMs > 0);
  },
};

function waitForTimer(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const cancelTimer = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", cancelTimer);
        resolve();
      },
      Math.max(0, ms),
    );
    signal?.addEventListener("abort", cancelTimer, { once: true });
  });
}

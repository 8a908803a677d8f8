import type { VirtualClock } from "../../virtual-clock.ts";

/** Lets a library that reads the runtime's own date and timers run in virtual time; answers how to undo it. */
export function installGlobalTimers(clock: VirtualClock): () => void {
  const real = {
    now: Date.now,
    setTimeout: globalThis.setTimeout,
    clearTimeout: globalThis.clearTimeout,
  };
  const start = (callback: () => void, ms: number) => {
    const timer = new AbortController();
    const elapse = async () => {
      try {
        await clock.sleep(ms, timer.signal);
      } catch {
        // Cleared.
        return;
      }
      callback();
    };
    void elapse();
    return timer;
  };
  Date.now = () => Math.floor(clock.now());
  Object.assign(globalThis, {
    setTimeout: start,
    clearTimeout: (timer: AbortController | undefined) => timer?.abort(),
  });
  return () => {
    Date.now = real.now;
    Object.assign(globalThis, { setTimeout: real.setTimeout, clearTimeout: real.clearTimeout });
  };
}

import type { Clock } from "../clock.ts";

/** Waits for a time, or less when one of the signals aborts; true when the whole time has passed. */
export async function rest(clock: Clock, ms: number, ...signals: readonly AbortSignal[]): Promise<boolean> {
  const early = new AbortController();
  const end = () => early.abort();
  for (const signal of signals) {
    if (signal.aborted) return false;
    signal.addEventListener("abort", end, { once: true });
  }
  try {
    await clock.sleep(ms, early.signal);
    return true;
  } catch (error) {
    if (early.signal.aborted) return false;
    throw error;
  } finally {
    for (const signal of signals) signal.removeEventListener("abort", end);
  }
}

/** Waits for some work, though not longer than a time; true when the work is done. */
export async function within(clock: Clock, ms: number, work: Promise<unknown>): Promise<boolean> {
  const done = new AbortController();
  const finished = work.then(
    () => true,
    () => true,
  );
  const timeUp = rest(clock, ms, done.signal).then(() => false);
  try {
    return await Promise.race([finished, timeUp]);
  } finally {
    done.abort();
  }
}

import { isStopping, Stopping } from "../../core/runtime/lifecycle.ts";

/**
 * Asks once: waits in line until a slot of the quota is free, decides then what to ask for, calls `begun`, and settles
 * what comes of it. What it rejects with ends the work of all lines.
 */
export type Line = (begun: () => void, signal: AbortSignal) => Promise<void>;

export interface StandingOptions {
  /** Requests that are on their way at once, at most, for now. */
  readonly most: () => number;
  /** Aborts when nothing new may begin: waiting requests leave, running ones finish. */
  readonly draining: AbortSignal;
  /** Aborts what is on its way. */
  readonly forced: AbortSignal;
}

/**
 * Keeps one request standing in each line, as long as fewer than `most()` are on their way, until `draining` aborts or
 * one of them rejects; then the others come to their end, and it rejects with the first.
 */
export async function standInLine(lines: readonly Line[], options: StandingOptions): Promise<void> {
  const { most, draining, forced } = options;
  let failure: { readonly error: unknown } | undefined;
  const ended = new AbortController();
  const leave = AbortSignal.any([draining, forced, ended.signal]);
  let onTheirWay = 0;
  let room = Promise.withResolvers<void>();

  async function once(line: Line): Promise<void> {
    const own = new AbortController();
    const give = () => own.abort(new Stopping());
    let begun = false;
    const decided = Promise.withResolvers<void>();
    leave.addEventListener("abort", give, { once: true });
    forced.addEventListener("abort", give, { once: true });
    const begin = () => {
      begun = true;
      onTheirWay += 1;
      // From now on only a forced end cuts it short.
      leave.removeEventListener("abort", give);
      decided.resolve();
    };
    const work = line(begin, own.signal)
      .catch((error: unknown) => {
        if (isStopping(error)) return;
        failure ??= { error };
        ended.abort(new Stopping());
      })
      .finally(() => {
        leave.removeEventListener("abort", give);
        forced.removeEventListener("abort", give);
        if (begun) onTheirWay -= 1;
        room.resolve();
        room = Promise.withResolvers();
        decided.resolve();
      });
    works.add(work);
    void work.finally(() => works.delete(work));
    await decided.promise;
  }

  const works = new Set<Promise<void>>();
  async function keep(line: Line): Promise<void> {
    while (!leave.aborted) {
      if (onTheirWay < most()) await once(line);
      else await room.promise;
    }
  }

  await Promise.all(lines.map(keep));
  await Promise.all(works);
  if (failure !== undefined) throw failure.error;
}

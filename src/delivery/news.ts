/**
 * One watcher hears the outbox for all loops. A loop notes `signal()` before it looks, and rests on it when it
 * found nothing: what is committed in between has aborted that signal already, so no commit is overslept.
 */
export interface News {
  /** Aborts at the next announcement. */
  signal(): AbortSignal;
  announce(): void;
}

export function createNews(): News {
  let next = new AbortController();
  return {
    signal: () => next.signal,
    announce() {
      const current = next;
      next = new AbortController();
      current.abort();
    },
  };
}

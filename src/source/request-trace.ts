import { type Clock, isoUtc } from "../clock.ts";
import { meaningOf, sentence } from "../errors.ts";
import { withoutCredentials } from "../log.ts";
import type { QuotaEndpoint } from "./limiter.ts";
import type { Lane, Source } from "./source.ts";

/** One tag request that has left, or was given up before it could. */
export interface TracedRequest {
  /** Counted from the start of the process. */
  readonly number: number;
  /** When its result was known, UTC. */
  readonly at: string;
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly tagIds: readonly string[];
  /** `ok`, the kind of the failure (src/errors.ts), or `stopped`. */
  readonly outcome: string;
  /** What went wrong, as a sentence; null when nothing did. */
  readonly message: string | null;
  /** From the wish to the result, waiting for the quota included. */
  readonly tookMs: number;
}

/** The last tag requests of one source, for `plenum explain`; in memory, because it explains the present. */
export interface RequestTrace {
  /** Oldest first. */
  latest(): readonly TracedRequest[];
}

const REMEMBERED = 200;

/** The same source, whose tag requests leave a trace. */
export function traced(
  source: Source,
  clock: Clock,
): { readonly source: Source; readonly trace: RequestTrace } {
  const requests: TracedRequest[] = [];
  let count = 0;

  async function note<T>(
    lane: Lane,
    endpoint: QuotaEndpoint,
    tagIds: () => readonly string[],
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T> {
    const since = clock.monotonic();
    const add = (outcome: string, message: string | null) => {
      const ids = tagIds();
      // A write that found nothing to do never left.
      if (ids.length === 0) return;
      count += 1;
      const tookMs = Math.round(clock.monotonic() - since);
      const at = isoUtc(clock.now());
      requests.push({ number: count, at, lane, endpoint, tagIds: [...ids], outcome, message, tookMs });
      if (requests.length > REMEMBERED) requests.shift();
    };
    try {
      const result = await work();
      add("ok", null);
      return result;
    } catch (error) {
      if (signal.aborted) add("stopped", null);
      else add(meaningOf(error).kind, withoutCredentials(sentence(error)));
      throw error;
    }
  }

  return {
    trace: { latest: () => [...requests] },
    source: {
      ...source,
      read: (ids, lane, signal) =>
        note(
          lane,
          "read",
          () => ids,
          signal,
          () => source.read(ids, lane, signal),
        ),
      write(prepare, signal) {
        let ids: readonly string[] = [];
        const prepared = async () => {
          const writes = await prepare();
          ids = writes.map(({ tagId }) => tagId);
          return writes;
        };
        return note(
          "write",
          "write",
          () => ids,
          signal,
          () => source.write(prepared, signal),
        );
      },
      history: (query, lane, signal) =>
        note(
          lane,
          "history",
          () => query.tagIds,
          signal,
          () => source.history(query, lane, signal),
        ),
      totals: (query, lane, signal) =>
        note(
          lane,
          "history",
          () => query.tagIds,
          signal,
          () => source.totals(query, lane, signal),
        ),
    },
  };
}

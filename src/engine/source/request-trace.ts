import { meaningOf, sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { withoutCredentials } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { observed } from "./client.ts";
import type { Lane, QuotaEndpoint, Source } from "./source.ts";

/** One tag request that has left, or was given up before it could. */
export interface TracedRequest {
  /** Counted from the start of the process. */
  readonly number: number;
  /** When its result was known, UTC. */
  readonly at: string;
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly tagIds: readonly string[];
  /** `ok`, the kind of the failure (src/core/errors/errors.ts), or `stopped`. */
  readonly outcome: string;
  /** Error message; null if the request succeeded. */
  readonly message: string | null;
  /**
   * Time from the request to the result, waiting for the quota included; if the content is chosen late, from that
   * choice.
   */
  readonly tookMs: number;
}

/** The last tag requests of one source, for `plenum explain`; in memory, because it explains the present. */
export interface RequestTrace {
  /** Oldest first. */
  latest(): readonly TracedRequest[];
}

const REMEMBERED = 200;

/** The same source, whose tag requests leave a trace. */
export function traced(source: Source, clock: Clock): { readonly source: Source; readonly trace: RequestTrace } {
  const requests: TracedRequest[] = [];
  let count = 0;

  async function note<T>(
    lane: Lane,
    endpoint: QuotaEndpoint,
    tagIds: () => readonly string[],
    sinceMs: () => number,
    signal: AbortSignal,
    work: () => Promise<T>,
  ): Promise<T> {
    const add = (outcome: string, message: string | null) => {
      const ids = tagIds();
      // An empty write, or a waiting request that was cancelled, was never sent.
      if (ids.length === 0) return;
      count += 1;
      const tookMs = Math.round(clock.monotonic() - sinceMs());
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

  /** Records the tags of one request and its start: the moment its content is chosen. */
  function follow() {
    let ids: readonly string[] = [];
    let since = clock.monotonic();
    return {
      decide(tagIds: readonly string[]) {
        ids = tagIds;
        since = clock.monotonic();
      },
      ids: () => ids,
      sinceMs: () => since,
    };
  }

  return {
    trace: { latest: () => [...requests] },
    source: {
      ...source,
      read(asked, lane, signal) {
        const { decide, ids, sinceMs } = follow();
        const remembered = observed(asked, decide);
        return note(lane, "read", ids, sinceMs, signal, () => source.read(remembered, lane, signal));
      },
      write(prepare, signal) {
        const { decide, ids, sinceMs } = follow();
        const prepared = async () => {
          const writes = await prepare();
          decide(writes.map(({ tagId }) => tagId));
          return writes;
        };
        return note("write", "write", ids, sinceMs, signal, () => source.write(prepared, signal));
      },
      history(asked, lane, signal) {
        const { decide, ids, sinceMs } = follow();
        const remembered = observed(asked, ({ tagIds }) => decide(tagIds));
        return note(lane, "history", ids, sinceMs, signal, () => source.history(remembered, lane, signal));
      },
      totals(asked, lane, signal) {
        const { decide, ids, sinceMs } = follow();
        const remembered = observed(asked, ({ tagIds }) => decide(tagIds));
        return note(lane, "history", ids, sinceMs, signal, () => source.totals(remembered, lane, signal));
      },
    },
  };
}

import { asFailure, errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { observeContent } from "./queries.ts";
import type { Lane, QuotaEndpoint, Source } from "./source.ts";

export interface TracedRequest {
  readonly number: number;
  readonly at: string;
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly tagIds: readonly string[];
  readonly outcome: string;
  readonly message: string | null;
  /** Time from the request, or from the late choice of its content, to the result. */
  readonly tookMs: number;
}

export interface RequestTrace {
  latest(): readonly TracedRequest[];
}

const TRACED_REQUESTS_MAX = 200;

export function traceRequests(source: Source, clock: Clock): { readonly source: Source; readonly trace: RequestTrace } {
  const requests: TracedRequest[] = [];
  let requestCount = 0;

  /** `send` calls `chosen` when the tags of the request are chosen. */
  async function recordRequest<T>(
    lane: Lane,
    endpoint: QuotaEndpoint,
    signal: AbortSignal,
    send: (chosen: (ids: readonly string[]) => void) => Promise<T>,
  ): Promise<T> {
    let tagIds: readonly string[] = [];
    let sinceMs = clock.monotonic();
    const addOutcome = (outcome: string, message: string | null) => {
      // An empty write, or a waiting request that was cancelled, was never sent.
      if (tagIds.length === 0) return;
      requestCount += 1;
      const tookMs = Math.round(clock.monotonic() - sinceMs);
      const at = isoUtc(clock.now());
      requests.push({ number: requestCount, at, lane, endpoint, tagIds: [...tagIds], outcome, message, tookMs });
      if (requests.length > TRACED_REQUESTS_MAX) requests.shift();
    };
    try {
      const result = await send((ids) => {
        tagIds = ids;
        sinceMs = clock.monotonic();
      });
      addOutcome("ok", null);
      return result;
    } catch (error) {
      if (signal.aborted) addOutcome("stopped", null);
      else addOutcome(asFailure(error).kind, maskCredentials(errorText(error)));
      throw error;
    }
  }

  const recordQuery =
    <T>(send: (...request: Parameters<Source["history"]>) => Promise<T>) =>
    (...[query, lane, signal]: Parameters<Source["history"]>) =>
      recordRequest(lane, "history", signal, (chosen) => {
        const observedQuery = observeContent(query, ({ tagIds }) => chosen(tagIds));
        return send(observedQuery, lane, signal);
      });
  return {
    trace: { latest: () => [...requests] },
    source: {
      ...source,
      read: (ids, lane, signal) =>
        recordRequest(lane, "read", signal, (chosen) => source.read(observeContent(ids, chosen), lane, signal)),
      write: (prepare, signal) =>
        recordRequest("write", "write", signal, (chosen) => {
          const prepareObserved = async () => {
            const writes = await prepare();
            chosen(writes.map(({ tagId }) => tagId));
            return writes;
          };
          return source.write(prepareObserved, signal);
        }),
      history: recordQuery((...request) => source.history(...request)),
      totals: recordQuery((...request) => source.totals(...request)),
    },
  };
}

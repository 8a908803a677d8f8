import { asFailure, errorText } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { maskCredentials } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { observeRequestContent } from "./queries.ts";
import type { QueueLane, QuotaEndpoint, Source } from "./source.ts";

export interface TracedRequest {
  readonly number: number;
  readonly at: string;
  readonly lane: QueueLane;
  readonly endpoint: QuotaEndpoint;
  readonly tagIds: readonly string[];
  readonly outcome: string;
  readonly message: string | null;
  readonly tookMs: number;
}

const TRACED_REQUESTS_MAX = 200;

export function traceRequests(source: Source, clock: Clock) {
  const tracedRequests: TracedRequest[] = [];
  let requestCount = 0;

  async function traceRequest<T>(
    lane: QueueLane,
    endpoint: QuotaEndpoint,
    signal: AbortSignal,
    send: (onContentChosen: (ids: readonly string[]) => void) => Promise<T>,
  ): Promise<T> {
    let tagIds: readonly string[] = [];
    let startedMs = clock.monotonic();
    const addRequestOutcome = (outcome: string, message: string | null) => {
      // Trace no empty write and no request that was cancelled while it waited: these were never sent.
      if (tagIds.length === 0) return;
      requestCount += 1;
      const tookMs = Math.round(clock.monotonic() - startedMs);
      const at = isoUtc(clock.now());
      tracedRequests.push({ number: requestCount, at, lane, endpoint, tagIds: [...tagIds], outcome, message, tookMs });
      if (tracedRequests.length > TRACED_REQUESTS_MAX) tracedRequests.shift();
    };
    try {
      const result = await send((ids) => {
        tagIds = ids;
        startedMs = clock.monotonic();
      });
      addRequestOutcome("ok", null);
      return result;
    } catch (error) {
      if (signal.aborted) addRequestOutcome("stopped", null);
      else addRequestOutcome(asFailure(error).kind, maskCredentials(errorText(error)));
      throw error;
    }
  }

  const traceHistoryRequests =
    <T>(send: (...request: Parameters<Source["history"]>) => Promise<T>) =>
    (...[query, lane, signal]: Parameters<Source["history"]>) =>
      traceRequest(lane, "history", signal, (reportTagIds) => {
        const observedQuery = observeRequestContent(query, ({ tagIds }) => reportTagIds(tagIds));
        return send(observedQuery, lane, signal);
      });
  const tracedSource: Source = {
    ...source,
    read: (ids, lane, signal) =>
      traceRequest(lane, "read", signal, (report) => source.read(observeRequestContent(ids, report), lane, signal)),
    write: (prepare, signal) =>
      traceRequest("write", "write", signal, (reportTagIds) => {
        const prepareObservedWrites = async () => {
          const writes = await prepare();
          reportTagIds(writes.map(({ tagId }) => tagId));
          return writes;
        };
        return source.write(prepareObservedWrites, signal);
      }),
    history: traceHistoryRequests((...request) => source.history(...request)),
    totals: traceHistoryRequests((...request) => source.totals(...request)),
  };
  return { source: tracedSource, trace: { latest: (): readonly TracedRequest[] => [...tracedRequests] } };
}

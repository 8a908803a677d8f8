import { isOrderlyStop, OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { type LoopOptions, runLoop, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";

/** Waits for a slot, chooses a request, calls `onBegun`, and sends the request. If it rejects, all lanes end. */
type LaneRequest = (onBegun: () => void, signal: AbortSignal) => Promise<void>;

interface WaitingOptions {
  readonly maxInFlight: () => number;
  /** Aborts when no new request may begin: waiting requests end, running requests finish. */
  readonly draining: AbortSignal;
  readonly forced: AbortSignal;
  /** These checks look for new work to request, and repeat until all requests have ended. */
  readonly lookups: Omit<LoopOptions, "signal" | "alignSleeps">;
}

/** Keeps one request waiting per lane while fewer than `maxInFlight()` are under way. Throws the first error. */
export async function keepLanesBusy(lanes: readonly LaneRequest[], options: WaitingOptions): Promise<void> {
  const { maxInFlight, draining, forced } = options;
  let failure: { readonly error: unknown } | undefined;
  const requestFailureController = new AbortController();
  const noNewRequestSignal = AbortSignal.any([draining, forced, requestFailureController.signal]);
  const runningRequests = new Set<Promise<void>>();
  let inFlight = 0;
  let requestEnded = Promise.withResolvers<void>();

  async function startRequest(lane: LaneRequest): Promise<void> {
    const requestAbortController = new AbortController();
    const abortRequest = () => requestAbortController.abort(new OrderlyStop());
    let hasBegun = false;
    const requestBegunOrEnded = Promise.withResolvers<void>();
    noNewRequestSignal.addEventListener("abort", abortRequest, { once: true });
    forced.addEventListener("abort", abortRequest, { once: true });
    const noteRequestBegun = () => {
      hasBegun = true;
      inFlight += 1;
      noNewRequestSignal.removeEventListener("abort", abortRequest);
      requestBegunOrEnded.resolve();
    };
    const requestWork = lane(noteRequestBegun, requestAbortController.signal)
      .catch((error: unknown) => {
        if (isOrderlyStop(error)) return;
        failure ??= { error };
        requestFailureController.abort(new OrderlyStop());
      })
      .finally(() => {
        noNewRequestSignal.removeEventListener("abort", abortRequest);
        forced.removeEventListener("abort", abortRequest);
        if (hasBegun) inFlight -= 1;
        requestEnded.resolve();
        requestEnded = Promise.withResolvers();
        requestBegunOrEnded.resolve();
        runningRequests.delete(requestWork);
      });
    runningRequests.add(requestWork);
    await requestBegunOrEnded.promise;
  }

  async function keepLaneBusy(lane: LaneRequest): Promise<void> {
    while (!noNewRequestSignal.aborted) {
      if (inFlight < maxInFlight()) await startRequest(lane);
      else await requestEnded.promise;
    }
  }

  const requestsEndController = new AbortController();
  const lookupSignal = AbortSignal.any([draining, forced, requestsEndController.signal]);
  const lookupLoop = runLoop({ ...options.lookups, alignSleeps: true, signal: lookupSignal });
  await Promise.all(lanes.map(keepLaneBusy));
  await Promise.all(runningRequests);
  requestsEndController.abort(WAIT_ENDED_EARLY);
  await lookupLoop;
  if (failure !== undefined) throw failure.error;
}

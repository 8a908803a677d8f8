import { isOrderlyStop, OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { type LoopOptions, runLoop, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";

/** Waits for a slot, chooses a request, calls `begun`, and sends the request. A rejection ends all lanes. */
type LaneRequest = (begun: () => void, signal: AbortSignal) => Promise<void>;

interface WaitingOptions {
  readonly maxUnderWay: () => number;
  /** Aborts when no new request may begin: waiting requests end, running requests finish. */
  readonly draining: AbortSignal;
  readonly forced: AbortSignal;
  /** Checks for changes of what to request; they repeat until all requests have ended. */
  readonly lookups: Omit<LoopOptions, "signal" | "onlyChecks">;
}

/** Keeps one request waiting per lane while fewer than `most()` are under way. Throws the first error at the end. */
export async function keepRequestsWaiting(lanes: readonly LaneRequest[], options: WaitingOptions): Promise<void> {
  const { maxUnderWay, draining, forced } = options;
  let failure: { readonly error: unknown } | undefined;
  const failureController = new AbortController();
  const noNewRequests = AbortSignal.any([draining, forced, failureController.signal]);
  const requests = new Set<Promise<void>>();
  let underWay = 0;
  let requestEnded = Promise.withResolvers<void>();

  async function startRequest(lane: LaneRequest): Promise<void> {
    const requestController = new AbortController();
    const abort = () => requestController.abort(new OrderlyStop());
    let hasBegun = false;
    const requestDecided = Promise.withResolvers<void>();
    noNewRequests.addEventListener("abort", abort, { once: true });
    forced.addEventListener("abort", abort, { once: true });
    const noteBegun = () => {
      hasBegun = true;
      underWay += 1;
      noNewRequests.removeEventListener("abort", abort);
      requestDecided.resolve();
    };
    const requestWork = lane(noteBegun, requestController.signal)
      .catch((error: unknown) => {
        if (isOrderlyStop(error)) return;
        failure ??= { error };
        failureController.abort(new OrderlyStop());
      })
      .finally(() => {
        noNewRequests.removeEventListener("abort", abort);
        forced.removeEventListener("abort", abort);
        if (hasBegun) underWay -= 1;
        requestEnded.resolve();
        requestEnded = Promise.withResolvers();
        requestDecided.resolve();
        requests.delete(requestWork);
      });
    requests.add(requestWork);
    await requestDecided.promise;
  }

  async function keepLaneBusy(lane: LaneRequest): Promise<void> {
    while (!noNewRequests.aborted) {
      if (underWay < maxUnderWay()) await startRequest(lane);
      else await requestEnded.promise;
    }
  }

  const allEnded = new AbortController();
  const lookupSignal = AbortSignal.any([draining, forced, allEnded.signal]);
  const lookups = runLoop({ ...options.lookups, onlyChecks: true, signal: lookupSignal });
  await Promise.all(lanes.map(keepLaneBusy));
  await Promise.all(requests);
  allEnded.abort(WAIT_ENDED_EARLY);
  await lookups;
  if (failure !== undefined) throw failure.error;
}

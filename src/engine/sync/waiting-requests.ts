import { isStopping, Stopping } from "../../core/runtime/lifecycle.ts";

/**
 * Waits for a free slot of the quota, decides then what to request, calls `begun`, and settles the response. A rejection
 * ends the work of all lanes.
 */
type LaneRequest = (begun: () => void, signal: AbortSignal) => Promise<void>;

interface WaitingOptions {
  /** Most requests under way at once, now. */
  readonly most: () => number;
  /** Aborts when nothing new may begin: waiting requests end, running ones finish. */
  readonly draining: AbortSignal;
  /** Ends requests under way. */
  readonly forced: AbortSignal;
}

/**
 * Keeps one request waiting in each lane while fewer than `most()` are under way, until `draining` aborts or a request
 * rejects; then the others finish, and the first error is thrown.
 */
export async function keepRequestsWaiting(lanes: readonly LaneRequest[], options: WaitingOptions): Promise<void> {
  const { most, draining, forced } = options;
  let failure: { readonly error: unknown } | undefined;
  const ended = new AbortController();
  const leaving = AbortSignal.any([draining, forced, ended.signal]);
  const requests = new Set<Promise<void>>();
  let underWay = 0;
  let freed = Promise.withResolvers<void>();

  /** Starts one request; resolves when it is under way or over. */
  async function request(lane: LaneRequest): Promise<void> {
    const own = new AbortController();
    const abort = () => own.abort(new Stopping());
    let hasBegun = false;
    const decided = Promise.withResolvers<void>();
    leaving.addEventListener("abort", abort, { once: true });
    forced.addEventListener("abort", abort, { once: true });
    const begun = () => {
      hasBegun = true;
      underWay += 1;
      // From now on only `forced` ends the request.
      leaving.removeEventListener("abort", abort);
      decided.resolve();
    };
    const work = lane(begun, own.signal)
      .catch((error: unknown) => {
        if (isStopping(error)) return;
        failure ??= { error };
        ended.abort(new Stopping());
      })
      .finally(() => {
        leaving.removeEventListener("abort", abort);
        forced.removeEventListener("abort", abort);
        if (hasBegun) underWay -= 1;
        freed.resolve();
        freed = Promise.withResolvers();
        decided.resolve();
        requests.delete(work);
      });
    requests.add(work);
    await decided.promise;
  }

  async function keep(lane: LaneRequest): Promise<void> {
    while (!leaving.aborted) {
      if (underWay < most()) await request(lane);
      else await freed.promise;
    }
  }

  await Promise.all(lanes.map(keep));
  await Promise.all(requests);
  if (failure !== undefined) throw failure.error;
}

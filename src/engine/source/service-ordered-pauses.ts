import type { ServiceHealth } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { ListRateLimit } from "./list-rate-limit.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "./source.ts";

export type RequestPauseScope = "everything" | "lists" | "tags" | QuotaEndpoint;

interface ServiceOrderedPauseOptions {
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
  readonly lists: Pick<ListRateLimit, "permitTrial" | "release">;
  readonly limiter: Pick<QuotaLimiter, "permitTrial" | "release" | "status">;
  readonly health: (signal: AbortSignal) => Promise<ServiceHealth>;
}

const USUAL_REQUEST_PAUSE_MAX_MS = 62_000;
const HEALTH_CHECK_INTERVAL_MS = 60_000;
const HEALTHY_CHECKS_BEFORE_TRIAL = 2;

const TRIAL_INTERVAL = { firstMs: 300_000, maxMs: 3_600_000 };

/** Ends a long pause that the service ordered (503, 429) when a trial request succeeds after healthy checks. */
export function createServiceOrderedPauses({ clock, log, lists, limiter, health }: ServiceOrderedPauseOptions) {
  const servicePauses = new Map<
    RequestPauseScope,
    { readonly sinceMs: number; readonly untilMs: number; readonly healthyInARow: number }
  >();
  const trialRequestsByScope = new Map<RequestPauseScope, { readonly count: number; readonly notBeforeMs: number }>();
  const watchController = new AbortController();
  let isWatchingHealth = false;

  function permitTrialRequest(scope: RequestPauseScope, isPermitted: boolean): void {
    if (scope === "everything" || scope === "lists") lists.permitTrial(isPermitted);
    else limiter.permitTrial(scope === "tags" ? "read" : scope, isPermitted);
  }

  function endRequestPause(scope: RequestPauseScope): void {
    if (scope === "everything") limiter.release("everything");
    if (scope === "everything" || scope === "lists") lists.release();
    else limiter.release(scope === "tags" ? "read" : scope);
  }

  function nextTrialRequest(count: number) {
    const trialIntervalMs = Math.min(TRIAL_INTERVAL.maxMs, TRIAL_INTERVAL.firstMs * 2 ** Math.max(0, count - 1));
    return { count, notBeforeMs: clock.monotonic() + trialIntervalMs };
  }

  function dropEndedRequestPauses(): void {
    for (const [scope, { untilMs }] of servicePauses) if (clock.monotonic() >= untilMs) servicePauses.delete(scope);
  }

  async function watchServiceHealth(): Promise<void> {
    let healthyChecks = 0;
    for (dropEndedRequestPauses(); servicePauses.size > 0; dropEndedRequestPauses()) {
      await clock.sleep(HEALTH_CHECK_INTERVAL_MS, watchController.signal);
      healthyChecks = (await health(watchController.signal)).status === "healthy" ? healthyChecks + 1 : 0;
      dropEndedRequestPauses();
      for (const [scope, { healthyInARow }] of servicePauses) {
        const { count, notBeforeMs } = trialRequestsByScope.get(scope) ?? { count: 0, notBeforeMs: 0 };
        if (healthyChecks === 0) permitTrialRequest(scope, false);
        if (healthyChecks < healthyInARow || clock.monotonic() < notBeforeMs) continue;
        trialRequestsByScope.set(scope, nextTrialRequest(count + 1));
        log.info({ scope, trial: count + 1 }, "the service is healthy and asks to wait: one trial request may leave");
        permitTrialRequest(scope, true);
      }
    }
  }

  function startServiceHealthWatch(): void {
    if (isWatchingHealth || watchController.signal.aborted) return;
    isWatchingHealth = true;
    watchServiceHealth()
      .catch((error: unknown) => {
        if (!watchController.signal.aborted) log.warn({ err: error }, "the health check was not asked during a pause");
      })
      .finally(() => (isWatchingHealth = false));
  }

  function noteOrderedPause(scope: RequestPauseScope, forMs: number, isStated = true): void {
    const pendingTrialRequest = trialRequestsByScope.get(scope);
    if (pendingTrialRequest !== undefined) trialRequestsByScope.set(scope, nextTrialRequest(pendingTrialRequest.count));
    if (forMs <= USUAL_REQUEST_PAUSE_MAX_MS) return;
    const nowMs = clock.monotonic();
    const untilMs = Math.max(servicePauses.get(scope)?.untilMs ?? 0, nowMs + forMs);
    servicePauses.set(scope, { sinceMs: nowMs, untilMs, healthyInARow: isStated ? HEALTHY_CHECKS_BEFORE_TRIAL : 1 });
    startServiceHealthWatch();
  }

  return {
    ordered: noteOrderedPause,
    answered(scope: RequestPauseScope, startedMs: number): void {
      for (const pauseScope of new Set<RequestPauseScope>(["everything", scope])) {
        const longPause = servicePauses.get(pauseScope);
        // A request that left before the service ordered the pause proves nothing about the pause.
        if (longPause !== undefined && startedMs < longPause.sinceMs) continue;
        trialRequestsByScope.delete(pauseScope);
        if (!servicePauses.delete(pauseScope)) continue;
        permitTrialRequest(pauseScope, false);
        endRequestPause(pauseScope);
        log.info({ scope: pauseScope }, "the service answers again before the end of the pause that it ordered");
      }
    },
    look(): void {
      const { heldUntilMs, buckets } = limiter.status();
      const nowMs = clock.now();
      if (heldUntilMs !== null) {
        if (!servicePauses.has("everything")) noteOrderedPause("everything", heldUntilMs - nowMs);
        return;
      }
      for (const { name, heldUntilMs: untilMs } of buckets) {
        const quotaPauseScope = QUOTA_ENDPOINTS.find((endpoint) => endpoint === name) ?? "tags";
        if (untilMs !== null && !servicePauses.has(quotaPauseScope)) noteOrderedPause(quotaPauseScope, untilMs - nowMs);
      }
    },
    isOn: () => servicePauses.size > 0,
    close: () => watchController.abort(),
  };
}

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
  readonly listRateLimit: Pick<ListRateLimit, "permitTrial" | "endPause">;
  readonly quotaLimiter: Pick<QuotaLimiter, "permitTrial" | "endPause" | "status">;
  readonly checkHealth: (signal: AbortSignal) => Promise<ServiceHealth>;
}

/** Longest pause of an ordinary rate limit. Only during longer pauses, health checks and trial requests are sent. */
const ORDINARY_PAUSE_MAX_MS = 62_000;
const HEALTH_CHECK_INTERVAL_MS = 60_000;
const HEALTHY_CHECKS_BEFORE_TRIAL = 2;

const TRIAL_INTERVAL = { firstMs: 300_000, maxMs: 3_600_000 };

/** Ends a long pause that the service ordered (503, 429) when a trial request succeeds after two healthy checks. */
export function createServiceOrderedPauses({
  clock,
  log,
  listRateLimit,
  quotaLimiter,
  checkHealth,
}: ServiceOrderedPauseOptions) {
  const servicePauses = new Map<
    RequestPauseScope,
    { readonly sinceMs: number; readonly untilMs: number; readonly healthyChecksNeeded: number }
  >();
  const trialRequestsByScope = new Map<RequestPauseScope, { readonly count: number; readonly notBeforeMs: number }>();
  const watchController = new AbortController();
  let isWatchingHealth = false;

  function permitTrialRequest(scope: RequestPauseScope, isPermitted: boolean): void {
    if (scope === "everything" || scope === "lists") listRateLimit.permitTrial(isPermitted);
    else quotaLimiter.permitTrial(scope === "tags" ? "read" : scope, isPermitted);
  }

  function endRequestPause(scope: RequestPauseScope): void {
    if (scope === "everything") quotaLimiter.endPause("everything");
    if (scope === "everything" || scope === "lists") listRateLimit.endPause();
    else quotaLimiter.endPause(scope === "tags" ? "read" : scope);
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
      healthyChecks = (await checkHealth(watchController.signal)).status === "healthy" ? healthyChecks + 1 : 0;
      dropEndedRequestPauses();
      for (const [scope, { healthyChecksNeeded: neededChecks }] of servicePauses) {
        const { count, notBeforeMs } = trialRequestsByScope.get(scope) ?? { count: 0, notBeforeMs: 0 };
        if (healthyChecks === 0) permitTrialRequest(scope, false);
        if (healthyChecks < neededChecks || clock.monotonic() < notBeforeMs) continue;
        trialRequestsByScope.set(scope, nextTrialRequest(count + 1));
        log.info(
          { scope, trial: count + 1 },
          "the service is healthy although it asked to wait: sending one trial request",
        );
        permitTrialRequest(scope, true);
      }
    }
  }

  function startServiceHealthWatch(): void {
    if (isWatchingHealth || watchController.signal.aborted) return;
    isWatchingHealth = true;
    watchServiceHealth()
      .catch((error: unknown) => {
        if (!watchController.signal.aborted)
          log.warn({ err: error }, "the health check failed during a pause that the service ordered");
      })
      .finally(() => (isWatchingHealth = false));
  }

  function noteOrderedPause(scope: RequestPauseScope, durationMs: number, isDurationStated = true): void {
    const pendingTrialRequest = trialRequestsByScope.get(scope);
    if (pendingTrialRequest !== undefined) trialRequestsByScope.set(scope, nextTrialRequest(pendingTrialRequest.count));
    if (durationMs <= ORDINARY_PAUSE_MAX_MS) return;
    const nowMs = clock.monotonic();
    servicePauses.set(scope, {
      sinceMs: nowMs,
      untilMs: Math.max(servicePauses.get(scope)?.untilMs ?? 0, nowMs + durationMs),
      healthyChecksNeeded: isDurationStated ? HEALTHY_CHECKS_BEFORE_TRIAL : 1,
    });
    startServiceHealthWatch();
  }

  return {
    noteOrderedPause,
    noteReply(scope: RequestPauseScope, startedMs: number): void {
      for (const pauseScope of new Set<RequestPauseScope>(["everything", scope])) {
        const longPause = servicePauses.get(pauseScope);
        // Ignore the reply to a request that left before the service ordered the pause.
        if (longPause !== undefined && startedMs < longPause.sinceMs) continue;
        trialRequestsByScope.delete(pauseScope);
        if (!servicePauses.delete(pauseScope)) continue;
        permitTrialRequest(pauseScope, false);
        endRequestPause(pauseScope);
        log.info({ scope: pauseScope }, "the service answers again before the end of the pause that it ordered");
      }
    },
    adoptLimiterPauses(): void {
      const { heldUntilMs, buckets } = quotaLimiter.status();
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
    isPauseActive: () => servicePauses.size > 0,
    close: () => watchController.abort(),
  };
}

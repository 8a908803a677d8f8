import type { ServiceHealth } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { ListRateLimit } from "./list-rate-limit.ts";
import type { QuotaLimiter } from "./quota/quota.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "./source.ts";

export type PauseScope = "everything" | "lists" | "tags" | QuotaEndpoint;

interface LongWaitsOptions {
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
  readonly lists: Pick<ListRateLimit, "permitTrial" | "release">;
  readonly limiter: Pick<QuotaLimiter, "permitTrial" | "release" | "status">;
  readonly health: (signal: AbortSignal) => Promise<ServiceHealth>;
}

const USUAL_PAUSE_MAX_MS = 62_000;
const HEALTH_CHECK_INTERVAL_MS = 60_000;
const HEALTHY_CHECKS_IN_A_ROW = 2;

const TRIAL_INTERVAL = { firstMs: 300_000, maxMs: 3_600_000 };

/**
 * Shortens ordered pauses (503, 429) over a minute, which may be a mistake, e.g. 30 days. After two healthy checks one
 * request leaves as a trial, never a write. Any response ends the pause; trials repeat after 5 to 60 minutes.
 */
export function createLongWaits({ clock, log, lists, limiter, health }: LongWaitsOptions) {
  const longPauses = new Map<
    PauseScope,
    { readonly sinceMs: number; readonly untilMs: number; readonly healthyInARow: number }
  >();
  const trialRequests = new Map<PauseScope, { readonly count: number; readonly notBeforeMs: number }>();
  const closeController = new AbortController();
  let isWatching = false;

  function permitTrial(scope: PauseScope, isPermitted: boolean): void {
    if (scope === "everything" || scope === "lists") lists.permitTrial(isPermitted);
    else limiter.permitTrial(scope === "tags" ? "read" : scope, isPermitted);
  }

  function release(scope: PauseScope): void {
    if (scope === "everything") limiter.release("everything");
    if (scope === "everything" || scope === "lists") lists.release();
    else limiter.release(scope === "tags" ? "read" : scope);
  }

  function nextTrial(count: number) {
    const trialIntervalMs = Math.min(TRIAL_INTERVAL.maxMs, TRIAL_INTERVAL.firstMs * 2 ** Math.max(0, count - 1));
    return { count, notBeforeMs: clock.monotonic() + trialIntervalMs };
  }

  function dropEndedPauses(): void {
    for (const [scope, { untilMs }] of longPauses) if (clock.monotonic() >= untilMs) longPauses.delete(scope);
  }

  async function watchHealth(): Promise<void> {
    let healthyChecks = 0;
    for (dropEndedPauses(); longPauses.size > 0; dropEndedPauses()) {
      await clock.sleep(HEALTH_CHECK_INTERVAL_MS, closeController.signal);
      healthyChecks = (await health(closeController.signal)).status === "healthy" ? healthyChecks + 1 : 0;
      dropEndedPauses();
      for (const [scope, { healthyInARow }] of longPauses) {
        const { count, notBeforeMs } = trialRequests.get(scope) ?? { count: 0, notBeforeMs: 0 };
        if (healthyChecks === 0) permitTrial(scope, false);
        if (healthyChecks < healthyInARow || clock.monotonic() < notBeforeMs) continue;
        trialRequests.set(scope, nextTrial(count + 1));
        log.info({ scope, trial: count + 1 }, "the service is healthy and asks to wait: one trial request may leave");
        permitTrial(scope, true);
      }
    }
  }

  function startWatching(): void {
    if (isWatching || closeController.signal.aborted) return;
    isWatching = true;
    watchHealth()
      .catch((error: unknown) => {
        if (!closeController.signal.aborted) log.warn({ err: error }, "the health check was not asked during a pause");
      })
      .finally(() => (isWatching = false));
  }

  function notePauseOrder(scope: PauseScope, forMs: number, isStated = true): void {
    const pendingTrial = trialRequests.get(scope);
    if (pendingTrial !== undefined) trialRequests.set(scope, nextTrial(pendingTrial.count));
    if (forMs <= USUAL_PAUSE_MAX_MS) return;
    const nowMs = clock.monotonic();
    const untilMs = Math.max(longPauses.get(scope)?.untilMs ?? 0, nowMs + forMs);
    longPauses.set(scope, { sinceMs: nowMs, untilMs, healthyInARow: isStated ? HEALTHY_CHECKS_IN_A_ROW : 1 });
    startWatching();
  }

  return {
    ordered: notePauseOrder,
    answered(scope: PauseScope, startedMs: number): void {
      for (const pauseScope of new Set<PauseScope>(["everything", scope])) {
        const longPause = longPauses.get(pauseScope);
        // A request that left before the order proves nothing about the pause.
        if (longPause !== undefined && startedMs < longPause.sinceMs) continue;
        trialRequests.delete(pauseScope);
        if (!longPauses.delete(pauseScope)) continue;
        permitTrial(pauseScope, false);
        release(pauseScope);
        log.info({ scope: pauseScope }, "the service answers again before the end of the pause that it ordered");
      }
    },
    look(): void {
      const { heldUntilMs, buckets } = limiter.status();
      const nowMs = clock.now();
      if (heldUntilMs !== null) {
        if (!longPauses.has("everything")) notePauseOrder("everything", heldUntilMs - nowMs);
        return;
      }
      for (const { name, heldUntilMs: untilMs } of buckets) {
        const bucketScope = QUOTA_ENDPOINTS.find((endpoint) => endpoint === name) ?? "tags";
        if (untilMs !== null && !longPauses.has(bucketScope)) notePauseOrder(bucketScope, untilMs - nowMs);
      }
    },
    isOn: () => longPauses.size > 0,
    close: () => closeController.abort(),
  };
}

import type { Health } from "../../core/model/building.ts";
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
  readonly health: (signal: AbortSignal) => Promise<Health>;
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
  const waits = new Map<
    PauseScope,
    { readonly sinceMs: number; readonly untilMs: number; readonly healthyInARow: number }
  >();
  const trials = new Map<PauseScope, { readonly count: number; readonly notBeforeMs: number }>();
  const end = new AbortController();
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
    const everyMs = Math.min(TRIAL_INTERVAL.maxMs, TRIAL_INTERVAL.firstMs * 2 ** Math.max(0, count - 1));
    return { count, notBeforeMs: clock.monotonic() + everyMs };
  }

  function dropEndedWaits(): void {
    for (const [scope, { untilMs }] of waits) if (clock.monotonic() >= untilMs) waits.delete(scope);
  }

  async function watch(): Promise<void> {
    let healthy = 0;
    for (dropEndedWaits(); waits.size > 0; dropEndedWaits()) {
      await clock.sleep(HEALTH_CHECK_INTERVAL_MS, end.signal);
      healthy = (await health(end.signal)).status === "healthy" ? healthy + 1 : 0;
      dropEndedWaits();
      for (const [scope, { healthyInARow }] of waits) {
        const { count, notBeforeMs } = trials.get(scope) ?? { count: 0, notBeforeMs: 0 };
        if (healthy === 0) permitTrial(scope, false);
        if (healthy < healthyInARow || clock.monotonic() < notBeforeMs) continue;
        trials.set(scope, nextTrial(count + 1));
        log.info({ scope, trial: count + 1 }, "the service is healthy and asks to wait: one trial request may leave");
        permitTrial(scope, true);
      }
    }
  }

  function start(): void {
    if (isWatching || end.signal.aborted) return;
    isWatching = true;
    watch()
      .catch((error: unknown) => {
        if (!end.signal.aborted) log.warn({ err: error }, "the health check was not asked during a pause");
      })
      .finally(() => (isWatching = false));
  }

  /** `isStated`: true if the service said how long to wait. */
  function ordered(scope: PauseScope, forMs: number, isStated = true): void {
    const tried = trials.get(scope);
    if (tried !== undefined) trials.set(scope, nextTrial(tried.count));
    if (forMs <= USUAL_PAUSE_MAX_MS) return;
    const nowMs = clock.monotonic();
    const untilMs = Math.max(waits.get(scope)?.untilMs ?? 0, nowMs + forMs);
    waits.set(scope, { sinceMs: nowMs, untilMs, healthyInARow: isStated ? HEALTHY_CHECKS_IN_A_ROW : 1 });
    start();
  }

  return {
    ordered,
    answered(scope: PauseScope, startedMs: number): void {
      for (const each of new Set<PauseScope>(["everything", scope])) {
        const wait = waits.get(each);
        // A request that left before the order proves nothing about the pause.
        if (wait !== undefined && startedMs < wait.sinceMs) continue;
        trials.delete(each);
        if (!waits.delete(each)) continue;
        permitTrial(each, false);
        release(each);
        log.info({ scope: each }, "the service answers again before the end of the pause that it ordered");
      }
    },
    look(): void {
      const { heldUntilMs, buckets } = limiter.status();
      const nowMs = clock.now();
      if (heldUntilMs !== null) {
        if (!waits.has("everything")) ordered("everything", heldUntilMs - nowMs);
        return;
      }
      for (const { name, heldUntilMs: untilMs } of buckets) {
        const scope = QUOTA_ENDPOINTS.find((endpoint) => endpoint === name) ?? "tags";
        if (untilMs !== null && !waits.has(scope)) ordered(scope, untilMs - nowMs);
      }
    },
    isOn: () => waits.size > 0,
    close: () => end.abort(),
  };
}

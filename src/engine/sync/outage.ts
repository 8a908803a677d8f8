import { asFailure, ConfigError, errorText, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { MACHINE_RETRY_MS } from "../../core/errors/machine-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, rejectOnAbort, sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { Availability } from "./availability.ts";
import type { JobOutcome } from "./job.ts";
import { MAX_ORDERED_RETRY_MS } from "./retry-times.ts";
import type { StoredHealth } from "./snapshot.ts";
import type { TokenScope } from "./token-scope.ts";

/**
 * Outage of the complete service. All requests pause except one probe. When the service is back, `source-available` is
 * emitted first; then one pass reads and compares all alarms before it reports absences.
 */
export type Outage = ReturnType<typeof createOutage>;

export interface OutageOptions {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: () => number;
  readonly availability: Availability;
  readonly scope: Pick<TokenScope, "refresh" | "explain">;
  readonly noteHealth: (health: StoredHealth | null) => Promise<void>;
  /** Returns the pass that compares all alarms and emits `source-available`; null while alarms are not followed. */
  readonly reconcile: () => ((signal: AbortSignal) => Promise<JobOutcome>) | null;
  /** Returns a text that changes with the token, so that a new token is tried at once; null when unknown. */
  readonly tokenStamp: (() => Promise<string>) | null;
}

/** A rejected token is tried five times a minute apart, then every 8 minutes; a new token within 5 s. */
const REFUSED_TOKEN_PROBE_MS = 60_000;
const LATE_TOKEN_PROBE_MS = 480_000;
const FREQUENT_TOKEN_PROBES = 5;
const TOKEN_FILE_CHECK_MS = 5_000;
const HEALTH_CHECK_INTERVAL_MS = 60_000;
/** Least time between two `GET me` about failures: an endpoint that fails for ten minutes costs 10 requests, not 100. */
const MIN_ME_INTERVAL_MS = 60_000;
const UNREACHABLE_BACKOFF = { firstMs: 5_000, maxMs: 30_000 };
/** Time after an outage in which `GET me` begins another outage only if no job succeeds. */
const RELAPSE_MS = 600_000;
const RELAPSE_SILENCE_MS = 60_000;
const MAINTENANCE_PROBE_MS = 30_000;
const MAX_RECONCILE_PASSES = 3;

export function createOutage(options: OutageOptions) {
  const { source, clock, log, random, availability, scope, tokenStamp } = options;
  let outageCause: Failure | null = null;
  let probeAttempts = 0;
  let lastSuccessMs = Number.NEGATIVE_INFINITY;
  let suspectSinceMs: number | null = null;
  let endedMs = Number.NEGATIVE_INFINITY;
  let relapseUntilMs = Number.NEGATIVE_INFINITY;
  let healthAskedMs = Number.NEGATIVE_INFINITY;
  let meRequestedMs = Number.NEGATIVE_INFINITY;
  const outageChanged = createWakeup();
  const isOutage = () => outageCause !== null || availability.isDown();

  async function beginOutage(failure: Failure): Promise<void> {
    if (!isOutage()) {
      log.warn({ err: failure }, "the service is unavailable; polling pauses");
      await availability.down(describeCause(failure));
    }
    outageCause = failure;
    outageChanged.wakeUp();
  }

  async function waitUntil(holds: () => boolean, signal: AbortSignal): Promise<void> {
    while (!holds()) await rejectOnAbort(outageChanged.nextWakeup(signal), signal);
  }

  async function requestHealth(signal: AbortSignal): Promise<void> {
    if (clock.monotonic() - healthAskedMs < HEALTH_CHECK_INTERVAL_MS) return;
    healthAskedMs = clock.monotonic();
    try {
      const { status, time } = await source.health(signal);
      await options.noteHealth({ status, time, askedAt: isoUtc(clock.now()) });
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "the health check could not be asked");
    }
  }

  const wasMeRequestedLately = () => clock.monotonic() - meRequestedMs < MIN_ME_INTERVAL_MS;

  async function requestMe(signal: AbortSignal): Promise<Failure | null> {
    meRequestedMs = clock.monotonic();
    return catchFailure(scope.refresh(signal), signal);
  }

  async function explainRejection(failure: ConfigError, signal: AbortSignal): Promise<Failure | null> {
    if (failure.reason === "unauthenticated") return failure;
    if (failure.reason !== "forbidden" && failure.reason !== "validation")
      return wasMeRequestedLately() ? null : requestMe(signal);
    return catchFailure(scope.explain({ siteIds: [], ability: null, atMs: clock.monotonic() }, signal), signal);
  }

  async function waitForProbe(signal: AbortSignal): Promise<void> {
    // The last probe failed before it was sent, so it does not count as an attempt.
    if (outageCause instanceof LocalFailure) return clock.sleep(MACHINE_RETRY_MS, signal);
    probeAttempts += 1;
    if (!(outageCause instanceof ConfigError)) {
      const orderedMs = outageCause instanceof Throttled ? (outageCause.retryAfterMs ?? MAINTENANCE_PROBE_MS) : null;
      const probeMs = orderedMs ?? backoffMs(UNREACHABLE_BACKOFF, probeAttempts, random);
      return clock.sleep(Math.min(probeMs, MAX_ORDERED_RETRY_MS), signal);
    }
    const tokenBefore = await tokenStamp?.();
    const waitMs = probeAttempts <= FREQUENT_TOKEN_PROBES ? REFUSED_TOKEN_PROBE_MS : LATE_TOKEN_PROBE_MS;
    const untilMs = clock.monotonic() + waitMs;
    while (clock.monotonic() < untilMs) {
      await clock.sleep(tokenStamp === null ? waitMs : TOKEN_FILE_CHECK_MS, signal);
      if ((await tokenStamp?.()) !== tokenBefore) return;
    }
  }

  /** Probes the service. While the probe waits as long as the service ordered, health checks run. */
  async function probeNotingHealth(signal: AbortSignal): Promise<Failure | null> {
    if (!(outageCause instanceof Throttled)) return probeService(signal);
    const probeEnded = new AbortController();
    const healthChecks = (async () => {
      while (await sleepFor(clock, HEALTH_CHECK_INTERVAL_MS, probeEnded.signal, signal)) await requestHealth(signal);
    })().catch(() => undefined);
    try {
      return await probeService(signal);
    } finally {
      probeEnded.abort(WAIT_ENDED_EARLY);
      await healthChecks;
    }
  }

  /** Probes the service; returns null when it is back and `source-available` was emitted. */
  async function probeService(signal: AbortSignal): Promise<Failure | null> {
    const reconcile = options.reconcile();
    if ((outageCause instanceof ConfigError && outageCause.reason === "unauthenticated") || reconcile === null) {
      const meFailure = await requestMe(signal);
      if (meFailure !== null) return meFailure;
    }
    try {
      for (let passCount = 0; reconcile !== null && passCount < MAX_RECONCILE_PASSES; passCount += 1)
        if ((await reconcile(signal)).kind === "ok") break;
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      // Pages may have been emitted after `source-available`: a temporary failure begins no new outage.
      const isServiceAway = availability.isDown() || failure instanceof ConfigError || failure instanceof Throttled;
      if (!isAvailableService(failure) && isServiceAway) {
        await availability.down(describeCause(failure));
        return failure;
      }
    }
    await availability.up();
    return null;
  }

  return {
    isOn: isOutage,
    over: (signal: AbortSignal) => waitUntil(() => !isOutage(), signal),
    begun: (signal: AbortSignal) => waitUntil(isOutage, signal),
    noteSuccess(): void {
      lastSuccessMs = clock.monotonic();
      suspectSinceMs = null;
    },
    /** Returns true when a failed job means an outage. `isMeJob`: the job itself requests `GET me`. */
    async judge(
      failure: Failure,
      { isRepeat, isMeJob }: { readonly isRepeat: boolean; readonly isMeJob: boolean },
      signal: AbortSignal,
    ): Promise<boolean> {
      if (isOutage()) return true;
      if (failure instanceof LocalFailure) return false;
      if (failure instanceof ConfigError) {
        // A wrong address answers 404 to every job. A 404 to `GET me` alone may come from the right service.
        if (isMeJob && failure.reason === "settings") return false;
        const rootCause = await explainRejection(failure, signal);
        if (rootCause instanceof ConfigError && !isAvailableService(rootCause)) await beginOutage(rootCause);
        return isOutage();
      }
      if (failure instanceof Throttled) {
        if (failure.scope === "everything") await beginOutage(failure);
        return isOutage();
      }
      suspectSinceMs ??= clock.monotonic();
      if (!isRepeat || lastSuccessMs > suspectSinceMs) return false;
      const nowMs = clock.monotonic();
      if (nowMs < relapseUntilMs && nowMs - Math.max(lastSuccessMs, endedMs) < RELAPSE_SILENCE_MS) {
        relapseUntilMs = nowMs + RELAPSE_MS;
        return false;
      }
      if (wasMeRequestedLately()) return false;
      const meFailure = await requestMe(signal);
      if (meFailure instanceof LocalFailure) return false;
      if (meFailure === null || isAvailableService(meFailure)) suspectSinceMs = null;
      else await beginOutage(meFailure);
      return isOutage();
    },
    /** Probes during an outage until the service is back. Runs in parallel to everything else. */
    async watch(signal: AbortSignal): Promise<void> {
      for (;;) {
        await waitUntil(isOutage, signal);
        probeAttempts = 0;
        while (isOutage()) {
          // After a restart during an outage the cause is unknown: probe at once.
          if (outageCause !== null) {
            if (!(outageCause instanceof ConfigError)) await requestHealth(signal);
            await waitForProbe(signal);
          }
          const causeBefore = outageCause;
          try {
            outageCause = await probeNotingHealth(signal);
          } catch (error) {
            signal.throwIfAborted();
            outageCause = asFailure(error);
            log.error({ err: error }, "the end of an outage could not be recorded");
          }
          // Attempts during an unavailable service do not count for a rejected token, and vice versa.
          if (causeBefore instanceof ConfigError !== outageCause instanceof ConfigError) probeAttempts = 0;
        }
        log.info("the service is back");
        endedMs = clock.monotonic();
        relapseUntilMs = endedMs + RELAPSE_MS;
        suspectSinceMs = null;
        if (Number.isFinite(healthAskedMs)) await options.noteHealth(null);
        healthAskedMs = Number.NEGATIVE_INFINITY;
        outageChanged.wakeUp();
      }
    },
  };
}

async function catchFailure(work: Promise<unknown>, signal: AbortSignal): Promise<Failure | null> {
  try {
    await work;
    return null;
  } catch (error) {
    signal.throwIfAborted();
    return asFailure(error);
  }
}

/** True for a failure that proves an available service: a 403 or a rate limit. */
function isAvailableService(failure: Failure): boolean {
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError && failure.reason === "forbidden";
}

function describeCause(failure: Failure): string {
  if (failure instanceof ConfigError) return `${failure.reason}: ${errorText(failure)}`;
  const causeWithoutStatus = failure.kind === "malformed" ? "unusable-answers" : "unreachable";
  return `${failure instanceof Throttled ? "maintenance" : causeWithoutStatus}: ${errorText(failure)}`;
}

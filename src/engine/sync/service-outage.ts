import { asFailure, ConfigError, errorText, type Failure, LocalFailure, Throttled } from "../../core/errors/errors.ts";
import { MACHINE_RETRY_MS } from "../../core/errors/local-machine-failure.ts";
import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, rejectOnAbort, sleepFor, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import type { JobOutcome } from "./job.ts";
import { MAX_RETRY_AFTER_MS } from "./retry-times.ts";
import type { ServiceAvailability } from "./service-availability.ts";
import type { StoredServiceHealth } from "./stored-documents.ts";
import type { TokenScope } from "./token-scope.ts";

/**
 * Outage of the complete service. All requests pause except one test request (probe). When the service is back, Plenum
 * emits `source-available` first. Then one poll reads and compares all alarms before it reports absences.
 */
export type ServiceOutage = ReturnType<typeof createServiceOutage>;

/** After a rejected token, Plenum sends five probes a minute apart, then every 8 minutes; 5 s after a new token. */
const REFUSED_TOKEN_PROBE_MS = 60_000;
const LATE_TOKEN_PROBE_MS = 480_000;
const FREQUENT_TOKEN_PROBES = 5;
const TOKEN_FILE_CHECK_MS = 5_000;
const HEALTH_CHECK_INTERVAL_MS = 60_000;
/** Minimum time between two `GET me` requests after failures: ten minutes of failures cost 10 requests, not 100. */
const MIN_GET_ME_INTERVAL_MS = 60_000;
const UNREACHABLE_SERVICE_BACKOFF = { firstMs: 5_000, maxMs: 30_000 };
/** For this time after an outage, failures begin another outage only after a minute without a successful job. */
const RELAPSE_PERIOD_MS = 600_000;
const RELAPSE_WITHOUT_SUCCESS_MS = 60_000;
const MAINTENANCE_PROBE_MS = 30_000;
const MAX_ALARM_RECONCILE_ATTEMPTS = 3;

export function createServiceOutage(options: {
  readonly source: Source;
  readonly clock: Clock;
  readonly log: Log;
  readonly random: () => number;
  readonly availability: ServiceAvailability;
  readonly scope: Pick<TokenScope, "refresh" | "explain">;
  readonly noteHealth: (health: StoredServiceHealth | null) => Promise<void>;
  /** Returns the poll that compares all alarms and emits `source-available`; null if alarms are not polled. */
  readonly alarmReconciler: () => ((signal: AbortSignal) => Promise<JobOutcome>) | null;
  /** Returns a text that changes with the token, so that a new token is tried at once; null when unknown. */
  readonly tokenStamp: (() => Promise<string>) | null;
}) {
  const { source, clock, log, random, availability, scope, tokenStamp } = options;
  let outageCause: Failure | null = null;
  let probeAttempts = 0;
  let lastJobSuccessMs = Number.NEGATIVE_INFINITY;
  let outageSuspectedSinceMs: number | null = null;
  let outageEndedMs = Number.NEGATIVE_INFINITY;
  let relapseUntilMs = Number.NEGATIVE_INFINITY;
  let healthRequestedMs = Number.NEGATIVE_INFINITY;
  let getMeRequestedMs = Number.NEGATIVE_INFINITY;
  const outageChanged = createWakeup();
  const isOutageOn = () => outageCause !== null || availability.isDown();

  async function beginOutage(failure: Failure): Promise<void> {
    if (!isOutageOn()) {
      log.warn({ err: failure }, "the service is unavailable; polling pauses");
      await availability.serviceDown(describeOutageCause(failure));
    }
    outageCause = failure;
    outageChanged.wakeUp();
  }

  async function waitForOutageState(isStateReached: () => boolean, signal: AbortSignal): Promise<void> {
    while (!isStateReached()) await rejectOnAbort(outageChanged.nextWakeup(signal), signal);
  }

  async function requestHealth(signal: AbortSignal): Promise<void> {
    if (clock.monotonic() - healthRequestedMs < HEALTH_CHECK_INTERVAL_MS) return;
    healthRequestedMs = clock.monotonic();
    try {
      const { status, time } = await source.health(signal);
      await options.noteHealth({ status, time, askedAt: isoUtc(clock.now()) });
    } catch (error) {
      signal.throwIfAborted();
      log.debug({ err: error }, "the health check could not be asked");
    }
  }

  const wasGetMeRequestedLately = () => clock.monotonic() - getMeRequestedMs < MIN_GET_ME_INTERVAL_MS;

  async function requestTokenScope(signal: AbortSignal): Promise<Failure | null> {
    getMeRequestedMs = clock.monotonic();
    return catchFailure(scope.refresh(signal), signal);
  }

  async function explainServiceRejection(failure: ConfigError, signal: AbortSignal): Promise<Failure | null> {
    if (failure.reason === "unauthenticated") return failure;
    if (failure.reason !== "forbidden" && failure.reason !== "validation")
      return wasGetMeRequestedLately() ? null : requestTokenScope(signal);
    return catchFailure(scope.explain({ siteIds: [], ability: null, atMs: clock.monotonic() }, signal), signal);
  }

  async function waitForProbe(signal: AbortSignal): Promise<void> {
    // The last probe failed before it was sent, so it does not count as an attempt.
    if (outageCause instanceof LocalFailure) return clock.sleep(MACHINE_RETRY_MS, signal);
    probeAttempts += 1;
    if (!(outageCause instanceof ConfigError)) {
      const retryMs = outageCause instanceof Throttled ? (outageCause.retryAfterMs ?? MAINTENANCE_PROBE_MS) : null;
      const probeWaitMs = retryMs ?? backoffMs(UNREACHABLE_SERVICE_BACKOFF, probeAttempts, random);
      return clock.sleep(Math.min(probeWaitMs, MAX_RETRY_AFTER_MS), signal);
    }
    const tokenStampBefore = await tokenStamp?.();
    const tokenProbeWaitMs = probeAttempts <= FREQUENT_TOKEN_PROBES ? REFUSED_TOKEN_PROBE_MS : LATE_TOKEN_PROBE_MS;
    const tokenProbeDueMs = clock.monotonic() + tokenProbeWaitMs;
    while (clock.monotonic() < tokenProbeDueMs) {
      await clock.sleep(tokenStamp === null ? tokenProbeWaitMs : TOKEN_FILE_CHECK_MS, signal);
      if ((await tokenStamp?.()) !== tokenStampBefore) return;
    }
  }

  /** Probes the service. While the probe waits for a pause ordered by the service, health checks run. */
  async function probeWithHealthChecks(signal: AbortSignal): Promise<Failure | null> {
    if (!(outageCause instanceof Throttled)) return probeService(signal);
    const probeAbort = new AbortController();
    const healthCheckLoop = (async () => {
      while (await sleepFor(clock, HEALTH_CHECK_INTERVAL_MS, probeAbort.signal, signal)) await requestHealth(signal);
    })().catch(() => undefined);
    try {
      return await probeService(signal);
    } finally {
      probeAbort.abort(WAIT_ENDED_EARLY);
      await healthCheckLoop;
    }
  }

  async function probeService(signal: AbortSignal): Promise<Failure | null> {
    const reconcileAlarms = options.alarmReconciler();
    if ((outageCause instanceof ConfigError && outageCause.reason === "unauthenticated") || reconcileAlarms === null) {
      const getMeFailure = await requestTokenScope(signal);
      if (getMeFailure !== null) return getMeFailure;
    }
    try {
      for (let passCount = 0; reconcileAlarms !== null && passCount < MAX_ALARM_RECONCILE_ATTEMPTS; passCount += 1)
        if ((await reconcileAlarms(signal)).kind === "ok") break;
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      // Alarms of some pages may have been emitted after `source-available`: a temporary failure begins no new outage.
      const isServiceDown = availability.isDown() || failure instanceof ConfigError || failure instanceof Throttled;
      if (!provesAvailableService(failure) && isServiceDown) {
        await availability.serviceDown(describeOutageCause(failure));
        return failure;
      }
    }
    await availability.serviceUp();
    return null;
  }

  return {
    isOn: isOutageOn,
    over: (signal: AbortSignal) => waitForOutageState(() => !isOutageOn(), signal),
    begun: (signal: AbortSignal) => waitForOutageState(isOutageOn, signal),
    noteJobSuccess(): void {
      lastJobSuccessMs = clock.monotonic();
      outageSuspectedSinceMs = null;
    },
    /** Returns true when a failed job means an outage. `isMeJob`: the job itself requests `GET me`. */
    async detectOutage(
      failure: Failure,
      { isRepeat, isMeJob }: { readonly isRepeat: boolean; readonly isMeJob: boolean },
      signal: AbortSignal,
    ): Promise<boolean> {
      if (isOutageOn()) return true;
      if (failure instanceof LocalFailure) return false;
      if (failure instanceof ConfigError) {
        // A wrong address answers 404 to every job. A 404 to `GET me` alone may come from the right service.
        if (isMeJob && failure.reason === "settings") return false;
        const rootCause = await explainServiceRejection(failure, signal);
        if (rootCause instanceof ConfigError && !provesAvailableService(rootCause)) await beginOutage(rootCause);
        return isOutageOn();
      }
      if (failure instanceof Throttled) {
        if (failure.scope === "everything") await beginOutage(failure);
        return isOutageOn();
      }
      outageSuspectedSinceMs ??= clock.monotonic();
      if (!isRepeat || lastJobSuccessMs > outageSuspectedSinceMs) return false;
      const nowMs = clock.monotonic();
      if (nowMs < relapseUntilMs && nowMs - Math.max(lastJobSuccessMs, outageEndedMs) < RELAPSE_WITHOUT_SUCCESS_MS) {
        relapseUntilMs = nowMs + RELAPSE_PERIOD_MS;
        return false;
      }
      if (wasGetMeRequestedLately()) return false;
      const getMeFailure = await requestTokenScope(signal);
      if (getMeFailure instanceof LocalFailure) return false;
      if (getMeFailure === null || provesAvailableService(getMeFailure)) outageSuspectedSinceMs = null;
      else await beginOutage(getMeFailure);
      return isOutageOn();
    },
    /** Probes during an outage until the service is back. Runs in parallel to everything else. */
    async watchOutage(signal: AbortSignal): Promise<void> {
      for (;;) {
        await waitForOutageState(isOutageOn, signal);
        probeAttempts = 0;
        while (isOutageOn()) {
          if (outageCause !== null) {
            if (!(outageCause instanceof ConfigError)) await requestHealth(signal);
            await waitForProbe(signal);
          }
          const outageCauseBefore = outageCause;
          try {
            outageCause = await probeWithHealthChecks(signal);
          } catch (error) {
            signal.throwIfAborted();
            outageCause = asFailure(error);
            log.error({ err: error }, "the end of an outage could not be recorded");
          }
          // Probes of an unavailable service and probes of a rejected token are counted separately.
          if (outageCauseBefore instanceof ConfigError !== outageCause instanceof ConfigError) probeAttempts = 0;
        }
        log.info("the service is back");
        outageEndedMs = clock.monotonic();
        relapseUntilMs = outageEndedMs + RELAPSE_PERIOD_MS;
        outageSuspectedSinceMs = null;
        if (Number.isFinite(healthRequestedMs)) await options.noteHealth(null);
        healthRequestedMs = Number.NEGATIVE_INFINITY;
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
function provesAvailableService(failure: Failure): boolean {
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError && failure.reason === "forbidden";
}

function describeOutageCause(failure: Failure): string {
  if (failure instanceof ConfigError) return `${failure.reason}: ${errorText(failure)}`;
  const outageCauseName = failure.kind === "malformed" ? "unusable-answers" : "unreachable";
  return `${failure instanceof Throttled ? "maintenance" : outageCauseName}: ${errorText(failure)}`;
}

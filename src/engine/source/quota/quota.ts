import { addAbortListener } from "node:events";
import type { Clock } from "../../../core/runtime/clock.ts";
import { type ClockReader, readClocks, type TimeReading } from "../../../core/runtime/elapsed-time.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import type { QuotaStore } from "../../store/store.ts";
import { type OfferedSlot, QUOTA_ENDPOINTS, type QueueLane, type QuotaEndpoint, type QuotaStatus } from "../source.ts";
import { createRateLimiter, type QuotaShare, type RateLimiter } from "./rate-limiter.ts";
import type { OtherClientUse } from "./refusal-slowdown.ts";
import { createRequestStore, type QuotaPauseScope, type SpentRequestSlot } from "./sent-request-store.ts";

export interface QuotaLimiter {
  /** Runs a request in a slot of its lane. `onSlotOffered` returns null to use the slot, or the ms to decline slots. */
  run<T>(
    lane: QueueLane,
    endpoint: QuotaEndpoint,
    task: (slotTime: TimeReading) => Promise<T>,
    signal: AbortSignal,
    onSlotOffered?: (offer: OfferedSlot) => number | null,
  ): Promise<T>;
  pauseRequests(durationMs: number, scope: QuotaPauseScope): void;
  endPause(scope: QuotaPauseScope): void;
  /** Lets one trial request, never a write, leave while the service refuses requests to this endpoint. */
  permitTrial(endpoint: QuotaEndpoint, isPermitted: boolean): void;
  observeHeaders(
    endpoint: QuotaEndpoint,
    headers: { readonly limit: number | null; readonly remaining: number | null },
    sentMs: number,
  ): void;
  status(): QuotaStatus;
}

export interface QuotaOptions {
  readonly source: string;
  readonly clock: Clock;
  readonly store: QuotaStore;
  readonly perMinute?: number;
  readonly polite?: number;
  /** Slots that only writes may use, so that a command never waits behind polls. Each costs 1/20 of the quota. */
  readonly reserve?: number;
  /** False: one request count for all endpoints until replies of the service prove separate counts. */
  readonly separateEndpoints?: boolean;
  /** Largest number of simultaneous requests; each needs a connection of its own. */
  readonly concurrency?: number;
  /** Longest time that a request needs to reach the service. */
  readonly maxTransitMs?: number;
  readonly readClock?: ClockReader;
  readonly log?: Pick<Log, "warn">;
  readonly metrics?: Pick<Metrics, "quotaWaitSeconds" | "quotaSlots" | "quotaHeld">;
  readonly onOtherClient?: (use: OtherClientUse) => void;
}

export interface Quota extends QuotaLimiter {
  start(): Promise<void>;
  setShare(share: QuotaShare): void;
}

const QUOTA_WINDOW_MS = 60_000;
const CLOCK_DRIFT_SHARE_MAX = 200e-6;
const REQUESTS_PER_MINUTE_MAX = 20;
const QUOTA_PAUSE_MIN_MS = 1_000;
const LONG_AGO_MS = Number.NEGATIVE_INFINITY;

type EndpointGroups = readonly (readonly QuotaEndpoint[])[];
const SHARED_GROUPS: EndpointGroups = [QUOTA_ENDPOINTS];
const SEPARATE_GROUPS: EndpointGroups = QUOTA_ENDPOINTS.map((endpoint) => [endpoint]);

export function createQuota(options: QuotaOptions): Quota {
  const { clock, source, metrics, log, separateEndpoints = false, maxTransitMs = 3_000 } = options;
  let quotaShare = limitQuota(options);
  const slotOccupiedMs = QUOTA_WINDOW_MS * (1 + CLOCK_DRIFT_SHARE_MAX);
  const requestStore = createRequestStore({
    store: options.store,
    source,
    clock,
    slotOccupiedMs,
    maxTransitMs,
    readClock: options.readClock ?? (() => readClocks(clock)),
  });
  const quotaSharingEvidence = createQuotaSharingEvidence();
  const rateLimiters = new Map<QuotaEndpoint, RateLimiter>();
  let maySplitQuota = !separateEndpoints;
  let startPromise: Promise<void> | undefined;
  let allPausedUntilMs = LONG_AGO_MS;
  let countUncertainUntilMs = LONG_AGO_MS;

  function getRateLimiter(endpoint: QuotaEndpoint): RateLimiter {
    const limiter = rateLimiters.get(endpoint);
    if (limiter === undefined) throw new Error("The quota has not been started.");
    return limiter;
  }
  const allRateLimiters = () => [...new Set(rateLimiters.values())];

  function quotaShareOf(endpoints: readonly QuotaEndpoint[]): QuotaShare {
    return { ...quotaShare, reserve: endpoints.includes("write") ? quotaShare.reserve : 0 };
  }

  function regroupEndpoints(
    groups: EndpointGroups,
    slots: readonly SpentRequestSlot[],
    refusedUntilMsOf: (group: EndpointGroups[number]) => number,
    closedUntilMs: number,
  ): void {
    const oldRateLimiters = allRateLimiters();
    const throttledRequestCount = oldRateLimiters.reduce((sum, limiter) => sum + limiter.status().throttled, 0);
    for (const endpoints of groups) {
      const limiter = createRateLimiter({
        clock,
        requestStore,
        slotOccupiedMs,
        closedUntilMs,
        countUncertainUntilMs,
        ...quotaShareOf(endpoints),
        name: groups.length === 1 ? "tags" : endpoints.join("+"),
        concurrency: options.concurrency ?? 8,
        initialSlots: slots.filter((slot) => endpoints.includes(slot.endpoint)),
        refusedUntilMs: refusedUntilMsOf(endpoints),
        throttledCount: groups.length === 1 ? throttledRequestCount : 0,
        onSlotTaken({ lane, requestedMs }) {
          metrics?.quotaSlots.inc({ source, lane });
          metrics?.quotaWaitSeconds.observe({ source, lane }, (clock.monotonic() - requestedMs) / 1000);
        },
        onOtherClient: (use) => options.onOtherClient?.(use),
        onSlotSaveFailed: (error) => log?.warn({ source, err: error }, "quota slot not updated"),
      });
      for (const endpoint of endpoints) rateLimiters.set(endpoint, limiter);
    }
    for (const limiter of oldRateLimiters)
      for (const request of limiter.retire()) getRateLimiter(request.endpoint).enqueue(request);
  }

  async function loadSentRequests(): Promise<void> {
    const { slots, hasStoredSlots } = await requestStore.loadSlots();
    const storedPauses = await requestStore.loadPauses();
    const now = clock.monotonic();
    if (!hasStoredSlots) countUncertainUntilMs = now + slotOccupiedMs + maxTransitMs;
    allPausedUntilMs = Math.max(allPausedUntilMs, storedPauses.get("everything") ?? LONG_AGO_MS);
    const refusedUntilMsOf = (group: EndpointGroups[number]) =>
      Math.max(...group.map((endpoint) => storedPauses.get(endpoint) ?? now));
    const groups = separateEndpoints ? SEPARATE_GROUPS : SHARED_GROUPS;
    regroupEndpoints(groups, slots, refusedUntilMsOf, Math.max(allPausedUntilMs, now));
    reportQuotaPause();
  }

  async function startQuota(): Promise<void> {
    startPromise ??= loadSentRequests();
    try {
      await startPromise;
    } catch (error) {
      startPromise = undefined;
      throw error;
    }
  }

  function mergeRateLimiters(): void {
    const splitRateLimiters = allRateLimiters();
    if (splitRateLimiters.length === 1 || separateEndpoints) return;
    const refusedUntilMs = Math.max(...splitRateLimiters.map((limiter) => limiter.refusedUntilMs()));
    const closedUntilMs = Math.max(...splitRateLimiters.map((limiter) => limiter.closedUntilMs()));
    const slots = splitRateLimiters.flatMap((limiter) => limiter.slots());
    regroupEndpoints(SHARED_GROUPS, slots, () => refusedUntilMs, closedUntilMs);
  }

  function storeQuotaPause(scope: QuotaPauseScope, untilMs: number): void {
    requestStore.savePause(scope, untilMs).catch((error: unknown) => {
      log?.warn({ source, err: error }, "a pause that the service ordered was not stored");
    });
  }

  function reportQuotaPause(): void {
    const untilMs = Math.max(allPausedUntilMs, ...allRateLimiters().map((limiter) => limiter.refusedUntilMs()));
    const pauseLeftMs = untilMs - clock.monotonic();
    metrics?.quotaHeld.set({ source }, pauseLeftMs > 0 ? (clock.now() + pauseLeftMs) / 1000 : 0);
  }

  return {
    start: startQuota,
    async run(lane, endpoint, task, signal, onSlotOffered) {
      await startQuota();
      signal.throwIfAborted();
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      const request = {
        lane,
        endpoint,
        task,
        signal,
        onSlotOffered,
        requestedMs: clock.monotonic(),
        resolve,
        reject,
        hasDeclinedSlot: false,
      };
      using _abortListener = addAbortListener(signal, () => {
        getRateLimiter(endpoint).remove(request);
        reject(signal.reason);
      });
      getRateLimiter(endpoint).enqueue(request);
      return (await promise) as Awaited<ReturnType<typeof task>>;
    },
    pauseRequests(durationMs, scope) {
      const untilMs = clock.monotonic() + Math.max(QUOTA_PAUSE_MIN_MS, durationMs);
      if (scope === "everything") {
        allPausedUntilMs = Math.max(allPausedUntilMs, untilMs);
        for (const limiter of allRateLimiters()) limiter.pauseRequests(untilMs, false);
      } else {
        getRateLimiter(scope).pauseRequests(untilMs, true);
        mergeRateLimiters();
      }
      storeQuotaPause(scope, untilMs);
      reportQuotaPause();
    },
    endPause(scope) {
      if (scope === "everything") {
        allPausedUntilMs = LONG_AGO_MS;
        for (const limiter of allRateLimiters()) limiter.endPause(false);
        storeQuotaPause("everything", clock.monotonic());
      } else {
        const limiter = getRateLimiter(scope);
        limiter.endPause(true);
        for (const [endpoint, each] of rateLimiters) if (each === limiter) storeQuotaPause(endpoint, clock.monotonic());
      }
      reportQuotaPause();
    },
    permitTrial: (endpoint, isPermitted) => getRateLimiter(endpoint).permitTrialRequest(isPermitted),
    observeHeaders(endpoint, { limit, remaining }, sentMs) {
      // Ignore a limit above 20: its count includes requests to other endpoints.
      if (limit === null || remaining === null || limit < 1 || limit > REQUESTS_PER_MINUTE_MAX) return;
      const requestsCountedByService = limit - remaining;
      const limiter = getRateLimiter(endpoint);
      limiter.observeRequestCount(endpoint, requestsCountedByService, limit);
      if (!maySplitQuota || allRateLimiters().length > 1) return;
      if (!quotaSharingEvidence.areCountsSeparate(endpoint, requestsCountedByService, sentMs, clock.monotonic()))
        return;
      maySplitQuota = false;
      regroupEndpoints(SEPARATE_GROUPS, limiter.slots(), limiter.refusedUntilMs, limiter.closedUntilMs());
    },
    status() {
      const pauseLeftMs = allPausedUntilMs - clock.monotonic();
      const pausedUntilMs = pauseLeftMs > 0 ? clock.now() + pauseLeftMs : null;
      return { buckets: allRateLimiters().map((limiter) => limiter.status()), heldUntilMs: pausedUntilMs };
    },
    setShare(share) {
      quotaShare = limitQuota(share);
      for (const limiter of allRateLimiters())
        limiter.setShare(quotaShareOf(QUOTA_ENDPOINTS.filter((endpoint) => rateLimiters.get(endpoint) === limiter)));
    },
  };
}

function limitQuota({ perMinute = REQUESTS_PER_MINUTE_MAX, polite = 1, reserve = 0 }: Partial<QuotaShare>): QuotaShare {
  return { perMinute: Math.min(REQUESTS_PER_MINUTE_MAX, perMinute), polite, reserve };
}

/** Finds out from `X-RateLimit-Remaining` whether read, write and history share one count of requests. */
export function createQuotaSharingEvidence() {
  let lastCount: { endpoint: QuotaEndpoint; countedRequests: number; sentMs: number; atMs: number } | undefined;
  let previousCount: typeof lastCount;
  let proofCount = 0;
  return {
    /** `countedRequests`: the service's count in a reply. Returns true when endpoints have separate request counts. */
    areCountsSeparate(endpoint: QuotaEndpoint, countedRequests: number, sentMs: number, nowMs: number): boolean {
      const [first, middle] = [previousCount, lastCount];
      previousCount = lastCount;
      lastCount = { endpoint, countedRequests, sentMs, atMs: nowMs };
      if (first === undefined || middle === undefined || nowMs - first.atMs > SHARING_EVIDENCE_MAX_AGE_MS) return false;
      if (middle.sentMs < first.atMs || sentMs < middle.atMs) return false;
      if (first.endpoint !== endpoint || middle.endpoint === endpoint) return false;
      if (
        countedRequests === first.countedRequests + 1 &&
        Math.abs(middle.countedRequests - first.countedRequests) >= COUNT_DIFFERENCE_MIN
      )
        proofCount += 1;
      if (countedRequests === first.countedRequests + 2 && middle.countedRequests === first.countedRequests + 1)
        proofCount = 0;
      return proofCount >= QUOTA_SHARING_FINDINGS_MIN;
    },
  };
}

const QUOTA_SHARING_FINDINGS_MIN = 2;
const COUNT_DIFFERENCE_MIN = 3;
const SHARING_EVIDENCE_MAX_AGE_MS = 45_000;

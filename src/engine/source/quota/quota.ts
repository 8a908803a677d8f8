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
  /** Runs a request in a slot of its lane. `choose` returns null to take the slot, or a time to let slots pass. */
  run<T>(
    lane: QueueLane,
    endpoint: QuotaEndpoint,
    task: (since: TimeReading) => Promise<T>,
    signal: AbortSignal,
    choose?: (offer: OfferedSlot) => number | null,
  ): Promise<T>;
  pause(forMs: number, scope: "allowance" | "everything", endpoint?: QuotaEndpoint): void;
  release(of: QuotaEndpoint | "everything"): void;
  /** Lets one trial request, never a write, leave while the service refuses requests to this endpoint. */
  permitTrial(endpoint: QuotaEndpoint, isPermitted: boolean): void;
  observe(
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
  /** `auto`: one request count for all endpoints until replies of the service prove separate counts. */
  readonly sharing?: "shared" | "separate" | "auto";
  /** Largest number of simultaneous requests; each needs a connection of its own. */
  readonly concurrency?: number;
  readonly longestWayMs?: number;
  /** If no slots are stored, `pace` sends fewer requests for one minute, `wait` sends none. */
  readonly withoutRecord?: "pace" | "wait";
  readonly mark?: ClockReader;
  readonly log?: Pick<Log, "warn">;
  readonly metrics?: Pick<Metrics, "quotaWaitSeconds" | "quotaSlots" | "quotaHeld">;
  readonly onForeign?: (use: OtherClientUse) => void;
}

export interface Quota extends QuotaLimiter {
  start(): Promise<void>;
  foreign(): OtherClientUse | null;
  change(share: QuotaShare): void;
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
  const { clock, source, metrics, log, sharing = "auto", longestWayMs = 3_000 } = options;
  let quotaShare = limitQuota(options);
  const occupiedMs = QUOTA_WINDOW_MS * (1 + CLOCK_DRIFT_SHARE_MAX);
  const mark = options.mark ?? (() => readClocks(clock));
  const requestStore = createRequestStore({ store: options.store, source, clock, occupiedMs, longestWayMs, mark });
  const quotaSharingEvidence = createQuotaSharingEvidence();
  const rateLimiters = new Map<QuotaEndpoint, RateLimiter>();
  let maySplitQuota = sharing === "auto";
  let startPromise: Promise<void> | undefined;
  let allPausedUntilMs = LONG_AGO_MS;
  let uncertainUntilMs = LONG_AGO_MS;

  function getRateLimiter(endpoint: QuotaEndpoint): RateLimiter {
    const limiter = rateLimiters.get(endpoint);
    if (limiter === undefined) throw new Error("The quota has not been started.");
    return limiter;
  }
  const allRateLimiters = () => [...new Set(rateLimiters.values())];

  function shareOf(endpoints: readonly QuotaEndpoint[]): QuotaShare {
    return { ...quotaShare, reserve: endpoints.includes("write") ? quotaShare.reserve : 0 };
  }

  function regroupEndpoints(
    groups: EndpointGroups,
    slots: readonly SpentRequestSlot[],
    refusedUntil: (group: EndpointGroups[number]) => number,
    closedUntilMs: number,
  ): void {
    const oldRateLimiters = allRateLimiters();
    const throttledRequestCount = oldRateLimiters.reduce((sum, limiter) => sum + limiter.status().throttled, 0);
    for (const endpoints of groups) {
      const limiter = createRateLimiter({
        ...{ clock, record: requestStore, occupiedMs, closedUntilMs, uncertainUntilMs, ...shareOf(endpoints) },
        name: groups.length === 1 ? "tags" : endpoints.join("+"),
        concurrency: options.concurrency ?? 8,
        inherited: slots.filter((slot) => endpoints.includes(slot.endpoint)),
        refusedUntilMs: refusedUntil(endpoints),
        throttled: groups.length === 1 ? throttledRequestCount : 0,
        onSlot({ lane, requestedMs }) {
          metrics?.quotaSlots.inc({ source, lane });
          metrics?.quotaWaitSeconds.observe({ source, lane }, (clock.monotonic() - requestedMs) / 1000);
        },
        onForeign: (use) => options.onForeign?.(use),
        onUnsaved: (error) => log?.warn({ source, err: error }, "quota slot not updated"),
      });
      for (const endpoint of endpoints) rateLimiters.set(endpoint, limiter);
    }
    for (const limiter of oldRateLimiters)
      for (const request of limiter.retire()) getRateLimiter(request.endpoint).enqueue(request);
  }

  async function loadSentRequests(): Promise<void> {
    const { slots, found } = await requestStore.load();
    const storedPauses = await requestStore.loadPauses();
    const now = clock.monotonic();
    const allFreeAtMs = now + occupiedMs + longestWayMs;
    if (!found) uncertainUntilMs = allFreeAtMs;
    allPausedUntilMs = Math.max(allPausedUntilMs, storedPauses.get("everything") ?? LONG_AGO_MS);
    const closedUntilMs = Math.max(allPausedUntilMs, !found && options.withoutRecord === "wait" ? allFreeAtMs : now);
    const refusedUntil = (group: EndpointGroups[number]) =>
      Math.max(...group.map((endpoint) => storedPauses.get(endpoint) ?? now));
    regroupEndpoints(sharing === "separate" ? SEPARATE_GROUPS : SHARED_GROUPS, slots, refusedUntil, closedUntilMs);
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
    if (splitRateLimiters.length === 1 || sharing !== "auto") return;
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
    async run<T>(
      lane: QueueLane,
      endpoint: QuotaEndpoint,
      task: (slotTaken: TimeReading) => Promise<T>,
      signal: AbortSignal,
      choose?: (offer: OfferedSlot) => number | null,
    ) {
      await startQuota();
      signal.throwIfAborted();
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      const requestedMs = clock.monotonic();
      const request = { lane, endpoint, task, signal, choose, requestedMs, resolve, reject, hasPassed: false };
      const cancelRequest = () => {
        getRateLimiter(endpoint).remove(request);
        reject(signal.reason);
      };
      signal.addEventListener("abort", cancelRequest, { once: true });
      try {
        getRateLimiter(endpoint).enqueue(request);
        return (await promise) as T;
      } finally {
        signal.removeEventListener("abort", cancelRequest);
      }
    },
    pause(forMs, scope, endpoint) {
      const untilMs = clock.monotonic() + Math.max(QUOTA_PAUSE_MIN_MS, forMs);
      const pauseScope = scope === "everything" || endpoint === undefined ? "everything" : endpoint;
      if (scope === "everything") allPausedUntilMs = Math.max(allPausedUntilMs, untilMs);
      for (const limiter of pauseScope === "everything" ? allRateLimiters() : [getRateLimiter(pauseScope)])
        limiter.pause(untilMs, scope === "allowance");
      storeQuotaPause(pauseScope, untilMs);
      if (scope === "allowance") mergeRateLimiters();
      reportQuotaPause();
    },
    release(scope) {
      if (scope === "everything") {
        allPausedUntilMs = LONG_AGO_MS;
        for (const limiter of allRateLimiters()) limiter.release(false);
        storeQuotaPause("everything", clock.monotonic());
      } else {
        const limiter = getRateLimiter(scope);
        limiter.release(true);
        for (const [endpoint, each] of rateLimiters) if (each === limiter) storeQuotaPause(endpoint, clock.monotonic());
      }
      reportQuotaPause();
    },
    permitTrial: (endpoint, isPermitted) => getRateLimiter(endpoint).permitTrial(isPermitted),
    observe(endpoint, { limit, remaining }, sentMs) {
      // A limit above 20 also counts requests to other endpoints.
      if (limit === null || remaining === null || limit < 1 || limit > REQUESTS_PER_MINUTE_MAX) return;
      const requestsCountedByService = limit - remaining;
      const limiter = getRateLimiter(endpoint);
      limiter.observe(endpoint, requestsCountedByService, limit);
      if (!maySplitQuota || allRateLimiters().length > 1) return;
      if (!quotaSharingEvidence.separate(endpoint, requestsCountedByService, sentMs, clock.monotonic())) return;
      maySplitQuota = false;
      regroupEndpoints(SEPARATE_GROUPS, limiter.slots(), limiter.refusedUntilMs, limiter.closedUntilMs());
    },
    status() {
      const pauseLeftMs = allPausedUntilMs - clock.monotonic();
      const pausedUntilMs = pauseLeftMs > 0 ? clock.now() + pauseLeftMs : null;
      return { buckets: allRateLimiters().map((limiter) => limiter.status()), heldUntilMs: pausedUntilMs };
    },
    foreign: () => allRateLimiters().flatMap((limiter) => limiter.status().foreign ?? [])[0] ?? null,
    change(next) {
      quotaShare = limitQuota(next);
      for (const limiter of allRateLimiters())
        limiter.change(shareOf(QUOTA_ENDPOINTS.filter((endpoint) => rateLimiters.get(endpoint) === limiter)));
    },
  };
}

function limitQuota({ perMinute = REQUESTS_PER_MINUTE_MAX, polite = 1, reserve = 0 }: Partial<QuotaShare>): QuotaShare {
  return { perMinute: Math.min(REQUESTS_PER_MINUTE_MAX, perMinute), polite, reserve };
}

/** Finds out from `X-RateLimit-Remaining` whether read, write and history share one count of requests. */
export function createQuotaSharingEvidence() {
  let lastCount: { endpoint: QuotaEndpoint; taken: number; sentMs: number; at: number } | undefined;
  let previousCount: typeof lastCount;
  let findingCount = 0;
  return {
    /** `taken`: requests that the service counted. Returns true when endpoints have separate request counts. */
    separate(endpoint: QuotaEndpoint, taken: number, sentMs: number, now: number): boolean {
      const [first, middle] = [previousCount, lastCount];
      previousCount = lastCount;
      lastCount = { endpoint, taken, sentMs, at: now };
      if (first === undefined || middle === undefined || now - first.at > SHARING_EVIDENCE_MAX_AGE_MS) return false;
      if (middle.sentMs < first.at || sentMs < middle.at) return false;
      if (first.endpoint !== endpoint || middle.endpoint === endpoint) return false;
      if (taken === first.taken + 1 && Math.abs(middle.taken - first.taken) >= COUNT_DIFFERENCE_MIN) findingCount += 1;
      if (taken === first.taken + 2 && middle.taken === first.taken + 1) findingCount = 0;
      return findingCount >= QUOTA_SHARING_FINDINGS_MIN;
    },
  };
}

const QUOTA_SHARING_FINDINGS_MIN = 2;
const COUNT_DIFFERENCE_MIN = 3;
const SHARING_EVIDENCE_MAX_AGE_MS = 45_000;

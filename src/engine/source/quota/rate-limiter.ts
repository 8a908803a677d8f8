import PQueue from "p-queue";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { TimeReading } from "../../../core/runtime/elapsed-time.ts";
import { WAIT_ENDED_EARLY } from "../../../core/runtime/waiting.ts";
import { LANES, type OfferedSlot, type QueueLane, type QuotaEndpoint, type RateLimitStatus } from "../source.ts";
import { createOtherClientWatch, createRefusalSlowdown, type OtherClientUse } from "./refusal-slowdown.ts";
import { createSpentRequestSlots, type RequestStore, type SpentRequestSlot } from "./sent-request-store.ts";

interface QuotaRequest {
  readonly lane: QueueLane;
  readonly endpoint: QuotaEndpoint;
  readonly task: (slotTime: TimeReading) => Promise<unknown>;
  readonly signal: AbortSignal;
  readonly onSlotOffered: ((offer: OfferedSlot) => number | null) | undefined;
  readonly requestedMs: number;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: unknown) => void;
  hasDeclinedSlot: boolean;
}

const LANE_SKIPS_MAX = 9;
const LAST_LANE = LANES.at(-1);
const SLOT_RECHECK_MIN_MS = 50;

function createRequestQueues() {
  const waitingRequestsByLane = new Map(LANES.map((lane) => [lane, new Set<QuotaRequest>()]));
  const laneSkips = new Map<QueueLane, number>();
  const laneRequests = (lane: QueueLane) => waitingRequestsByLane.get(lane) as Set<QuotaRequest>;
  const countQueued = (lane: QueueLane) =>
    [...laneRequests(lane)].filter(({ hasDeclinedSlot: hasDeclined }) => !hasDeclined).length;

  function takeRequest(lane: QueueLane, isLaneOverdue: boolean, nowMs: number) {
    let nextRecheckMs = Number.POSITIVE_INFINITY;
    for (const request of laneRequests(lane)) {
      if (request.signal.aborted) continue;
      try {
        const slotNotNeededForMs = request.onSlotOffered?.({ isLaneOverdue }) ?? null;
        if (slotNotNeededForMs !== null) {
          request.hasDeclinedSlot = true;
          nextRecheckMs = Math.min(nextRecheckMs, nowMs + Math.max(SLOT_RECHECK_MIN_MS, slotNotNeededForMs));
          continue;
        }
        laneRequests(lane).delete(request);
        return { request, recheckAtMs: nextRecheckMs };
      } catch (error) {
        laneRequests(lane).delete(request);
        request.reject(error);
      }
    }
    return { request: null, recheckAtMs: nextRecheckMs };
  }

  return {
    add: (request: QuotaRequest) => laneRequests(request.lane).add(request),
    remove: (request: QuotaRequest) => laneRequests(request.lane).delete(request),
    allRequests: () => [...waitingRequestsByLane.values()].flatMap((requests) => [...requests]),

    takeNextRequest(nowMs: number, laneReadyAtMs: (lane: QueueLane, isOverdue: boolean) => number) {
      const overdueLanes = LANES.filter((lane) => (laneSkips.get(lane) ?? 0) >= LANE_SKIPS_MAX);
      let nextRecheckMs = Number.POSITIVE_INFINITY;
      for (const [index, lane] of [...overdueLanes, ...LANES].entries()) {
        const isOverdue = index < overdueLanes.length;
        if (laneRequests(lane).size === 0) continue;
        const laneReadyMs = laneReadyAtMs(lane, isOverdue);
        const laneSearchResult =
          laneReadyMs > nowMs ? { request: null, recheckAtMs: laneReadyMs } : takeRequest(lane, isOverdue, nowMs);
        nextRecheckMs = Math.min(nextRecheckMs, laneSearchResult.recheckAtMs);
        if (laneSearchResult.request !== null) return { request: laneSearchResult.request, recheckAtMs: nextRecheckMs };
        if (laneReadyMs <= nowMs) laneSkips.set(lane, 0);
      }
      return { request: null, recheckAtMs: nextRecheckMs };
    },
    noteRequestTaken(lane: QueueLane): void {
      for (const otherLane of LANES) {
        if (otherLane === lane || otherLane === LAST_LANE || laneRequests(otherLane).size === 0)
          laneSkips.set(otherLane, 0);
        else if (LANES.indexOf(otherLane) > LANES.indexOf(lane))
          laneSkips.set(otherLane, (laneSkips.get(otherLane) ?? 0) + 1);
      }
    },
    queuedByLane: () => Object.fromEntries(LANES.map((lane) => [lane, countQueued(lane)])) as Record<QueueLane, number>,
  };
}

export interface QuotaShare {
  readonly perMinute: number;
  readonly reserve: number;
  readonly polite: number;
}

interface RateLimiterOptions extends QuotaShare {
  readonly name: string;
  readonly clock: Clock;
  readonly requestStore: RequestStore;
  readonly concurrency: number;
  readonly slotOccupiedMs: number;
  readonly initialSlots: readonly SpentRequestSlot[];
  readonly refusedUntilMs: number;
  readonly closedUntilMs: number;
  readonly throttledCount: number;
  /** Time until which the service may count requests that are not in the store. */
  readonly countUncertainUntilMs: number;
  onSlotTaken(request: QuotaRequest): void;
  onOtherClient(use: OtherClientUse): void;
  onSlotSaveFailed(error: unknown): void;
}

const URGENT_REQUEST_LANES: ReadonlySet<QueueLane> = new Set(["write", "on-demand"]);
const UNCERTAIN_QUOTA_RATE_SHARE = 0.8;

export type RateLimiter = ReturnType<typeof createRateLimiter>;

/** Limits the requests that the service counts together, and queues requests that wait for a slot. */
export function createRateLimiter(options: RateLimiterOptions) {
  const { clock, requestStore, slotOccupiedMs } = options;
  const requestQueues = createRequestQueues();
  const spentRequestSlots = createSpentRequestSlots(slotOccupiedMs, options.initialSlots);
  const otherClientWatch = createOtherClientWatch(slotOccupiedMs, options.onOtherClient);
  const statedLimitTracker = createStatedLimitTracker();
  const runningSlots = new Set<SpentRequestSlot>();
  let { perMinute: configuredPerMinute, polite, reserve, refusedUntilMs, closedUntilMs, throttledCount } = options;
  let limit = configuredPerMinute;
  let slowdown = createRefusalSlowdown(limit);
  let nextPacedSlotMs = clock.monotonic();
  let isTrialPermitted = false;
  const runningRequests = new PQueue({ concurrency: options.concurrency });
  runningRequests.addEventListener("next", startReadyRequests);
  let wakeAtMs = Number.POSITIVE_INFINITY;
  let wakeUpTimer: AbortController | undefined;
  let isRetired = false;
  const pausedUntilMs = () => Math.max(refusedUntilMs, closedUntilMs);

  function updateRequestLimit(nowMs: number): void {
    const newRequestLimit = Math.min(configuredPerMinute, statedLimitTracker.limitAt(nowMs));
    if (newRequestLimit === limit) return;
    limit = newRequestLimit;
    slowdown = createRefusalSlowdown(limit);
  }

  function currentRate(nowMs: number) {
    updateRequestLimit(nowMs);
    const { marginMs, perWindow, isSlowed: isThrottled, limitsSpacing: hasSpacing } = slowdown.currentLimits(nowMs);
    const isQuotaUncertain = nowMs < options.countUncertainUntilMs;
    const allowedRequestsPerWindow = Math.max(1, perWindow - otherClientWatch.slotsUsedByOthers(nowMs));
    const politeRequestLimit = Math.max(1, limit * polite);
    const pacedRequestsPerWindow = Math.max(1, Math.min(allowedRequestsPerWindow, politeRequestLimit) - reserve);
    const sustainedRequestsPerMinute = (pacedRequestsPerWindow * slotOccupiedMs) / (slotOccupiedMs + marginMs);
    const uncertaintyRateShare = isQuotaUncertain ? UNCERTAIN_QUOTA_RATE_SHARE : 1;
    return {
      slots: Math.min(Math.floor(allowedRequestsPerWindow), Math.ceil(politeRequestLimit)),
      periodMs: (slotOccupiedMs + marginMs) / pacedRequestsPerWindow / uncertaintyRateShare,
      perMinute: sustainedRequestsPerMinute * uncertaintyRateShare,
      lastingPerMinute: sustainedRequestsPerMinute,
      mayCatchUp: !isThrottled && !isQuotaUncertain,
      isEveryLanePaced: hasSpacing || isQuotaUncertain,
    };
  }

  function nextSlotTimeMs(
    lane: QueueLane,
    nowMs: number,
    { slots, isEveryLanePaced } = currentRate(nowMs),
    isOverdue = false,
  ): number {
    const slotsReservedForWrites = lane === "write" || isOverdue ? 0 : reserve;
    const requestSlotFreeAtMs = spentRequestSlots.slotFreeAtMs(nowMs, Math.max(1, slots - slotsReservedForWrites));
    const pacedRequestStartMs = isEveryLanePaced || !URGENT_REQUEST_LANES.has(lane) ? nextPacedSlotMs : nowMs;
    const isTrialRequest = isTrialPermitted && lane !== "write";
    return Math.max(nowMs, isTrialRequest ? closedUntilMs : pausedUntilMs(), requestSlotFreeAtMs, pacedRequestStartMs);
  }

  function startReadyRequests(): void {
    while (!isRetired && runningRequests.pending < options.concurrency) {
      const now = clock.monotonic();
      const requestRate = currentRate(now);
      const { request, recheckAtMs } = requestQueues.takeNextRequest(now, (lane, isOverdue) =>
        nextSlotTimeMs(lane, now, requestRate, isOverdue),
      );
      if (request === null) {
        wakeRequestQueuesAt(recheckAtMs);
        return;
      }
      const slot = takeRequestSlot(request);
      request.resolve(runningRequests.add(() => sendInRequestSlot(slot, request)));
    }
  }

  function wakeRequestQueuesAt(dueAtMs: number): void {
    if (dueAtMs >= wakeAtMs || !Number.isFinite(dueAtMs)) return;
    wakeUpTimer?.abort(WAIT_ENDED_EARLY);
    wakeUpTimer = new AbortController();
    wakeAtMs = dueAtMs;
    clock.sleep(dueAtMs - clock.monotonic(), wakeUpTimer.signal).then(recheckRequestQueues, () => undefined);
  }

  function recheckRequestQueues(): void {
    wakeUpTimer?.abort(WAIT_ENDED_EARLY);
    wakeAtMs = Number.POSITIVE_INFINITY;
    startReadyRequests();
  }

  function takeRequestSlot(request: QuotaRequest): SpentRequestSlot {
    const { lane, endpoint } = request;
    const now = clock.monotonic();
    if (lane !== "write") isTrialPermitted = false;
    requestQueues.noteRequestTaken(lane);
    const { periodMs, mayCatchUp, isEveryLanePaced } = currentRate(now);
    if (isEveryLanePaced || !URGENT_REQUEST_LANES.has(lane))
      nextPacedSlotMs = mayCatchUp ? Math.max(nextPacedSlotMs + periodMs, now) : now + periodMs;
    const slot = {
      id: requestStore.takeSlotId(endpoint),
      endpoint,
      sentAtMs: now,
      countedByMs: Number.POSITIVE_INFINITY,
    };
    spentRequestSlots.add(slot);
    options.onSlotTaken(request);
    return slot;
  }

  async function sendInRequestSlot(slot: SpentRequestSlot, request: QuotaRequest): Promise<unknown> {
    let isSent = false;
    let hasReply = false;
    try {
      const slotTakenAt = await requestStore.saveBeforeSend(slot);
      request.signal.throwIfAborted();
      isSent = true;
      runningSlots.add(slot);
      startReadyRequests();
      const result = await request.task(slotTakenAt);
      hasReply = true;
      return result;
    } catch (error) {
      hasReply = isSent && isReplyError(error);
      throw error;
    } finally {
      runningSlots.delete(slot);
      if (!isSent) spentRequestSlots.drop(slot);
      if (hasReply) {
        slot.countedByMs = Math.min(slot.countedByMs, clock.monotonic());
        statedLimitTracker.noteReply();
      }
      if (isSent) void requestStore.saveAfterReply(slot).catch(options.onSlotSaveFailed);
    }
  }

  return {
    enqueue(request: QuotaRequest): void {
      requestQueues.add(request);
      startReadyRequests();
    },
    remove: requestQueues.remove,
    pauseRequests(untilMs: number, isRefusal: boolean): void {
      const now = clock.monotonic();
      if (!isRefusal) {
        closedUntilMs = Math.max(closedUntilMs, untilMs);
        return;
      }
      if (now >= pausedUntilMs()) {
        const isCountComplete = now >= options.countUncertainUntilMs && otherClientWatch.slotsUsedByOthers(now) === 0;
        slowdown.noteRefusal(now, spentRequestSlots.countAt(now) - 1, isCountComplete);
        if (slowdown.currentLimits(now).suggestsOtherClient) otherClientWatch.noteRefusals(now, clock.now());
      }
      throttledCount += 1;
      refusedUntilMs = Math.max(refusedUntilMs, untilMs);
    },
    endPause(isRefusal: boolean): void {
      if (isRefusal) refusedUntilMs = Number.NEGATIVE_INFINITY;
      else closedUntilMs = Number.NEGATIVE_INFINITY;
      recheckRequestQueues();
    },
    permitTrialRequest(isPermitted: boolean): void {
      isTrialPermitted = isPermitted;
      if (isPermitted) recheckRequestQueues();
    },
    observeRequestCount(endpoint: QuotaEndpoint, countedRequests: number, statedLimit: number): void {
      const now = clock.monotonic();
      statedLimitTracker.noteLimit(statedLimit, now);
      updateRequestLimit(now);
      let earliestMs = now;
      for (const slot of runningSlots) if (slot.endpoint === endpoint) earliestMs = Math.min(earliestMs, slot.sentAtMs);
      otherClientWatch.noteExcess(now, clock.now(), spentRequestSlots.countUnexplained(countedRequests, earliestMs));
    },
    status(): RateLimitStatus {
      const now = clock.monotonic();
      const { perMinute: pacedPerMinute, lastingPerMinute } = currentRate(now);
      return {
        ...{ name: options.name, perMinute: limit, pacedPerMinute, lastingPerMinute, throttled: throttledCount },
        used: spentRequestSlots.countAt(now),
        waiting: requestQueues.queuedByLane(),
        heldUntilMs: pausedUntilMs() > now ? clock.now() + pausedUntilMs() - now : null,
        nextSlotInMs: nextSlotTimeMs("live", now) - now,
        foreign: otherClientWatch.currentUse(now),
      };
    },
    slots: spentRequestSlots.slots,
    refusedUntilMs: () => refusedUntilMs,
    closedUntilMs: () => closedUntilMs,
    retire(): readonly QuotaRequest[] {
      isRetired = true;
      wakeUpTimer?.abort(WAIT_ENDED_EARLY);
      return requestQueues.allRequests();
    },
    setShare(share: QuotaShare): void {
      ({ perMinute: configuredPerMinute, polite, reserve } = share);
      updateRequestLimit(clock.monotonic());
      recheckRequestQueues();
    },
  };
}

/** True for errors that prove that the service replied and therefore counted the request. */
function isReplyError(error: unknown): boolean {
  const kind = error instanceof Error && "kind" in error ? error.kind : undefined;
  return kind === "throttled" || kind === "config" || kind === "rejected" || kind === "no-log" || kind === "malformed";
}

/** Stores the rate limit that the service stated; drops it after ten replies and ten minutes without a stated limit. */
function createStatedLimitTracker() {
  let statedLimit = Number.POSITIVE_INFINITY;
  let limitStatedAtMs = Number.NEGATIVE_INFINITY;
  let repliesSinceLimit = 0;

  function statedLimitAt(nowMs: number): number {
    const isLimitExpired =
      nowMs - limitStatedAtMs >= STATED_LIMIT_LIFETIME_MS && repliesSinceLimit >= STATED_LIMIT_LIFETIME_REPLIES;
    if (isLimitExpired) statedLimit = Number.POSITIVE_INFINITY;
    return statedLimit;
  }

  return {
    limitAt: statedLimitAt,
    noteLimit(perMinute: number, nowMs: number): void {
      if (perMinute > statedLimitAt(nowMs)) return;
      statedLimit = perMinute;
      limitStatedAtMs = nowMs;
      repliesSinceLimit = 0;
    },
    noteReply(): void {
      repliesSinceLimit += 1;
    },
  };
}

const STATED_LIMIT_LIFETIME_MS = 600_000;
const STATED_LIMIT_LIFETIME_REPLIES = 10;

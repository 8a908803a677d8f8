import PQueue from "p-queue";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { TimeReading } from "../../../core/runtime/elapsed-time.ts";
import { WAIT_ENDED_EARLY } from "../../../core/runtime/waiting.ts";
import { LANES, type Lane, type QuotaEndpoint, type RateLimitStatus, type SlotOffer } from "../source.ts";
import { createOtherClientWatch, createRefusalSlowdown, type OtherClientUse } from "./refusal-slowdown.ts";
import { createSpentSlots, type QuotaRecord, type SpentSlot } from "./sent-request-store.ts";

interface QuotaRequest {
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly task: (slotTaken: TimeReading) => Promise<unknown>;
  readonly signal: AbortSignal;
  readonly choose: ((offer: SlotOffer) => number | null) | undefined;
  readonly requestedMs: number;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: unknown) => void;
  hasPassed: boolean;
}

const LANE_PASSED_OVER_MAX = 9;
const LAST_LANE = LANES.at(-1);
const SLOT_PASS_MIN_MS = 50;

function createRequestQueues() {
  const waitingByLane = new Map(LANES.map((lane) => [lane, new Set<QuotaRequest>()]));
  const skipCounts = new Map<Lane, number>();
  const laneQueue = (lane: Lane) => waitingByLane.get(lane) as Set<QuotaRequest>;
  const countWaiting = (lane: Lane) => [...laneQueue(lane)].filter(({ hasPassed }) => !hasPassed).length;

  function takeFromLane(lane: Lane, isOwnSlot: boolean, now: number) {
    let lookAtMs = Number.POSITIVE_INFINITY;
    for (const request of laneQueue(lane)) {
      if (request.signal.aborted) continue;
      try {
        const slotPassMs = request.choose?.({ isOwnSlot }) ?? null;
        if (slotPassMs !== null) {
          request.hasPassed = true;
          lookAtMs = Math.min(lookAtMs, now + Math.max(SLOT_PASS_MIN_MS, slotPassMs));
          continue;
        }
        laneQueue(lane).delete(request);
        return { request, lookAtMs };
      } catch (error) {
        laneQueue(lane).delete(request);
        request.reject(error);
      }
    }
    return { request: null, lookAtMs };
  }

  return {
    add: (request: QuotaRequest) => laneQueue(request.lane).add(request),
    remove: (request: QuotaRequest) => laneQueue(request.lane).delete(request),
    all: () => [...waitingByLane.values()].flatMap((requests) => [...requests]),

    /** Returns the request that leaves now, or when to look again. Lanes passed over too often come first. */
    take(now: number, readyAt: (lane: Lane, isOverdue: boolean) => number) {
      const overdueLanes = LANES.filter((lane) => (skipCounts.get(lane) ?? 0) >= LANE_PASSED_OVER_MAX);
      let lookAtMs = Number.POSITIVE_INFINITY;
      for (const [index, lane] of [...overdueLanes, ...LANES].entries()) {
        const isOverdue = index < overdueLanes.length;
        if (laneQueue(lane).size === 0) continue;
        const readyMs = readyAt(lane, isOverdue);
        const takenFromLane = readyMs > now ? { request: null, lookAtMs: readyMs } : takeFromLane(lane, isOverdue, now);
        lookAtMs = Math.min(lookAtMs, takenFromLane.lookAtMs);
        if (takenFromLane.request !== null) return { request: takenFromLane.request, lookAtMs };
        if (readyMs <= now) skipCounts.set(lane, 0);
      }
      return { request: null, lookAtMs };
    },
    noteTaken(lane: Lane): void {
      for (const other of LANES) {
        if (other === lane || other === LAST_LANE || laneQueue(other).size === 0) skipCounts.set(other, 0);
        else if (LANES.indexOf(other) > LANES.indexOf(lane)) skipCounts.set(other, (skipCounts.get(other) ?? 0) + 1);
      }
    },
    counts: () => Object.fromEntries(LANES.map((lane) => [lane, countWaiting(lane)])) as Record<Lane, number>,
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
  readonly record: QuotaRecord;
  readonly concurrency: number;
  readonly occupiedMs: number;
  readonly inherited: readonly SpentSlot[];
  readonly refusedUntilMs: number;
  readonly closedUntilMs: number;
  readonly throttled: number;
  /** Monotonic time until which the service may count requests that no record contains. */
  readonly carefulUntilMs: number;
  onSlot(request: QuotaRequest): void;
  onForeign(use: OtherClientUse): void;
  /** Called if storing the time of a reply failed: a restart then waits a little longer. */
  onUnsaved(error: unknown): void;
}

const URGENT_LANES: ReadonlySet<Lane> = new Set(["write", "on-demand"]);
const CAREFUL_RATE_SHARE = 0.8;

export type RateLimiter = ReturnType<typeof createRateLimiter>;

/** Limits the requests of one request count of the service, and queues the requests that wait for slots. */
export function createRateLimiter(options: RateLimiterOptions) {
  const { clock, record, occupiedMs } = options;
  const queues = createRequestQueues();
  const spentSlots = createSpentSlots(occupiedMs, options.inherited);
  const otherClient = createOtherClientWatch(occupiedMs, options.onForeign);
  const limitMemory = createStatedLimit();
  const slotsInFlight = new Set<SpentSlot>();
  let { perMinute: granted, polite, reserve, refusedUntilMs, closedUntilMs, throttled } = options;
  let limit = granted;
  let slowdown = createRefusalSlowdown(limit);
  let nextPacedMs = clock.monotonic();
  let isTrialPermitted = false;
  const runningRequests = new PQueue({ concurrency: options.concurrency });
  runningRequests.addEventListener("next", startReadyRequests);
  let wakeAtMs = Number.POSITIVE_INFINITY;
  let wakeUpTimer: AbortController | undefined;
  let isRetired = false;
  const pausedUntilMs = () => Math.max(refusedUntilMs, closedUntilMs);

  function updateLimit(now: number): void {
    const newLimit = Math.min(granted, limitMemory.limitAt(now));
    if (newLimit === limit) return;
    limit = newLimit;
    slowdown = createRefusalSlowdown(limit);
  }

  function rateTerms(now: number) {
    updateLimit(now);
    const { marginMs, perWindow, throttled, spaced } = slowdown.terms(now);
    const isCareful = now < options.carefulUntilMs;
    const allowedRequests = Math.max(1, perWindow - otherClient.occupied(now));
    const politeLimit = Math.max(1, limit * polite);
    const pacedRequests = Math.max(1, Math.min(allowedRequests, politeLimit) - reserve);
    const sustainedRequestsPerMinute = (pacedRequests * occupiedMs) / (occupiedMs + marginMs);
    const carefulShare = isCareful ? CAREFUL_RATE_SHARE : 1;
    return {
      // A window has whole slots; the pace keeps the exact share.
      slots: Math.min(Math.floor(allowedRequests), Math.ceil(politeLimit)),
      periodMs: (occupiedMs + marginMs) / pacedRequests / carefulShare,
      perMinute: sustainedRequestsPerMinute * carefulShare,
      lastingPerMinute: sustainedRequestsPerMinute,
      mayCatchUp: !throttled && !isCareful,
      isEveryLanePaced: spaced || isCareful,
    };
  }

  function slotTime(lane: Lane, now: number, { slots, isEveryLanePaced } = rateTerms(now), isOverdue = false): number {
    const reservedSlots = lane === "write" || isOverdue ? 0 : reserve;
    const freeMs = spentSlots.freeAt(now, Math.max(1, slots - reservedSlots));
    const pacedStartMs = isEveryLanePaced || !URGENT_LANES.has(lane) ? nextPacedMs : now;
    const isTrial = isTrialPermitted && lane !== "write";
    return Math.max(now, isTrial ? closedUntilMs : pausedUntilMs(), freeMs, pacedStartMs);
  }

  function startReadyRequests(): void {
    while (!isRetired && runningRequests.pending < options.concurrency) {
      const now = clock.monotonic();
      const currentTerms = rateTerms(now);
      const { request, lookAtMs } = queues.take(now, (lane, isOverdue) => slotTime(lane, now, currentTerms, isOverdue));
      if (request === null) {
        wakeUpAt(lookAtMs);
        return;
      }
      const slot = takeSlot(request);
      request.resolve(runningRequests.add(() => sendInSlot(slot, request)));
    }
  }

  function wakeUpAt(ms: number): void {
    if (ms >= wakeAtMs || !Number.isFinite(ms)) return;
    wakeUpTimer?.abort(WAIT_ENDED_EARLY);
    wakeUpTimer = new AbortController();
    wakeAtMs = ms;
    clock.sleep(ms - clock.monotonic(), wakeUpTimer.signal).then(recheckQueues, () => undefined);
  }

  function recheckQueues(): void {
    wakeUpTimer?.abort(WAIT_ENDED_EARLY);
    wakeAtMs = Number.POSITIVE_INFINITY;
    startReadyRequests();
  }

  function takeSlot(request: QuotaRequest): SpentSlot {
    const { lane, endpoint } = request;
    const now = clock.monotonic();
    if (lane !== "write") isTrialPermitted = false;
    queues.noteTaken(lane);
    const { periodMs, mayCatchUp, isEveryLanePaced } = rateTerms(now);
    if (isEveryLanePaced || !URGENT_LANES.has(lane))
      nextPacedMs = mayCatchUp ? Math.max(nextPacedMs + periodMs, now) : now + periodMs;
    const slot = { id: record.idFor(endpoint), endpoint, sentAt: now, countedBy: Number.POSITIVE_INFINITY };
    spentSlots.add(slot);
    options.onSlot(request);
    return slot;
  }

  async function sendInSlot(slot: SpentSlot, request: QuotaRequest): Promise<unknown> {
    let isSent = false;
    let isAnswered = false;
    try {
      const slotTaken = await record.beforeSend(slot);
      request.signal.throwIfAborted();
      isSent = true;
      slotsInFlight.add(slot);
      startReadyRequests();
      const result = await request.task(slotTaken);
      isAnswered = true;
      return result;
    } catch (error) {
      isAnswered = isSent && isReplyError(error);
      throw error;
    } finally {
      slotsInFlight.delete(slot);
      if (!isSent) spentSlots.drop(slot);
      if (isAnswered) {
        slot.countedBy = Math.min(slot.countedBy, clock.monotonic());
        limitMemory.noteReply();
      }
      if (isSent) void record.afterReply(slot).catch(options.onUnsaved);
    }
  }

  return {
    enqueue(request: QuotaRequest): void {
      queues.add(request);
      startReadyRequests();
    },
    remove: queues.remove,
    pause(untilMs: number, isRefusal: boolean): void {
      const now = clock.monotonic();
      if (!isRefusal) {
        closedUntilMs = Math.max(closedUntilMs, untilMs);
        return;
      }
      if (now >= pausedUntilMs()) {
        const isComplete = now >= options.carefulUntilMs && otherClient.occupied(now) === 0;
        slowdown.refused(now, spentSlots.used(now) - 1, isComplete);
        if (slowdown.terms(now).stranger) otherClient.refusals(now, clock.now());
      }
      throttled += 1;
      refusedUntilMs = Math.max(refusedUntilMs, untilMs);
    },
    release(isRefusal: boolean): void {
      if (isRefusal) refusedUntilMs = Number.NEGATIVE_INFINITY;
      else closedUntilMs = Number.NEGATIVE_INFINITY;
      recheckQueues();
    },
    permitTrial(isPermitted: boolean): void {
      isTrialPermitted = isPermitted;
      if (isPermitted) recheckQueues();
    },
    observe(endpoint: QuotaEndpoint, taken: number, statedLimit: number): void {
      const now = clock.monotonic();
      limitMemory.noteLimit(statedLimit, now);
      updateLimit(now);
      let sinceMs = now;
      for (const slot of slotsInFlight) if (slot.endpoint === endpoint) sinceMs = Math.min(sinceMs, slot.sentAt);
      otherClient.excess(now, clock.now(), spentSlots.unexplained(taken, sinceMs));
    },
    status(): RateLimitStatus {
      const now = clock.monotonic();
      const { perMinute: pacedPerMinute, lastingPerMinute } = rateTerms(now);
      return {
        ...{ name: options.name, perMinute: limit, pacedPerMinute, lastingPerMinute, throttled },
        used: spentSlots.used(now),
        waiting: queues.counts(),
        heldUntilMs: pausedUntilMs() > now ? clock.now() + pausedUntilMs() - now : null,
        nextSlotInMs: slotTime("live", now) - now,
        foreign: otherClient.use(now),
      };
    },
    slots: spentSlots.slots,
    refusedUntilMs: () => refusedUntilMs,
    closedUntilMs: () => closedUntilMs,
    retire(): readonly QuotaRequest[] {
      isRetired = true;
      wakeUpTimer?.abort(WAIT_ENDED_EARLY);
      return queues.all();
    },
    change(share: QuotaShare): void {
      ({ perMinute: granted, polite, reserve } = share);
      updateLimit(clock.monotonic());
      recheckQueues();
    },
  };
}

/** True for errors that prove a reply: the service has counted the request. */
function isReplyError(error: unknown): boolean {
  const kind = error instanceof Error && "kind" in error ? error.kind : undefined;
  return kind === "throttled" || kind === "config" || kind === "rejected" || kind === "no-log" || kind === "malformed";
}

/** Forgets a limit after ten replies and ten minutes without it, because a proxy may state 2 once. */
function createStatedLimit() {
  let statedPerMinute = Number.POSITIVE_INFINITY;
  let statedMs = Number.NEGATIVE_INFINITY;
  let repliesSince = 0;

  function statedLimitAt(now: number): number {
    const isLimitExpired = now - statedMs >= STATED_LIMIT_LIFETIME_MS && repliesSince >= STATED_LIMIT_LIFETIME_REPLIES;
    if (isLimitExpired) statedPerMinute = Number.POSITIVE_INFINITY;
    return statedPerMinute;
  }

  return {
    limitAt: statedLimitAt,
    noteLimit(perMinute: number, now: number): void {
      if (perMinute > statedLimitAt(now)) return;
      statedPerMinute = perMinute;
      statedMs = now;
      repliesSince = 0;
    },
    noteReply(): void {
      repliesSince += 1;
    },
  };
}

const STATED_LIMIT_LIFETIME_MS = 600_000;
const STATED_LIMIT_LIFETIME_REPLIES = 10;

import PQueue from "p-queue";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { TimePoint } from "../../../core/runtime/elapsed-time.ts";
import { ENDED_EARLY } from "../../../core/runtime/waiting.ts";
import { LANES, type Lane, type QuotaEndpoint, type RateLimitStatus, type SlotOffer } from "../source.ts";
import { createCaution, createOtherClientWatch, type OtherClientUse } from "./caution.ts";
import { createSpentSlots, type QuotaRecord, type SpentSlot } from "./record.ts";

interface QuotaRequest {
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly task: (slotTaken: TimePoint) => Promise<unknown>;
  readonly signal: AbortSignal;
  readonly choose: ((offer: SlotOffer) => number | null) | undefined;
  readonly requestedMs: number;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: unknown) => void;
  hasPassed: boolean;
}

const PASSED_OVER_MAX = 9;
const LAST_LANE = LANES.at(-1);
const PASS_MIN_MS = 50;

function createRequestQueues() {
  const waiting = new Map(LANES.map((lane) => [lane, new Set<QuotaRequest>()]));
  const passedOver = new Map<Lane, number>();
  const inLane = (lane: Lane) => waiting.get(lane) as Set<QuotaRequest>;
  const countWaiting = (lane: Lane) => [...inLane(lane)].filter(({ hasPassed }) => !hasPassed).length;

  function takeFrom(lane: Lane, isOwnSlot: boolean, now: number) {
    let lookAtMs = Number.POSITIVE_INFINITY;
    for (const request of inLane(lane)) {
      if (request.signal.aborted) continue;
      try {
        const passMs = request.choose?.({ isOwnSlot }) ?? null;
        if (passMs !== null) {
          request.hasPassed = true;
          lookAtMs = Math.min(lookAtMs, now + Math.max(PASS_MIN_MS, passMs));
          continue;
        }
        inLane(lane).delete(request);
        return { request, lookAtMs };
      } catch (error) {
        inLane(lane).delete(request);
        request.reject(error);
      }
    }
    return { request: null, lookAtMs };
  }

  return {
    add: (request: QuotaRequest) => inLane(request.lane).add(request),
    remove: (request: QuotaRequest) => inLane(request.lane).delete(request),
    all: () => [...waiting.values()].flatMap((requests) => [...requests]),

    /** Returns the request that leaves now, or when to look again. Lanes passed over too often come first. */
    take(now: number, readyAt: (lane: Lane, isOverdue: boolean) => number) {
      const overdue = LANES.filter((lane) => (passedOver.get(lane) ?? 0) >= PASSED_OVER_MAX);
      const order = [...overdue.map((lane) => [lane, true] as const), ...LANES.map((lane) => [lane, false] as const)];
      let lookAtMs = Number.POSITIVE_INFINITY;
      for (const [lane, isOverdue] of order) {
        if (inLane(lane).size === 0) continue;
        const readyMs = readyAt(lane, isOverdue);
        const taken = readyMs > now ? { request: null, lookAtMs: readyMs } : takeFrom(lane, isOverdue, now);
        lookAtMs = Math.min(lookAtMs, taken.lookAtMs);
        if (taken.request !== null) return { request: taken.request, lookAtMs };
        if (readyMs <= now) passedOver.set(lane, 0);
      }
      return { request: null, lookAtMs };
    },

    noteTaken(lane: Lane): void {
      for (const each of LANES) {
        if (each === lane || each === LAST_LANE || inLane(each).size === 0) passedOver.set(each, 0);
        else if (LANES.indexOf(each) > LANES.indexOf(lane)) passedOver.set(each, (passedOver.get(each) ?? 0) + 1);
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
  /** Called if the time of a reply could not be stored: a restart then waits a little longer. */
  onUnsaved(error: unknown): void;
}

const URGENT_LANES: ReadonlySet<Lane> = new Set(["write", "on-demand"]);
const CAREFUL_SHARE = 0.8;

export type RateLimiter = ReturnType<typeof createRateLimiter>;

/** Limits the requests of one request count of the service, and queues the requests that wait for slots. */
export function createRateLimiter(options: RateLimiterOptions) {
  const { clock, record, occupiedMs } = options;
  const lanes = createRequestQueues();
  const spent = createSpentSlots(occupiedMs, options.inherited);
  const foreign = createOtherClientWatch(occupiedMs, options.onForeign);
  const stated = createStatedLimit();
  const inFlight = new Set<SpentSlot>();
  let { perMinute: granted, polite, reserve, refusedUntilMs, closedUntilMs, throttled } = options;
  let limit = granted;
  let caution = createCaution(limit);
  let nextPacedMs = clock.monotonic();
  let isTrialPermitted = false;
  const running = new PQueue({ concurrency: options.concurrency });
  running.addEventListener("next", startReady);
  let wakeAtMs = Number.POSITIVE_INFINITY;
  let wakeUp: AbortController | undefined;
  let isRetired = false;
  const pausedUntilMs = () => Math.max(refusedUntilMs, closedUntilMs);

  function updateLimit(now: number): void {
    const next = Math.min(granted, stated.limitAt(now));
    if (next === limit) return;
    limit = next;
    caution = createCaution(limit);
  }

  function termsAt(now: number) {
    updateLimit(now);
    const { marginMs, perWindow, throttled, spaced } = caution.terms(now);
    const isCareful = now < options.carefulUntilMs;
    const allowed = Math.max(1, perWindow - foreign.occupied(now));
    const politeLimit = Math.max(1, limit * polite);
    const paced = Math.max(1, Math.min(allowed, politeLimit) - reserve);
    const lastingPerMinute = (paced * occupiedMs) / (occupiedMs + marginMs);
    const share = isCareful ? CAREFUL_SHARE : 1;
    return {
      // A window has whole slots; the pace keeps the exact share.
      slots: Math.min(Math.floor(allowed), Math.ceil(politeLimit)),
      periodMs: (occupiedMs + marginMs) / paced / share,
      perMinute: lastingPerMinute * share,
      lastingPerMinute,
      mayCatchUp: !throttled && !isCareful,
      isEveryLanePaced: spaced || isCareful,
    };
  }

  function readyAt(lane: Lane, now: number, { slots, isEveryLanePaced } = termsAt(now), isOverdue = false): number {
    const reserved = lane === "write" || isOverdue ? 0 : reserve;
    const freeMs = spent.freeAt(now, Math.max(1, slots - reserved));
    const pacedMs = isEveryLanePaced || !URGENT_LANES.has(lane) ? nextPacedMs : now;
    const isTrial = isTrialPermitted && lane !== "write";
    return Math.max(now, isTrial ? closedUntilMs : pausedUntilMs(), freeMs, pacedMs);
  }

  function startReady(): void {
    while (!isRetired && running.pending < options.concurrency) {
      const now = clock.monotonic();
      const terms = termsAt(now);
      const { request, lookAtMs } = lanes.take(now, (lane, isOverdue) => readyAt(lane, now, terms, isOverdue));
      if (request === null) {
        wakeAt(lookAtMs);
        return;
      }
      const slot = takeSlot(request);
      request.resolve(running.add(() => send(slot, request)));
    }
  }

  function wakeAt(ms: number): void {
    if (ms >= wakeAtMs || !Number.isFinite(ms)) return;
    wakeUp?.abort(ENDED_EARLY);
    wakeUp = new AbortController();
    wakeAtMs = ms;
    clock.sleep(ms - clock.monotonic(), wakeUp.signal).then(lookAgain, () => undefined);
  }

  function lookAgain(): void {
    wakeUp?.abort(ENDED_EARLY);
    wakeAtMs = Number.POSITIVE_INFINITY;
    startReady();
  }

  function takeSlot(request: QuotaRequest): SpentSlot {
    const { lane, endpoint } = request;
    const now = clock.monotonic();
    if (lane !== "write") isTrialPermitted = false;
    lanes.noteTaken(lane);
    const { periodMs, mayCatchUp, isEveryLanePaced } = termsAt(now);
    if (isEveryLanePaced || !URGENT_LANES.has(lane))
      nextPacedMs = mayCatchUp ? Math.max(nextPacedMs + periodMs, now) : now + periodMs;
    const slot = { id: record.idFor(endpoint), endpoint, sentAt: now, countedBy: Number.POSITIVE_INFINITY };
    spent.add(slot);
    options.onSlot(request);
    return slot;
  }

  async function send(slot: SpentSlot, request: QuotaRequest): Promise<unknown> {
    let isSent = false;
    let isAnswered = false;
    try {
      const slotTaken = await record.beforeSend(slot);
      request.signal.throwIfAborted();
      isSent = true;
      inFlight.add(slot);
      startReady();
      const result = await request.task(slotTaken);
      isAnswered = true;
      return result;
    } catch (error) {
      isAnswered = isSent && isReplyError(error);
      throw error;
    } finally {
      inFlight.delete(slot);
      if (!isSent) spent.drop(slot);
      if (isAnswered) {
        slot.countedBy = Math.min(slot.countedBy, clock.monotonic());
        stated.noteReply();
      }
      if (isSent) void record.afterReply(slot).catch(options.onUnsaved);
    }
  }

  return {
    enqueue(request: QuotaRequest): void {
      lanes.add(request);
      startReady();
    },
    remove: lanes.remove,
    pause(untilMs: number, isRefusal: boolean): void {
      const now = clock.monotonic();
      if (!isRefusal) {
        closedUntilMs = Math.max(closedUntilMs, untilMs);
        return;
      }
      if (now >= pausedUntilMs()) {
        const isComplete = now >= options.carefulUntilMs && foreign.occupied(now) === 0;
        caution.refused(now, spent.used(now) - 1, isComplete);
        if (caution.terms(now).stranger) foreign.refusals(now, clock.now());
      }
      throttled += 1;
      refusedUntilMs = Math.max(refusedUntilMs, untilMs);
    },
    release(isRefusal: boolean): void {
      if (isRefusal) refusedUntilMs = Number.NEGATIVE_INFINITY;
      else closedUntilMs = Number.NEGATIVE_INFINITY;
      lookAgain();
    },
    permitTrial(isPermitted: boolean): void {
      isTrialPermitted = isPermitted;
      if (isPermitted) lookAgain();
    },
    observe(endpoint: QuotaEndpoint, taken: number, statedLimit: number): void {
      const now = clock.monotonic();
      stated.noteLimit(statedLimit, now);
      updateLimit(now);
      let sinceMs = now;
      for (const slot of inFlight) if (slot.endpoint === endpoint) sinceMs = Math.min(sinceMs, slot.sentAt);
      foreign.excess(now, clock.now(), spent.unexplained(taken, sinceMs));
    },
    status(): RateLimitStatus {
      const now = clock.monotonic();
      const { perMinute: pacedPerMinute, lastingPerMinute } = termsAt(now);
      return {
        ...{ name: options.name, perMinute: limit, pacedPerMinute, lastingPerMinute, throttled },
        used: spent.used(now),
        waiting: lanes.counts(),
        heldUntilMs: pausedUntilMs() > now ? clock.now() + pausedUntilMs() - now : null,
        nextSlotInMs: readyAt("live", now) - now,
        foreign: foreign.use(now),
      };
    },
    slots: spent.slots,
    refusedUntilMs: () => refusedUntilMs,
    closedUntilMs: () => closedUntilMs,
    retire(): readonly QuotaRequest[] {
      isRetired = true;
      wakeUp?.abort(ENDED_EARLY);
      return lanes.all();
    },
    change(share: QuotaShare): void {
      ({ perMinute: granted, polite, reserve } = share);
      updateLimit(clock.monotonic());
      lookAgain();
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
  let stated = Number.POSITIVE_INFINITY;
  let statedMs = Number.NEGATIVE_INFINITY;
  let repliesSince = 0;

  function limitAt(now: number): number {
    const isOld = now - statedMs >= STATED_LIMIT_LIFETIME_MS && repliesSince >= STATED_LIMIT_LIFETIME_REPLIES;
    if (isOld) stated = Number.POSITIVE_INFINITY;
    return stated;
  }

  return {
    limitAt,
    noteLimit(perMinute: number, now: number): void {
      if (perMinute > limitAt(now)) return;
      stated = perMinute;
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

import PQueue from "p-queue";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Moment } from "../../../core/runtime/moment.ts";
import { WOKEN } from "../../../core/runtime/waiting.ts";
import { LANES, type Lane, type QuotaEndpoint, type RateLimitStatus, type SlotOffer } from "../source.ts";
import { createCaution, createOtherClientWatch, type OtherClientUse } from "./caution.ts";
import { createSpentSlots, type QuotaRecord, type Slot } from "./record.ts";

/** A tag request that waits for a slot of the quota. */
interface QuotaRequest {
  readonly lane: Lane;
  readonly endpoint: QuotaEndpoint;
  readonly task: (slotTaken: Moment) => Promise<unknown>;
  readonly signal: AbortSignal;
  /**
   * Chooses the content when a slot is free. Null takes the slot. A number passes it on and calls again after at most
   * so many milliseconds.
   */
  readonly choose: ((offer: SlotOffer) => number | null) | undefined;
  /** Monotonic time of the request. */
  readonly requestedMs: number;
  readonly resolve: (result: Promise<unknown>) => void;
  readonly reject: (error: unknown) => void;
  /** True after `choose` has passed a slot on. */
  hasPassed: boolean;
}

/** A lane is passed over so many times in a row by the lanes before it; then it gets the next slot. */
const PATIENCE = 9;
/** Lane that takes only slots that no other lane wants. */
const LAST = LANES.at(-1);
/** A request that passes a slot on is asked again after this at the earliest, in milliseconds. */
const LEAST_PASS_MS = 50;

/** The waiting requests by lane; within a lane first come, first served. */
function createLanes() {
  const waiting = new Map(LANES.map((lane) => [lane, new Set<QuotaRequest>()]));
  const passedOver = new Map<Lane, number>();
  const inLane = (lane: Lane) => waiting.get(lane) as Set<QuotaRequest>;
  const countWaiting = (lane: Lane) => [...inLane(lane)].filter(({ hasPassed }) => !hasPassed).length;

  /** Removes and returns the first request of a lane that wants the slot. A request whose choice throws is rejected. */
  function takeFrom(lane: Lane, own: boolean, now: number) {
    let lookAtMs = Number.POSITIVE_INFINITY;
    for (const request of inLane(lane)) {
      if (request.signal.aborted) continue;
      try {
        const passMs = request.choose?.({ own }) ?? null;
        if (passMs !== null) {
          request.hasPassed = true;
          lookAtMs = Math.min(lookAtMs, now + Math.max(LEAST_PASS_MS, passMs));
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

    /**
     * Removes and returns the request that leaves at `now`; otherwise says when to look again. Lanes that were passed
     * over too often come first, then all lanes in their order. `readyAt` returns when a lane may use a slot.
     */
    take(now: number, readyAt: (lane: Lane, isOverdue: boolean) => number) {
      const overdue = LANES.filter((lane) => (passedOver.get(lane) ?? 0) >= PATIENCE);
      const order = [...overdue.map((lane) => [lane, true] as const), ...LANES.map((lane) => [lane, false] as const)];
      let lookAtMs = Number.POSITIVE_INFINITY;
      for (const [lane, isOverdue] of order) {
        if (inLane(lane).size === 0) continue;
        const readyMs = readyAt(lane, isOverdue);
        const taken = readyMs > now ? { request: null, lookAtMs: readyMs } : takeFrom(lane, isOverdue, now);
        lookAtMs = Math.min(lookAtMs, taken.lookAtMs);
        if (taken.request !== null) return { request: taken.request, lookAtMs };
        // A lane that wants no slot was not passed over.
        if (readyMs <= now) passedOver.set(lane, 0);
      }
      return { request: null, lookAtMs };
    },

    /** A request of this lane took a slot: counts the lanes after it as passed over. */
    noteTaken(lane: Lane): void {
      for (const each of LANES) {
        if (each === lane || each === LAST || inLane(each).size === 0) passedOver.set(each, 0);
        else if (LANES.indexOf(each) > LANES.indexOf(lane)) passedOver.set(each, (passedOver.get(each) ?? 0) + 1);
      }
    },

    /** Requests that wait for a slot, without those that passed the last one on. */
    counts: () => Object.fromEntries(LANES.map((lane) => [lane, countWaiting(lane)])) as Record<Lane, number>,
  };
}

/** How much of the service's limit Plenum uses. */
export interface QuotaShare {
  readonly perMinute: number;
  /** Slots that only writes may use. */
  readonly reserve: number;
  /** Share of the limit that is used at most, above 0 up to 1. */
  readonly polite: number;
}

interface RateLimiterOptions extends QuotaShare {
  readonly name: string;
  readonly clock: Clock;
  readonly record: QuotaRecord;
  /** Requests under way at once. */
  readonly concurrency: number;
  readonly occupiedMs: number;
  readonly inherited: readonly Slot[];
  readonly refusedUntilMs: number;
  readonly closedUntilMs: number;
  /** Refusals before, for the status. */
  readonly throttled: number;
  /** Until this monotonic time the service may count requests that no record contains. */
  readonly carefulUntilMs: number;
  onSlot(request: QuotaRequest): void;
  onForeign(use: OtherClientUse): void;
  /** The time of a reply could not be stored. The stored bound stays, so a restart waits a little longer. */
  onUnsaved(error: unknown): void;
}

const URGENT: ReadonlySet<Lane> = new Set(["write", "on-demand"]);
/** Share of the rate that is used while the record is missing. */
const CAREFUL_SHARE = 0.8;

export type RateLimiter = ReturnType<typeof createRateLimiter>;

/** One request count of the service: the waiting requests by lane, and the spent slots that say when the next may leave. */
export function createRateLimiter(options: RateLimiterOptions) {
  const { clock, record, occupiedMs } = options;
  const lanes = createLanes();
  const spent = createSpentSlots(occupiedMs, options.inherited);
  const foreign = createOtherClientWatch(occupiedMs, options.onForeign);
  const stated = createStatedLimit();
  const inFlight = new Set<Slot>();
  let { perMinute: granted, polite, reserve, refusedUntilMs, closedUntilMs, throttled } = options;
  let limit = granted;
  let caution = createCaution(limit);
  /** Spreads paced requests evenly, so that an urgent one never finds the complete window spent. */
  let nextPacedMs = clock.monotonic();
  let isTrialPermitted = false;
  /** Requests that hold a slot and have not ended. */
  const running = new PQueue({ concurrency: options.concurrency });
  running.addEventListener("next", startReady);
  let wakeAtMs = Number.POSITIVE_INFINITY;
  let wakeUp: AbortController | undefined;
  let isRetired = false;
  const pausedUntilMs = () => Math.max(refusedUntilMs, closedUntilMs);

  /** Uses the lower of the configured and the stated limit. A changed limit starts with a new caution. */
  function updateLimit(now: number): void {
    const next = Math.min(granted, stated.limitAt(now));
    if (next === limit) return;
    limit = next;
    caution = createCaution(limit);
  }

  /** Returns the slots in the window, the time between paced requests, and whether all lanes are paced. */
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
      // A window has only whole slots; the pace keeps the exact share.
      slots: Math.min(Math.floor(allowed), Math.ceil(politeLimit)),
      periodMs: (occupiedMs + marginMs) / paced / share,
      perMinute: lastingPerMinute * share,
      lastingPerMinute,
      mayCatchUp: !throttled && !isCareful,
      isEveryLanePaced: spaced || isCareful,
    };
  }

  /** When a request of this lane may leave. An overdue lane may use the reserve. */
  function readyAt(lane: Lane, now: number, { slots, isEveryLanePaced } = termsAt(now), isOverdue = false): number {
    const reserved = lane === "write" || isOverdue ? 0 : reserve;
    const freeMs = spent.freeAt(now, Math.max(1, slots - reserved));
    const pacedMs = isEveryLanePaced || !URGENT.has(lane) ? nextPacedMs : now;
    const isTrial = isTrialPermitted && lane !== "write";
    return Math.max(now, isTrial ? closedUntilMs : pausedUntilMs(), freeMs, pacedMs);
  }

  /** Starts all requests that may leave now, and sleeps until the next may. */
  function startReady(): void {
    while (!isRetired && running.pending < options.concurrency) {
      const now = clock.monotonic();
      const terms = termsAt(now);
      const { request, lookAtMs } = lanes.take(now, (lane, isOverdue) => readyAt(lane, now, terms, isOverdue));
      if (request === null) {
        void wakeAt(lookAtMs);
        return;
      }
      const slot = takeSlot(request);
      request.resolve(running.add(() => send(slot, request)));
    }
  }

  async function wakeAt(ms: number): Promise<void> {
    if (ms >= wakeAtMs || !Number.isFinite(ms)) return;
    wakeUp?.abort(WOKEN);
    const controller = new AbortController();
    wakeUp = controller;
    wakeAtMs = ms;
    try {
      await clock.sleep(ms - clock.monotonic(), controller.signal);
    } catch {
      // An earlier time replaced this one.
      return;
    }
    wakeAtMs = Number.POSITIVE_INFINITY;
    startReady();
  }

  function lookAgain(): void {
    wakeUp?.abort(WOKEN);
    wakeAtMs = Number.POSITIVE_INFINITY;
    startReady();
  }

  function takeSlot(request: QuotaRequest): Slot {
    const { lane, endpoint } = request;
    const now = clock.monotonic();
    if (lane !== "write") isTrialPermitted = false;
    lanes.noteTaken(lane);
    const { periodMs, mayCatchUp, isEveryLanePaced } = termsAt(now);
    if (isEveryLanePaced || !URGENT.has(lane)) {
      // With catch-up, the next request makes good up to one missed period.
      nextPacedMs = mayCatchUp ? Math.max(nextPacedMs + periodMs, now) : now + periodMs;
    }
    const slot = { id: record.idFor(endpoint), endpoint, sentAt: now, countedBy: Number.POSITIVE_INFINITY };
    spent.add(slot);
    options.onSlot(request);
    return slot;
  }

  async function send(slot: Slot, request: QuotaRequest): Promise<unknown> {
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
      isAnswered = isSent && isReply(error);
      throw error;
    } finally {
      inFlight.delete(slot);
      if (!isSent) spent.drop(slot);
      if (isAnswered) {
        slot.countedBy = Math.min(slot.countedBy, clock.monotonic());
        stated.noteReply();
      }
      // The transaction that stores the reply also stores this, and must not wait for it.
      if (isSent) void record.afterReply(slot).catch(options.onUnsaved);
    }
  }

  return {
    enqueue(request: QuotaRequest): void {
      lanes.add(request);
      startReady();
    },
    remove: lanes.remove,
    /** No request leaves before a monotonic time. A refusal also teaches caution. */
    pause(untilMs: number, isRefusal: boolean): void {
      const now = clock.monotonic();
      if (!isRefusal) {
        closedUntilMs = Math.max(closedUntilMs, untilMs);
        return;
      }
      // Requests that were under way together are refused together: only the first refusal counts.
      if (now >= pausedUntilMs()) {
        const isComplete = now >= options.carefulUntilMs && foreign.occupied(now) === 0;
        caution.refused(now, spent.used(now) - 1, isComplete);
        if (caution.terms(now).stranger) foreign.refusals(now, clock.now());
      }
      throttled += 1;
      refusedUntilMs = Math.max(refusedUntilMs, untilMs);
    },
    /** Ends the pause after a refusal, or the pause of every lane. */
    release(isRefusal: boolean): void {
      if (isRefusal) refusedUntilMs = Number.NEGATIVE_INFINITY;
      else closedUntilMs = Number.NEGATIVE_INFINITY;
      lookAgain();
    },
    permitTrial(isPermitted: boolean): void {
      isTrialPermitted = isPermitted;
      if (isPermitted) lookAgain();
    },
    /** The service states that it has counted `taken` requests and allows `statedLimit`. */
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
        name: options.name,
        perMinute: limit,
        pacedPerMinute,
        lastingPerMinute,
        used: spent.used(now),
        waiting: lanes.counts(),
        heldUntilMs: pausedUntilMs() > now ? clock.now() + pausedUntilMs() - now : null,
        nextSlotInMs: readyAt("live", now) - now,
        throttled,
        foreign: foreign.use(now),
      };
    },
    slots: spent.slots,
    refusedUntilMs: () => refusedUntilMs,
    closedUntilMs: () => closedUntilMs,
    /** Ends this limiter and returns its waiting requests. Requests under way end here. */
    retire(): readonly QuotaRequest[] {
      isRetired = true;
      wakeUp?.abort(WOKEN);
      return lanes.all();
    },
    change(share: QuotaShare): void {
      ({ perMinute: granted, polite, reserve } = share);
      updateLimit(clock.monotonic());
      lookAgain();
    },
  };
}

/** True if a reply came, so the service has counted the request. */
function isReply(error: unknown): boolean {
  const kind = error instanceof Error && "kind" in error ? error.kind : undefined;
  return kind === "throttled" || kind === "config" || kind === "rejected" || kind === "no-log" || kind === "malformed";
}

/**
 * The limit that the service states with its replies (`X-RateLimit-Limit`). A lower limit than ours counts at once. It
 * ends when neither ten replies nor ten minutes have repeated it: a 2 that a proxy stated once would otherwise cost nine
 * tenths of the quota until the next start.
 */
function createStatedLimit() {
  let stated = Number.POSITIVE_INFINITY;
  let statedMs = Number.NEGATIVE_INFINITY;
  let repliesSince = 0;

  /** The limit at `now`; infinite without one. */
  function limitAt(now: number): number {
    const isOld = now - statedMs >= REPEATED_WITHIN_MS && repliesSince >= REPEATED_WITHIN_REPLIES;
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

const REPEATED_WITHIN_MS = 600_000;
const REPEATED_WITHIN_REPLIES = 10;

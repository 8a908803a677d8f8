import PQueue from "p-queue";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Moment } from "../../../core/runtime/moment.ts";
import { firstOf, WOKEN, type WorkSignal } from "../../../core/runtime/waiting.ts";
import type { Lane, RateLimitStatus } from "../source.ts";
import { createCaution, createOtherClientWatch, type OtherClientUse } from "./caution.ts";
import { createLanes, type LaneOptions, type Waiting } from "./lanes.ts";
import type { QuotaEndpoint } from "./limiter.ts";
import { createSpentSlots, type QuotaRecord, type Slot } from "./record.ts";

/** One request on its way through an allowance. */
export interface QuotaRequest extends Waiting {
  readonly endpoint: QuotaEndpoint;
  readonly task: (since: Moment) => Promise<unknown>;
  /** Monotonic time at which it was asked for. */
  readonly since: number;
  /** True once it has its slot. */
  started: boolean;
}

/** One count of the service: a queue by lanes, and the spent slots that say when its next request may leave. */
export interface RateLimiter {
  run(request: QuotaRequest): Promise<unknown>;
  /** Nothing leaves before then (monotonic time). A refusal also teaches caution. */
  hold(untilMs: number, refused: boolean): void;
  /** Ends the pause after a refusal, or that of every lane. */
  release(refused: boolean): void;
  /** Lets one request that is no write leave in spite of a refusal; false takes the permission back. */
  permitTrial(isPermitted: boolean): void;
  /** The service says that it has counted `taken` requests and allows `limit`. */
  observe(endpoint: QuotaEndpoint, taken: number, limit: number): void;
  status(): RateLimitStatus;
  foreign(): OtherClientUse | null;
  slots(): readonly Slot[];
  refusedUntil(): number;
  closedUntil(): number;
  /** Rejects what waits, so that it can queue in another allowance; what is under way ends here. */
  retire(): void;
  retired(): boolean;
  /** Another share of the service's limit: less counts at once, and of more what was spent is taken off. */
  change(share: QuotaShare): void;
}

/** How much of the service's limit is used. */
export interface QuotaShare {
  readonly perMinute: number;
  readonly reserve: number;
  /** Share of the limit that is used at most, above 0 up to 1. */
  readonly polite: number;
}

interface RateLimiterOptions extends QuotaShare {
  readonly name: string;
  readonly clock: Clock;
  readonly record: QuotaRecord;
  readonly concurrency: number;
  readonly occupiedMs: number;
  readonly inherited: readonly Slot[];
  readonly refusedUntilMs: number;
  readonly closedUntilMs: number;
  /** Refusals before, for the status. */
  readonly throttled: number;
  /** Until then (monotonic time) requests may be in the service's window that no record tells of. */
  readonly carefulUntilMs: number;
  onSlot(request: QuotaRequest): void;
  onForeign(use: OtherClientUse): void;
  /** A reply's time could not be stored: the stored bound stays, so a restart waits a little longer. */
  onUnsaved(error: unknown): void;
}

const URGENT: ReadonlySet<Lane> = new Set(["write", "on-demand"]);
/** While the record is missing, this share of the pace. */
const CAREFUL_SHARE = 0.8;

export function createRateLimiter(options: RateLimiterOptions): RateLimiter {
  const { clock, record, occupiedMs } = options;
  const lanes = createLanes();
  const queue = new PQueue<InstanceType<typeof lanes.Queue>, LaneOptions>({
    concurrency: options.concurrency,
    queueClass: lanes.Queue,
  });
  const spent = createSpentSlots(occupiedMs, options.inherited);
  const pace = createRate(clock.monotonic());
  const foreign = createOtherClientWatch(occupiedMs, (use) => options.onForeign(use));
  const inFlight = new Set<Slot>();
  let { perMinute: granted, polite, reserve } = options;
  const stated = createStatedLimit();
  let limit = granted;
  let caution = createCaution(limit);
  /** Until when a refusal, and until when the service as a whole, keeps requests back. */
  let refusedUntil = options.refusedUntilMs;
  let closedUntil = options.closedUntilMs;
  const heldUntil = () => Math.max(refusedUntil, closedUntil);
  let isTrialPermitted = false;
  let throttled = options.throttled;
  let entries = 0;
  let wakeAt = Number.POSITIVE_INFINITY;
  let wakeUp: AbortController | undefined;
  let isRetired = false;
  /** Ends the waiting of each request that has no slot yet. */
  const queued = new Map<QuotaRequest, WorkSignal>();

  /** Uses the lower of the configured and the stated limit; a changed limit starts with its own caution. */
  const settleLimit = (now: number) => {
    const next = Math.min(granted, stated.most(now));
    if (next === limit) return;
    limit = next;
    caution = createCaution(limit);
  };

  /** Returns the current limits: slots in the window, time between paced requests, and the paced lanes. */
  const terms = (now: number) => {
    settleLimit(now);
    const { marginMs, perWindow, throttled, spaced } = caution.terms(now);
    const careful = now < options.carefulUntilMs;
    const allowed = Math.max(1, perWindow - foreign.occupied(now));
    const meant = Math.max(1, limit * polite);
    const paced = Math.max(1, Math.min(allowed, meant) - reserve);
    const lastingPerMinute = (paced * occupiedMs) / (occupiedMs + marginMs);
    const share = careful ? CAREFUL_SHARE : 1;
    return {
      // A window has no parts of a slot: the pace keeps to the exact share.
      slots: Math.min(Math.floor(allowed), Math.ceil(meant)),
      periodMs: (occupiedMs + marginMs) / paced / share,
      perMinute: lastingPerMinute * share,
      lastingPerMinute,
      catchUp: !throttled && !careful,
      everyLanePaced: spaced || careful,
    };
  };

  /** When a request of this lane may leave. One that is overdue may use the reserve. */
  const readyAt = (lane: Lane, now: number, { slots, everyLanePaced } = terms(now), overdue = false) => {
    const reserved = lane === "write" || overdue ? 0 : reserve;
    const free = spent.freeAt(now, Math.max(1, slots - reserved));
    const paced = everyLanePaced || !URGENT.has(lane) ? pace.readyAt() : now;
    const isTrial = isTrialPermitted && lane !== "write";
    return Math.max(now, isTrial ? closedUntil : heldUntil(), free, paced);
  };

  /** Lets out what may leave now and sleeps until the next may. */
  const release = () => {
    while (!isRetired && queue.pending < options.concurrency) {
      const now = clock.monotonic();
      const allowed = terms(now);
      const { isOut, lookAtMs } = lanes.letOut(now, (lane, overdue) => readyAt(lane, now, allowed, overdue));
      if (!isOut) {
        void wake(lookAtMs);
        return;
      }
      // p-queue looks at its queue when something is added, ends, or when it is started.
      queue.pause();
      queue.start();
    }
  };

  const wake = async (at: number) => {
    if (at >= wakeAt || !Number.isFinite(at)) return;
    wakeUp?.abort(WOKEN);
    const controller = new AbortController();
    wakeUp = controller;
    wakeAt = at;
    try {
      await clock.sleep(at - clock.monotonic(), controller.signal);
    } catch {
      // An earlier moment has taken its place.
      return;
    }
    wakeAt = Number.POSITIVE_INFINITY;
    release();
  };

  const lookNow = () => {
    wakeUp?.abort(WOKEN);
    wakeAt = Number.POSITIVE_INFINITY;
    release();
  };

  const takeSlot = (request: QuotaRequest): Slot => {
    const now = clock.monotonic();
    request.started = true;
    if (request.lane !== "write") isTrialPermitted = false;
    queued.delete(request);
    lanes.served(request.lane);
    const { periodMs, catchUp, everyLanePaced } = terms(now);
    if (everyLanePaced || !URGENT.has(request.lane)) pace.left(now, periodMs, catchUp);
    const slot: Slot = {
      id: record.idFor(request.endpoint),
      endpoint: request.endpoint,
      sentAt: now,
      countedBy: Number.POSITIVE_INFINITY,
    };
    spent.add(slot);
    options.onSlot(request);
    return slot;
  };

  const send = async (slot: Slot, request: QuotaRequest): Promise<unknown> => {
    let since: Moment;
    try {
      since = await record.beforeSend(slot);
      request.signal.throwIfAborted();
    } catch (error) {
      spent.drop(slot);
      release();
      throw error;
    }
    inFlight.add(slot);
    release();
    let answered = false;
    try {
      const result = await request.task(since);
      answered = true;
      return result;
    } catch (error) {
      answered = isReply(error);
      throw error;
    } finally {
      inFlight.delete(slot);
      if (answered) {
        slot.countedBy = Math.min(slot.countedBy, clock.monotonic());
        stated.answered();
      }
      release();
      // It is durable with what the reply is turned into, which must not wait for it.
      void record.afterReply(slot).catch((error) => options.onUnsaved(error));
    }
  };

  return {
    async run(request) {
      entries += 1;
      const cut = firstOf(request.signal);
      queued.set(request, cut);
      const { waiting, fault } = guarded(request);
      const leave = () => fault() ?? send(takeSlot(request), request);
      const done = queue.add(leave, { id: `request ${entries}`, request: waiting, signal: cut.signal });
      release();
      try {
        return await done;
      } finally {
        cut.end();
        queued.delete(request);
        // A request that ends gives back a place in the concurrency; the queue has noticed it by then.
        queueMicrotask(release);
      }
    },
    hold(untilMs, refused) {
      const now = clock.monotonic();
      // Requests that were under way together are refused together: that is one lesson.
      if (refused && now >= heldUntil()) {
        const known = now >= options.carefulUntilMs && foreign.occupied(now) === 0;
        caution.refused(now, spent.used(now) - 1, known);
        if (caution.terms(now).stranger) foreign.refusals(now, clock.now());
      }
      if (refused) throttled += 1;
      if (refused) refusedUntil = Math.max(refusedUntil, untilMs);
      else closedUntil = Math.max(closedUntil, untilMs);
    },
    release(refused) {
      if (refused) refusedUntil = Number.NEGATIVE_INFINITY;
      else closedUntil = Number.NEGATIVE_INFINITY;
      lookNow();
    },
    permitTrial(isPermitted) {
      isTrialPermitted = isPermitted;
      if (isPermitted) lookNow();
    },
    observe(endpoint, taken, says) {
      const now = clock.monotonic();
      stated.says(says, now);
      settleLimit(now);
      let since = now;
      for (const slot of inFlight) if (slot.endpoint === endpoint) since = Math.min(since, slot.sentAt);
      foreign.excess(now, clock.now(), spent.unexplained(taken, since));
    },
    status() {
      const now = clock.monotonic();
      const { perMinute: pacedPerMinute, lastingPerMinute } = terms(now);
      return {
        name: options.name,
        perMinute: limit,
        pacedPerMinute,
        lastingPerMinute,
        used: spent.used(now),
        waiting: lanes.counts(),
        heldUntilMs: heldUntil() > now ? clock.now() + heldUntil() - now : null,
        nextSlotInMs: readyAt("live", now) - now,
        throttled,
        foreign: foreign.use(now),
      };
    },
    foreign: () => foreign.use(clock.monotonic()),
    slots: () => spent.slots(),
    refusedUntil: () => refusedUntil,
    closedUntil: () => closedUntil,
    retire() {
      isRetired = true;
      wakeUp?.abort(WOKEN);
      for (const cut of queued.values()) cut.abort(new Error("The quota is counted anew."));
    },
    retired: () => isRetired,
    change(share) {
      ({ perMinute: granted, polite, reserve } = share);
      settleLimit(clock.monotonic());
      lookNow();
    },
  };
}

/** Lets a request whose choice throws leave the queue without a slot, so that it blocks no other; it then rejects. */
function guarded({ lane, signal, choose }: QuotaRequest): {
  readonly waiting: Waiting;
  readonly fault: () => Promise<never> | null;
} {
  if (choose === undefined) return { waiting: { lane, signal }, fault: () => null };
  let failed: { readonly error: unknown } | undefined;
  return {
    waiting: {
      lane,
      signal,
      choose(offer) {
        try {
          return choose(offer);
        } catch (error) {
          failed = { error };
          return null;
        }
      },
    },
    fault: () => (failed === undefined ? null : Promise.reject(failed.error)),
  };
}

/** True when the task ended because a reply had come, so that the service has certainly counted the request by now. */
function isReply(error: unknown): boolean {
  const kind = error instanceof Error && "kind" in error ? error.kind : undefined;
  return kind === "throttled" || kind === "config" || kind === "rejected" || kind === "no-log" || kind === "malformed";
}

/**
 * Spreads requests evenly over the window, so that an urgent one never finds the whole window just spent: the
 * next slot comes free within one period instead of within one window.
 */
export interface Rate {
  /** When the next paced request may leave. */
  readyAt(): number;
  /** One left at `now`. With catch-up, up to one period that was missed is made good by the next request. */
  left(now: number, periodMs: number, catchUp: boolean): void;
}

function createRate(now: number): Rate {
  let next = now;
  return {
    readyAt: () => next,
    left(now, periodMs, catchUp) {
      next = catchUp ? Math.max(next + periodMs, now) : now + periodMs;
    },
  };
}

/**
 * The limit that the service states with its replies (`X-RateLimit-Limit`), for as long as it does. A lower one than ours
 * counts at once. It is given up when ten replies and ten minutes have not repeated it: a 2 that a proxy, or one server of
 * several, stated once would else cost nine tenths of the quota until the next start.
 */
interface StatedLimit {
  /** A reply states this limit, requests per minute, at `now` (monotonic milliseconds). */
  says(perMinute: number, now: number): void;
  /** A reply has come, whatever it states. */
  answered(): void;
  /** The limit that counts at `now`; infinite while none does. */
  most(now: number): number;
}

const REPEATED_WITHIN_MS = 600_000;
const REPEATED_WITHIN_REPLIES = 10;

function createStatedLimit(): StatedLimit {
  let stated = Number.POSITIVE_INFINITY;
  let atMs = Number.NEGATIVE_INFINITY;
  let repliesSince = 0;

  const most = (now: number) => {
    if (now - atMs >= REPEATED_WITHIN_MS && repliesSince >= REPEATED_WITHIN_REPLIES) stated = Number.POSITIVE_INFINITY;
    return stated;
  };

  return {
    says(perMinute, now) {
      if (perMinute > most(now)) return;
      stated = perMinute;
      atMs = now;
      repliesSince = 0;
    },
    answered() {
      repliesSince += 1;
    },
    most,
  };
}

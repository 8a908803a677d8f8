import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { type Mark, type Moment, momentOf } from "../../../core/runtime/moment.ts";
import type { QuotaStore } from "../../store/store.ts";
import { type Lane, QUOTA_ENDPOINTS, type QuotaEndpoint, type QuotaStatus, type SlotOffer } from "../source.ts";
import type { OtherClientUse } from "./caution.ts";
import { createRateLimiter, type QuotaShare, type RateLimiter } from "./rate-limiter.ts";
import { createQuotaRecord, type PauseScope, type Slot } from "./record.ts";

/** Quota of the tag endpoints, as the client uses it. */
export interface Limiter {
  /**
   * Runs the task once a slot is free. The slot is taken and stored before the task starts; the task gets that time,
   * and its end marks the response. `choose` is called whenever a slot is free for its lane: null takes it, a number
   * passes it on and calls again after at most so many milliseconds. If it throws, `run` rejects with that error.
   */
  run<T>(
    lane: Lane,
    endpoint: QuotaEndpoint,
    task: (since: Moment) => Promise<T>,
    signal: AbortSignal,
    choose?: (offer: SlotOffer) => number | null,
  ): Promise<T>;
  /** No request leaves before `forMs` have passed: of one allowance after a 429, of every lane after a 503. */
  pause(forMs: number, scope: "allowance" | "everything", endpoint?: QuotaEndpoint): void;
  /** Ends the pause of the allowance of an endpoint, or the pause of every lane. */
  release(of: QuotaEndpoint | "everything"): void;
  /**
   * Lets one request of the allowance of an endpoint leave in spite of its pause, as a trial; never a write, and never in a
   * pause of every lane. False takes the permission back.
   */
  permitTrial(endpoint: QuotaEndpoint, isPermitted: boolean): void;
  /**
   * Records the `X-RateLimit-*` headers of a reply; null for absent ones. `sentMs`: monotonic time when the request
   * was sent.
   */
  observe(
    endpoint: QuotaEndpoint,
    headers: { readonly limit: number | null; readonly remaining: number | null },
    sentMs: number,
  ): void;
  status(): QuotaStatus;
}

/**
 * The quota of one source: never exceeded, hardly ever idle.
 *
 * The rate limiter starts waiting requests by lane when the spent slots allow it; the record keeps the slots over
 * restarts; caution learns from refusals. `npm run bench:quota` measures it against seven kinds of limiters.
 */
export interface QuotaOptions {
  /** Name of the source; part of the name in the memory and a label of the metrics. */
  readonly source: string;
  readonly clock: Clock;
  readonly store: QuotaStore;
  /** Requests per minute; 20 is the interface's own (Limits), less leaves a share unused. */
  readonly perMinute?: number;
  /** Share of the limit that is used at most, so that others of the same user find some left; 1 uses all of it. */
  readonly polite?: number;
  /** Slots that only writes may use, so that a command never waits behind polls. Each costs 1/20 of the quota. */
  readonly reserve?: number;
  /** `auto` begins with one shared count and splits it when the service's own counts prove it separate. */
  readonly sharing?: "shared" | "separate" | "auto";
  /** Requests under way at once. The HTTP client needs as many connections, or a request waits after its slot began. */
  readonly concurrency?: number;
  /** The longest believable way of a request to the service, in milliseconds (a lost packet is sent again after 3 s). */
  readonly longestWayMs?: number;
  /**
   * Behaviour if no record is found. `pace`: four fifths of the usual rate for one window, urgent requests included.
   * `wait`: no request for one window. A first start looks like a lost file, so the slow rate lets a new user see
   * values at once. After a lost file, 2 to 5 in 100 first requests are refused; a burst would cause 19 refusals each.
   */
  readonly withoutRecord?: "pace" | "wait";
  /** Creates the time stamp of a slot that each task receives; of both clocks unless given. */
  readonly mark?: Mark;
  readonly log?: Pick<Log, "warn">;
  readonly metrics?: Pick<Metrics, "quotaWaitSeconds" | "quotaSlots" | "quotaHeld">;
  /** Somebody else seems to use the same token; told once until half an hour has passed without a sign. */
  readonly onForeign?: (use: OtherClientUse) => void;
}

export interface Quota extends Limiter {
  /** Loads the stored slots; `run` does so by itself. Rejects when the store cannot be read. */
  start(): Promise<void>;
  /** Evidence of another client with the same token; null if there is none. */
  foreign(): OtherClientUse | null;
  /** Applies another share of the service's limit. Spent slots and stated limits still count. */
  change(share: QuotaShare): void;
}

/** The window of the interface's limit, "20 requests per minute". */
const WINDOW_MS = 60_000;
/** Two clocks of ordinary quality differ by less: 12 ms in a minute. */
const DRIFT = 200e-6;
/** The interface's Limits. */
const PER_MINUTE = 20;
/** A service that says "wait 0 seconds" has rounded. */
const LEAST_PAUSE_MS = 1_000;
const NEVER = Number.NEGATIVE_INFINITY;

type Groups = readonly (readonly QuotaEndpoint[])[];
const SHARED: Groups = [QUOTA_ENDPOINTS];
const SEPARATE: Groups = QUOTA_ENDPOINTS.map((endpoint) => [endpoint]);

export function createQuota(options: QuotaOptions): Quota {
  const { clock, source, metrics, log, sharing = "auto", longestWayMs = 3_000 } = options;
  let share = shareOf(options);
  const occupiedMs = WINDOW_MS * (1 + DRIFT);
  const mark = options.mark ?? (() => momentOf(clock));
  const record = createQuotaRecord({ store: options.store, source, clock, occupiedMs, longestWayMs, mark });
  const evidence = createSharingEvidence();
  const limiters = new Map<QuotaEndpoint, RateLimiter>();
  let maySplit = sharing === "auto";
  let started: Promise<void> | undefined;
  let allPausedUntilMs = NEVER;
  let carefulUntilMs = NEVER;

  function limiterOf(endpoint: QuotaEndpoint): RateLimiter {
    const limiter = limiters.get(endpoint);
    if (limiter === undefined) throw new Error("The quota has not been started.");
    return limiter;
  }
  const all = () => [...new Set(limiters.values())];

  /** Only writes use the reserve. */
  function shareFor(endpoints: readonly QuotaEndpoint[]): QuotaShare {
    return { ...share, reserve: endpoints.includes("write") ? share.reserve : 0 };
  }

  /** Creates one limiter per group of endpoints, with the spent slots and the waiting requests of its endpoints. */
  function regroup(
    groups: Groups,
    slots: readonly Slot[],
    refusedUntil: (group: Groups[number]) => number,
    closedUntilMs: number,
  ): void {
    const old = all();
    const throttled = old.reduce((sum, limiter) => sum + limiter.status().throttled, 0);
    for (const group of groups) {
      const limiter = createRateLimiter({
        name: groups.length === 1 ? "tags" : group.join("+"),
        clock,
        record,
        ...shareFor(group),
        concurrency: options.concurrency ?? 8,
        occupiedMs,
        inherited: slots.filter((slot) => group.includes(slot.endpoint)),
        refusedUntilMs: refusedUntil(group),
        closedUntilMs,
        throttled: groups.length === 1 ? throttled : 0,
        carefulUntilMs,
        onSlot({ lane, requestedMs }) {
          metrics?.quotaSlots.inc({ source, lane });
          metrics?.quotaWaitSeconds.observe({ source, lane }, (clock.monotonic() - requestedMs) / 1000);
        },
        onForeign: (use) => options.onForeign?.(use),
        onUnsaved: (error) => log?.warn({ source, err: error }, "quota slot not updated"),
      });
      for (const endpoint of group) limiters.set(endpoint, limiter);
    }
    for (const limiter of old) for (const request of limiter.retire()) limiterOf(request.endpoint).enqueue(request);
  }

  async function load(): Promise<void> {
    const { slots, found } = await record.load();
    const pauses = await record.loadPauses();
    const now = clock.monotonic();
    const unknownUntilMs = now + occupiedMs + longestWayMs;
    if (!found) carefulUntilMs = unknownUntilMs;
    allPausedUntilMs = Math.max(allPausedUntilMs, pauses.get("everything") ?? NEVER);
    const closedUntilMs = Math.max(allPausedUntilMs, !found && options.withoutRecord === "wait" ? unknownUntilMs : now);
    const refusedUntil = (group: Groups[number]) => Math.max(...group.map((endpoint) => pauses.get(endpoint) ?? now));
    regroup(sharing === "separate" ? SEPARATE : SHARED, slots, refusedUntil, closedUntilMs);
    reportPause();
  }

  async function start(): Promise<void> {
    started ??= load();
    try {
      await started;
    } catch (error) {
      started = undefined;
      throw error;
    }
  }

  /** Returns to one shared count for good: with separate counts the service would not have refused a request. */
  function mergeAgain(): void {
    const split = all();
    if (split.length === 1 || sharing !== "auto") return;
    const refusedUntilMs = Math.max(...split.map((limiter) => limiter.refusedUntilMs()));
    const closedUntilMs = Math.max(...split.map((limiter) => limiter.closedUntilMs()));
    const slots = split.flatMap((limiter) => limiter.slots());
    regroup(SHARED, slots, () => refusedUntilMs, closedUntilMs);
  }

  /** Stores a pause, so that the first request after a restart is not refused. */
  function storePause(scope: PauseScope, untilMs: number): void {
    record.savePause(scope, untilMs).catch((error: unknown) => {
      log?.warn({ source, err: error }, "a pause that the service ordered was not stored");
    });
  }

  function reportPause(): void {
    const untilMs = Math.max(allPausedUntilMs, ...all().map((limiter) => limiter.refusedUntilMs()));
    const leftMs = untilMs - clock.monotonic();
    metrics?.quotaHeld.set({ source }, leftMs > 0 ? (clock.now() + leftMs) / 1000 : 0);
  }

  return {
    start,
    async run<T>(
      lane: Lane,
      endpoint: QuotaEndpoint,
      task: (slotTaken: Moment) => Promise<T>,
      signal: AbortSignal,
      choose?: (offer: SlotOffer) => number | null,
    ) {
      await start();
      signal.throwIfAborted();
      const { promise, resolve, reject } = Promise.withResolvers<unknown>();
      const requestedMs = clock.monotonic();
      const request = { lane, endpoint, task, signal, choose, requestedMs, resolve, reject, hasPassed: false };
      const cancel = () => {
        limiterOf(endpoint).remove(request);
        reject(signal.reason);
      };
      signal.addEventListener("abort", cancel, { once: true });
      try {
        limiterOf(endpoint).enqueue(request);
        return (await promise) as T;
      } finally {
        signal.removeEventListener("abort", cancel);
      }
    },
    pause(forMs, scope, endpoint) {
      const untilMs = clock.monotonic() + Math.max(LEAST_PAUSE_MS, forMs);
      const paused = scope === "everything" || endpoint === undefined ? "everything" : endpoint;
      if (scope === "everything") allPausedUntilMs = Math.max(allPausedUntilMs, untilMs);
      for (const limiter of paused === "everything" ? all() : [limiterOf(paused)]) {
        limiter.pause(untilMs, scope === "allowance");
      }
      storePause(paused, untilMs);
      if (scope === "allowance") mergeAgain();
      reportPause();
    },
    release(scope) {
      if (scope === "everything") {
        allPausedUntilMs = NEVER;
        for (const limiter of all()) limiter.release(false);
        storePause("everything", clock.monotonic());
      } else {
        const limiter = limiterOf(scope);
        limiter.release(true);
        for (const [endpoint, each] of limiters) if (each === limiter) storePause(endpoint, clock.monotonic());
      }
      reportPause();
    },
    permitTrial: (endpoint, isPermitted) => limiterOf(endpoint).permitTrial(isPermitted),
    observe(endpoint, { limit, remaining }, sentMs) {
      // A limit above the interface's belongs to a wider count, of which these requests are a part.
      if (limit === null || remaining === null || limit < 1 || limit > PER_MINUTE) return;
      const taken = limit - remaining;
      const limiter = limiterOf(endpoint);
      limiter.observe(endpoint, taken, limit);
      if (!maySplit || all().length > 1) return;
      if (!evidence.separate(endpoint, taken, sentMs, clock.monotonic())) return;
      maySplit = false;
      regroup(SEPARATE, limiter.slots(), limiter.refusedUntilMs, limiter.closedUntilMs());
    },
    status() {
      const leftMs = allPausedUntilMs - clock.monotonic();
      const heldUntilMs = leftMs > 0 ? clock.now() + leftMs : null;
      return { buckets: all().map((limiter) => limiter.status()), heldUntilMs };
    },
    foreign: () => all().flatMap((limiter) => limiter.status().foreign ?? [])[0] ?? null,
    change(next) {
      share = shareOf(next);
      for (const limiter of all()) {
        limiter.change(shareFor(QUOTA_ENDPOINTS.filter((endpoint) => limiters.get(endpoint) === limiter)));
      }
    },
  };
}

function shareOf({ perMinute = PER_MINUTE, polite = 1, reserve = 0 }: Partial<QuotaShare>): QuotaShare {
  return { perMinute: Math.min(PER_MINUTE, perMinute), polite, reserve };
}

/**
 * Finds out from `X-RateLimit-Remaining` whether read, write and history share one count. The interface does not
 * say. One shared count can never be exceeded, so only clear evidence splits it.
 *
 * One pair (a read leaves 19, the first history leaves 19 too) is not clear: the minute may have turned between
 * them, or an allowance has refilled. Three requests one after the other are, each sent after the reply to the one before:
 * endpoint A, endpoint B, A again, where A's count has risen by exactly one, so nothing was reset between, and B's count
 * is far from A's, so B is counted elsewhere. The order in which the service counted parallel requests is unknown:
 *
 *   read sent, counted 20th; the window turns; history counted 1st, and answered; the read is answered: 20
 */
export function createSharingEvidence() {
  type Count = {
    readonly endpoint: QuotaEndpoint;
    readonly taken: number;
    readonly sentMs: number;
    readonly at: number;
  };
  let last: Count | undefined;
  let beforeLast: Count | undefined;
  let findings = 0;
  return {
    /**
     * A reply to a request of `endpoint`, sent at `sentMs`, states at `now` that the service has counted `taken` requests
     * (monotonic milliseconds). Returns true when two findings agree.
     */
    separate(endpoint: QuotaEndpoint, taken: number, sentMs: number, now: number): boolean {
      const [first, middle] = [beforeLast, last];
      beforeLast = last;
      last = { endpoint, taken, sentMs, at: now };
      if (first === undefined || middle === undefined || now - first.at > WITHIN_MS) return false;
      if (middle.sentMs < first.at || sentMs < middle.at) return false;
      if (first.endpoint !== endpoint || middle.endpoint === endpoint) return false;
      if (taken === first.taken + 1 && Math.abs(middle.taken - first.taken) >= FAR_APART) findings += 1;
      if (taken === first.taken + 2 && middle.taken === first.taken + 1) findings = 0;
      return findings >= FINDINGS;
    },
  };
}

const FINDINGS = 2;
const FAR_APART = 3;
const WITHIN_MS = 45_000;

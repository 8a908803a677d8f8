import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { type Mark, type Moment, momentOf } from "../../../core/runtime/moment.ts";
import type { QuotaStore } from "../../store/store.ts";
import type { OtherClientUse } from "./caution.ts";
import { type Limiter, QUOTA_ENDPOINTS, type QuotaEndpoint } from "./limiter.ts";
import { createRateLimiter, type QuotaRequest, type QuotaShare, type RateLimiter } from "./rate-limiter.ts";
import { createQuotaRecord, type HoldScope, type Slot } from "./record.ts";

/**
 * The quota of one source: never exceeded, hardly ever idle.
 *
 * p-queue holds what waits, by lane; the spent slots (spent-slots.ts) say when the next request may leave; the record
 * (record.ts) keeps them over restarts; caution (caution.ts) learns from refusals. Measured against
 * seven kinds of limiters by `npm run bench:quota`.
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
  /** Loads the stored slots; `run` does it by itself. Rejects when the store cannot be read. */
  start(): Promise<void>;
  /** Evidence of another client with the same token; null if there is none. */
  foreign(): OtherClientUse | null;
  /** Another share of the service's limit; what was spent and what the service said count on. */
  change(share: QuotaShare): void;
}

/** The window of the interface's limit, "20 requests per minute". */
const WINDOW_MS = 60_000;
/** Two clocks of ordinary quality differ by less: 12 ms in a minute. */
const DRIFT = 200e-6;
/** The interface's Limits. */
const PER_MINUTE = 20;
/** A service that says "wait 0 seconds" means that it has rounded. */
const LEAST_HOLD_MS = 1_000;

type Groups = readonly (readonly QuotaEndpoint[])[];
const SHARED: Groups = [QUOTA_ENDPOINTS];
const SEPARATE: Groups = QUOTA_ENDPOINTS.map((endpoint) => [endpoint]);

export function createQuota(options: QuotaOptions): Quota {
  const { clock, source } = options;
  let share = shareOf(options);
  const sharing = options.sharing ?? "auto";
  const longestWayMs = options.longestWayMs ?? 3_000;
  const occupiedMs = WINDOW_MS * (1 + DRIFT);
  const mark = options.mark ?? (() => momentOf(clock));
  const record = createQuotaRecord({ store: options.store, source, clock, occupiedMs, longestWayMs, mark });
  const evidence = createSharingEvidence();
  const allowances = new Map<QuotaEndpoint, RateLimiter>();
  let maySplit = sharing === "auto";
  let started: Promise<void> | undefined;
  let everythingHeldUntil = Number.NEGATIVE_INFINITY;
  let carefulUntilMs = Number.NEGATIVE_INFINITY;

  const allowanceOf = (endpoint: QuotaEndpoint): RateLimiter => {
    const allowance = allowances.get(endpoint);
    if (allowance === undefined) throw new Error("The quota has not been started.");
    return allowance;
  };
  const all = () => [...new Set(allowances.values())];

  /** Only writes use the reserve. */
  const shareFor = (endpoints: Groups[number]): QuotaShare => ({
    ...share,
    reserve: endpoints.includes("write") ? share.reserve : 0,
  });

  /** Puts the endpoints into new allowances, each with the slots that its endpoints have used. */
  const regroup = (
    groups: Groups,
    slots: readonly Slot[],
    refusedUntil: (group: Groups[number]) => number,
    closedUntilMs = everythingHeldUntil,
  ) => {
    const old = all();
    for (const group of groups) {
      const allowance = createRateLimiter({
        name: groups.length === 1 ? "tags" : group.join("+"),
        clock,
        record,
        ...shareFor(group),
        concurrency: options.concurrency ?? 8,
        occupiedMs,
        inherited: slots.filter((slot) => group.includes(slot.endpoint)),
        refusedUntilMs: refusedUntil(group),
        closedUntilMs,
        throttled: groups.length === 1 ? old.reduce((sum, allowance) => sum + allowance.status().throttled, 0) : 0,
        carefulUntilMs,
        onSlot({ lane, since }) {
          options.metrics?.quotaSlots.inc({ source, lane });
          options.metrics?.quotaWaitSeconds.observe({ source, lane }, (clock.monotonic() - since) / 1000);
        },
        onForeign: (use) => options.onForeign?.(use),
        onUnsaved: (error) => options.log?.warn({ source, err: error }, "quota slot not updated"),
      });
      for (const endpoint of group) allowances.set(endpoint, allowance);
    }
    for (const allowance of old) allowance.retire();
  };

  const load = async () => {
    const { slots, found } = await record.load();
    const holds = await record.loadHolds();
    const now = clock.monotonic();
    const unknownUntil = now + occupiedMs + longestWayMs;
    if (!found) carefulUntilMs = unknownUntil;
    const waits = !found && options.withoutRecord === "wait";
    everythingHeldUntil = Math.max(everythingHeldUntil, holds.get("everything") ?? Number.NEGATIVE_INFINITY);
    const least = Math.max(everythingHeldUntil, waits ? unknownUntil : now);
    const refusedUntil = (group: Groups[number]) => Math.max(...group.map((endpoint) => holds.get(endpoint) ?? now));
    regroup(sharing === "separate" ? SEPARATE : SHARED, slots, refusedUntil, least);
    showHold();
  };
  const start = async () => {
    started ??= load();
    try {
      await started;
    } catch (error) {
      started = undefined;
      throw error;
    }
  };

  /** A shared count after all: one refusal while the other allowances are in use takes the split back for good. */
  const mergeAgain = () => {
    const together = all();
    if (together.length === 1 || sharing !== "auto") return;
    const refusedUntil = Math.max(...together.map((each) => each.refusedUntil()));
    const closedUntil = Math.max(...together.map((each) => each.closedUntil()));
    regroup(
      SHARED,
      together.flatMap((allowance) => allowance.slots()),
      () => refusedUntil,
      closedUntil,
    );
  };

  /** A restart must not break the pause: the first request after it would be refused. */
  const keepHold = (scope: HoldScope, untilMs: number) => {
    const unsaved = (error: unknown) =>
      options.log?.warn({ source, err: error }, "a pause that the service ordered was not stored");
    void record.saveHold(scope, untilMs).catch(unsaved);
  };

  const showHold = () => {
    const until = Math.max(everythingHeldUntil, ...all().map((allowance) => allowance.refusedUntil()));
    const now = clock.monotonic();
    options.metrics?.quotaHeld.set({ source }, until > now ? (clock.now() + until - now) / 1000 : 0);
  };

  return {
    start,
    async run<T>(
      lane: Parameters<Limiter["run"]>[0],
      endpoint: QuotaEndpoint,
      task: (since: Moment) => Promise<T>,
      signal: AbortSignal,
      choose?: Parameters<Limiter["run"]>[4],
    ) {
      await start();
      signal.throwIfAborted();
      const request: QuotaRequest = {
        lane,
        endpoint,
        task,
        signal,
        ...(choose === undefined ? {} : { choose }),
        since: clock.monotonic(),
        started: false,
      };
      for (;;) {
        const allowance = allowanceOf(endpoint);
        try {
          return (await allowance.run(request)) as T;
        } catch (error) {
          if (request.started || signal.aborted || !allowance.retired()) throw error;
        }
      }
    },
    hold(forMs, scope, endpoint) {
      const until = clock.monotonic() + Math.max(LEAST_HOLD_MS, forMs);
      if (scope === "everything") everythingHeldUntil = Math.max(everythingHeldUntil, until);
      const concerned = scope === "everything" || endpoint === undefined ? all() : [allowanceOf(endpoint)];
      for (const allowance of concerned) allowance.hold(until, scope === "allowance");
      keepHold(scope === "everything" || endpoint === undefined ? "everything" : endpoint, until);
      if (scope === "allowance") mergeAgain();
      showHold();
    },
    release(of) {
      if (of === "everything") {
        everythingHeldUntil = Number.NEGATIVE_INFINITY;
        for (const allowance of all()) allowance.release(false);
        keepHold("everything", clock.monotonic());
      } else {
        const allowance = allowanceOf(of);
        allowance.release(true);
        for (const [endpoint, each] of allowances) if (each === allowance) keepHold(endpoint, clock.monotonic());
      }
      showHold();
    },
    permitTrial: (endpoint, isPermitted) => allowanceOf(endpoint).permitTrial(isPermitted),
    observe(endpoint, { limit, remaining }, sentMs) {
      // A limit above the interface's is that of some wider count, of which these requests are a part.
      if (limit === null || remaining === null || limit < 1 || limit > PER_MINUTE) return;
      const taken = limit - remaining;
      allowanceOf(endpoint).observe(endpoint, taken, limit);
      if (!maySplit || all().length > 1) return;
      if (!evidence.separate(endpoint, taken, sentMs, clock.monotonic())) return;
      maySplit = false;
      const [shared] = all();
      if (shared !== undefined) regroup(SEPARATE, shared.slots(), () => shared.refusedUntil(), shared.closedUntil());
    },
    status() {
      const now = clock.monotonic();
      const heldUntilMs = everythingHeldUntil > now ? clock.now() + everythingHeldUntil - now : null;
      return { buckets: all().map((allowance) => allowance.status()), heldUntilMs };
    },
    foreign: () =>
      all()
        .map((allowance) => allowance.foreign())
        .find((use) => use !== null) ?? null,
    change(next) {
      share = shareOf(next);
      for (const allowance of all()) {
        const endpoints = [...allowances].flatMap(([endpoint, each]) => (each === allowance ? [endpoint] : []));
        allowance.change(shareFor(endpoints));
      }
    },
  };
}

function shareOf({ perMinute = PER_MINUTE, polite = 1, reserve = 0 }: Partial<QuotaShare>): QuotaShare {
  return { perMinute: Math.min(PER_MINUTE, perMinute), polite, reserve };
}

/**
 * Finds out from `X-RateLimit-Remaining` whether read, write and history share one count. The interface does not
 * say; believing in one shared count cannot be punished, so it takes clear evidence to leave that belief.
 *
 * One pair (a read leaves 19, the first history leaves 19 too) is not clear: the minute may have turned between
 * them, or an allowance has refilled. Three requests one after the other are, each sent after the reply to the one before:
 * endpoint A, endpoint B, A again, where A's count has risen by exactly one, so nothing was reset between, and B's count
 * is far from A's, so B is counted elsewhere. The order in which the service counted parallel requests is unknown:
 *
 *   read sent, counted 20th; the window turns; history counted 1st, and answered; the read is answered: 20
 */
interface SharingEvidence {
  /**
   * A reply of `endpoint`, whose request left at `sentMs`, says now that the service has counted `taken` requests
   * (milliseconds on the monotonic clock). True once two findings agree.
   */
  separate(endpoint: QuotaEndpoint, taken: number, sentMs: number, now: number): boolean;
}

interface Count {
  readonly endpoint: QuotaEndpoint;
  readonly taken: number;
  readonly sentMs: number;
  readonly at: number;
}

const FINDINGS = 2;
const FAR_APART = 3;
const WITHIN_MS = 45_000;

export function createSharingEvidence(): SharingEvidence {
  let last: Count | undefined;
  let beforeLast: Count | undefined;
  let findings = 0;
  return {
    separate(endpoint, taken, sentMs, now) {
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

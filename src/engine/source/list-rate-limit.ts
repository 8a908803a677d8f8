import PQueue from "p-queue";
import { LocalFailure } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Mark, type Moment, momentOf } from "../../core/runtime/moment.ts";
import { createWakeup, sleepUntilWoken } from "../../core/runtime/waiting.ts";
import type { ListRate } from "./source.ts";

/**
 * `alarms`: the poll of the active alarms. `urgent`: requests that alarms depend on (other lists of alarms, sites, the token,
 * the gateways of a site with a new alarm). `tags`: the long lists of tags. `other`: the short lists (gateways, hosts, systems).
 */
export type ListLane = "alarms" | "urgent" | "other" | "tags";

/**
 * A gentle limit for the lists and the token information, of which the interface states none ("Rate limits of
 * endpoints other than the three tag endpoints: not shown"). It starts at the configured rate; refusals of one minute
 * halve it once, at most to what the service had granted in that minute, and it comes back by one request per minute
 * every ten minutes. One request of each lane at a time, so that slow lists never take all connections from the tag
 * endpoints.
 */
export interface ListRateLimit {
  /**
   * Runs a task when its lane has a slot; the task learns when the slot was taken. Two requests a minute are for the active
   * alarms alone. A third of the rate is for alarms and urgent lists. The lanes `other` and `tags` borrow it evenly over the
   * window, except for three slots: of 30 a minute they may use 20 at once and 27 in a minute. So a first inventory of many
   * sites delays the next urgent request by less than 8 s. While both lanes wait, two short lists leave for each list of
   * tags. A storm of alarms that needs the complete rate does not stop them: a request that has waited for two minutes takes
   * any slot.
   */
  run<T>(task: (since: Moment) => Promise<T>, signal: AbortSignal, lane?: ListLane): Promise<T>;
  /** Nothing leaves for this long: the whole service is in maintenance. */
  hold(forMs: number): void;
  /** Ends a pause. */
  release(): void;
  /** Lets one request leave in spite of a pause, as a trial; false takes the permission back. */
  permitTrial(isPermitted: boolean): void;
  /**
   * A request that left at `startedMs` (monotonic) was refused with 429 and is to wait for `forMs`. `saysNow`: the service
   * said 0 s, which shows a limit only when it happens in three minutes in a row.
   */
  refused(startedMs: number, forMs: number, saysNow?: boolean): void;
  observe(headers: { readonly limit: number | null; readonly remaining: number | null }): void;
  rate(): ListRate;
}

/** A minute as the service may count it, and a second for requests that travel at different speeds. */
const WINDOW_MS = 61_000;
/** Longer than any wait in which nothing but the rate itself keeps a request back. */
const PATIENCE_MS = 2 * WINDOW_MS;
/** Refusals within this time are one. */
const SAME_REFUSAL_MS = 60_000;
const RECOVER_EVERY_MS = 600_000;
/** How long a refusal is believed to show the real limit. */
const REMEMBER_MS = 86_400_000;
/** Share of the rate that is for alarms and urgent lists first. */
const URGENT_SHARE = 1 / 3;
/** Requests a minute that only the active alarms use: a page every 30 s. */
const FOR_ALARMS = 2;
/** Slots of the urgent share that the other lists never borrow: those of the active alarms and one for an urgent list. */
const NEVER_LENT = FOR_ALARMS + 1;
/** Requests of the lane `other` for each one of the lane `tags` while both wait for a slot. */
const OTHER_PER_TAGS = 2;
/** A list of tags leaves the next slot to the lane `other` for this long: the next short list follows the reply to the last. */
const NEXT_OTHER_MS = 1_000;
/** The least that a refusal alone leaves: the alarms, and one for the rest. What the service granted may be less. */
const LEAST_RATE = FOR_ALARMS + 1;
/** Minutes in a row with a refusal that says 0 s, after which it shows a limit all the same. */
const EMPTY_REFUSALS = 3;

export interface ListRateLimitOptions {
  readonly perMinute: number;
  readonly clock: Clock;
  /** Creates the time stamp of a slot that each task receives; of both clocks unless given. */
  readonly mark?: Mark;
}

interface Start {
  readonly atMs: number;
  readonly lane: ListLane;
}

export function createListRateLimit(options: ListRateLimitOptions): ListRateLimit {
  const { perMinute, clock, mark = () => momentOf(clock) } = options;
  const queues: Readonly<Record<ListLane, PQueue>> = {
    alarms: new PQueue({ concurrency: 1 }),
    urgent: new PQueue({ concurrency: 1 }),
    other: new PQueue({ concurrency: 1 }),
    tags: new PQueue({ concurrency: 1 }),
  };
  /** Lanes with a request that waits for a slot. */
  const waiting = new Set<ListLane>();
  /** Requests of the lane `other` since the last one of the lane `tags`. */
  let othersInARow = 0;
  let lastOtherMs = Number.NEGATIVE_INFINITY;
  const changed = createWakeup();
  let starts: Start[] = [];
  let lastOfRestMs = Number.NEGATIVE_INFINITY;
  let heldUntilMs = Number.NEGATIVE_INFINITY;
  let isTrialPermitted = false;
  let lowered: { readonly atMs: number; readonly rate: number; readonly ceiling: number } | null = null;
  let empty: { readonly atMs: number; readonly minutes: number } | null = null;
  let statedLimit = Number.POSITIVE_INFINITY;

  function rate(nowMs: number): number {
    if (lowered === null) return Math.min(perMinute, statedLimit);
    const age = nowMs - lowered.atMs;
    const recovered = lowered.rate + Math.floor(age / RECOVER_EVERY_MS);
    return Math.min(perMinute, statedLimit, age < REMEMBER_MS ? lowered.ceiling : perMinute, recovered);
  }

  /** When fewer than so many of these starts are in the window. */
  function freeAt(among: readonly Start[], most: number, windowMs = WINDOW_MS): number {
    const blocking = among.at(-most);
    return blocking === undefined ? Number.NEGATIVE_INFINITY : blocking.atMs + windowMs;
  }

  /**
   * When a request that is not urgent may start. Each slot that it borrows needs a longer time with few starts: at 30 a minute
   * the 21st start comes 7.6 s after the first, the 22nd 15.3 s after it, and the 27th 53 s after it.
   */
  function lentAt(allowed: number): number {
    const reserve = Math.floor(allowed * URGENT_SHARE);
    const lendable = Math.max(0, reserve - NEVER_LENT);
    let atMs = Number.NEGATIVE_INFINITY;
    for (let lent = 0; lent <= lendable; lent++) {
      const windowMs = (WINDOW_MS * (lent + 1)) / (lendable + 1);
      atMs = Math.max(atMs, freeAt(starts, Math.max(1, allowed - reserve + lent), windowMs));
    }
    return atMs;
  }

  /** When it is the turn of this lane among `other` and `tags`; infinity until the other lane has taken a slot. */
  function turnAt(lane: ListLane): number {
    const isTurnOfTags = othersInARow >= OTHER_PER_TAGS;
    if (lane === "tags" && !isTurnOfTags)
      return waiting.has("other") ? Number.POSITIVE_INFINITY : lastOtherMs + NEXT_OTHER_MS;
    return lane === "other" && isTurnOfTags && waiting.has("tags")
      ? Number.POSITIVE_INFINITY
      : Number.NEGATIVE_INFINITY;
  }

  function waitMs(nowMs: number, lane: ListLane, sinceMs: number): number {
    starts = starts.filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
    const allowed = rate(nowMs);
    const isOverdue = nowMs - sinceMs >= PATIENCE_MS;
    const isUrgent = lane === "alarms" || lane === "urgent";
    let atMs = isUrgent || isOverdue ? freeAt(starts, allowed) : lentAt(allowed);
    atMs = Math.max(atMs, turnAt(lane));
    if (lane !== "alarms") {
      const rest = allowed - FOR_ALARMS;
      const others = starts.filter((start) => start.lane !== "alarms");
      // If the service permits no more than the alarms need, other lists get one request in two minutes.
      atMs = Math.max(atMs, rest >= 1 ? freeAt(others, rest) : lastOfRestMs + PATIENCE_MS);
    }
    const pausedUntilMs = isTrialPermitted ? Number.NEGATIVE_INFINITY : heldUntilMs;
    return Math.max(atMs - nowMs, pausedUntilMs - nowMs, 0);
  }

  /** Waits for a slot and takes it; when it was taken. */
  async function slot(signal: AbortSignal, lane: ListLane): Promise<Moment> {
    const sinceMs = clock.monotonic();
    const left = () => waitMs(clock.monotonic(), lane, sinceMs);
    waiting.add(lane);
    try {
      for (let ms = left(); ms > 0; ms = left()) {
        await sleepUntilWoken(clock, ms, changed, signal);
        signal.throwIfAborted();
      }
      signal.throwIfAborted();
      isTrialPermitted = false;
      const taken = mark();
      starts.push({ atMs: taken.monotonicMs, lane });
      if (lane !== "alarms") lastOfRestMs = taken.monotonicMs;
      if (lane === "tags") othersInARow = 0;
      if (lane === "other") {
        othersInARow += 1;
        lastOtherMs = taken.monotonicMs;
      }
      return taken;
    } finally {
      waiting.delete(lane);
      changed.wakeUp();
    }
  }

  function hold(forMs: number) {
    heldUntilMs = Math.max(heldUntilMs, clock.monotonic() + forMs);
  }

  /** Whether a refusal that says 0 s is one of several minutes in a row. */
  function isRepeated(nowMs: number): boolean {
    const ageMs = empty === null ? Number.POSITIVE_INFINITY : nowMs - empty.atMs;
    if (empty === null || ageMs > EMPTY_REFUSALS * SAME_REFUSAL_MS) empty = { atMs: nowMs, minutes: 1 };
    else if (ageMs >= SAME_REFUSAL_MS) empty = { atMs: nowMs, minutes: empty.minutes + 1 };
    return empty.minutes >= EMPTY_REFUSALS;
  }

  return {
    run(task, signal, lane = "other") {
      const turn = async () => {
        const taken = await slot(signal, lane);
        try {
          return await task(taken);
        } catch (error) {
          // It never left this machine, so the service has not counted it.
          const at =
            error instanceof LocalFailure ? starts.findLastIndex(({ atMs }) => atMs === taken.monotonicMs) : -1;
          if (at >= 0) starts.splice(at, 1);
          throw error;
        }
      };
      return queues[lane].add(turn, { signal });
    },
    hold,
    release() {
      heldUntilMs = Number.NEGATIVE_INFINITY;
      changed.wakeUp();
    },
    permitTrial(isPermitted) {
      isTrialPermitted = isPermitted;
      if (isPermitted) changed.wakeUp();
    },
    refused(startedMs, forMs, saysNow = false) {
      const nowMs = clock.monotonic();
      const isEvidence = !saysNow || isRepeated(nowMs);
      // A further refusal within a minute, or of a request that was under way, says nothing new about the limit.
      const isNew = lowered === null || (startedMs > lowered.atMs && nowMs - lowered.atMs >= SAME_REFUSAL_MS);
      if (isEvidence && isNew) {
        const granted = starts.filter(({ atMs }) => atMs > nowMs - WINDOW_MS && atMs < startedMs).length;
        const half = Math.max(Math.min(LEAST_RATE, rate(nowMs)), Math.floor(rate(nowMs) / 2));
        // A refusal after a fair share of the rate shows the limit; one after a few requests shows only that
        // somebody else asked too, and must not slow the alarms down for a day.
        const ceiling = Math.max(1, granted >= rate(nowMs) / 3 ? granted : perMinute);
        lowered = { atMs: nowMs, ceiling, rate: Math.min(half, ceiling) };
      }
      hold(forMs);
    },
    observe({ limit, remaining }) {
      // None at all, stated with an answer, is a way of saying that there is no limit; so is what is left of it.
      if (limit === 0) return;
      if (limit !== null) statedLimit = limit;
      const oldest = starts[0];
      if (remaining === 0 && oldest !== undefined) hold(oldest.atMs + WINDOW_MS - clock.monotonic());
    },
    rate: () => ({ perMinute: rate(clock.monotonic()), configured: perMinute }),
  };
}

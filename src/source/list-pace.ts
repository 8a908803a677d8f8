import PQueue from "p-queue";
import type { Clock } from "../clock.ts";
import { OwnTrouble } from "../errors.ts";
import { type Mark, type Moment, momentOf } from "../moment.ts";

/**
 * A gentle limit for the lists and the token information, of which the interface states none ("Rate limits of
 * endpoints other than the three tag endpoints: not shown"). It starts at the configured rate; a refusal halves
 * it, at most to what the service had granted in that minute, and it comes back by one request per minute every
 * ten minutes. One urgent and one other request at a time, so that slow lists never take all connections from the
 * tag endpoints.
 */
export interface ListPace {
  /**
   * `urgent`: alarms, sites and the token. A third of the rate is theirs alone, so that a first inventory of many
   * buildings, which takes minutes at this pace, never keeps an alarm waiting. Nor does a storm of alarms that takes
   * the whole rate keep the rest waiting for ever: after two minutes its next request takes any slot. The task is told
   * when its slot was taken.
   */
  run<T>(task: (since: Moment) => Promise<T>, signal: AbortSignal, urgent?: boolean): Promise<T>;
  /** Nothing leaves for this long: the whole service is in maintenance. */
  hold(forMs: number): void;
  /** A request that left at `startedMs` (monotonic) was refused with 429 and the wish to wait `forMs`. */
  refused(startedMs: number, forMs: number): void;
  observe(headers: { readonly limit: number | null; readonly remaining: number | null }): void;
}

/** A minute as the service may count it, and a second for requests that travel at different speeds. */
const WINDOW_MS = 61_000;
/** Longer than any wait in which nothing but the rate itself keeps a request back. */
const PATIENCE_MS = 2 * WINDOW_MS;
const RECOVER_EVERY_MS = 600_000;
/** How long a refusal is believed to show the real limit. */
const REMEMBER_MS = 86_400_000;
const URGENT_SHARE = 1 / 3;

export interface ListPaceOptions {
  readonly perMinute: number;
  readonly clock: Clock;
  /** What a task is told of when its slot was taken; by both clocks unless given. */
  readonly mark?: Mark;
}

export function createListPace(options: ListPaceOptions): ListPace {
  const { perMinute, clock, mark = () => momentOf(clock) } = options;
  const urgentQueue = new PQueue({ concurrency: 1 });
  const otherQueue = new PQueue({ concurrency: 1 });
  let starts: number[] = [];
  let heldUntilMs = Number.NEGATIVE_INFINITY;
  let lowered: { readonly atMs: number; readonly rate: number; readonly ceiling: number } | null = null;
  let statedLimit = Number.POSITIVE_INFINITY;

  function rate(nowMs: number): number {
    if (lowered === null) return Math.min(perMinute, statedLimit);
    const age = nowMs - lowered.atMs;
    const recovered = lowered.rate + Math.floor(age / RECOVER_EVERY_MS);
    return Math.min(perMinute, statedLimit, age < REMEMBER_MS ? lowered.ceiling : perMinute, recovered);
  }

  function waitMs(nowMs: number, urgent: boolean): number {
    starts = starts.filter((startedMs) => startedMs > nowMs - WINDOW_MS);
    const allowed = rate(nowMs);
    const blocking = starts.at(
      -(urgent ? allowed : Math.max(1, allowed - Math.floor(allowed * URGENT_SHARE))),
    );
    const windowMs = blocking === undefined ? 0 : blocking + WINDOW_MS - nowMs;
    return Math.max(windowMs, heldUntilMs - nowMs, 0);
  }

  /** Waits for a slot and takes it; when it was taken. */
  async function slot(signal: AbortSignal, urgent: boolean): Promise<Moment> {
    const sinceMs = clock.monotonic();
    const left = () => {
      const nowMs = clock.monotonic();
      return waitMs(nowMs, urgent || nowMs - sinceMs >= PATIENCE_MS);
    };
    for (let ms = left(); ms > 0; ms = left()) await clock.sleep(ms, signal);
    signal.throwIfAborted();
    const taken = mark();
    starts.push(taken.monotonicMs);
    return taken;
  }

  function hold(forMs: number) {
    heldUntilMs = Math.max(heldUntilMs, clock.monotonic() + forMs);
  }

  return {
    run(task, signal, urgent = false) {
      const turn = async () => {
        const taken = await slot(signal, urgent);
        try {
          return await task(taken);
        } catch (error) {
          // It never left this machine, so the service has not counted it.
          const at = error instanceof OwnTrouble ? starts.lastIndexOf(taken.monotonicMs) : -1;
          if (at >= 0) starts.splice(at, 1);
          throw error;
        }
      };
      return (urgent ? urgentQueue : otherQueue).add(turn, { signal });
    },
    hold,
    refused(startedMs, forMs) {
      const nowMs = clock.monotonic();
      // A second refusal of requests that were under way together says nothing new about the limit.
      if (lowered === null || startedMs > lowered.atMs) {
        const granted = starts.filter((ms) => ms > nowMs - WINDOW_MS && ms < startedMs).length;
        const half = Math.max(1, Math.floor(rate(nowMs) / 2));
        // A refusal after a fair share of the rate shows the limit; one after a few requests shows only that
        // somebody else asked too, and must not slow the alarms down for a day.
        const ceiling = granted >= rate(nowMs) / 3 ? granted : perMinute;
        lowered = { atMs: nowMs, ceiling, rate: Math.min(half, ceiling) };
      }
      hold(forMs);
    },
    observe({ limit, remaining }) {
      // None at all, stated with an answer, is a way of saying that there is no limit; so is what is left of it.
      if (limit === 0) return;
      if (limit !== null) statedLimit = limit;
      const oldest = starts[0];
      if (remaining === 0 && oldest !== undefined) hold(oldest + WINDOW_MS - clock.monotonic());
    },
  };
}

import type { Clock } from "../../clock.ts";
import { ConfigError, meaningOf, Throttled } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { type JobOutcome, OK } from "../job.ts";
import { followingPerMinute } from "../plan/share.ts";
import { type Ask, nextHead, nextOrder, nextTail, nextTotal } from "./ask.ts";
import { createHistoryBook, followedSeries, isFollowed } from "./book.ts";
import type { HistoryConfig } from "./config.ts";
import { createLearnedWindow } from "./learned-window.ts";
import { ms } from "./ledger.ts";
import { createOpenOrders } from "./open-orders.ts";
import { createHistoryProbe, type Probe } from "./probe.ts";
import { type HistoryProgress, progressOf } from "./progress.ts";
import { createHistoryRequests } from "./request.ts";
import { createHistorySettle } from "./settle.ts";

/**
 * The history of one source: follows closed buckets, looks back for late data, fills in what lies before, and
 * tells every bucket once. It uses the slots that writes and live reads leave. When the history store is down (504)
 * only this job stops and is tried again with back-off; its ranges stay to be fetched.
 */
export interface HistoryPull {
  /** Fetches what is due, for some minutes, then returns. */
  run(signal: AbortSignal): Promise<JobOutcome>;
  /** Whether there is work for slots that nobody needs. */
  wants(): boolean;
  progress(): HistoryProgress;
  /** Requests per minute that it takes to keep the followed series complete. */
  requestsPerMinute(): number;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
  readonly classes: HistoryConfig;
  /** IANA zone of the buildings, where a class names no other. */
  readonly timeZone: string;
  /** Whether live reads leave slots free now: only then the past is asked for. Live following has its turn anyway. */
  readonly room?: () => boolean;
  /** Whether the sinks take what is told: the past, which stays where it is, waits while they do not. Always by default. */
  readonly mayFetchPast?: () => Promise<boolean>;
  /** Values that one request may ask for at most: those that fit into the largest reply that is read. */
  readonly valuesMax: number;
}

const RUN_MS = 300_000;
const REFRESH_MS = 60_000;
/** How often it is looked whether the lane is free again, in milliseconds. */
const PEEK_MS = 100;
/** How long it is not looked again after nothing was found to do, in milliseconds. */
const IDLE_LOOK_MS = 1_000;
/** History replies are large: few at once. */
const UNDER_WAY_MAX = 3;
/** Failures in a row after which the history store is taken to be down. */
const FAILURES_MAX = 2;

type Task = { readonly ask: Ask } | { readonly probe: Probe };

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log, classes, timeZone } = options;
  const window = createLearnedWindow(store, source.name, { most: options.valuesMax });
  const book = createHistoryBook({ store, source: source.name, classes, timeZone });
  const orders = createOpenOrders({ store, source: source.name, clock, log, book });
  const probe = createHistoryProbe(book, TAGS_PER_REQUEST, (series) =>
    Math.min(ms(series.held.wished), orders.wantedFrom(series)),
  );
  const settle = createHistorySettle({ store, clock, source: source.name });
  const requests = createHistoryRequests({ source, clock, log, window, probe, settle });
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let isLoaded = false;
  let probing = false;
  let running = false;
  let failures = 0;
  let isHeld = false;

  const isWaiting = () => source.quota().buckets.some((bucket) => bucket.waiting.history > 0);

  async function refresh(): Promise<void> {
    if (!isLoaded) await window.load();
    isLoaded = true;
    await orders.refresh();
    await book.refresh(clock.now(), orders.now().open);
    probe.refresh();
    refreshedAtMs = clock.monotonic();
    await orders.end();
  }

  /** Whether what is to be fetched may be another than at the last refresh. */
  const isOld = async (): Promise<boolean> =>
    clock.monotonic() - refreshedAtMs >= REFRESH_MS || (await orders.haveChanged());

  /** `past`: also what lies before the first sight, and learning who has any. */
  function nextTask(past: boolean): Task | null {
    const nowMs = clock.now();
    const free = book
      .series()
      .filter((series) => isFollowed(series) && !series.busy && series.notBeforeMs <= clock.monotonic());
    const limit = { size: TAGS_PER_REQUEST, values: window.values() };
    const live = nextHead(free, nowMs, limit) ?? nextTotal(free, nowMs, limit);
    if (live !== null) return { ask: live };
    if (!past) return null;
    const toLearn = probing ? null : probe.next(nowMs);
    if (toLearn !== null) return { probe: toLearn };
    const { open, paused } = orders.now();
    if (paused) return null;
    const tail = nextOrder(free, open, nowMs, limit) ?? nextTail(free, limit);
    // A request costs the same with 20 tags: while others are about to be proven, it waits for company.
    const isFull = tail === null || tail.series.length === TAGS_PER_REQUEST;
    return tail === null || (probing && !isFull) ? null : { ask: tail };
  }

  async function perform(task: Task, signal: AbortSignal): Promise<void> {
    const series = "ask" in task ? task.ask.series : [];
    for (const each of series) each.busy = true;
    if ("probe" in task) probing = true;
    try {
      await ("ask" in task ? requests.serve(task.ask, signal) : requests.learn(task.probe, signal));
      failures = 0;
    } catch (error) {
      signal.throwIfAborted();
      for (const each of series) each.unsure = true;
      refreshedAtMs = Number.NEGATIVE_INFINITY;
      const failure = meaningOf(error);
      failures++;
      if (failure instanceof ConfigError || failure instanceof Throttled || failures >= FAILURES_MAX)
        throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const each of series) each.busy = false;
      if ("probe" in task) probing = false;
    }
  }

  return {
    async run(signal) {
      const endAtMs = clock.monotonic() + RUN_MS;
      const underWay = new Set<Promise<void>>();
      let failure: unknown;
      failures = 0;
      running = true;
      let lookAtMs = Number.NEGATIVE_INFINITY;
      let waitsForRoom = false;
      const start = (task: Task) => {
        const work = perform(task, signal)
          .catch((error: unknown) => {
            failure ??= error;
          })
          .finally(() => underWay.delete(work));
        underWay.add(work);
      };
      try {
        while (failure === undefined && clock.monotonic() < endAtMs) {
          // What is wanted may have become known just now.
          const wants = classes.length > 0 || orders.now().open.length > 0;
          const mayBegin = wants && book.series().length === 0 && underWay.size === 0;
          if (mayBegin || (await isOld())) await refresh();
          const room = options.room?.() ?? true;
          const looks = clock.monotonic() >= lookAtMs || (waitsForRoom && room);
          if (looks && underWay.size < UNDER_WAY_MAX && !isWaiting()) {
            isHeld = !((await options.mayFetchPast?.()) ?? true);
            const task = nextTask(room && !isHeld);
            waitsForRoom = task === null && !isHeld && !room && nextTask(true) !== null;
            if (task !== null) start(task);
            else if (underWay.size === 0 && !waitsForRoom) break;
            else lookAtMs = clock.monotonic() + IDLE_LOOK_MS;
          }
          await clock.sleep(PEEK_MS, signal);
        }
      } finally {
        await Promise.all(underWay);
        running = false;
      }
      if (failure !== undefined) throw failure;
      if (orders.now().open.length > 0) await orders.end();
      return OK;
    },
    wants: () => running && (isWaiting() || nextTask(!isHeld) !== null),
    progress: () => progressOf(book.series(), orders.now(), window.values(), probe.waiting(), clock.now()),
    requestsPerMinute: () => followingPerMinute(followedSeries(book.series()), TAGS_PER_REQUEST),
  };
}

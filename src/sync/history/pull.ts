import type { TagLog, TagTotal } from "../../building.ts";
import { type Clock, isoUtc } from "../../clock.ts";
import { ConfigError, meaningOf, Throttled } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { type HistoryQuery, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { type JobOutcome, OK } from "../job.ts";
import { followingPerMinute } from "../plan/share.ts";
import { culprits } from "../plan/split.ts";
import type { HistoryConfig } from "../read/config.ts";
import { isMemberRefusal } from "../read/refused.ts";
import { type HeldHistory, type HeldWindow, syncSet } from "../snapshot.ts";
import { type Ask, nextHead, nextOrder, nextTail, nextTotal } from "./ask.ts";
import { createHistoryBook, followedSeries, isFollowed, type Series } from "./book.ts";
import { bucketBefore, rangeTime } from "./buckets.ts";
import { ms, settleOrder, withoutLog } from "./ledger.ts";
import { type BackfillOrders, forgetOldOrders, isDone, loadOrders, markDone, sameOrders } from "./orders.ts";
import { createHistoryProbe, type Probe } from "./probe.ts";
import { type HistoryProgress, progressOf } from "./progress.ts";
import { createHistorySettle } from "./settle.ts";
import { answered, failed, UNKNOWN_WINDOW, windowValues } from "./window.ts";

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
  /** Values that one request may ask for at most; about 51 bytes each. */
  readonly valuesMax?: number;
}

const RUN_MS = 300_000;
const REFRESH_MS = 60_000;
/** How often it is looked whether a person ordered, paused or gave up something, in milliseconds. */
const ORDERS_MS = 5_000;
/** How often it is looked whether the lane is free again, in milliseconds. */
const PEEK_MS = 100;
/** How long it is not looked again after nothing was found to do, in milliseconds. */
const IDLE_LOOK_MS = 1_000;
/** History replies are large: few at once. */
const UNDER_WAY_MAX = 3;
/** 5 MB of JSON: 50 ms of a core, some 30 MB of memory while it is taken apart. */
const VALUES_MAX = 100_000;
/** Failures in a row after which the history store is taken to be down. */
const FAILURES_MAX = 2;
/** How long a series is left alone whose answer brought it no further, in milliseconds. */
const STUCK_MS = 300_000;

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log } = options;
  const limits = { most: options.valuesMax ?? VALUES_MAX };
  const windowSet = syncSet("history-window", source.name);
  const { classes, timeZone } = options;
  const book = createHistoryBook({ store, source: source.name, classes, timeZone });
  let orders: BackfillOrders = { open: [], paused: false };
  const probe = createHistoryProbe(book, TAGS_PER_REQUEST, ({ held, placed }) =>
    Math.min(
      ms(held.wished),
      ...orders.open.filter((order) => order.matches(placed)).map((order) => ms(order.held.from)),
    ),
  );
  const settle = createHistorySettle({ store, clock, source: source.name });
  let window: HeldWindow = UNKNOWN_WINDOW;
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let ordersAtMs = Number.NEGATIVE_INFINITY;
  let probing = false;
  let running = false;
  let failures = 0;

  const isWaiting = () => source.quota().buckets.some((bucket) => bucket.waiting.history > 0);

  async function refresh(): Promise<void> {
    if (refreshedAtMs === Number.NEGATIVE_INFINITY) {
      window = (await store.document<HeldWindow>(windowSet, "values")) ?? UNKNOWN_WINDOW;
    }
    await forgetOldOrders(store, source.name, clock.now());
    orders = await loadOrders(store, source.name);
    await book.refresh(clock.now(), orders.open);
    probe.refresh();
    refreshedAtMs = clock.monotonic();
    ordersAtMs = refreshedAtMs;
    await endOrders();
  }

  /** Whether what is to be fetched may be another than at the last refresh. */
  async function isOld(): Promise<boolean> {
    const nowMs = clock.monotonic();
    if (nowMs - refreshedAtMs >= REFRESH_MS) return true;
    if (nowMs - ordersAtMs < ORDERS_MS) return false;
    ordersAtMs = nowMs;
    return !sameOrders(await loadOrders(store, source.name), orders);
  }

  /** Says of the orders that nothing is left of that they are done. */
  async function endOrders(): Promise<void> {
    const nowMs = clock.now();
    const done = orders.open.filter((order) => {
      const concerned = book
        .series()
        .filter(
          ({ placed, rules, total }) =>
            !total && rules.resolution === order.resolution && order.matches(placed),
        );
      // Without its tags, before the first listing say, nothing is known of an order.
      return concerned.length > 0 && concerned.every(({ held, rules }) => isDone(order, held, rules, nowMs));
    });
    if (done.length === 0) return;
    await markDone(store, source.name, done, isoUtc(nowMs));
    log.info({ orders: done.map(({ id }) => id) }, "a backfill is done");
    orders = { ...orders, open: orders.open.filter((order) => !done.includes(order)) };
  }

  type Task = { readonly ask: Ask } | { readonly probe: Probe };

  /** `past`: also what lies before the first sight, and learning who has any. */
  function nextTask(past: boolean): Task | null {
    const nowMs = clock.now();
    const free = book
      .series()
      .filter((series) => isFollowed(series) && !series.busy && series.notBeforeMs <= clock.monotonic());
    const limit = { size: TAGS_PER_REQUEST, values: windowValues(window, limits) };
    const live = nextHead(free, nowMs, limit) ?? nextTotal(free, nowMs, limit);
    if (live !== null) return { ask: live };
    if (!past) return null;
    const toLearn = probing ? null : probe.next(nowMs);
    if (toLearn !== null) return { probe: toLearn };
    if (orders.paused) return null;
    const tail = nextOrder(free, orders.open, nowMs, limit) ?? nextTail(free, limit);
    return tail === null ? null : { ask: tail };
  }

  /** The range reaches one bucket further back than needed, because the interface does not say what ends include. */
  function queryFor(ask: Ask, series: readonly Series[]): HistoryQuery | null {
    const [first] = series;
    if (first === undefined) return null;
    const { resolution, timeZone } = first.rules;
    const { fromMs, toMs } = ask.range;
    const from = ask.kind === "total" ? fromMs : bucketBefore(fromMs, resolution, timeZone);
    const tagIds = series.map(({ placed }) => placed.tag.id);
    return { tagIds, from: rangeTime(from), to: rangeTime(toMs), resolution, timeZone };
  }

  /** One request for some of the series of an ask, and its settlement. */
  async function fetchPart(ask: Ask, series: readonly Series[], signal: AbortSignal): Promise<void> {
    const query = queryFor(ask, series);
    if (query === null) return;
    const part = { ...ask, series, values: Math.round((ask.values * series.length) / ask.series.length) };
    let settled: readonly Series[];
    const before = new Map(series.map((each) => [each, each.held]));
    if (ask.kind === "total") {
      const totals: readonly TagTotal[] = await source.totals(query, "history", signal);
      settled = await settle.totals(part, totals);
    } else {
      const logs = await guarded(part, () => source.history(query, "history", signal));
      const learned = answered(window, part.values, limits);
      const changed = learned.good !== window.good || learned.bad !== window.bad;
      const also = changed ? [{ set: windowSet, put: [["values", learned] as const] }] : [];
      settled = await settle.logs(part, logs, also);
      window = learned;
    }
    failures = 0;
    const moved = new Set(settled.filter((each) => hasMoved(before.get(each), each.held)));
    for (const each of series) {
      if (!moved.has(each)) each.notBeforeMs = clock.monotonic() + STUCK_MS;
    }
  }

  /** Learns from a failure what size may be too large. */
  async function guarded(ask: Ask, fetch: () => Promise<readonly TagLog[]>): Promise<readonly TagLog[]> {
    try {
      return await fetch();
    } catch (error) {
      const failure = meaningOf(error);
      if (failure.kind === "retryable" || failure.kind === "malformed") window = failed(window, ask.values);
      throw error;
    }
  }

  /** Serves an ask whole; where a tag spoils the request, the others are served in smaller ones. */
  async function serve(ask: Ask, signal: AbortSignal): Promise<void> {
    const attempt = async (series: readonly Series[]): Promise<boolean> => {
      try {
        await fetchPart(ask, series, signal);
        return true;
      } catch (error) {
        if (!isMemberRefusal(error)) throw error;
        return false;
      }
    };
    if (await attempt(ask.series)) return;
    const search = culprits(ask.series);
    let step = search.next();
    while (!step.done) step = search.next(await attempt(step.value));
    const changed = new Map<Series, HeldHistory>();
    for (const series of step.value) {
      const range = ask.ranges.get(series.key);
      // In the past the service says that this range has no log; at the head that the tag has none (any more).
      if (ask.kind === "tail" && range !== undefined) {
        changed.set(series, { ...series.held, reached: isoUtc(range.fromMs) });
      } else if (ask.kind === "order" && range !== undefined) {
        changed.set(series, settleOrder(series.held, [], range).held);
      } else {
        changed.set(series, withoutLog(series.held, clock.now()));
      }
    }
    await settle.ledgers(changed);
    log.info({ tags: step.value.map(({ key }) => key), kind: ask.kind }, "history without a log");
  }

  async function learn(toLearn: Probe, signal: AbortSignal): Promise<void> {
    let logs: readonly TagLog[] | null = null;
    try {
      logs = await source.history(toLearn.query, "history", signal);
    } catch (error) {
      if (!isMemberRefusal(error)) throw error;
    }
    failures = 0;
    await settle.ledgers(probe.settle(toLearn, logs, clock.now()));
  }

  async function perform(task: Task, signal: AbortSignal): Promise<void> {
    const series = "ask" in task ? task.ask.series : [];
    for (const each of series) each.busy = true;
    if ("probe" in task) probing = true;
    try {
      await ("ask" in task ? serve(task.ask, signal) : learn(task.probe, signal));
    } catch (error) {
      signal.throwIfAborted();
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
          const wants = classes.length > 0 || orders.open.length > 0;
          const mayBegin = wants && book.series().length === 0 && underWay.size === 0;
          if (mayBegin || (await isOld())) await refresh();
          const room = options.room?.() ?? true;
          const looks = clock.monotonic() >= lookAtMs || (waitsForRoom && room);
          if (looks && underWay.size < UNDER_WAY_MAX && !isWaiting()) {
            const task = nextTask(room);
            waitsForRoom = task === null && !room && nextTask(true) !== null;
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
      if (orders.open.length > 0) await endOrders();
      return OK;
    },
    wants: () => running && (isWaiting() || nextTask(true) !== null),
    progress: () =>
      progressOf(book.series(), orders, windowValues(window, limits), probe.waiting(), clock.now()),
    requestsPerMinute: () => followingPerMinute(followedSeries(book.series()), TAGS_PER_REQUEST),
  };
}

/** Whether an answer brought a series further, so that asking again at once makes sense. */
function hasMoved(before: HeldHistory | undefined, after: HeldHistory): boolean {
  return (
    before === undefined ||
    ms(after.watermark) > ms(before.watermark) ||
    ms(after.reached) < ms(before.reached) ||
    after.islands !== before.islands ||
    (after.rereadFrom !== null && after.rereadFrom !== before.rereadFrom)
  );
}

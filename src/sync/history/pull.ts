import type { Clock } from "../../clock.ts";
import { ConfigError, meaningOf, Throttled } from "../../errors.ts";
import type { Log } from "../../log.ts";
import { type SlotOffer, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { loop } from "../../waiting.ts";
import type { Follower } from "../follower.ts";
import type { Demand } from "../plan/demand.ts";
import { followingPerMinute } from "../plan/share.ts";
import type { HistoryConfig } from "../read/config.ts";
import { standInLine } from "../standing.ts";
import { nextHead, nextOrder, nextTail, nextTotal } from "./ask.ts";
import { createHistoryBook, followedSeries, isFollowed, type Series } from "./book.ts";
import { createLearnedWindow } from "./learned-window.ts";
import { ms } from "./ledger.ts";
import { createOpenOrders } from "./open-orders.ts";
import { createHistoryProbe } from "./probe.ts";
import { type HistoryProgress, progressOf } from "./progress.ts";
import { createHistoryRequests, type Task } from "./request.ts";
import { createHistorySettle } from "./settle.ts";

/**
 * The history of one source: follows closed buckets, looks back for late data, fills in what lies before, and
 * tells every bucket once. Its requests stand in the quota's lane `history`, and what they ask for is decided when a
 * slot is free that writes and live reads have let pass. When the history store is down (504) only this rests and is
 * tried again with back-off; its ranges stay to be fetched.
 */
export interface HistoryPull extends Follower {
  progress(): HistoryProgress;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
  readonly classes: HistoryConfig;
  /** IANA zone of the buildings, where a class names no other. */
  readonly timeZone: string;
  /** Where it says what its promises take of the quota. */
  readonly demand?: Pick<Demand, "setHistory">;
  /** Whether the sinks take what is told: the past, which stays where it is, waits while they do not. Always by default. */
  readonly mayFetchPast?: () => Promise<boolean>;
  /** Values that one request may ask for at most: those that fit into the largest reply that is read. */
  readonly valuesMax: number;
}

const REFRESH_MS = 60_000;
/** How often it is looked whether somebody ordered something, or the sinks fell behind, in milliseconds. */
const LOOK_MS = 1_000;
/** History replies are large: few at once. */
const UNDER_WAY_MAX = 3;
/** Failures in a row after which the history store is taken to be down. */
const FAILURES_MAX = 2;

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
  let failures = 0;
  let isHeld = false;

  async function refresh(): Promise<void> {
    if (!isLoaded) await window.load();
    isLoaded = true;
    await orders.refresh();
    await book.refresh(clock.now(), orders.now().open);
    probe.refresh();
    refreshedAtMs = clock.monotonic();
    options.demand?.setHistory(followingPerMinute(followedSeries(book.series()), TAGS_PER_REQUEST));
    await orders.end();
  }

  /** Whether what is to be fetched may be another than at the last refresh. */
  const isOld = async (): Promise<boolean> =>
    clock.monotonic() - refreshedAtMs >= REFRESH_MS || (await orders.haveChanged());

  /** `past`: also what lies before the first sight, and learning who has any. */
  function nextTask(kind: "series" | "totals", past: boolean): Task | null {
    const nowMs = clock.now();
    const free = book
      .series()
      .filter((series) => isFollowed(series) && !series.busy && series.notBeforeMs <= clock.monotonic());
    const limit = { size: TAGS_PER_REQUEST, values: window.values() };
    if (kind === "totals") {
      const total = nextTotal(free, nowMs, limit);
      return total === null ? null : { ask: total };
    }
    const head = nextHead(free, nowMs, limit);
    if (head !== null) return { ask: head };
    const toLearn = probing ? null : probe.next(nowMs);
    if (toLearn !== null) return { probe: toLearn };
    if (!past) return null;
    const { open, paused } = orders.now();
    if (paused) return null;
    const tail = nextOrder(free, open, nowMs, limit) ?? nextTail(free, limit);
    // A request costs the same with 20 tags: while others are about to be proven, it waits for company.
    const isFull = tail === null || tail.series.length === TAGS_PER_REQUEST;
    return tail === null || (probing && !isFull) ? null : { ask: tail };
  }

  /** Stands in the lane until a slot is free, decides what to fetch, and settles it. Throws what concerns all. */
  async function pullOnce(
    kind: "series" | "totals",
    begun: () => void,
    signal: AbortSignal,
    well: () => void,
  ) {
    let task: Task | null = null;
    const decide = ({ own }: SlotOffer): Task | null => {
      // A slot that the live reads did not let pass is for what happens now, not for the past.
      task = nextTask(kind, !own && !isHeld);
      if (task === null) return null;
      for (const each of seriesIn(task)) each.busy = true;
      if ("probe" in task) probing = true;
      begun();
      return task;
    };
    try {
      await requests.perform(kind, decide, signal);
      failures = 0;
      well();
    } catch (error) {
      signal.throwIfAborted();
      for (const each of seriesIn(task)) each.unsure = true;
      refreshedAtMs = Number.NEGATIVE_INFINITY;
      const failure = meaningOf(error);
      failures++;
      if (failure instanceof ConfigError || failure instanceof Throttled || failures >= FAILURES_MAX)
        throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const each of seriesIn(task)) each.busy = false;
      if (task !== null && "probe" in (task as Task)) probing = false;
    }
  }

  return {
    name: "history",
    ability: "read:tags",

    async follow({ draining, forced, well }) {
      failures = 0;
      await look();
      const over = new AbortController();
      const looking = loop({
        clock,
        signal: AbortSignal.any([draining, forced, over.signal]),
        async turn() {
          await look();
          return LOOK_MS;
        },
        fault: (error) => log.warn({ err: error }, "what is to be fetched could not be looked up"),
      });
      try {
        await standInLine(
          (["series", "totals"] as const).map(
            (kind) => (begun, signal) => pullOnce(kind, begun, signal, well),
          ),
          { most: UNDER_WAY_MAX, draining, forced },
        );
      } finally {
        over.abort();
        await looking;
      }
    },
    progress: () => progressOf(book.series(), orders.now(), window.values(), probe.waiting(), clock.now()),
  };

  /** What may have changed meanwhile: tags, orders of a person, whether the sinks take more. */
  async function look(): Promise<void> {
    // What is wanted may have become known just now.
    const wants = classes.length > 0 || orders.now().open.length > 0;
    const mayBegin = wants && book.series().length === 0;
    if (mayBegin || (await isOld())) await refresh();
    else if (orders.now().open.length > 0) await orders.end();
    isHeld = !((await options.mayFetchPast?.()) ?? true);
  }
}

function seriesIn(task: Task | null): readonly Series[] {
  return task !== null && "ask" in task ? task.ask.series : [];
}

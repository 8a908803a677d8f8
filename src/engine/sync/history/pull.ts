import { ConfigError, LocalFailure, meaningOf, Throttled } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { createWakeup, loop, WOKEN } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { type SlotOffer, type Source, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Store } from "../../store/store.ts";
import { createCompleteDays } from "../completeness/finalized-days.ts";
import type { Follower } from "../follower.ts";
import type { Demand } from "../plan/demand.ts";
import { followingPerMinute, learningPerMinute } from "../plan/quota-share.ts";
import { standInLine } from "../standing.ts";
import { nextBackfill, nextFollowing, nextOrdered, nextTotal } from "./choose-request.ts";
import type { HistoryConfig } from "./config.ts";
import { parseTime } from "./ledger.ts";
import { createLogDiscovery } from "./log-discovery.ts";
import { type HistoryProgress, progressOf, setSeriesGauge } from "./progress.ts";
import { createHistoryRequests, createRefusalReasons, type HistoryScope, type Task } from "./request.ts";
import { createLearnedWindow, createShortResponses } from "./request-size.ts";
import {
  createHistoryLedgers,
  createOpenBackfills,
  createTakeBack,
  followedSeries,
  isFollowed,
  type Series,
} from "./series.ts";
import { createHistorySettle, type OnLogged } from "./settle.ts";

/**
 * The history of one source: follows closed buckets, looks back for late data, fills in what lies before, and
 * tells every bucket once. Its requests stand in the quota's lane `history`, and what they ask for is decided when a
 * slot is free that writes and live reads have let pass. When the history store is down (504) only this rests and is
 * tried again with back-off; its ranges stay to be fetched.
 */
export interface HistoryPull extends Follower {
  progress(): HistoryProgress;
  /** Other classes, from the next request on; the ledger of what is had stays. */
  change(next: Pick<HistoryPullOptions, "classes" | "valuesMax">): void;
}

export interface HistoryPullOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics?: Pick<Metrics, "historyRefusals" | "historySeries">;
  /** What the token may see; everything by default. */
  readonly scope?: HistoryScope;
  readonly classes: HistoryConfig;
  /** IANA zone of the buildings, where a class names no other. */
  readonly timeZone: string;
  /** Where it says what its promises take of the quota. */
  readonly demand?: Pick<Demand, "setFollowing">;
  /** Whether the sinks take what is told: the past, which stays where it is, waits while they do not. Always by default. */
  readonly mayFetchPast?: () => Promise<boolean>;
  /** Values that one request may ask for at most: those that fit into the largest reply that is read. */
  readonly valuesMax: number;
  readonly onLogged?: OnLogged;
  /** False while only a part of a site's tags may be known, so that no day of it can be complete; always true by default. */
  readonly knowsTagsOf?: (siteId: number) => boolean;
}

const REFRESH_MS = 60_000;
/** How often it is looked whether somebody ordered something, or the sinks fell behind, in milliseconds. */
const LOOK_MS = 1_000;
/** The same where nothing is followed and nothing was ordered: 20 idle sources would wake the worker 20 times a second. */
const IDLE_LOOK_MS = 5_000;
/** How often it is noted whether something is due, in milliseconds: nobody starves within less than three minutes. */
const NOTE_DUE_MS = 5_000;
/** History replies are large: few at once. */
const UNDER_WAY_MAX = 3;
/** Failures in a row after which the history store is taken to be down. */
const FAILURES_MAX = 2;

/**
 * Far longer than planned, for a request that is due: three times its interval by the plan, within these bounds,
 * milliseconds.
 */
const STARVING_MIN_MS = 180_000;
const STARVING_MAX_MS = 900_000;

export function createHistoryPull(options: HistoryPullOptions): HistoryPull {
  const { source, store, clock, log, metrics, timeZone, scope = seesEverything() } = options;
  let { classes } = options;
  const limits = { most: options.valuesMax };
  const window = createLearnedWindow(store, source.name, limits, clock);
  const book = createHistoryLedgers({ store, source: source.name, classes, timeZone });
  const orders = createOpenBackfills({ store, source: source.name, clock, log, book });
  const wantedFrom = (series: Series) => Math.min(parseTime(series.ledger.wished), orders.wantedFrom(series));
  const isInSight = ({ located }: Series) => located.outOfSight !== "tag" && scope.sees(located.siteId);
  const probe = createLogDiscovery(book, TAGS_PER_REQUEST, wantedFrom, isInSight);
  const { knowsTagsOf = () => true } = options;
  const days = createCompleteDays({ store, clock, source: source.name, book, knowsTagsOf });
  const { onLogged } = options;
  const settle = createHistorySettle({
    store,
    clock,
    source: source.name,
    sealed: days.sealed,
    ...(onLogged === undefined ? {} : { onLogged }),
  });
  const counted = metrics === undefined ? {} : { metrics };
  const reasons = createRefusalReasons({ scope, clock, log, source: source.name, ...counted });
  const short = createShortResponses({ clock, window, log });
  const requests = createHistoryRequests({
    source,
    clock,
    log,
    book,
    window,
    probe,
    settle,
    short,
    reasons,
    lookMs,
  });
  const takeBack = createTakeBack({ store, source: source.name, book, scope });
  let refreshedAtMs = Number.NEGATIVE_INFINITY;
  let isLoaded = false;
  let scopeChanges = scope.changes.wakeups();
  let wasAlone = false;
  /** Since when something is due that has not had its turn, on the monotonic clock. */
  let dueSinceMs: number | null = null;
  let notedDueMs = Number.NEGATIVE_INFINITY;
  let probing = false;
  /** When it was last asked which tags have a log, on the monotonic clock. */
  let learnedAtMs = Number.NEGATIVE_INFINITY;
  let failures = 0;
  let isHeld = false;

  async function refresh(): Promise<void> {
    if (!isLoaded) await window.load();
    isLoaded = true;
    await orders.refresh();
    scopeChanges = scope.changes.wakeups();
    await book.refresh(clock.now(), orders.now().open);
    const doubted = await takeBack.look();
    probe.forget(doubted.map(({ located }) => located.tag.id));
    // An order that ended on a word that was taken back is open again.
    if (doubted.length > 0) await orders.refresh();
    probe.refresh();
    if (metrics !== undefined) setSeriesGauge(metrics, source.name, book.series());
    refreshedAtMs = clock.monotonic();
    options.demand?.setFollowing(followingPerMinute(followedSeries(book.series()), TAGS_PER_REQUEST));
    await orders.end();
  }

  const isIdle = () => classes.length === 0 && book.series().length === 0;
  /** Rings when something is to be fetched where nothing was: until then nobody stands in line. */
  const wanted = createWakeup();
  /** Rings when there are other classes. */
  const wishes = createWakeup();

  function lookMs(): number {
    return isIdle() ? IDLE_LOOK_MS : LOOK_MS;
  }

  /** Whether what is to be fetched may be another than at the last refresh. */
  const isOld = async (): Promise<boolean> =>
    clock.monotonic() - refreshedAtMs >= REFRESH_MS ||
    scope.changes.wakeups() !== scopeChanges ||
    (await orders.haveChanged());

  /** `past`: also what lies before the first sight. `learn`: also which tags have a log. */
  function nextTask(
    kind: "series" | "totals",
    { past, learn }: { past: boolean; learn: boolean },
  ): Task | null {
    const nowMs = clock.now();
    const free = book
      .series()
      .filter(
        (series) =>
          isFollowed(series) && !series.busy && series.notBeforeMs <= clock.monotonic() && isInSight(series),
      );
    const limit = {
      size: TAGS_PER_REQUEST,
      values: window.values(),
      aloneFirst: !wasAlone,
      bucketsEach: window.bucketsEach,
    };
    if (kind === "totals") {
      const total = nextTotal(free, nowMs, limit);
      return total === null ? null : { ask: total };
    }
    const { open, paused } = orders.now();
    const first =
      short.next(free, limit, past && !paused) ??
      nextFollowing(
        free.filter((series) => !short.has(series, true)),
        nowMs,
        limit,
      );
    const toLearn = probing || !learn ? null : probe.next(nowMs);
    const isDue = first !== null || (!probing && probe.waiting() > 0);
    if (isDue) dueSinceMs ??= clock.monotonic();
    else if (!probing && !book.series().some(({ busy }) => busy)) dueSinceMs = null;
    if (first !== null) return { ask: first };
    if (toLearn !== null) return { probe: toLearn };
    if (!past || paused) return null;
    const sure = free.filter((series) => !short.has(series));
    const ask = nextOrdered(sure, open, nowMs, limit) ?? nextBackfill(sure, nowMs, limit);
    // A request costs the same with 20 tags: while others are about to be proven, it waits for company.
    const isFull = ask === null || ask.alone || ask.series.length === TAGS_PER_REQUEST;
    return ask === null || (probing && !isFull) ? null : { ask };
  }

  /** Without a slot that live reads leave over, learning still has what the plan says. */
  const isLearningDue = () => clock.monotonic() - learnedAtMs >= 60_000 / Math.max(0.01, learningRate());

  const learningRate = () =>
    learningPerMinute(probe.waiting(), source.quota().buckets[0]?.lastingPerMinute ?? 20);

  const plannedRate = () =>
    followingPerMinute(followedSeries(book.series()), TAGS_PER_REQUEST) + learningRate();

  function starving(): HistoryProgress["starving"] {
    if (dueSinceMs === null) return null;
    const allowedMs = Math.max(STARVING_MIN_MS, (3 * 60_000) / Math.max(0.01, plannedRate()));
    const forMs = clock.monotonic() - dueSinceMs;
    return forMs <= Math.min(STARVING_MAX_MS, allowedMs) ? null : { since: isoUtc(clock.now() - forMs) };
  }

  /** Stands in the lane until a slot is free, decides what to fetch, and settles it. Throws what concerns all. */
  async function pullOnce(
    kind: "series" | "totals",
    begun: () => void,
    signal: AbortSignal,
    well: () => void,
  ) {
    while (isIdle() && !signal.aborted) await wanted.nextWakeup(signal);
    signal.throwIfAborted();
    let task: Task | null = null;
    const decide = ({ own }: SlotOffer): Task | null => {
      // A slot that the live reads did not let pass is for what happens now, not for the past.
      task = nextTask(kind, { past: !own && !isHeld, learn: !isHeld && (!own || isLearningDue()) });
      if (task === null) return null;
      for (const each of seriesIn(task)) each.busy = true;
      if ("probe" in task) {
        probing = true;
        learnedAtMs = clock.monotonic();
      } else wasAlone = task.ask.alone;
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
      const concernsAll =
        failure instanceof ConfigError || failure instanceof Throttled || failure instanceof LocalFailure;
      if (concernsAll || failures >= FAILURES_MAX) throw failure;
      log.warn({ err: failure }, "a history request failed");
    } finally {
      for (const each of seriesIn(task)) each.busy = false;
      if (task !== null && "probe" in (task as Task)) probing = false;
      dueSinceMs = null;
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
        bell: wishes,
        looks: true,
        async turn() {
          await look();
          return lookMs();
        },
        fault: (error) => log.warn({ err: error }, "what is to be fetched could not be looked up"),
      });
      try {
        await standInLine(
          (["series", "totals"] as const).map(
            (kind) => (begun, signal) => pullOnce(kind, begun, signal, well),
          ),
          { most: () => UNDER_WAY_MAX, draining, forced },
        );
      } finally {
        over.abort(WOKEN);
        await looking;
      }
    },
    change(next) {
      classes = next.classes;
      limits.most = next.valuesMax;
      book.change(classes);
      refreshedAtMs = Number.NEGATIVE_INFINITY;
      wishes.wakeUp();
    },
    progress: () => ({
      ...progressOf(book.series(), orders.now(), window.values(), probe.waiting(), clock.now()),
      starving: starving(),
    }),
  };

  /** What may have changed meanwhile: tags, orders of a person, whether the sinks take more. */
  async function look(): Promise<void> {
    // What is wanted may have become known just now.
    const wants = classes.length > 0 || orders.now().open.length > 0;
    const mayBegin = wants && book.series().length === 0;
    if (mayBegin || (await isOld())) await refresh();
    else if (orders.now().open.length > 0) await orders.end();
    if (book.series().length === 0) return;
    wanted.wakeUp();
    isHeld = !((await options.mayFetchPast?.()) ?? true);
    if (clock.monotonic() - notedDueMs < NOTE_DUE_MS) return;
    notedDueMs = clock.monotonic();
    // Also while no slot is offered it is noted since when something is due.
    nextTask("series", { past: false, learn: false });
    await days.look();
  }
}

function seriesIn(task: Task | null): readonly Series[] {
  return task !== null && "ask" in task ? task.ask.series : [];
}

function seesEverything(): HistoryScope {
  return { sees: () => true, explain: async () => "unexplained", changes: createWakeup() };
}

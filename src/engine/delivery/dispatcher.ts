import type { BuildingView } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createWakeup, loop, persist, within } from "../../core/runtime/waiting.ts";
import type { Outbox, SinkLag, Store, Wanted } from "../store/store.ts";
import { wantedBy } from "./filter.ts";
import { createRegistration } from "./registration.ts";
import { type ConfiguredSink, createSinkRunner, FAULT_BACKOFF, type SinkRunner } from "./sink-runner.ts";
import type { SinkStatus } from "./sink-state.ts";

export interface DispatcherOptions {
  readonly sinks: readonly ConfiguredSink[];
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly picture: BuildingView;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Between 0 and 1, for the jitter of back-off. */
  readonly random?: () => number;
  /** How often it is looked for all sinks whether another process has marked something, in milliseconds. */
  readonly lookEveryMs?: number;
}

export interface Dispatcher extends Service {
  status(): readonly SinkStatus[];
  /** Messages about servers that were restarted lately. */
  notices(): readonly string[];
  /**
   * Has these sinks from now on; resolves once those that are new are known, as at a start. One that is the same object
   * as before is not disturbed. One that is gone, or in whose place another of its name stands, finishes its batch and is
   * closed before the other begins; what is not configured any more is ended then, as at a start.
   */
  change(sinks: readonly ConfiguredSink[]): Promise<void>;
}

const LAG_EVERY_MS = 5_000;
const LOOK_EVERY_MS = 1_000;
/** So long a sink that is replaced may finish what is under way, in milliseconds: as long as its deadline by default. */
const REPLACED_WITHIN_MS = 40_000;

/**
 * Runs one loop per sink over the same log. `start` registers the sinks with the outbox, so that all later events reach them,
 * and waits for no server.
 */
export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { outbox, clock, log, random = Math.random, lookEveryMs = LOOK_EVERY_MS } = options;
  const draining = new AbortController();
  /** One watcher hears the outbox for all sinks, another looks for what other processes did. */
  const news = createWakeup();
  const registration = createRegistration({ outbox, store: options.store, log, clock });
  let runners: readonly SinkRunner[] = options.sinks.map(runnerOf);
  let wanted = wantedOf(options.sinks);
  let lags: ReadonlyMap<string, SinkLag> = new Map();
  let watching: readonly Promise<void>[] | null = null;
  let stopped: Promise<void> | null = null;

  function runnerOf(configured: ConfiguredSink): SinkRunner {
    const { store, picture, metrics } = options;
    const shared = { outbox, store, picture, news, lookEveryMs, clock, log, metrics, random };
    return createSinkRunner({ ...shared, configured, registration });
  }

  const inUse = { has: (name: string) => runners.some(({ configured }) => configured.name === name) };
  let looksForOthers = 0;

  /**
   * Resolves after the first attempt; failures are retried until they succeed. Sinks that were added again are
   * skipped.
   */
  function endOthers(): Promise<void> {
    looksForOthers += 1;
    const look = looksForOthers;
    const tried = Promise.withResolvers<void>();
    const looking = persist({
      clock,
      signal: draining.signal,
      random,
      backoff: FAULT_BACKOFF,
      async work() {
        if (look === looksForOthers) await registration.endOthers(inUse);
      },
      fault(error) {
        log.warn({ err: error }, "The sinks of before could not be looked through; it is tried again.");
        tried.resolve();
      },
    })
      .catch((error: unknown) => {
        if (!draining.signal.aborted) throw error;
      })
      .finally(() => {
        endings.delete(looking);
        tried.resolve();
      });
    endings.add(looking);
    return tried.promise;
  }

  /** Sinks that finish their batch and are no longer configured. */
  const leaving = new Set<SinkRunner>();
  const endings = new Set<Promise<void>>();

  async function change(sinks: readonly ConfiguredSink[]): Promise<void> {
    if (watching === null || stopped !== null) return;
    const staying = new Map(runners.map((runner) => [runner.configured, runner]));
    const going = runners.filter(({ configured }) => !sinks.includes(configured));
    for (const runner of going) leaving.add(runner);
    const all = sinks.map((configured) => staying.get(configured) ?? runnerOf(configured));
    const coming = all.filter(({ configured }) => !staying.has(configured));
    runners = all;
    wanted = wantedOf(sinks);
    seenByLag = null;
    const starting = coming.map((runner) => runner.start(hasLeft(runner.configured)));
    const ending = endAll(going).finally(() => endings.delete(ending));
    endings.add(ending);
    // New sinks are registered, so later events reach them; leaving sinks may finish.
    await Promise.all(starting);
  }

  /** Two of one name would move one cursor, and two that meet, as where a sink is renamed, would write the same files. */
  async function hasLeft(next: ConfiguredSink): Promise<void> {
    const before = [...leaving].filter(
      ({ configured }) => configured.name === next.name || next.meets?.(configured) === true,
    );
    await Promise.all(before.map((each) => each.ended()));
  }

  async function endAll(going: readonly SinkRunner[]): Promise<void> {
    for (const runner of going) void runner.ended().then(() => leaving.delete(runner));
    await Promise.all(going.map((runner) => runner.stop(REPLACED_WITHIN_MS)));
    for (const { configured } of going)
      if (!runners.some((runner) => runner.configured.name === configured.name))
        options.metrics.sinkUp.remove({ sink: configured.name });
    await endOthers();
  }

  function watchNews(): Promise<void> {
    // Listen again before notifying the sinks, so that no commit is missed.
    let heard: Promise<void> | null = null;
    const listen = () => {
      const next = outbox.changed(draining.signal);
      next.catch(() => undefined);
      return next;
    };
    return loop({
      clock,
      signal: draining.signal,
      async turn() {
        await (heard ?? listen());
        heard = listen();
        news.wakeUp();
        return 0;
      },
      fault(error) {
        heard = null;
        log.warn({ err: error }, "What is committed is not heard; it is looked for every second.");
      },
    });
  }

  /** Polls one number for changes that other processes make. */
  function watchChanges(): Promise<void> {
    let seen: number | null = null;
    return loop({
      clock,
      signal: draining.signal,
      looks: true,
      async turn() {
        const changes = await options.store.changes();
        if (changes !== seen) news.wakeUp();
        seen = changes;
        return lookEveryMs;
      },
      fault: (error) => log.warn({ err: error }, "What other processes have marked could not be looked for."),
      backoff: FAULT_BACKOFF,
    });
  }

  /** At which number of changes the lag was read; null when it has to be read anyway. */
  let seenByLag: number | null = null;
  function watchLag(): Promise<void> {
    return loop({
      clock,
      signal: draining.signal,
      looks: true,
      async turn() {
        const changes = await options.store.changes();
        if (changes === seenByLag) return LAG_EVERY_MS;
        const all = await outbox.lag(wanted);
        lags = new Map(all.map((lag) => [lag.sink, lag]));
        seenByLag = changes;
        return LAG_EVERY_MS;
      },
      fault: (error) => log.warn({ err: error }, "The lag of the sinks could not be read."),
      backoff: FAULT_BACKOFF,
    });
  }

  async function end(deadlineMs: number): Promise<void> {
    draining.abort(new Stopping());
    for (const runner of leaving) runner.force();
    await Promise.all([...runners, ...leaving].map((runner) => runner.stop(deadlineMs)));
    await within(clock, deadlineMs, Promise.all([...(watching ?? []), ...endings]));
  }

  return {
    name: "dispatcher",

    async start(signal) {
      if (watching !== null || stopped !== null) return;
      const onAbort = () => {
        draining.abort(new Stopping());
        for (const runner of runners) runner.force();
      };
      signal.addEventListener("abort", onAbort, { once: true, signal: draining.signal });
      const starting = Promise.all(runners.map((runner) => runner.start(Promise.resolve())));
      if (signal.aborted) onAbort();
      watching = [watchNews(), watchChanges(), watchLag()];
      await starting;
      await endOthers();
    },

    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },

    change,

    notices: () => runners.flatMap(({ state }) => state.notices()),

    status: () =>
      runners.map(({ configured, state }) => ({
        ...state.status(),
        waiting: configured.sink.waiting?.() ?? 0,
        lag: lags.get(configured.name) ?? null,
      })),
  };
}

function wantedOf(sinks: readonly ConfiguredSink[]): ReadonlyMap<string, Wanted> {
  return wantedBy(sinks.map(({ name, delivery }) => [name, delivery.filter]));
}

import type { Clock } from "../clock.ts";
import type { Picture, Sink } from "../connector.ts";
import { type Service, Stopping } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Outbox, SinkLag, Store } from "../store/store.ts";
import { createBell, loop, within } from "../waiting.ts";
import type { DeliveryConfig } from "./config.ts";
import { wantedBy } from "./filter.ts";
import { createRegistration } from "./registration.ts";
import { createDelivery, type Delivery } from "./sink-loop.ts";
import { createSinkState, type SinkStatus } from "./sink-state.ts";

/** A configured sink: an instance of a connector and how events get to it. */
export interface ConfiguredSink {
  readonly name: string;
  /** The connector's name, for people. */
  readonly connector: string;
  readonly sink: Sink;
  readonly delivery: DeliveryConfig;
}

export interface DispatcherOptions {
  readonly sinks: readonly ConfiguredSink[];
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly picture: Picture;
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
  /** For a person: far ends that were restarted lately; empty while none was. */
  notices(): readonly string[];
}

/** How often a sink that has ended is looked at: somebody may have let it go on. */
const ENDED_LOOK_MS = 1_000;
const LAG_EVERY_MS = 5_000;
const LOOK_EVERY_MS = 1_000;
/** Waits after a fault of ours, or while the state is out of order. */
const FAULT_BACKOFF = { firstMs: 5_000, maxMs: 60_000 };
/** The part of a stop's deadline in which writes may finish by themselves. */
const GRACEFUL = 0.75;

/**
 * One loop per sink over the same log. `start` makes the sinks known to the outbox, so that everything committed
 * from then on reaches them, and does not wait for any far end.
 */
export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { sinks, outbox, clock, log, metrics, lookEveryMs = LOOK_EVERY_MS } = options;
  const draining = new AbortController();
  const forced = new AbortController();
  /** One watcher hears the outbox for all sinks, another looks for what other processes did. */
  const news = createBell();
  const states = new Map(
    sinks.map(({ name, connector }) => [name, createSinkState({ name, connector, clock, log, metrics })]),
  );
  const registration = createRegistration({ outbox, store: options.store, log, clock });
  const wanted = wantedBy(sinks.map(({ name, delivery }) => [name, delivery.filter]));
  let lags: ReadonlyMap<string, SinkLag> = new Map();
  let running: readonly Promise<void>[] | null = null;
  let stopped: Promise<void> | null = null;

  const closings = new Map<string, Promise<void>>();
  function close({ name, sink }: ConfiguredSink): Promise<void> {
    const closing = closings.get(name) ?? closeQuietly(name, sink);
    closings.set(name, closing);
    return closing;
  }

  async function closeQuietly(name: string, sink: Sink): Promise<void> {
    try {
      await sink.close();
    } catch (error) {
      log.warn({ sink: name, err: error }, "The sink could not be closed cleanly.");
    }
  }

  /** Makes a sink known; false when it was ended for good. */
  async function register(configured: ConfiguredSink): Promise<boolean> {
    const state = states.get(configured.name);
    const ended = await registration.register(configured);
    if (ended === null) state?.goOn();
    else state?.end(ended);
    return ended === null;
  }

  /** The first try, which a start waits for; null while the state is out of order. */
  function knownAtFirst(configured: ConfiguredSink): Promise<boolean | null> {
    return register(configured).catch((error: unknown) => {
      states.get(configured.name)?.trouble("retrying", error, 1, 0);
      return null;
    });
  }

  async function run(configured: ConfiguredSink, first: Promise<boolean | null>): Promise<void> {
    const { name, sink, delivery: config } = configured;
    const { random = Math.random } = options;
    const state = states.get(name);
    if (state === undefined) return;
    let isInUse = await first;
    let delivery: Delivery | null = null;
    await loop({
      clock,
      signal: draining.signal,
      bell: news,
      random,
      backoff: FAULT_BACKOFF,
      async turn() {
        isInUse ??= await register(configured);
        if (!isInUse) {
          // A person may let it go on at any time.
          isInUse = null;
          return ENDED_LOOK_MS;
        }
        const signals = { draining: draining.signal, forced: forced.signal };
        const { onRestart } = state;
        const own = { name, sink, config, state, lookEveryMs, onRestart };
        const shared = {
          ...own,
          outbox,
          store: options.store,
          picture: options.picture,
          clock,
          log,
          metrics,
          random,
        };
        const endForGood = (reason: string) => registration.endForGood(configured, reason);
        delivery ??= createDelivery({ ...shared, ...signals, endForGood });
        const againMs = await delivery.turn();
        if (againMs !== null || draining.signal.aborted) return againMs;
        delivery = null;
        isInUse = null;
        return ENDED_LOOK_MS;
      },
      fault(error, inMs) {
        // A fault of ours must not silence a sink for ever: it begins anew.
        const message = "The delivery to a sink failed by a fault of its own; it begins anew.";
        if (delivery !== null) log.error({ sink: name, err: error }, message);
        state.trouble("retrying", error, 1, inMs);
        delivery = null;
        isInUse = null;
      },
    });
    await (delivery as Delivery | null)?.end();
    await close(configured);
  }

  async function endOthers(): Promise<void> {
    try {
      await registration.endOthers(new Set(states.keys()));
    } catch (error) {
      log.warn({ err: error }, "The sinks of before could not be looked through.");
    }
  }

  function watchNews(): Promise<void> {
    // Listened for again before anybody is told: what is committed meanwhile is not overslept.
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
        news.ring();
        return 0;
      },
      fault(error) {
        heard = null;
        log.warn({ err: error }, "What is committed is not heard; it is looked for every second.");
      },
    });
  }

  /** Nobody hears what another process marks; that anything was changed is one number for all sinks. */
  function watchChanges(): Promise<void> {
    let seen: number | null = null;
    return loop({
      clock,
      signal: draining.signal,
      async turn() {
        const changes = await options.store.changes();
        if (changes !== seen) news.ring();
        seen = changes;
        return lookEveryMs;
      },
      fault: (error) => log.warn({ err: error }, "What other processes have marked could not be looked for."),
      backoff: FAULT_BACKOFF,
    });
  }

  function watchLag(): Promise<void> {
    let seen: number | null = null;
    return loop({
      clock,
      signal: draining.signal,
      async turn() {
        const changes = await options.store.changes();
        if (changes === seen) return LAG_EVERY_MS;
        const all = await outbox.lag(wanted);
        lags = new Map(all.map((lag) => [lag.sink, lag]));
        seen = changes;
        return LAG_EVERY_MS;
      },
      fault: (error) => log.warn({ err: error }, "The lag of the sinks could not be read."),
      backoff: FAULT_BACKOFF,
    });
  }

  async function end(deadlineMs: number): Promise<void> {
    draining.abort(new Stopping());
    const all = Promise.all(running ?? []);
    if (!(await within(clock, deadlineMs * GRACEFUL, all))) {
      forced.abort(new Stopping());
      if (!(await within(clock, (deadlineMs * (1 - GRACEFUL)) / 2, all))) {
        log.warn("A sink did not end in time; what it was writing is sent again after the next start.");
      }
    }
    await within(clock, (deadlineMs * (1 - GRACEFUL)) / 2, Promise.all(sinks.map(close)));
  }

  return {
    name: "dispatcher",

    async start(signal) {
      if (running !== null || stopped !== null) return;
      const onAbort = () => {
        draining.abort(new Stopping());
        forced.abort(new Stopping());
      };
      signal.addEventListener("abort", onAbort, { once: true, signal: draining.signal });
      if (signal.aborted) onAbort();
      const registering = sinks.map(knownAtFirst);
      running = [
        ...sinks.map((sink, n) => run(sink, registering[n] ?? knownAtFirst(sink))),
        watchNews(),
        watchChanges(),
        watchLag(),
      ];
      await Promise.all(registering);
      await endOthers();
    },

    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },

    notices: () => [...states.values()].flatMap((state) => state.notices()),

    status: () =>
      sinks.flatMap(({ name }) => {
        const state = states.get(name);
        return state === undefined ? [] : [{ ...state.status(), lag: lags.get(name) ?? null }];
      }),
  };
}

import type { Clock } from "../clock.ts";
import type { Sink } from "../connector.ts";
import { type Service, Stopping } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Outbox, SinkLag } from "../store/store.ts";
import type { DeliveryConfig } from "./config.ts";
import { wantedBy } from "./filter.ts";
import { createNews } from "./news.ts";
import { rest, within } from "./rest.ts";
import { deliver } from "./sink-loop.ts";
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
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Between 0 and 1, for the jitter of back-off. */
  readonly random?: () => number;
  /** How often an idle sink looks for what another process has marked, in milliseconds. */
  readonly lookEveryMs?: number;
}

export interface Dispatcher extends Service {
  status(): readonly SinkStatus[];
}

/** The reason with which a sink is ended that the configuration does not name any more; it may come back. */
export const NOT_CONFIGURED = "not in the configuration";

const LAG_EVERY_MS = 5_000;
const LOOK_EVERY_MS = 1_000;
const AFTER_A_FAULT_MS = 5_000;
/** The part of a stop's deadline in which writes may finish by themselves. */
const GRACEFUL = 0.75;

/**
 * One loop per sink over the same log. `start` makes the sinks known to the outbox, so that everything committed
 * from then on reaches them, and does not wait for any far end.
 */
export function createDispatcher(options: DispatcherOptions): Dispatcher {
  const { sinks, outbox, clock, log, metrics } = options;
  const draining = new AbortController();
  const forced = new AbortController();
  const news = createNews();
  const states = new Map(
    sinks.map(({ name, connector }) => [name, createSinkState({ name, connector, clock, log, metrics })]),
  );
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

  /** Makes a sink known. Null while the state is out of order; false when the sink was ended for good. */
  async function register({ name, delivery }: ConfiguredSink): Promise<boolean | null> {
    try {
      const { ended } = await outbox.register(name, delivery.from);
      if (ended === NOT_CONFIGURED) await outbox.setEnded(name, null);
      if (ended === null || ended === NOT_CONFIGURED) return true;
      states.get(name)?.end(ended);
      return false;
    } catch (error) {
      states.get(name)?.trouble("retrying", error, 1, AFTER_A_FAULT_MS);
      return null;
    }
  }

  async function run(configured: ConfiguredSink, first: Promise<boolean | null>): Promise<void> {
    let inUse = await first;
    while (inUse !== false && !draining.signal.aborted) {
      if (inUse === true && (await delivered(configured))) break;
      await rest(clock, AFTER_A_FAULT_MS, draining.signal);
      inUse = await register(configured);
    }
    await close(configured);
  }

  /** False when the loop ended by a fault of ours, which must not silence a sink for ever. */
  async function delivered({ name, sink, delivery: config }: ConfiguredSink): Promise<boolean> {
    const state = states.get(name);
    if (state === undefined) return true;
    const { random = Math.random, lookEveryMs = LOOK_EVERY_MS } = options;
    const signals = { draining: draining.signal, forced: forced.signal };
    try {
      await deliver({
        name,
        sink,
        config,
        outbox,
        state,
        news,
        clock,
        metrics,
        random,
        lookEveryMs,
        ...signals,
      });
      return true;
    } catch (error) {
      log.error(
        { sink: name, err: error },
        "The delivery to a sink failed by a fault of its own; it begins anew.",
      );
      state.trouble("retrying", error, 1, AFTER_A_FAULT_MS);
      return false;
    }
  }

  /** Sinks that were taken out of the configuration must not hold back the log. */
  async function endOthers(): Promise<void> {
    try {
      for (const { sink, ended } of await outbox.lag()) {
        if (ended !== null || states.has(sink)) continue;
        await outbox.setEnded(sink, NOT_CONFIGURED);
        log.info({ sink }, "The sink is not configured any more; it holds nothing back.");
      }
    } catch (error) {
      log.warn({ err: error }, "The sinks of before could not be looked through.");
    }
  }

  async function watchNews(): Promise<void> {
    while (!draining.signal.aborted) {
      await outbox.changed(draining.signal);
      news.announce();
    }
  }

  async function watchLag(): Promise<void> {
    do {
      try {
        const all = await outbox.lag(wanted);
        lags = new Map(all.map((lag) => [lag.sink, lag]));
      } catch (error) {
        log.warn({ err: error }, "The lag of the sinks could not be read.");
      }
    } while (await rest(clock, LAG_EVERY_MS, draining.signal));
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
      const registering = sinks.map(register);
      running = [
        ...sinks.map((sink, n) => run(sink, registering[n] ?? register(sink))),
        watchNews(),
        watchLag(),
      ];
      await Promise.all(registering);
      await endOthers();
    },

    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },

    status: () =>
      sinks.flatMap(({ name }) => {
        const state = states.get(name);
        return state === undefined ? [] : [{ ...state.status(), lag: lags.get(name) ?? null }];
      }),
  };
}

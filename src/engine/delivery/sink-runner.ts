import type { BuildingView, Sink } from "../../core/connector.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { Stopping } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { loop, type Wakeup, within } from "../../core/runtime/waiting.ts";
import type { Outbox, Store } from "../store/store.ts";
import type { DeliveryConfig } from "./config.ts";
import type { Registration } from "./registration.ts";
import { createDelivery, type Delivery } from "./sink-loop.ts";
import { createSinkState, type SinkState } from "./sink-state.ts";

/** A configured sink: an instance of a connector and how events get to it. */
export interface ConfiguredSink {
  readonly name: string;
  /** The connector's name, for people. */
  readonly connector: string;
  readonly sink: Sink;
  readonly delivery: DeliveryConfig;
  /** The connector's options. */
  readonly options?: unknown;
  /** Whether the two would write into the same place, so that one begins when the other has ended. */
  meets?(other: ConfiguredSink): boolean;
}

export interface SinkRunnerOptions {
  readonly configured: ConfiguredSink;
  readonly registration: Pick<Registration, "register" | "endForGood">;
  readonly outbox: Outbox;
  readonly store: Pick<Store, "document" | "changes" | "commit">;
  readonly picture: BuildingView;
  /** Rings when there may be something to deliver. */
  readonly news: Wakeup;
  readonly lookEveryMs: number;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly random: () => number;
}

/** The loop of one sink: from its registration until it is stopped, then closed. */
export interface SinkRunner {
  readonly configured: ConfiguredSink;
  readonly state: SinkState;
  /** Resolves once the first try to make it known is over. `after` is waited for before anything is delivered. */
  start(after: Promise<unknown>): Promise<void>;
  /** Ends at once, whatever is under way. */
  force(): void;
  /** Finishes what is under way and closes; gives up on it `deadlineMs` from now. */
  stop(deadlineMs: number): Promise<void>;
  /** Resolves once its loop has ended, however late. */
  ended(): Promise<void>;
}

/** How often a sink that has ended is looked at: somebody may have let it go on. */
const ENDED_LOOK_MS = 1_000;
/** Waits after an internal fault, or while the state is damaged. */
export const FAULT_BACKOFF = { firstMs: 5_000, maxMs: 60_000 };
/** The part of a stop's deadline in which writes may finish by themselves. */
const GRACEFUL = 0.75;

export function createSinkRunner(options: SinkRunnerOptions): SinkRunner {
  const { configured, registration, outbox, clock, log, metrics, random } = options;
  const { name, connector, sink, delivery: config } = configured;
  const draining = new AbortController();
  const forced = new AbortController();
  const state = createSinkState({ name, connector, clock, log, metrics });
  let running: Promise<void> = Promise.resolve();
  let closing: Promise<void> | null = null;

  function close(): Promise<void> {
    closing ??= closeQuietly();
    return closing;
  }

  async function closeQuietly(): Promise<void> {
    try {
      await sink.close();
    } catch (error) {
      log.warn({ sink: name, err: error }, "The sink could not be closed cleanly.");
    }
  }

  /** Makes the sink known; false when it was ended for good. */
  async function register(): Promise<boolean> {
    const ended = await registration.register(configured);
    if (ended === null) state.goOn();
    else state.end(ended);
    return ended === null;
  }

  /** The first try, which a start waits for; null while the state is out of order. */
  function knownAtFirst(): Promise<boolean | null> {
    return register().catch((error: unknown) => {
      state.trouble("retrying", error, 1, 0);
      return null;
    });
  }

  async function run(first: Promise<boolean | null>, after: Promise<unknown>): Promise<void> {
    let isInUse = await first;
    let delivery: Delivery | null = null;
    await after;
    await loop({
      clock,
      signal: draining.signal,
      bell: options.news,
      random,
      backoff: FAULT_BACKOFF,
      async turn() {
        isInUse ??= await register();
        if (!isInUse) {
          // A person may let it go on at any time.
          isInUse = null;
          return ENDED_LOOK_MS;
        }
        delivery ??= createDelivery({
          ...{ name, sink, config, state, outbox, clock, log, metrics, random },
          store: options.store,
          picture: options.picture,
          lookEveryMs: options.lookEveryMs,
          onRestart: state.onRestart,
          draining: draining.signal,
          forced: forced.signal,
          endForGood: (reason) => registration.endForGood(configured, reason),
        });
        const againMs = await delivery.turn();
        if (againMs !== null || draining.signal.aborted) return againMs;
        delivery = null;
        isInUse = null;
        return ENDED_LOOK_MS;
      },
      fault(error, inMs) {
        // An internal fault must not stop a sink for good: the loop restarts.
        const message = "The delivery to a sink failed by a fault of its own; it begins anew.";
        if (delivery !== null) log.error({ sink: name, err: error }, message);
        state.trouble("retrying", error, 1, inMs);
        delivery = null;
        isInUse = null;
      },
    });
    await (delivery as Delivery | null)?.end();
    await close();
  }

  return {
    configured,
    state,
    async start(after) {
      const first = knownAtFirst();
      running = run(first, after);
      await first;
    },
    force() {
      draining.abort(new Stopping());
      forced.abort(new Stopping());
    },
    async stop(deadlineMs) {
      draining.abort(new Stopping());
      if (!(await within(clock, deadlineMs * GRACEFUL, running))) {
        forced.abort(new Stopping());
        if (!(await within(clock, (deadlineMs * (1 - GRACEFUL)) / 2, running))) {
          const message = "A sink did not end in time; what it was writing is sent again.";
          log.warn({ sink: name }, message);
        }
      }
      await within(clock, (deadlineMs * (1 - GRACEFUL)) / 2, close());
    },
    ended: () => running,
  };
}

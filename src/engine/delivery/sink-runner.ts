import type { Sink } from "../../core/connector.ts";
import { Stopping } from "../../core/runtime/lifecycle.ts";
import { endsWithin, runLoop, type Wakeup } from "../../core/runtime/waiting.ts";
import type { DeliveryConfig } from "./config.ts";
import type { SinkRegistration } from "./registration.ts";
import { createSinkDelivery, type DeliveryContext, type SinkDelivery } from "./sink-loop.ts";
import { createSinkStatus } from "./sink-status.ts";

export interface ConfiguredSink {
  readonly name: string;
  readonly connector: string;
  readonly sink: Sink;
  readonly delivery: DeliveryConfig;
  readonly options?: unknown;
  /** True when both write to the same place, so that one must end before the other begins. */
  meets?(other: ConfiguredSink): boolean;
}

export type SinkRunner = ReturnType<typeof createSinkRunner>;

const ENDED_CHECK_MS = 1_000;
/** Waits after an internal fault, or while the state is damaged. */
export const INTERNAL_FAULT_BACKOFF = { firstMs: 5_000, maxMs: 60_000 };
/** Part of a stop's deadline in which writes may finish by themselves. */
const GRACEFUL_STOP_SHARE = 0.75;

interface SinkRunnerOptions extends DeliveryContext {
  readonly configured: ConfiguredSink;
  readonly registration: Pick<SinkRegistration, "register" | "endForGood">;
  readonly wakeup: Wakeup;
}

export function createSinkRunner(options: SinkRunnerOptions) {
  const { configured, registration, clock, log, metrics, random } = options;
  const { name, connector, sink, delivery: config } = configured;
  const draining = new AbortController();
  const forced = new AbortController();
  const state = createSinkStatus({ name, connector, clock, log, metrics });
  let running: Promise<void> = Promise.resolve();
  let closing: Promise<void> | null = null;

  function close(): Promise<void> {
    const closeSink = async () => sink.close();
    closing ??= closeSink().catch((error: unknown) => {
      log.warn({ sink: name, err: error }, "The sink could not be closed cleanly.");
    });
    return closing;
  }

  async function register(): Promise<boolean> {
    const ended = await registration.register(configured);
    if (ended === null) state.resume();
    else state.showEnded(ended);
    return ended === null;
  }

  async function run(first: Promise<boolean | null>, after: Promise<unknown>): Promise<void> {
    let isInUse = await first;
    let delivery: SinkDelivery | null = null;
    await after;
    await runLoop({
      clock,
      signal: draining.signal,
      wakeup: options.wakeup,
      random,
      backoff: INTERNAL_FAULT_BACKOFF,
      async turn() {
        isInUse ??= await register();
        if (!isInUse) {
          isInUse = null;
          return ENDED_CHECK_MS;
        }
        delivery ??= createSinkDelivery({
          ...options,
          ...{ name, sink, config, state },
          draining: draining.signal,
          forced: forced.signal,
          endForGood: (reason) => registration.endForGood(configured, reason),
        });
        const againMs = await delivery.turn();
        if (againMs !== null || draining.signal.aborted) return againMs;
        delivery = null;
        isInUse = null;
        return ENDED_CHECK_MS;
      },
      fault(error, inMs) {
        // An internal fault must not stop a sink for good: the loop restarts.
        const message = "The delivery to a sink failed by a fault of its own; it begins anew.";
        if (delivery !== null) log.error({ sink: name, err: error }, message);
        state.showTrouble("retrying", error, 1, inMs);
        delivery = null;
        isInUse = null;
      },
    });
    await (delivery as SinkDelivery | null)?.end();
    await close();
  }

  return {
    configured,
    state,
    /** Resolves after the first attempt to register. Nothing is delivered before `after` has resolved. */
    async start(after: Promise<unknown>): Promise<void> {
      // Null while the state is damaged.
      const first = register().catch((error: unknown): null => {
        state.showTrouble("retrying", error, 1, 0);
        return null;
      });
      running = run(first, after);
      await first;
    },
    abortWrites(): void {
      draining.abort(new Stopping());
      forced.abort(new Stopping());
    },
    async stop(deadlineMs: number): Promise<void> {
      draining.abort(new Stopping());
      if (!(await endsWithin(clock, deadlineMs * GRACEFUL_STOP_SHARE, running))) {
        forced.abort(new Stopping());
        if (!(await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_SHARE)) / 2, running))) {
          const message = "A sink did not end in time; what it was writing is sent again.";
          log.warn({ sink: name }, message);
        }
      }
      await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_SHARE)) / 2, close());
    },
    ended: () => running,
  };
}

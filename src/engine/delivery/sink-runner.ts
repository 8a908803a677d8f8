import type { Sink } from "../../core/connector.ts";
import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { endsWithin, runLoop, type Wakeup } from "../../core/runtime/waiting.ts";
import type { DeliveryConfig } from "./config.ts";
import { createSinkDelivery, type DeliveryContext, type SinkDelivery } from "./sink-loop.ts";
import type { SinkRegistration } from "./sink-registration.ts";
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

const ENDED_SINK_CHECK_MS = 1_000;
/** Delays before a sink starts again after a bug in Plenum or while the state is damaged. */
export const INTERNAL_FAULT_BACKOFF = { firstMs: 5_000, maxMs: 60_000 };
/** Share of the stop deadline in which running writes may finish. */
const GRACEFUL_STOP_SHARE = 0.75;

interface SinkRunnerOptions extends DeliveryContext {
  readonly configured: ConfiguredSink;
  readonly registration: Pick<SinkRegistration, "register" | "endForGood">;
  readonly wakeup: Wakeup;
}

export function createSinkRunner(options: SinkRunnerOptions) {
  const { configured, registration, clock, log, metrics, random } = options;
  const { name, connector, sink, delivery: config } = configured;
  const drainController = new AbortController();
  const forceController = new AbortController();
  const sinkStatus = createSinkStatus({ name, connector, clock, log, metrics });
  let runPromise: Promise<void> = Promise.resolve();
  let closePromise: Promise<void> | null = null;

  function closeOnce(): Promise<void> {
    const closeSink = async () => sink.close();
    closePromise ??= closeSink().catch((error: unknown) => {
      log.warn({ sink: name, err: error }, "The sink could not be closed cleanly.");
    });
    return closePromise;
  }

  async function registerSink(): Promise<boolean> {
    const endReason = await registration.register(configured);
    if (endReason === null) sinkStatus.resume();
    else sinkStatus.showEnded(endReason);
    return endReason === null;
  }

  async function run(first: Promise<boolean | null>, after: Promise<unknown>): Promise<void> {
    let isInUse = await first;
    let sinkDelivery: SinkDelivery | null = null;
    await after;
    await runLoop({
      clock,
      signal: drainController.signal,
      wakeup: options.wakeup,
      random,
      backoff: INTERNAL_FAULT_BACKOFF,
      async turn() {
        isInUse ??= await registerSink();
        if (!isInUse) {
          isInUse = null;
          return ENDED_SINK_CHECK_MS;
        }
        sinkDelivery ??= createSinkDelivery({
          ...options,
          ...{ name, sink, config, state: sinkStatus },
          draining: drainController.signal,
          forced: forceController.signal,
          endForGood: (reason) => registration.endForGood(configured, reason),
        });
        const nextTurnInMs = await sinkDelivery.turn();
        if (nextTurnInMs !== null || drainController.signal.aborted) return nextTurnInMs;
        sinkDelivery = null;
        isInUse = null;
        return ENDED_SINK_CHECK_MS;
      },
      fault(error, inMs) {
        // An internal fault must not stop a sink for good: the loop restarts.
        const message = "The delivery to a sink failed by a fault of its own; it begins anew.";
        if (sinkDelivery !== null) log.error({ sink: name, err: error }, message);
        sinkStatus.showTrouble("retrying", error, 1, inMs);
        sinkDelivery = null;
        isInUse = null;
      },
    });
    await (sinkDelivery as SinkDelivery | null)?.end();
    await closeOnce();
  }

  return {
    configured,
    state: sinkStatus,
    /** Resolves after the first attempt to register. Nothing is delivered before `after` has resolved. */
    async start(after: Promise<unknown>): Promise<void> {
      // Null while the state is damaged.
      const firstRegistration = registerSink().catch((error: unknown): null => {
        sinkStatus.showTrouble("retrying", error, 1, 0);
        return null;
      });
      runPromise = run(firstRegistration, after);
      await firstRegistration;
    },
    abortWrites(): void {
      drainController.abort(new OrderlyStop());
      forceController.abort(new OrderlyStop());
    },
    async stop(deadlineMs: number): Promise<void> {
      drainController.abort(new OrderlyStop());
      if (!(await endsWithin(clock, deadlineMs * GRACEFUL_STOP_SHARE, runPromise))) {
        forceController.abort(new OrderlyStop());
        if (!(await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_SHARE)) / 2, runPromise))) {
          const message = "A sink did not end in time; what it was writing is sent again.";
          log.warn({ sink: name }, message);
        }
      }
      await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_SHARE)) / 2, closeOnce());
    },
    ended: () => runPromise,
  };
}

import type { Sink } from "../../core/connector.ts";
import { OrderlyStop } from "../../core/runtime/lifecycle.ts";
import { endsWithin, runLoop, type Wakeup } from "../../core/runtime/waiting.ts";
import type { DeliveryConfig } from "./config.ts";
import { createSinkDelivery, type SinkDelivery, type SinkDeliveryContext } from "./sink-loop.ts";
import type { SinkRegistration } from "./sink-registration.ts";
import { createSinkStatusTracker } from "./sink-status.ts";

export interface ConfiguredSink {
  readonly name: string;
  readonly connector: string;
  readonly sink: Sink;
  readonly delivery: DeliveryConfig;
  readonly options?: unknown;
  /** True if both sinks write to the same destination, so that one must end before the other begins. */
  conflictsWith?(otherSink: ConfiguredSink): boolean;
}

export type SinkRunner = ReturnType<typeof createSinkRunner>;

const ENDED_SINK_CHECK_INTERVAL_MS = 1_000;
/** Delays before a sink starts again after a bug in Plenum or while the state is damaged. */
export const INTERNAL_FAULT_BACKOFF = { firstMs: 5_000, maxMs: 60_000 };
const GRACEFUL_STOP_TIME_SHARE = 0.75;

interface SinkRunnerOptions extends SinkDeliveryContext {
  readonly configured: ConfiguredSink;
  readonly registration: Pick<SinkRegistration, "register" | "endForGood">;
  readonly wakeup: Wakeup;
}

export function createSinkRunner(options: SinkRunnerOptions) {
  const { configured, registration, clock, log, metrics, random } = options;
  const { name, connector, sink, delivery: config } = configured;
  const gracefulStopController = new AbortController();
  const writeAbortController = new AbortController();
  const sinkStatusTracker = createSinkStatusTracker({ name, connector, clock, log, metrics });
  let deliveryLoopPromise: Promise<void> = Promise.resolve();
  let sinkClosePromise: Promise<void> | null = null;

  function closeSinkOnce(): Promise<void> {
    const closeSink = async () => sink.close();
    sinkClosePromise ??= closeSink().catch((error: unknown) => {
      log.warn({ sink: name, err: error }, "The sink could not be closed cleanly.");
    });
    return sinkClosePromise;
  }

  async function registerSink(): Promise<boolean> {
    const sinkEndReason = await registration.register(configured);
    if (sinkEndReason === null) sinkStatusTracker.showResumed();
    else sinkStatusTracker.showEnded(sinkEndReason);
    return sinkEndReason === null;
  }

  async function runDeliveryLoop(firstRegistration: Promise<boolean | null>, startAfter: Promise<unknown>) {
    let isSinkInUse = await firstRegistration;
    let sinkDelivery: SinkDelivery | null = null;
    await startAfter;
    await runLoop({
      clock,
      signal: gracefulStopController.signal,
      wakeup: options.wakeup,
      random,
      backoff: INTERNAL_FAULT_BACKOFF,
      async step() {
        isSinkInUse ??= await registerSink();
        if (!isSinkInUse) {
          isSinkInUse = null;
          return ENDED_SINK_CHECK_INTERVAL_MS;
        }
        sinkDelivery ??= createSinkDelivery({
          ...options,
          ...{ name, sink, config, statusTracker: sinkStatusTracker },
          gracefulStop: gracefulStopController.signal,
          forcedStop: writeAbortController.signal,
          endSinkForGood: (reason) => registration.endForGood(configured, reason),
        });
        const nextStepInMs = await sinkDelivery.runStep();
        if (nextStepInMs !== null || gracefulStopController.signal.aborted) return nextStepInMs;
        sinkDelivery = null;
        isSinkInUse = null;
        return ENDED_SINK_CHECK_INTERVAL_MS;
      },
      onFault(error, inMs) {
        const message = "The delivery to a sink failed because of an internal error; it starts again.";
        if (sinkDelivery !== null) log.error({ sink: name, err: error }, message);
        sinkStatusTracker.showFailure("retrying", error, 1, inMs);
        sinkDelivery = null;
        isSinkInUse = null;
      },
    });
    await (sinkDelivery as SinkDelivery | null)?.settleFilteredEvents();
    await closeSinkOnce();
  }

  return {
    configured,
    statusTracker: sinkStatusTracker,
    /** Resolves after the first attempt to register. Nothing is delivered before `startAfter` has resolved. */
    async start(startAfter: Promise<unknown>): Promise<void> {
      const firstSinkRegistration = registerSink().catch((error: unknown): null => {
        sinkStatusTracker.showFailure("retrying", error, 1, 0);
        return null;
      });
      deliveryLoopPromise = runDeliveryLoop(firstSinkRegistration, startAfter);
      await firstSinkRegistration;
    },
    abortWrites(): void {
      gracefulStopController.abort(new OrderlyStop());
      writeAbortController.abort(new OrderlyStop());
    },
    async stop(deadlineMs: number): Promise<void> {
      gracefulStopController.abort(new OrderlyStop());
      if (!(await endsWithin(clock, deadlineMs * GRACEFUL_STOP_TIME_SHARE, deliveryLoopPromise))) {
        writeAbortController.abort(new OrderlyStop());
        if (!(await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_TIME_SHARE)) / 2, deliveryLoopPromise)))
          log.warn({ sink: name }, "A sink did not end in time; what it was writing is sent again.");
      }
      await endsWithin(clock, (deadlineMs * (1 - GRACEFUL_STOP_TIME_SHARE)) / 2, closeSinkOnce());
    },
    whenEnded: () => deliveryLoopPromise,
  };
}

import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";
import { endsWithin, type LoopOptions, runLoop } from "./waiting.ts";

/**
 * A part that the worker starts and stops: scheduler, dispatcher, status server, command intake.
 *
 * `start` returns once the service works in the background; `signal` aborts its current work.
 * `stop` lets current work finish until `deadlineMs` (milliseconds from now) and then aborts it.
 * A stop before a start, and a second stop, do nothing.
 */
export interface WorkerService {
  readonly name: string;
  start(signal: AbortSignal): Promise<void>;
  stop(deadlineMs: number): Promise<void>;
}

/** Abort reason of an orderly stop; it is not reported as a fault. */
export class OrderlyStop extends Error {
  constructor() {
    super("stopping");
    this.name = "Stopping";
  }
}

export function isOrderlyStop(error: unknown): boolean {
  return error instanceof OrderlyStop;
}

/** Starts the service once and never after a stop. A stop during the start aborts the start. */
export function startServiceOnce<S extends WorkerService>(service: S): S & WorkerService {
  const serviceController = new AbortController();
  let isStarting = false;
  let startPromise: Promise<void> | null = null;
  let stopPromise: Promise<void> | null = null;
  async function startService(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => serviceController.abort(signal.reason), { once: true });
    if (signal.aborted) return;
    isStarting = true;
    try {
      await service.start(serviceController.signal);
    } catch (error) {
      if (!serviceController.signal.aborted) throw error;
    } finally {
      isStarting = false;
    }
  }

  async function stopService(deadlineMs: number): Promise<void> {
    if (startPromise === null) return;
    if (isStarting) serviceController.abort(new OrderlyStop());
    await startPromise.catch((error: unknown) => error);
    await service.stop(deadlineMs);
  }
  return {
    ...service,
    start(signal) {
      if (stopPromise === null) startPromise ??= startService(signal);
      return startPromise ?? Promise.resolve();
    },
    stop(deadlineMs) {
      stopPromise ??= stopService(deadlineMs);
      return stopPromise;
    },
  };
}

/** Makes a service that runs a loop. A stop waits for the end of the current loop step, until the deadline. */
export function createLoopService(name: string, loop: Omit<LoopOptions, "signal">): WorkerService {
  const stopController = new AbortController();
  let loopPromise: Promise<void> = Promise.resolve();
  return startServiceOnce({
    name,
    async start(signal) {
      loopPromise = runLoop({ ...loop, signal: AbortSignal.any([signal, stopController.signal]) });
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      await endsWithin(loop.clock, deadlineMs, loopPromise);
    },
  });
}

/** Starts services one after the other. Stops all at the same time, so that the deadline suffices for all. */
export function groupServices(name: string, services: readonly WorkerService[], log: Log): WorkerService {
  return {
    name,
    async start(signal) {
      for (const service of services) await service.start(signal);
    },
    async stop(deadlineMs) {
      await Promise.all(services.map((service) => stopServiceQuietly(service, deadlineMs, log)));
    },
  };
}

async function stopServiceQuietly(service: WorkerService, deadlineMs: number, log: Log): Promise<void> {
  try {
    await service.stop(deadlineMs);
  } catch (error) {
    log.warn({ service: service.name, err: error }, "a part did not stop cleanly");
  }
}

const STOP_AFTER_FAILED_START_MS = 1_000;

export function createServiceRunner(
  services: Pick<WorkerService, "start" | "stop">,
  options: {
    readonly log: Log;
    readonly onStarted: (signal: AbortSignal) => void;
    readonly onEnded: () => Promise<void>;
  },
) {
  const serviceRunController = new AbortController();
  let isRunning = false;
  let stopPromise: Promise<void> | undefined;
  async function endServiceRun(deadlineMs: number): Promise<void> {
    isRunning = false;
    await services.stop(deadlineMs);
    serviceRunController.abort(new OrderlyStop());
    await options.onEnded();
    options.log.info("stopped");
  }

  function stopServiceRun(deadlineMs: number): Promise<void> {
    stopPromise ??= endServiceRun(deadlineMs);
    return stopPromise;
  }
  return {
    isReady: () => isRunning,
    stop: stopServiceRun,
    async start(): Promise<void> {
      try {
        await services.start(serviceRunController.signal);
      } catch (error) {
        await stopServiceRun(STOP_AFTER_FAILED_START_MS);
        throw error;
      }
      if (stopPromise !== undefined) return;
      isRunning = true;
      options.onStarted(serviceRunController.signal);
    },
  };
}

/** Starts services in order, receivers before senders, and stops them in the opposite order, also after failures. */
export function orderServices(
  members: readonly { readonly service: WorkerService; readonly stopTimeShare: number }[],
  { clock, log }: { readonly clock: Clock; readonly log: Log },
): Pick<WorkerService, "start" | "stop"> {
  return {
    async start(signal) {
      for (const { service } of members) await service.start(signal);
    },
    async stop(deadlineMs) {
      const stopDeadlineAtMs = clock.monotonic() + deadlineMs;
      for (const { service, stopTimeShare } of members.toReversed()) {
        const remainingStopMs = Math.max(
          100,
          Math.min(stopDeadlineAtMs - clock.monotonic(), deadlineMs * stopTimeShare),
        );
        await stopServiceQuietly(service, remainingStopMs, log);
      }
    },
  };
}

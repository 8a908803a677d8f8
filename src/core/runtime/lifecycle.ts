import type { Clock } from "./clock.ts";
import type { Log } from "./log.ts";

/**
 * A part that the worker starts and stops: scheduler, dispatcher, status server, command intake.
 *
 * `start` returns once the service works in the background; `signal` aborts its current work.
 * `stop` lets current work finish until `deadlineMs` (milliseconds from now) and then aborts it.
 * A stop before a start, and a second stop, do nothing.
 */
export interface Service {
  readonly name: string;
  start(signal: AbortSignal): Promise<void>;
  stop(deadlineMs: number): Promise<void>;
}

/** Abort reason of an orderly stop; it is not reported as a fault. */
export class Stopping extends Error {
  constructor() {
    super("stopping");
    this.name = "Stopping";
  }
}

export function isStopping(error: unknown): boolean {
  return error instanceof Stopping;
}

/** Starts the service once and never after a stop. A stop during the start aborts the start. */
export function startedOnce<S extends Service>(service: S): S & Service {
  const working = new AbortController();
  let isStarting = false;
  let started: Promise<void> | null = null;
  let stopped: Promise<void> | null = null;

  async function begin(signal: AbortSignal): Promise<void> {
    signal.addEventListener("abort", () => working.abort(signal.reason), { once: true });
    if (signal.aborted) return;
    isStarting = true;
    try {
      await service.start(working.signal);
    } catch (error) {
      if (!working.signal.aborted) throw error;
    } finally {
      isStarting = false;
    }
  }

  async function end(deadlineMs: number): Promise<void> {
    if (started === null) return;
    if (isStarting) working.abort(new Stopping());
    await started.catch((error: unknown) => error);
    await service.stop(deadlineMs);
  }

  return {
    ...service,
    start(signal) {
      if (stopped === null) started ??= begin(signal);
      return started ?? Promise.resolve();
    },
    stop(deadlineMs) {
      stopped ??= end(deadlineMs);
      return stopped;
    },
  };
}

/** Starts services of one kind in order and stops them at once, because stopping in turn would exceed the deadline. */
export function groupServices(name: string, services: readonly Service[], log: Log): Service {
  return {
    name,
    async start(signal) {
      for (const service of services) await service.start(signal);
    },
    async stop(deadlineMs) {
      await Promise.all(services.map((service) => stopQuietly(service, deadlineMs, log)));
    },
  };
}

async function stopQuietly(service: Service, deadlineMs: number, log: Log): Promise<void> {
  try {
    await service.stop(deadlineMs);
  } catch (error) {
    log.warn({ service: service.name, err: error }, "a part did not stop cleanly");
  }
}

const FAILED_START_STOP_MS = 1_000;

export function createServiceRun(
  services: Pick<Service, "start" | "stop">,
  {
    log,
    started,
    ended,
  }: { readonly log: Log; readonly started: (signal: AbortSignal) => void; readonly ended: () => Promise<void> },
) {
  const running = new AbortController();
  let ready = false;
  let stopped: Promise<void> | undefined;

  async function end(deadlineMs: number): Promise<void> {
    ready = false;
    await services.stop(deadlineMs);
    running.abort(new Stopping());
    await ended();
    log.info("stopped");
  }

  /** Lets current work finish until `deadlineMs` from now; a second call waits for the first. */
  function stop(deadlineMs: number): Promise<void> {
    stopped ??= end(deadlineMs);
    return stopped;
  }

  return {
    isReady: () => ready,
    stop,
    /** Stops all services and rethrows when one does not start. */
    async start(): Promise<void> {
      try {
        await services.start(running.signal);
      } catch (error) {
        await stop(FAILED_START_STOP_MS);
        throw error;
      }
      if (stopped !== undefined) return;
      ready = true;
      started(running.signal);
    },
  };
}

export interface OrderedService {
  readonly service: Service;
  readonly share: number;
}

/** Starts services in order, receivers before senders, and stops them in the opposite order, also after failures. */
export function orderServices(
  members: readonly OrderedService[],
  { clock, log }: { readonly clock: Clock; readonly log: Log },
): Pick<Service, "start" | "stop"> {
  return {
    async start(signal) {
      for (const { service } of members) await service.start(signal);
    },
    async stop(deadlineMs) {
      const until = clock.monotonic() + deadlineMs;
      for (const { service, share } of members.toReversed()) {
        const left = Math.max(100, Math.min(until - clock.monotonic(), deadlineMs * share));
        await stopQuietly(service, left, log);
      }
    },
  };
}

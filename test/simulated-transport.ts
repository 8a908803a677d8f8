import { Retryable } from "#src/core/errors/errors.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import type { Simulator } from "#src/simulator/simulator.ts";

export interface TransportOptions {
  readonly thereMs: () => number;
  readonly backMs?: number;
  readonly deadlineMs?: number;
  readonly onRequest?: (path: string, query: URLSearchParams) => void;
  readonly rewrite?: (body: string, path: string, query: URLSearchParams) => string;
}

export function simulatedTransport(simulator: Simulator, clock: Clock, way: TransportOptions): Transport {
  const { backMs = 0, deadlineMs = Number.POSITIVE_INFINITY } = way;
  return async (request, signal) => {
    await clock.sleep(way.thereMs(), signal);
    const [path = "", search = ""] = request.path.split("?");
    const query = new URLSearchParams(search);
    const reply = simulator.handle({
      method: request.method,
      path,
      query,
      headers: { ...request.headers, host: "service.test" },
      ...(request.body === null ? {} : { body: request.body }),
      receivedAtMs: clock.now(),
    });
    way.onRequest?.(path, query);
    const { reset, cutAfterBytes, delayMs = 0 } = reply.transport ?? {};
    const returnMs = Math.min(delayMs, deadlineMs) + backMs;
    if (returnMs > 0) await clock.sleep(returnMs, signal);
    if (delayMs >= deadlineMs) throw new Retryable("The service did not answer in time.");
    if (reset === true || cutAfterBytes !== undefined) throw new Retryable("The connection broke.");
    const body = way.rewrite?.(reply.body, path, query) ?? reply.body;
    return { status: reply.status, headers: reply.headers, body: new TextEncoder().encode(body) };
  };
}

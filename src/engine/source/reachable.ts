import { ConfigError, LocalFailure, Retryable } from "../../core/errors/errors.ts";
import { proxyOf } from "../../core/http/proxy.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { USER_AGENT } from "../../core/runtime/version.ts";
import type { SourceConfig } from "./config.ts";
import { StaleSocket } from "./connection-failure.ts";
import { createHttpTransport, type Transport } from "./transport.ts";

const CHECK_MS = 5_000;
/** A request without an answer for so long may be lost on its way, in milliseconds. */
const SLOW_MS = 5_000;

/** One health check over a connection of its own, without token and quota: whether any answer comes within 5 s. */
export async function reachesService(
  config: SourceConfig,
  clock: Clock,
  environment: Readonly<Record<string, string | undefined>> | undefined,
  signal: AbortSignal,
): Promise<boolean> {
  const path = `${new URL(config.base_url).pathname.replace(/\/+$/, "")}/api/v1/healthcheck`;
  const headers = { accept: "application/json", "user-agent": USER_AGENT };
  try {
    const http = createHttpTransport(config, proxyOf(config.proxy, clock, environment));
    try {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(CHECK_MS)]);
      await http.send({ method: "GET", path, headers, body: null }, limit);
      return true;
    } finally {
      await http.close();
    }
  } catch {
    signal.throwIfAborted();
    return false;
  }
}

/**
 * The same transport, which reports whether the service answers. Any answer counts, whatever its status. Of requests that
 * fail together only the first one counts. `null`: no answer yet after 5 s.
 */
export function reporting(
  send: Transport,
  reached: (isReached: boolean | null) => void,
  clock: Clock,
): Transport {
  let failedAtMs = Number.NEGATIVE_INFINITY;
  return async (request, signal) => {
    const startedMs = clock.monotonic();
    const answered = new AbortController();
    clock.sleep(SLOW_MS, answered.signal).then(
      () => reached(null),
      () => undefined,
    );
    try {
      const reply = await send(request, signal);
      reached(true);
      return reply;
    } catch (error) {
      const isCounted = isOfTheWay(error) && !signal.aborted && startedMs >= failedAtMs;
      if (isCounted) {
        failedAtMs = clock.monotonic();
        reached(false);
      }
      throw error;
    } finally {
      answered.abort();
    }
  };
}

/** A kept connection that was given up is tried again at once, and what this machine itself has stopped proves nothing. */
function isOfTheWay(error: unknown): boolean {
  if (error instanceof StaleSocket || error instanceof LocalFailure) return false;
  return error instanceof Retryable || error instanceof ConfigError;
}

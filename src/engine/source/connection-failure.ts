import { type Failure, Retryable } from "../../core/errors/errors.ts";
import {
  endedUnanswered,
  failureOfConnection,
  type Server,
  speaksTls,
  wantsTls,
} from "../../core/http/connection-problem.ts";
import { type HttpProxy, probeThroughProxy } from "../../core/http/proxy.ts";

/**
 * The far end closed a kept-alive socket just as a request left on it. The request was not answered; a GET may go
 * again at once, on a new connection. A POST may not: nobody knows whether it was read.
 */
export class StaleSocket extends Retryable {}

/** Gives what a socket, TLS or HTTP library threw its meaning; the list is in src/core/http/connection-problem.ts. */
export function connectionFailure(error: unknown, origin: string): Failure {
  return failureOfConnection(error, serviceAt(origin));
}

/**
 * The same for a request that was never answered. A port for https hangs up on plain http without a word, as a
 * restart does; whether it speaks TLS tells the two apart.
 */
export async function unanswered(
  error: unknown,
  origin: string,
  proxy: HttpProxy | null,
  signal: AbortSignal,
): Promise<Failure> {
  const url = new URL(origin);
  const plain = url.protocol === "http:" && endedUnanswered(error);
  const address = { host: url.hostname, port: Number(url.port || 80) };
  const knock = (limit: AbortSignal) => probeThroughProxy(proxy, address, AbortSignal.any([limit, signal]));
  if (plain && (await speaksTls(knock))) return wantsTls(serviceAt(origin));
  return connectionFailure(error, origin);
}

function serviceAt(origin: string): Server {
  return {
    name: origin,
    failed: "could not be asked",
    addressOption: "base_url",
    authorityOption: "ca_file",
    secureScheme: "https://",
    plainScheme: "http://",
  };
}

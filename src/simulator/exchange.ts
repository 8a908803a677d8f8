// One request and one reply of the simulated service, without a socket. The server turns HTTP into these;
// a deterministic simulation makes them itself.

export interface SimRequest {
  readonly method: string;
  /** Path without query, beginning with a slash. */
  readonly path: string;
  readonly query: URLSearchParams;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body?: string | undefined;
  /** When the request reached the service, in milliseconds since 1970. The limiter counts by this. */
  readonly receivedAtMs: number;
}

/** What happens to the reply on the wire. The core only states it; the server, or a simulation, does it. */
export interface Transport {
  /** Time between the request and the first byte of the reply. */
  readonly delayMs?: number;
  /** The connection breaks after this many bytes of the body. */
  readonly cutAfterBytes?: number;
  /** The body leaves in pieces of this size, one per `dripEveryMs`. */
  readonly dripBytes?: number;
  readonly dripEveryMs?: number;
  /** The connection is reset, nothing is answered. */
  readonly reset?: boolean;
}

export interface SimReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  readonly transport?: Transport;
}

export function jsonReply(status: number, body: unknown, headers: Record<string, string> = {}): SimReply {
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) };
}

export function htmlReply(status: number, title: string, headers: Record<string, string> = {}): SimReply {
  const body = `<!DOCTYPE html>\n<html><head><title>${title}</title></head><body><h1>${title}</h1></body></html>\n`;
  return { status, headers: { "content-type": "text/html; charset=UTF-8", ...headers }, body };
}

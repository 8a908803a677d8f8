import type { Dispatcher } from "undici";
import { Malformed } from "../../core/errors/errors.ts";

/** A reply that arrived whole. Names of headers in lower case; several of one name joined by a comma. */
export interface TransportReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | undefined>>;
  readonly body: Uint8Array;
}

/**
 * Takes one reply from undici as it comes. `request` makes a stream, its iterator and the events of both for each, which is
 * more work than all else where a reply is 4 kB and wanted whole.
 */
export interface Reception {
  /** For undici's `dispatch`; what it throws ends this request only. */
  readonly handler: Dispatcher.DispatchHandler;
  readonly reply: Promise<TransportReply>;
  /** Whether the head of the reply came. */
  hasBegun(): boolean;
  /** Ends it for this reason; where it has not left yet it never does. */
  cut(reason: unknown): void;
}

/**
 * Statuses whose head says all that counts: how long to wait (interface, Errors, the two with a status of their own). What
 * comes with it may be cut off, compressed or too large, and we wait all the same: a 429 with `Retry-After: 40` whose page
 * broke off would else be asked again 4 s later.
 */
const ORDERS_TO_WAIT = new Set([429, 503]);
const NO_BODY = new Uint8Array();

/** Room for an answer whose length is not announced, in bytes; it grows. */
const UNANNOUNCED_BYTES = 65_536;

/** `mayLeave` is asked when a connection is there, right before the first byte goes. */
export function createReception(maxBytes: number, mayLeave: (() => void) | undefined): Reception {
  const { promise, resolve, reject } = Promise.withResolvers<TransportReply>();
  let controller: Dispatcher.DispatchController | null = null;
  let ended: { readonly reason: unknown } | null = null;
  let status: number | null = null;
  let headers: TransportReply["headers"] = {};
  let body = Buffer.alloc(0);
  let length = 0;

  /** True when the reply counts although the rest of it does not come; then it is over, without a body. */
  function waitsAllTheSame(): boolean {
    if (ended !== null || status === null || !ORDERS_TO_WAIT.has(status)) return false;
    resolve({ status, headers, body: NO_BODY });
    return true;
  }

  function tooLarge(): Malformed {
    return new Malformed(`The answer is larger than ${maxBytes} bytes.`, "", {
      hint: "Raise max_body_bytes, or ask for less at a time.",
    });
  }

  /** What was announced is taken into one piece as it comes: kept in chunks, a large answer would be held twice in the end. */
  function makeRoom(): void {
    const announced = Number(headers["content-length"] ?? 0);
    if (announced > maxBytes) throw tooLarge();
    const isAnnounced = Number.isSafeInteger(announced) && announced > 0;
    body = Buffer.allocUnsafeSlow(isAnnounced ? announced : UNANNOUNCED_BYTES);
  }

  function take(chunk: Uint8Array): void {
    const end = length + chunk.byteLength;
    if (end > maxBytes) throw tooLarge();
    if (end > body.length) {
      const larger = Buffer.allocUnsafeSlow(Math.min(maxBytes, Math.max(end, 2 * body.length)));
      larger.set(body.subarray(0, length));
      body = larger;
    }
    body.set(chunk, length);
    length = end;
  }

  return {
    handler: {
      onRequestStart(started) {
        if (ended !== null) throw ended.reason;
        mayLeave?.();
        controller = started;
      },
      onResponseStart(_controller, statusCode, told) {
        // An interim answer, as 103 is: the one that counts follows.
        if (statusCode < 200) return;
        status = statusCode;
        headers = flat(told);
        refuseEncoding(headers);
        makeRoom();
      },
      onResponseData: (_controller, chunk) => take(chunk),
      onResponseEnd() {
        resolve({ status: status ?? 0, headers, body: body.subarray(0, length) });
      },
      onResponseError(_controller, error) {
        if (!waitsAllTheSame()) reject(error);
      },
    },
    reply: promise,
    hasBegun: () => status !== null,
    cut(reason) {
      ended = { reason };
      controller?.abort(reason as Error);
      reject(reason);
    },
  };
}

/** We ask for no encoding, so that the cap on the body is a cap on what is held in memory. */
function refuseEncoding(headers: TransportReply["headers"]): void {
  const encoding = headers["content-encoding"];
  if (encoding === undefined || /^\s*(identity)?\s*$/i.test(encoding)) return;
  throw new Malformed(
    `The answer is compressed (${encoding.slice(0, 40)}) although that was not asked for.`,
    "",
    { hint: "A proxy in between has to leave Accept-Encoding: identity alone." },
  );
}

function flat(headers: Readonly<Record<string, string | string[] | undefined>>): TransportReply["headers"] {
  const entries = Object.entries(headers).map(([name, value]) => [
    name.toLowerCase(),
    Array.isArray(value) ? value.join(", ") : value,
  ]);
  return Object.fromEntries(entries);
}

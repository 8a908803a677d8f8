import { request } from "node:http";
import type { Socket } from "node:net";
import { text } from "node:stream/consumers";
import { ConfigError, Retryable } from "../../core/errors/errors.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { decodeFailure, type EncodedFailure } from "./failure.ts";
import { connectTo } from "./socket.ts";

/** How long a worker may take to say that it is there, milliseconds; a busy small machine takes seconds. */
const PING_WITHIN_MS = 5_000;

/** Time limit for a response that needs no request to the service, in milliseconds. */
const ANSWER_WITHIN_MS = 15_000;

/** A worker that is asked something long is asked now and then whether it is still there, milliseconds. */
const PING_EVERY_MS = 5_000;

/** The way to a running worker. */
export interface ControlSocket {
  readonly stateFolder: string;
}

/** No worker listens on the socket. */
export class NobodyThere extends Retryable {
  constructor(cause: unknown) {
    super("The worker does not answer any more.", {
      hint: "`plenum status` says whether it is running.",
      cause,
    });
  }
}

/** Somebody took the call and said nothing in time: a worker that is busy, stopped or stuck. */
export class Silent extends Retryable {
  constructor(withinMs: number) {
    super(`A worker is there and does not answer within ${withinMs / 1_000} s.`, {
      hint: "It may be busy: try again. If that lasts, its log says what it does.",
    });
  }
}

export interface CallOptions {
  /** JSON that is sent along; without it the worker is only asked. */
  readonly body?: unknown;
  readonly signal: AbortSignal;
  /** Milliseconds for the answer; null when it may take its time, as long as the worker is there. */
  readonly withinMs?: number | null;
}

/**
 * Asks a running worker. Rejects with what the worker says when it refuses, with `NobodyThere` when it is gone, with
 * `Silent` when it says nothing in time, and with ConfigError when this user may not ask.
 */
export async function call<T>(door: ControlSocket, path: string, options: CallOptions): Promise<T> {
  const { body, signal, withinMs = ANSWER_WITHIN_MS } = options;
  const over = new AbortController();
  const limit = withinMs === null ? over.signal : AbortSignal.timeout(withinMs);
  const watched = withinMs === null ? watch(door, over, signal) : null;
  try {
    const limited = AbortSignal.any([signal, limit]);
    return resultOf<T>(await exchange(door.stateFolder, path, body, limited));
  } catch (error) {
    signal.throwIfAborted();
    if (over.signal.aborted) throw over.signal.reason;
    throw limit.aborted ? new Silent(withinMs ?? PING_WITHIN_MS) : error;
  } finally {
    over.abort();
    await watched;
  }
}

export async function ping(door: ControlSocket, signal: AbortSignal): Promise<void> {
  await call(door, "/ping", { signal, withinMs: PING_WITHIN_MS });
}

/** Ends a call with the reason once the worker is not there any more. */
async function watch(door: ControlSocket, over: AbortController, signal: AbortSignal): Promise<void> {
  while (await sleepFor(systemClock, PING_EVERY_MS, over.signal, signal)) {
    try {
      await ping(door, AbortSignal.any([over.signal, signal]));
    } catch (error) {
      over.abort(error);
    }
  }
}

interface Exchanged {
  readonly status: number;
  readonly text: string;
}

async function exchange(stateFolder: string, path: string, body: unknown, signal: AbortSignal): Promise<Exchanged> {
  const socket = await connected(stateFolder, signal);
  try {
    return await new Promise((resolve, reject) => {
      // Without an agent there is no proxy either, whatever the environment says.
      const asked = request({
        createConnection: () => socket,
        path,
        method: body === undefined ? "GET" : "POST",
        headers: { host: "plenum", connection: "close", "content-type": "application/json" },
        signal,
      });
      asked.once("response", (response) => {
        text(response).then((said) => resolve({ status: response.statusCode ?? 0, text: said }), reject);
      });
      asked.on("error", reject);
      asked.end(body === undefined ? undefined : JSON.stringify(body));
    });
  } catch (error) {
    signal.throwIfAborted();
    throw new NobodyThere(error);
  } finally {
    socket.destroy();
  }
}

async function connected(stateFolder: string, signal: AbortSignal): Promise<Socket> {
  try {
    return await connectTo(stateFolder, signal);
  } catch (error) {
    signal.throwIfAborted();
    const { code } = error as NodeJS.ErrnoException;
    if (code === "EACCES" || code === "EPERM") {
      throw new ConfigError("This user may not speak to the worker of this state folder.", {
        hint: "Run this as the user that runs the worker.",
        cause: error,
      });
    }
    // More callers are waiting than the worker has looked at.
    if (code === "EAGAIN") throw new Silent(PING_WITHIN_MS);
    throw new NobodyThere(error);
  }
}

function resultOf<T>({ status, text: said }: Exchanged): T {
  const answer = parsed(said) as { readonly result?: T } & Partial<EncodedFailure>;
  if (status === 200) return answer.result as T;
  const { failure = "retryable", message = `The worker answered ${status}.`, reason, field } = answer;
  throw decodeFailure({ failure, message, reason, field });
}

/** Parses a response; an incomplete one throws. */
function parsed(said: string): object {
  try {
    return JSON.parse(said) as object;
  } catch (error) {
    throw new NobodyThere(error);
  }
}

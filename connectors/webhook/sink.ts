import { createHash } from "node:crypto";
import { ACCEPTED, type ConnectorContext, type Sink } from "../../src/core/connector.ts";
import type { Lookup } from "../../src/core/http/outbound/guard.ts";
import { givenHeaders } from "../../src/core/http/outbound/headers.ts";
import { createHttpClient } from "../../src/core/http/outbound/http-end.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { Sequence } from "../../src/core/model/sequence.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import type { WebhookConfig } from "./config.ts";
import { failureOf } from "./outcome.ts";
import { payloadOf } from "./payload.ts";
import { requestHeaders } from "./request-headers.ts";
import { keyOf } from "./signature.ts";

/** How much of the answer to a refused request is looked at, in bytes. */
const MAX_REASON_BYTES = 1_024;

/** How much of any other answer is read, so that its connection can be used again, in bytes. Nobody looks at it. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** Accepted means: the receiver answered 2xx within the time limit. */
export function createWebhookSink(config: WebhookConfig, context: ConnectorContext, lookup?: Lookup): Sink {
  const url = new URL(addressIn(config));
  const end = createHttpClient({
    url,
    config,
    clock: context.clock,
    ...(lookup === undefined ? {} : { lookup }),
  });
  const signingKeys = config.secrets.map((ref) => cachedSecret(ref, context.clock));
  const further = givenHeaders(config.headers, context.clock);
  let ready: Ready | null = null;

  /** Secrets are read again whenever the sink is opened, so an exchanged key needs no restart. */
  function open(): Ready {
    ready = { keys: signingKeys.map((secret) => keyOf(secret())), headers: further() };
    return ready;
  }

  async function post(event: Event, number: Sequence | null, signal: AbortSignal): Promise<void> {
    const { keys, headers } = ready ?? open();
    const payload = payloadOf(event, config.format, number);
    const seconds = Math.floor(context.clock.now() / 1_000);
    const marks = requestHeaders(event, payload, { seconds, keys, sequence: number });
    const answer = await end.exchange(
      {
        method: "POST",
        path: url.pathname + url.search,
        headers: { "user-agent": USER_AGENT, ...headers, ...marks },
        body: payload.body,
      },
      signal,
      (status) => (status === 400 ? MAX_REASON_BYTES : MAX_ANSWER_BYTES),
    );
    const failure = failureOf(answer, url.origin, context.clock.now());
    if (failure !== null) throw failure;
  }

  return {
    maxBatch: 1,
    // An address can be a secret by itself, so it is not kept anywhere.
    farEnd: createHash("sha256").update(url.href).digest("hex"),
    lastStepMs: end.lastStepMs,

    async open(signal) {
      signal.throwIfAborted();
      open();
    },

    async write(batch, signal, accepted, offer) {
      signal.throwIfAborted();
      for (const [index, event] of batch.entries()) {
        try {
          await post(event, offer?.sequences?.[index] ?? null, signal);
          accepted?.(index + 1);
        } catch (error) {
          if (index === 0) throw error;
          // What was answered with 2xx is settled even when we are stopping, so it is not sent twice.
          return { rejected: [], kept: { from: index, error } };
        }
      }
      return ACCEPTED;
    },

    async close() {
      ready = null;
      await end.close();
    },

    async probe(signal) {
      open();
      await end.knock(signal);
    },
  };
}

interface Ready {
  readonly keys: readonly Buffer[];
  readonly headers: Readonly<Record<string, string>>;
}

function addressIn({ url }: WebhookConfig): string {
  if (typeof url !== "string") throw new Error("an address that is no text passed the schema");
  return url;
}

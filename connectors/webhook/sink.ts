import { createHash } from "node:crypto";
import { lookup as systemLookup } from "node:dns";
import { Client } from "undici";
import { ACCEPTED, type ConnectorContext, type Sink } from "../../src/connector.ts";
import { ConfigError } from "../../src/errors.ts";
import type { Event } from "../../src/event.ts";
import type { Secret } from "../../src/log.ts";
import { proxyOf } from "../../src/proxy.ts";
import { keptSecret, readCertificates } from "../../src/secret.ts";
import { endedUnanswered, failureOfConnection, speaksTls, wantsTls } from "../../src/tls-trouble.ts";
import type { WebhookConfig } from "./config.ts";
import { guardedConnector, knock, type Lookup } from "./guard.ts";
import { failureOf, type ReceiverAnswer, receiverAt } from "./outcome.ts";
import { payloadOf } from "./payload.ts";
import { keyOf, signature } from "./signature.ts";

/** How much of an answer is read before the connection is closed, in bytes. Nobody looks at it. */
const MAX_ANSWER_BYTES = 64 * 1024;

/** How much of the answer to a refused request is looked at, in characters. */
const MAX_REASON_CHARACTERS = 1_024;

/** Time for lookup, connection and handshake, in milliseconds. */
const CONNECT_MS = 5_000;

/** Accepted means: the receiver answered 2xx within the time limit. */
export function createWebhookSink(
  config: WebhookConfig,
  context: ConnectorContext,
  lookup: Lookup = systemLookup,
): Sink {
  const url = new URL(config.url);
  const signingKeys = config.secrets.map((ref) => keptSecret(ref, context.clock));
  const givenHeaders = Object.entries(config.headers).map(([name, value]) => ({
    name,
    text:
      typeof value === "string"
        ? () => value
        : (
            (secret) => () =>
              secretHeader(name, secret())
          )(keptSecret(value, context.clock)),
  }));
  const proxy = proxyOf(config.proxy, context.clock);
  let ready: Ready | null = null;

  /** Secrets are read again whenever the sink is opened, so an exchanged key needs no restart. */
  async function open(): Promise<Ready> {
    const keys = signingKeys.map((secret) => keyOf(secret()));
    const headers = Object.fromEntries(givenHeaders.map(({ name, text }) => [name.toLowerCase(), text()]));
    const client = ready?.client ?? newClient();
    ready = { client, keys, headers };
    return ready;
  }

  function connector(to: URL) {
    return guardedConnector({
      url: to,
      allowNetworks: config.allow_networks,
      ca: config.ca_file === undefined ? undefined : readCertificates(config.ca_file, "ca_file"),
      timeoutMs: Math.min(CONNECT_MS, config.timeout),
      lookup,
      proxy,
    });
  }

  function newClient(): Client {
    return new Client(url.origin, { connect: connector(url), pipelining: 1, keepAliveTimeout: 4_000 });
  }

  async function post(event: Event, signal: AbortSignal): Promise<void> {
    const { client, keys, headers } = ready ?? (await open());
    const { body, contentType } = payloadOf(event, config.format);
    const seconds = Math.floor(context.clock.now() / 1_000);
    const limited = AbortSignal.any([signal, AbortSignal.timeout(config.timeout)]);
    const answer = await exchange(client, limited, body, {
      "user-agent": "plenum",
      ...headers,
      "content-type": contentType,
      "webhook-id": event.id,
      "webhook-timestamp": String(seconds),
      ...(keys.length === 0 ? {} : { "webhook-signature": signature(keys, event.id, seconds, body) }),
    });
    const failure = failureOf(answer, url.origin, context.clock.now());
    if (failure !== null) throw failure;
  }

  async function exchange(
    client: Client,
    signal: AbortSignal,
    body: Buffer,
    headers: Record<string, string>,
  ): Promise<ReceiverAnswer> {
    const path = url.pathname + url.search;
    const response = await client.request({ method: "POST", path, headers, body, signal });
    // The status is the answer. A body that is too long or too slow only costs its connection.
    let said = "";
    if (response.statusCode === 400) said = await beginningOf(response.body);
    else await response.body.dump({ limit: MAX_ANSWER_BYTES, signal }).catch(cutShort);
    const retryAfter = response.headers["retry-after"];
    return {
      status: response.statusCode,
      retryAfter: typeof retryAfter === "string" ? retryAfter : undefined,
      body: said,
    };
  }

  function cutShort(error: unknown): void {
    context.log.debug({ err: error }, "the answer's body was cut");
  }

  /** A port for https hangs up on plain http without a word; a handshake through the same guard tells. */
  async function meaningOfNoAnswer(error: unknown, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) return signal.reason;
    const receiver = receiverAt(url.origin);
    if (url.protocol === "http:" && endedUnanswered(error)) {
      const secure = new URL(url.href.replace(/^http:/, "https:"));
      const address = { protocol: "https:", hostname: url.hostname, host: url.host, port: url.port || "80" };
      const ask = (limit: AbortSignal) => knock(connector(secure), address, AbortSignal.any([limit, signal]));
      if (await speaksTls(ask)) return wantsTls(receiver);
    }
    return signal.aborted ? signal.reason : failureOfConnection(error, receiver);
  }

  return {
    maxBatch: 20,
    // An address can be a secret by itself, so it is not kept anywhere.
    farEnd: createHash("sha256").update(url.href).digest("hex"),

    async open(signal) {
      signal.throwIfAborted();
      await open();
    },

    async write(batch, signal, accepted) {
      signal.throwIfAborted();
      for (const [index, event] of batch.entries()) {
        try {
          await post(event, signal);
          accepted?.(index + 1);
        } catch (thrown) {
          const error = await meaningOfNoAnswer(thrown, signal);
          if (index === 0) throw error;
          // What was answered with 2xx is settled even when we are stopping, so it is not sent twice.
          return { rejected: [], kept: { from: index, error } };
        }
      }
      return ACCEPTED;
    },

    async close() {
      const { client } = ready ?? {};
      ready = null;
      await client?.destroy();
    },

    async probe(signal) {
      await open();
      await knock(connector(url), url, signal).catch(async (error: unknown) => {
        throw await meaningOfNoAnswer(error, signal);
      });
    },
  };
}

interface Ready {
  readonly client: Client;
  readonly keys: readonly Buffer[];
  readonly headers: Readonly<Record<string, string>>;
}

function secretHeader(name: string, secret: Secret): string {
  const text = secret.reveal();
  if (/^[\x20-\x7e]*$/.test(text)) return text;
  throw new ConfigError(`The secret for the header ${name} has to be one line of plain ASCII characters.`, {
    field: "headers",
  });
}

/** The first words of a body, as far as they come; the rest costs the connection. */
async function beginningOf(body: AsyncIterable<Buffer>): Promise<string> {
  let text = "";
  try {
    for await (const chunk of body) {
      text += chunk.toString();
      if (text.length >= MAX_REASON_CHARACTERS) break;
    }
  } catch {
    // The status has been answered, and it is what counts.
  }
  return text;
}

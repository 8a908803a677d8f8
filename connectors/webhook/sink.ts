import { createHmac, hash } from "node:crypto";
import { type ConnectorContext, EVENTS_ACCEPTED, type Sink } from "../../src/core/connector.ts";
import { ConfigError, type Failure, Rejected, Throttled } from "../../src/core/errors/errors.ts";
import { asksForTls, needsTlsError } from "../../src/core/http/connection-problem.ts";
import type { DnsLookup } from "../../src/core/http/outbound/guard.ts";
import { createHttpClient, describeReceiver, type HttpResponse } from "../../src/core/http/outbound/request.ts";
import { createHeaderReader } from "../../src/core/http/outbound/secret-headers.ts";
import { parseRetryAfterMs } from "../../src/core/http/retry-after.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import { type Event, toCloudEvent } from "../../src/core/model/event.ts";
import type { Secret } from "../../src/core/runtime/log.ts";
import { secretReader } from "../../src/core/runtime/secret.ts";
import { USER_AGENT } from "../../src/core/runtime/version.ts";
import type { WebhookConfig } from "./config.ts";

const MAX_ERROR_REASON_BYTES = 1_024;
const MAX_RESPONSE_BYTES = 64 * 1024;

/** Creates the webhook sink. Accepts an event when the receiver responds 2xx within the time limit. */
export function createWebhookSink(config: WebhookConfig, { clock }: ConnectorContext, lookup?: DnsLookup): Sink {
  if (typeof config.url !== "string") throw new Error("an address that is no text passed the schema");
  const url = new URL(config.url);
  const client = createHttpClient({ url, config, clock, ...(lookup === undefined ? {} : { lookup }) });
  const keyReaders = config.secrets.map((secretRef) => secretReader(secretRef, clock));
  const readExtraHeaders = createHeaderReader(config.headers, clock);
  let secrets: ReturnType<typeof readSecrets> | null = null;

  const readSecrets = () => ({
    keys: keyReaders.map((readSecret) => parseSigningKey(readSecret())),
    headers: readExtraHeaders(),
  });

  async function postEvent(event: Event, sequence: EventNumber | null, signal: AbortSignal): Promise<void> {
    secrets ??= readSecrets();
    const { keys, headers: extraHeaders } = secrets;
    const payload = buildWebhookPayload(event, config.format, sequence);
    const seconds = Math.floor(clock.now() / 1_000);
    const requestHeaders = buildWebhookHeaders(event, payload, { seconds, keys, sequence });
    const headers = { "user-agent": USER_AGENT, ...extraHeaders, ...requestHeaders };
    const request = { method: "POST", path: url.pathname + url.search, headers, body: payload.body } as const;
    const chooseMaxBytes = (status: number) => (status === 400 ? MAX_ERROR_REASON_BYTES : MAX_RESPONSE_BYTES);
    const response = await client.sendHttpRequest(request, signal, chooseMaxBytes);
    const failure = mapResponseFailure(response, url.origin, clock.now());
    if (failure !== null) throw failure;
  }

  return {
    maxBatch: 1,
    // An address can be a secret, so only its hash is stored.
    serverId: hash("sha256", url.href),
    progressMs: client.progressMs,

    /** Reads the secrets again, so an exchanged key needs no restart. */
    async open(signal) {
      signal.throwIfAborted();
      secrets = readSecrets();
    },

    async write(batch, signal, acceptEvents, batchInfo) {
      signal.throwIfAborted();
      for (const [index, event] of batch.entries()) {
        try {
          await postEvent(event, batchInfo?.sequences?.[index] ?? null, signal);
          acceptEvents?.(index + 1);
        } catch (error) {
          if (index === 0) throw error;
          // Accept the events before this one even during a stop, so that they are not sent twice.
          return { rejected: [], retry: { from: index, error } };
        }
      }
      return EVENTS_ACCEPTED;
    },

    async close() {
      secrets = null;
      await client.close();
    },

    async probe(signal) {
      secrets = readSecrets();
      await client.probeConnection(signal);
    },
  };
}

type WebhookPayload = ReturnType<typeof buildWebhookPayload>;

export function buildWebhookPayload(event: Event, format: WebhookConfig["format"], eventNumber?: EventNumber | null) {
  const sequence = sequenceAttributes(eventNumber);
  if (format === "cloudevents") {
    const body = Buffer.from(JSON.stringify(toCloudEvent(event, sequence)));
    return { contentType: "application/cloudevents+json; charset=utf-8", body };
  }
  const { type, time, data, ...envelope } = event;
  const body = Buffer.from(JSON.stringify({ type, timestamp: time, data, ...envelope, ...sequence }));
  return { contentType: "application/json; charset=utf-8", body };
}

export function buildWebhookHeaders(
  { id }: Pick<Event, "id">,
  { contentType, body }: WebhookPayload,
  options: { readonly seconds: number; readonly keys: readonly Buffer[]; readonly sequence: EventNumber | null },
): Readonly<Record<string, string>> {
  const { seconds, keys } = options;
  const { sequence = "", sequenceepoch: epoch = "" } = sequenceAttributes(options.sequence);
  return {
    "content-type": contentType,
    "webhook-id": id,
    "webhook-timestamp": String(seconds),
    ...(sequence === "" ? {} : { "plenum-sequence": sequence, "plenum-sequence-epoch": epoch }),
    ...(keys.length === 0 ? {} : { "webhook-signature": signWebhookPayload(keys, id, seconds, body) }),
  };
}

const MIN_SIGNING_KEY_BYTES = 24;
const MAX_SIGNING_KEY_BYTES = 64;

export function parseSigningKey(secret: Secret): Buffer {
  const [, base64Key] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret.reveal().trim()) ?? [];
  const key = Buffer.from(base64Key ?? "", "base64");
  if (base64Key === undefined || key.length < MIN_SIGNING_KEY_BYTES || key.length > MAX_SIGNING_KEY_BYTES) {
    const message = "A signing secret has to be whsec_ and 24 to 64 bytes in base64.";
    throw new ConfigError(message, { field: "secrets", hint: "Make one with: echo whsec_$(openssl rand -base64 32)" });
  }
  return key;
}

/** Returns one signature per key, so receivers with the old or the new key can verify the request. */
function signWebhookPayload(keys: readonly Buffer[], id: string, seconds: number, body: Buffer): string {
  const computeHmac = (key: Buffer) =>
    createHmac("sha256", key).update(`${id}.${seconds}.`).update(body).digest("base64");
  return keys.map((key) => `v1,${computeHmac(key)}`).join(" ");
}

/** Maps a response to a failure; null for success. A rejected event is retried on the webhook schedule. */
function mapResponseFailure(response: HttpResponse, origin: string, nowMs: number): Failure | null {
  const { body, headers, status } = response;
  const summary = `${origin} answered ${status}`;
  if (status >= 200 && status < 300) return null;
  if (status >= 300 && status < 400) {
    const hint = "Set url to the address that finally answers.";
    return new ConfigError(`${summary}: a redirect, which is never followed.`, { field: "url", hint });
  }
  if (status === 410) {
    const hint = "Set another url, or remove the sink. `plenum outbox revive` with its name tries the same one again.";
    return new ConfigError(`${summary}: the endpoint wants no more events.`, { reason: "gone", field: "url", hint });
  }
  if (status === 401 || status === 403) {
    const message = `${summary}: it does not accept who we are.`;
    const hint = "Check secrets and headers.";
    return new ConfigError(message, { reason: status === 401 ? "unauthenticated" : "forbidden", hint });
  }
  if (status === 429 || status === 502 || status === 503 || status === 504) {
    const waitMs = parseRetryAfterMs(headers["retry-after"], nowMs, headers.date);
    const throttleScope = status === 429 ? "allowance" : "everything";
    return new Throttled(`${summary}: it asks us to wait.`, waitMs, { scope: throttleScope });
  }
  if (status === 413) {
    const hint = "Raise the receiver's limit, or filter that kind of event.";
    return new Rejected(`${summary}: the event is larger than it takes.`, { hint });
  }
  if (status === 400 && asksForTls(body)) return needsTlsError(describeReceiver(origin));
  return new Rejected(`${summary}.`);
}

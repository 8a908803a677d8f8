import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { givenHeaders } from "../../src/core/http/outbound/headers.ts";
import { createHttpClient, type HttpClient } from "../../src/core/http/outbound/http-end.ts";
import { type ReceiverResponse, sendRequest } from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "../shared/receiver/receiver.ts";
import { isForEvents, type WebhookConfig } from "./config.ts";
import { FORMATS, requirementsOf } from "./formats/by-name.ts";
import { type Format, type Message, NO_REFERENCE, type Operation, type RequestContext } from "./formats/format.ts";
import { templateFormat } from "./formats/template.ts";

type Headers = Readonly<Record<string, string>>;

/** Receives alarms with one request for each message; the format builds it. */
export function createWebhookReceiver(config: WebhookConfig, context: ConnectorContext): Receiver {
  const { clock, name } = context;
  const format = formatOf(config);
  const address = addressOf(config, clock);
  const secretKey = config.key === undefined ? undefined : cachedSecret(config.key, clock);
  const extraHeaders = givenHeaders(config.headers, clock);
  const operationHeaders = headersOfOperations(config, clock);
  let end: HttpClient | null = null;

  /** A secret address may change to another server. */
  async function endAt(url: URL): Promise<HttpClient> {
    if (end !== null && end.origin !== url.origin) await dispose();
    end ??= createHttpClient({ url, config, clock });
    return end;
  }

  async function dispose(): Promise<void> {
    const open = end;
    end = null;
    await open?.close();
  }

  function contextFor(place: IncidentReference | null): RequestContext {
    // A line break at the end of a key file is no part of the key.
    const key = secretKey?.().reveal().trim() ?? "";
    return { url: address(), key, name, place, nowMs: clock.now() };
  }

  async function exchange(message: Message, { url }: RequestContext, headers: Headers, signal: AbortSignal) {
    const request = { ...message, headers: { ...extraHeaders(), ...headers, ...message.headers } };
    return sendRequest(await endAt(url), request, clock, signal);
  }

  function throwFailureIn(response: ReceiverResponse, { url }: RequestContext): void {
    const failure = format.failureIn(response, url.origin);
    if (failure !== null) throw failure;
  }

  /** The address may be a secret, so store only its hash. If it cannot be read, use its configuration. */
  function endpointName(): string {
    try {
      return address().href;
    } catch {
      return JSON.stringify(config.url);
    }
  }

  /** Returns the response; null when the format has no request for this. */
  async function send(
    incident: IncidentMessage,
    operation: Operation,
    place: IncidentReference | null,
    signal: AbortSignal,
  ): Promise<ReceiverResponse | "gone" | null> {
    signal.throwIfAborted();
    const at = contextFor(place);
    const message = format.requestFor(incident, operation, at);
    if (message === null) return null;
    const response = await exchange(message, at, operationHeaders[operation](), signal);
    if (place !== null && format.isGone?.(response) === true) return "gone";
    throwFailureIn(response, at);
    return response;
  }

  const change = (operation: "update" | "close"): Receiver["update"] => {
    return async (incident, place, signal) => {
      const response = await send(incident, operation, place, signal);
      return response === "gone" ? "gone" : place;
    };
  };

  return {
    opensAgain: format.opensAgain,
    ...(format.rates === undefined ? {} : { rates: format.rates }),

    get farEnd() {
      return createHash("sha256").update(endpointName()).digest("hex");
    },

    lastStepMs: () => end?.lastStepMs() ?? Number.NEGATIVE_INFINITY,

    async open(incident, signal) {
      const response = await send(incident, "open", null, signal);
      return (response === null || response === "gone" ? null : format.referenceIn?.(response)) ?? NO_REFERENCE;
    },

    update: change("update"),
    close: change("close"),

    async probe(signal) {
      const at = contextFor(null);
      const message = format.probe?.(at);
      if (message === undefined) await (await endAt(at.url)).knock(signal);
      else throwFailureIn(await exchange(message, at, {}, signal), at);
    },

    dispose,
  };
}

function formatOf({ format, template }: WebhookConfig): Format {
  if (format === "template" && template !== undefined) return templateFormat(template);
  if (format === "template" || isForEvents(format)) throw new Error("a format that is no receiver passed the schema");
  return FORMATS[format].format;
}

/** Further headers of the requests of a template, where they are secrets. */
function headersOfOperations(
  { template }: WebhookConfig,
  clock: Clock,
): Record<Operation, () => Record<string, string>> {
  const secretsOf = (operation: Operation) => {
    const headers = Object.entries(template?.[operation]?.headers ?? {});
    return givenHeaders(Object.fromEntries(headers.filter(([, value]) => typeof value !== "string")), clock);
  };
  return { open: secretsOf("open"), update: secretsOf("update"), close: secretsOf("close") };
}

/** The address, read again at each call where it is a secret. */
function addressOf(config: WebhookConfig, clock: Clock): () => URL {
  const { format, proxy, url } = config;
  const given = url ?? (isForEvents(format) ? undefined : requirementsOf(format).url);
  if (given === undefined) throw new Error("a receiver without an address passed the schema");
  if (typeof given === "string") {
    const address = new URL(given);
    return () => address;
  }
  const secret = cachedSecret(given, clock);
  return () => {
    const text = secret().reveal().trim();
    const read = ReceiverUrl.safeParse(text);
    const wrong = read.success
      ? proxy !== undefined && new URL(text).protocol === "http:"
        ? "The secret address is not https, and a proxy is on the way."
        : null
      : "The secret is not a whole address without user name and password.";
    if (wrong === null) return new URL(text);
    throw new ConfigError(wrong, {
      field: "url",
      hint: "Put the address into it, such as https://example.com/hook.",
    });
  };
}

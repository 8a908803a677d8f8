import { hash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import {
  createHttpClient,
  type HttpClient,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import { createHeaderReader } from "../../src/core/http/outbound/secret-headers.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { secretReader } from "../../src/core/runtime/secret.ts";
import type { AlarmReceiver, IncidentMessage, IncidentReference } from "../shared/receiver/receiver-interface.ts";
import { isEventFormat, type WebhookConfig } from "./config.ts";
import {
  type FormatRequest,
  type IncidentOperation,
  NO_REFERENCE,
  type ReceiverFormat,
  type RequestContext,
} from "./formats/format.ts";
import { ALARM_FORMATS, getFormatRequirements } from "./formats/format-by-name.ts";
import { createTemplateFormat } from "./formats/template.ts";

type HttpHeaders = Readonly<Record<string, string>>;

export function createWebhookReceiver(config: WebhookConfig, { clock, name }: ConnectorContext): AlarmReceiver {
  const format = chooseReceiverFormat(config);
  const readReceiverUrl = createReceiverUrlReader(config, clock);
  const readIntegrationKey = config.key === undefined ? undefined : secretReader(config.key, clock);
  const readExtraHeaders = createHeaderReader(config.headers, clock);
  const secretHeadersByOperation = createSecretHeaders(config, clock);
  let client: HttpClient | null = null;

  async function getClient(url: URL): Promise<HttpClient> {
    if (client !== null && client.origin !== url.origin) await closeHttpClient();
    client ??= createHttpClient({ url, config, clock });
    return client;
  }

  async function closeHttpClient(): Promise<void> {
    const closingClient = client;
    client = null;
    await closingClient?.close();
  }

  function buildRequestContext(reference: IncidentReference | null): RequestContext {
    // A line break at the end of a key file is not part of the key.
    const key = readIntegrationKey?.().reveal().trim() ?? "";
    return { url: readReceiverUrl(), key, name, reference, nowMs: clock.now() };
  }

  async function exchange(message: FormatRequest, { url }: RequestContext, headers: HttpHeaders, signal: AbortSignal) {
    const request = { ...message, headers: { ...readExtraHeaders(), ...headers, ...message.headers } };
    return sendRequest(await getClient(url), request, clock, signal);
  }

  function throwResponseFailure(response: ReceiverResponse, { url }: RequestContext): void {
    const failure = format.findFailure(response, url.origin);
    if (failure !== null) throw failure;
  }

  async function sendIncident(
    incident: IncidentMessage,
    operation: IncidentOperation,
    reference: IncidentReference | null,
    signal: AbortSignal,
  ): Promise<ReceiverResponse | "gone" | null> {
    signal.throwIfAborted();
    const context = buildRequestContext(reference);
    const formatRequest = format.buildRequest(incident, operation, context);
    if (formatRequest === null) return null;
    const response = await exchange(formatRequest, context, secretHeadersByOperation[operation](), signal);
    if (reference !== null && format.isGone?.(response) === true) return "gone";
    throwResponseFailure(response, context);
    return response;
  }

  const createIncidentSender =
    (operation: "update" | "close"): AlarmReceiver["update"] =>
    async (incident, reference, signal) =>
      (await sendIncident(incident, operation, reference, signal)) === "gone" ? "gone" : reference;

  return {
    repeatedOpenEffect: format.repeatedOpenEffect,
    ...(format.rates === undefined ? {} : { rates: format.rates }),

    /** Hash of the address, which may be secret; hash of the configuration if the address cannot be read. */
    get serverId() {
      let address = JSON.stringify(config.url);
      try {
        address = readReceiverUrl().href;
      } catch {}
      return hash("sha256", address);
    },

    progressMs: () => client?.progressMs() ?? Number.NEGATIVE_INFINITY,

    async open(incident, signal) {
      const response = await sendIncident(incident, "open", null, signal);
      return (response === null || response === "gone" ? null : format.parseReference?.(response)) ?? NO_REFERENCE;
    },

    update: createIncidentSender("update"),
    close: createIncidentSender("close"),

    async probe(signal) {
      const context = buildRequestContext(null);
      const formatRequest = format.probe?.(context);
      if (formatRequest === undefined) await (await getClient(context.url)).probeConnection(signal);
      else throwResponseFailure(await exchange(formatRequest, context, {}, signal), context);
    },

    dispose: closeHttpClient,
  };
}

function chooseReceiverFormat({ format, template }: WebhookConfig): ReceiverFormat {
  if (format === "template" && template !== undefined) return createTemplateFormat(template);
  if (format === "template" || isEventFormat(format)) throw new Error("a format that is no receiver passed the schema");
  return ALARM_FORMATS[format].format;
}

function createSecretHeaders({ template }: WebhookConfig, clock: Clock): Record<IncidentOperation, () => HttpHeaders> {
  const readerOf = (operation: IncidentOperation) => {
    const headers = Object.entries(template?.[operation]?.headers ?? {});
    return createHeaderReader(Object.fromEntries(headers.filter(([, value]) => typeof value !== "string")), clock);
  };
  return { open: readerOf("open"), update: readerOf("update"), close: readerOf("close") };
}

function createReceiverUrlReader({ format, proxy, url }: WebhookConfig, clock: Clock): () => URL {
  const configuredUrl = url ?? (isEventFormat(format) ? undefined : getFormatRequirements(format).url);
  if (configuredUrl === undefined) throw new Error("a receiver without an address passed the schema");
  if (typeof configuredUrl === "string") {
    const address = new URL(configuredUrl);
    return () => address;
  }
  const readSecret = secretReader(configuredUrl, clock);
  const hint = "Put the address into it, such as https://example.com/hook.";
  return () => {
    const receiverUrlText = readSecret().reveal().trim();
    if (!ReceiverUrl.safeParse(receiverUrlText).success) {
      const message = "The secret is not a whole address without user name and password.";
      throw new ConfigError(message, { field: "url", hint });
    }
    if (proxy !== undefined && new URL(receiverUrlText).protocol === "http:")
      throw new ConfigError("The secret address is not https, and a proxy is on the way.", { field: "url", hint });
    return new URL(receiverUrlText);
  };
}

import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Rejected } from "../../src/core/errors/errors.ts";
import { isPage } from "../../src/core/http/html-page.ts";
import { givenHeaders, inHeader } from "../../src/core/http/outbound/headers.ts";
import { createHttpClient } from "../../src/core/http/outbound/http-end.ts";
import { type ReceiverResponse, sendRequest } from "../../src/core/http/outbound/request.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "../shared/receiver/receiver.ts";
import { type Alert, AlertIdentity, alertIdentityOf, firingAlert, over } from "./alert.ts";
import type { AlertmanagerConfig } from "./config.ts";

/** Repeat an end for 5 minutes (its interface), because Alertmanager may have been restarted. */
const REPEAT_CLOSED_MS = 5 * 60_000;

/** Prometheus Alertmanager, API v2. Equal labels are the same alert. */
export function createAlertmanagerReceiver(config: AlertmanagerConfig, context: ConnectorContext): Receiver {
  const { clock } = context;
  const url = new URL(config.url);
  const prefix = url.pathname.replace(/\/+$/, "");
  const end = createHttpClient({ url, config, clock });
  const extraHeaders = givenHeaders(config.headers, clock);
  const authorization = authorizationOf(config, context);

  function request(
    method: "GET" | "POST",
    path: string,
    signal: AbortSignal,
    json?: unknown,
  ): Promise<ReceiverResponse> {
    const headers = { ...extraHeaders(), ...authorization() };
    return sendRequest(end, { method, path: `${prefix}/api/v2/${path}${url.search}`, headers, json }, clock, signal);
  }

  /** One alert a request: of several Alertmanager takes the good ones and answers 400 to all. */
  async function post(alert: Alert, signal: AbortSignal): Promise<void> {
    const { body } = await request("POST", "alerts", signal, [alert]);
    // Alertmanager answers 200 without a body; another body is another server.
    if (body.trim() === "") return;
    if (isPage(body)) throw notAlertmanager(end.origin);
    throw new Rejected(`${end.origin} answered 200 and said: ${body.slice(0, 300)}`);
  }

  function firstOf(incident: IncidentMessage, ref: unknown): AlertIdentity {
    const remembered = AlertIdentity.safeParse(ref);
    return remembered.success ? remembered.data : alertIdentityOf(incident, config.labels, clock.now());
  }

  async function standing(incident: IncidentMessage, ref: unknown, signal: AbortSignal) {
    const first = firstOf(incident, ref);
    await post(firingAlert(incident, first, clock.now()), signal);
    return referenceOf(first);
  }

  return {
    opensAgain: "same",
    repeatMs: config.repeat,
    repeatClosedMs: REPEAT_CLOSED_MS,
    // An address can be a secret by itself, so it is not kept anywhere.
    farEnd: createHash("sha256").update(url.href).digest("hex"),
    lastStepMs: end.lastStepMs,

    identify: (incident) => alertIdentityOf(incident, config.labels, clock.now()),

    open: (incident, signal, identity) => standing(incident, identity, signal),

    update: (incident, reference, signal) => standing(incident, reference.ref, signal),

    async close(incident, reference, signal) {
      const first = firstOf(incident, reference.ref);
      await post(over(incident, first, clock.now()), signal);
      return referenceOf(first);
    },

    async probe(signal) {
      const { body } = await request("GET", "status", signal);
      if (!/"(cluster|versionInfo)"\s*:/.test(body)) throw notAlertmanager(end.origin);
    },

    dispose: () => end.close(),
  };
}

function referenceOf(first: AlertIdentity): IncidentReference {
  return { ref: first, ticket: null, link: null };
}

function authorizationOf(config: AlertmanagerConfig, { clock }: ConnectorContext): () => Record<string, string> {
  if (config.token !== undefined) {
    const token = cachedSecret(config.token, clock);
    return () => ({ authorization: `Bearer ${inHeader(token().reveal(), "Authorization")}` });
  }
  if (config.password === undefined) return () => ({});
  const password = cachedSecret(config.password, clock);
  return () => {
    const both = Buffer.from(`${config.user}:${password().reveal()}`).toString("base64");
    return { authorization: `Basic ${both}` };
  };
}

function notAlertmanager(origin: string): ConfigError {
  return new ConfigError(`What answers at ${origin} is no Alertmanager.`, {
    field: "url",
    hint: "Check the address, its path prefix, and whether something in front of it asks people to log in.",
  });
}

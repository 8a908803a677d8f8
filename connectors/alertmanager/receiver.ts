import { createHash } from "node:crypto";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Rejected } from "../../src/core/errors/errors.ts";
import { isHtmlPage } from "../../src/core/http/html-page-detection.ts";
import { createHttpClient, sendRequest } from "../../src/core/http/outbound/request.ts";
import { secretHeaderReader } from "../../src/core/http/outbound/secret-headers.ts";
import type { AlarmReceiver, IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import { createAuthorizationReader } from "../shared/receiver/ticket-receiver.ts";
import {
  AlertIdentity,
  type AlertmanagerAlert,
  buildAlertIdentity,
  buildEndedAlert,
  buildFiringAlert,
} from "./alert.ts";
import type { AlertmanagerConfig } from "./config.ts";

/** After an alert ends, its end is sent again for this time, in case Alertmanager was restarted. */
const REPEAT_ENDED_ALERT_MS = 5 * 60_000;

export function createAlertmanagerReceiver(config: AlertmanagerConfig, context: ConnectorContext): AlarmReceiver {
  const { clock } = context;
  const url = new URL(config.url);
  const pathPrefix = url.pathname.replace(/\/+$/, "");
  const client = createHttpClient({ url, config, clock });
  const readExtraHeaders = secretHeaderReader(config.headers, clock);
  const readAuthorization = createAuthorizationReader(config, clock);

  function requestAlertmanager(method: "GET" | "POST", path: string, signal: AbortSignal, json?: unknown) {
    const headers = { ...readExtraHeaders(), ...readAuthorization() };
    return sendRequest(
      client,
      { method, path: `${pathPrefix}/api/v2/${path}${url.search}`, headers, json },
      clock,
      signal,
    );
  }

  /** Sends one alert per request: with one invalid alert among several, Alertmanager answers 400 to all. */
  async function postAlert(alert: AlertmanagerAlert, signal: AbortSignal): Promise<void> {
    const { body } = await requestAlertmanager("POST", "alerts", signal, [alert]);
    // Alertmanager answers 200 without a body. A body means that another server answers.
    if (body.trim() === "") return;
    if (isHtmlPage(body)) throw createNotAlertmanagerError(client.origin);
    throw new Rejected(`${client.origin} answered 200 and said: ${body.slice(0, 300)}`);
  }

  async function send(build: typeof buildFiringAlert, incident: IncidentMessage, ref: unknown, signal: AbortSignal) {
    const { data: storedIdentity } = AlertIdentity.safeParse(ref);
    const identity = storedIdentity ?? buildAlertIdentity(incident, config.labels, clock.now());
    await postAlert(build(incident, identity, clock.now()), signal);
    return { ref: identity, ticket: null, link: null };
  }

  return {
    repeatedOpenEffect: "same",
    resendIntervalMs: config.repeat,
    resendAfterCloseMs: REPEAT_ENDED_ALERT_MS,
    // An address can be a secret, so only its hash is stored.
    serverId: createHash("sha256").update(url.href).digest("hex"),
    progressMs: client.progressMs,

    identify: (incident) => buildAlertIdentity(incident, config.labels, clock.now()),

    open: (incident, signal, identity) => send(buildFiringAlert, incident, identity, signal),
    update: (incident, { ref }, signal) => send(buildFiringAlert, incident, ref, signal),
    close: (incident, { ref }, signal) => send(buildEndedAlert, incident, ref, signal),

    async probe(signal) {
      const { body } = await requestAlertmanager("GET", "status", signal);
      if (!/"(cluster|versionInfo)"\s*:/.test(body)) throw createNotAlertmanagerError(client.origin);
    },

    dispose: () => client.close(),
  };
}

function createNotAlertmanagerError(origin: string): ConfigError {
  const hint = "Check the address, its path prefix, and whether something in front of it asks people to log in.";
  return new ConfigError(`What answers at ${origin} is no Alertmanager.`, { field: "url", hint });
}

import { createHash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Rejected } from "../../src/core/errors/errors.ts";
import { isHtmlPage } from "../../src/core/http/html-page-detection.ts";
import { createHttpClient, sendRequest } from "../../src/core/http/outbound/request.ts";
import { createHeaderReader } from "../../src/core/http/outbound/secret-headers.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { cutText, toOneLine } from "../shared/receiver/message-texts.ts";
import type { AlarmReceiver, IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import { createAuthorizationReader } from "../shared/receiver/ticket-receiver.ts";
import type { AlertmanagerConfig } from "./config.ts";

/** Time after the end of an alert during which Plenum resends the resolved alert, in case Alertmanager restarts. */
const END_RESEND_PERIOD_MS = 5 * 60_000;

export function createAlertmanagerReceiver(config: AlertmanagerConfig, context: ConnectorContext): AlarmReceiver {
  const { clock } = context;
  const url = new URL(config.url);
  const pathPrefix = url.pathname.replace(/\/+$/, "");
  const client = createHttpClient({ url, config, clock });
  const readExtraHeaders = createHeaderReader(config.headers, clock);
  const readAuthorization = createAuthorizationReader(config, clock);

  function requestAlertmanager(method: "GET" | "POST", path: string, signal: AbortSignal, json?: unknown) {
    const headers = { ...readExtraHeaders(), ...readAuthorization() };
    const request = { method, path: `${pathPrefix}/api/v2/${path}${url.search}`, headers, json };
    return sendRequest(client, request, clock, signal);
  }

  /** Sends one alert per request: with one invalid alert among several, Alertmanager answers 400 to all. */
  async function postAlert(alert: AlertmanagerAlert, signal: AbortSignal): Promise<void> {
    const { body } = await requestAlertmanager("POST", "alerts", signal, [alert]);
    // Alertmanager answers 200 without a body. A body means that another server answers.
    if (body.trim() === "") return;
    if (isHtmlPage(body)) throw createNotAlertmanagerError(client.origin);
    throw new Rejected(`${client.origin} answered 200 and said: ${body.slice(0, 300)}`);
  }

  async function send(incident: IncidentMessage, ref: unknown, signal: AbortSignal, isEnded = false) {
    const nowMs = clock.now();
    const { data: storedIdentity } = AlertIdentity.safeParse(ref);
    const identity = storedIdentity ?? buildAlertIdentity(incident, config.labels, nowMs);
    const endMs = isEnded ? findAlertEndMs(incident, identity, nowMs) : nowMs + FIRING_ALERT_DURATION_MS;
    await postAlert(buildAlert(incident, identity, isoUtc(endMs)), signal);
    return { ref: identity, ticket: null, link: null };
  }

  return {
    repeatedOpenEffect: "same",
    resendIntervalMs: config.repeat,
    resendAfterCloseMs: END_RESEND_PERIOD_MS,
    // An address can be a secret, so only its hash is stored.
    serverId: createHash("sha256").update(url.href).digest("hex"),
    progressMs: client.progressMs,

    identify: (incident) => buildAlertIdentity(incident, config.labels, clock.now()),

    open: (incident, signal, identity) => send(incident, identity, signal),
    update: (incident, { ref }, signal) => send(incident, ref, signal),
    close: (incident, { ref }, signal) => send(incident, ref, signal, true),

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

interface AlertmanagerAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly startsAt: string;
  readonly endsAt: string;
  readonly generatorURL?: string;
}

/** Labels and start of the first message, reused for later messages: changed labels would create a second alert. */
const AlertIdentity = z.object({ labels: z.record(z.string(), z.string()), startsAt: z.string() });
type AlertIdentity = z.infer<typeof AlertIdentity>;

/** Time until `endsAt` of a firing alert. Without `endsAt`, Alertmanager resolves an alert after 5 minutes. */
const FIRING_ALERT_DURATION_MS = 7 * 86_400_000;

const MAX_ALERT_LABEL_LENGTH = 200;
const MAX_ANNOTATION_LENGTH = 4_000;

/** Fixed alert names: users write Alertmanager routes with these names. */
const ALERT_NAME_BY_KIND = { gateway: "GatewayOffline", storm: "AlarmStorm", test: "PlenumTest" } as const;

function buildAlertIdentity(
  incident: IncidentMessage,
  extraLabels: Readonly<Record<string, string>>,
  nowMs: number,
): AlertIdentity {
  const { alarm, key, kind, priority, site, source } = incident;
  const alertName = kind === "alarm" ? (alarm?.trigger.displayName ?? "") : ALERT_NAME_BY_KIND[kind];
  const labels = {
    ...extraLabels,
    alertname: cleanLabelValue(alertName) || "Alarm",
    source,
    ...(site === null ? {} : { site: cleanLabelValue(site.displayName), site_id: String(site.id) }),
    priority: cleanLabelValue(priority),
    kind,
    key,
  };
  return {
    labels: Object.fromEntries(Object.entries(labels).filter(([, value]) => value !== "")),
    startsAt: isoUtc(Math.min(parseTimeMs(incident.startedAt) ?? nowMs, nowMs)),
  };
}

/** Returns the end of an alert, limited to the time between the start of the alert and now. */
function findAlertEndMs({ endedAt }: IncidentMessage, { startsAt }: AlertIdentity, nowMs: number): number {
  const alertEndMs = Math.min(parseTimeMs(endedAt ?? "") ?? nowMs, nowMs);
  return Math.max(alertEndMs, Date.parse(startsAt));
}

function buildAlert(incident: IncidentMessage, { labels, startsAt }: AlertIdentity, endsAt: string): AlertmanagerAlert {
  const { alarm, endedAt, link, priority, startedAt, text } = incident;
  const lacksUtcOffset = [startedAt, endedAt].some((time) => time !== null && !hasUtcOffset(time));
  const fieldLines = text.fields.map((field) => `${field.label}: ${field.text}`);
  const annotations: Readonly<Record<string, string>> = {
    summary: text.title,
    status: text.status,
    description: [...fieldLines, ...text.list, ...text.timeSeriesLines].join("\n"),
    priority,
    started_at: startedAt,
    ended_at: endedAt ?? "",
    alarm_id: alarm?.id ?? "",
    time_note: lacksUtcOffset ? "The service gave a time without an offset; it is taken as UTC." : "",
  };
  const cleanAnnotationText = (value: string) => cutText(disableChatMentions(value), MAX_ANNOTATION_LENGTH);
  const cleanedAnnotations = Object.entries(annotations).map(([name, value]) => [name, cleanAnnotationText(value)]);
  return {
    labels,
    annotations: Object.fromEntries(cleanedAnnotations.filter(([, value]) => value !== "")),
    startsAt,
    endsAt,
    ...(link === null ? {} : { generatorURL: link }),
  };
}

function parseTimeMs(time: string): number | null {
  const ms = Date.parse(hasUtcOffset(time) ? time : `${time}Z`);
  return Number.isNaN(ms) ? null : ms;
}

const hasUtcOffset = (time: string): boolean => /(Z|[+-]\d\d:?\d\d)$/i.test(time);

const cleanLabelValue = (text: string): string => cutText(disableChatMentions(toOneLine(text)), MAX_ALERT_LABEL_LENGTH);

/** Breaks mentions (`<!channel>`, `@everyone`) with a zero-width space; Alertmanager forwards texts unchanged. */
function disableChatMentions(text: string): string {
  return text.replaceAll(/<(?=[!@#])|@(?=(?:channel|everyone|here|all)\b)/gi, "$&\u200b").trim();
}

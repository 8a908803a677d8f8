import { ConfigError } from "../../../src/core/errors/errors.ts";
import { requireHeaderText } from "../../../src/core/http/outbound/secret-headers.ts";
import { printableLine } from "../../../src/core/values/printable-text.ts";
import { cutText } from "../../shared/receiver/message-texts.ts";
import type { IncidentMessage, IncidentText } from "../../shared/receiver/receiver-interface.ts";
import {
  buildRequestPath,
  chooseByPriority,
  createUnconfirmedFailure,
  escapeMarkdown,
  type FormatRequest,
  failUnlessConfirmed,
  formatBody,
  formatHeading,
  getJsonMember,
  type IncidentOperation,
  type ReceiverFormat,
  type RequestContext,
} from "./format.ts";

type AlertAction = "trigger" | "acknowledge" | "resolve" | null;

/** Chooses the alert action for an incident change; null for changes that would reopen a closed alert. */
function chooseAlertAction({ change }: IncidentMessage, operation: IncidentOperation): AlertAction {
  if (operation === "open") return "trigger";
  if (operation === "close") return "resolve";
  if (change === "retriggered") return "trigger";
  return change === "acknowledged" ? "acknowledge" : null;
}

/** Creates a format for a receiver that keeps one alert per incident key. All requests are POSTs to one address. */
function createAlertPerKeyFormat(
  findFailure: ReceiverFormat["findFailure"],
  buildMessage: (
    incident: IncidentMessage,
    action: AlertAction,
    context: RequestContext,
  ) => Pick<FormatRequest, "json" | "headers" | "allow"> | null,
): ReceiverFormat {
  return {
    repeatedOpenEffect: "same",
    findFailure,
    buildRequest(incident, operation, context) {
      const message = buildMessage(incident, chooseAlertAction(incident, operation), context);
      return message === null ? null : { method: "POST", path: buildRequestPath(context.url), ...message };
    },
  };
}

function utcTimeOrUndefined(time: string | null): string | undefined {
  return time?.endsWith("Z") === true && !Number.isNaN(Date.parse(time)) ? time : undefined;
}

/** Cleans a name to one line. Returns `fallbackName` for a name without visible characters. */
function cleanDisplayName(name: string | undefined, fallbackName: string, maxLength: number): string {
  return cutText(printableLine(name ?? "").trim() || fallbackName, maxLength);
}

const formatIncidentText = ({ text }: IncidentMessage): string => `${formatHeading(text)}\n${formatBody(text)}`;

const formatSiteName = ({ site, source }: IncidentMessage, maxLength: number): string =>
  cleanDisplayName(site?.displayName, source, maxLength);

function collectSiteAndAlarmIds({ alarm, site }: IncidentMessage): { readonly [name: string]: string | undefined } {
  return { site_id: site?.id.toString(), alarm_id: alarm?.id };
}

function collectFieldTexts(text: IncidentText, maxLength: number): Record<string, string> {
  const textByFieldLabel = new Map<string, string>();
  for (const field of text.fields) {
    const previousText = textByFieldLabel.get(field.label);
    textByFieldLabel.set(field.label, previousText === undefined ? field.text : `${previousText}\n${field.text}`);
  }
  return Object.fromEntries([...textByFieldLabel].map(([label, text]) => [label, cutText(text, maxLength)]));
}

/** Limits of PagerDuty's Events API v2. Together they keep a request below 512,000 bytes. */
const PAGERDUTY_MAX_SUMMARY = 1_024;
const PAGERDUTY_MAX_DETAIL = 4_000;
const PAGERDUTY_MAX_LINE = 500;

export const pagerduty = createAlertPerKeyFormat(
  (response, receiverName) => {
    if (response.status === 400 && /routing[ _]key/i.test(response.body)) {
      const message = `${receiverName} answered 400: it does not know the routing key.`;
      const hint = "Use the integration key of an integration of the kind Events API v2.";
      return new ConfigError(message, { reason: "unauthenticated", field: "key", hint });
    }
    const isAccepted = response.status !== 400 && getJsonMember(response.json, "status") === "success";
    return isAccepted ? null : createUnconfirmedFailure(response, receiverName);
  },
  (incident, action, { key }) =>
    action === null
      ? null
      : {
          json: {
            routing_key: key,
            event_action: action,
            dedup_key: incident.key,
            ...(action === "trigger" ? buildPagerDutyTrigger(incident) : {}),
          },
          allow: [400],
        },
);

function buildPagerDutyTrigger(incident: IncidentMessage): Record<string, unknown> {
  const { kind, link, priority, source, startedAt, text } = incident;
  const cutTextLines = (lines: readonly string[]) =>
    lines.length === 0 ? undefined : lines.map((line) => cutText(line, PAGERDUTY_MAX_LINE));
  return {
    payload: {
      summary: cutText(text.title, PAGERDUTY_MAX_SUMMARY),
      source: formatSiteName(incident, PAGERDUTY_MAX_LINE),
      severity: chooseByPriority(priority, ["critical", "error", "warning"]),
      timestamp: utcTimeOrUndefined(startedAt),
      class: kind,
      group: source,
      custom_details: {
        ...collectFieldTexts(text, PAGERDUTY_MAX_DETAIL),
        alarms: cutTextLines(text.list),
        values: cutTextLines(text.timeSeriesLines),
      },
    },
    client: "Plenum",
    client_url: link ?? undefined,
    links: link?.startsWith("https://") ? [{ href: link, text: text.linkText }] : undefined,
  };
}

const JSM_MAX_MESSAGE = 130;
const JSM_MAX_DESCRIPTION = 15_000;
const JSM_MAX_TAG = 50;
const JSM_MAX_ENTITY = 512;
const JSM_MAX_DETAIL = 1_000;

/** Jira Service Management and Opsgenie: one alert for each `alias`. */
export const jsm: ReceiverFormat = {
  repeatedOpenEffect: "same",

  buildRequest(incident, operation, { url, key }) {
    const action = chooseAlertAction(incident, operation);
    const fullText = cutText(formatIncidentText(incident), JSM_MAX_DESCRIPTION);
    const headers = { authorization: `GenieKey ${requireHeaderText(key, "Authorization")}` };
    const alertPath = (name: string) => buildRequestPath(url, `/${incident.key}/${name}`, { identifierType: "alias" });
    if (action === "trigger")
      return { method: "POST", path: buildRequestPath(url), headers, json: buildJsmAlert(incident), allow: [422] };
    if (action !== null) {
      const path = alertPath(action === "resolve" ? "close" : "acknowledge");
      return { method: "POST", path, headers, json: { source: "Plenum", note: fullText }, allow: [422] };
    }
    // Replacing the description neither reopens the alert nor notifies anyone.
    if (!["members", "vanished", "out-of-scope"].includes(incident.change)) return null;
    return { method: "PUT", path: alertPath("description"), headers, json: { description: fullText }, allow: [422] };
  },

  findFailure(response, receiverName) {
    if (response.status === 422 && /key format/i.test(response.body)) {
      const message = `${receiverName} answered 422: the key is not one of its keys.`;
      const hint = "Use the key of an integration of the kind API.";
      return new ConfigError(message, { reason: "unauthenticated", field: "key", hint });
    }
    const isAccepted = response.status < 300 && typeof getJsonMember(response.json, "requestId") === "string";
    return isAccepted ? null : createUnconfirmedFailure(response, receiverName);
  },
};

function buildJsmAlert(incident: IncidentMessage): Record<string, unknown> {
  const { key, link, priority, site, source, startedAt, text } = incident;
  return {
    message: cutText(text.title, JSM_MAX_MESSAGE),
    alias: key,
    description: cutText(formatBody(text), JSM_MAX_DESCRIPTION),
    priority: chooseByPriority(priority, ["P1", "P2", "P3"]),
    source: "Plenum",
    entity: formatSiteName(incident, JSM_MAX_ENTITY),
    tags: [cutText(`priority-${priority}`, JSM_MAX_TAG), cutText(`source-${source}`, JSM_MAX_TAG)],
    details: {
      source,
      started_at: startedAt,
      ...collectSiteAndAlarmIds(incident),
      site: site === null ? undefined : formatSiteName(incident, JSM_MAX_DETAIL),
      link: link === null ? undefined : cutText(link, JSM_MAX_DETAIL),
    },
  };
}

const SPLUNK_MAX_MESSAGE = 20_480;
const SPLUNK_MAX_NAME = 500;

/** Splunk On-Call (VictorOps): one incident for each `entity_id`. The key is in the address. */
export const splunkOncall = createAlertPerKeyFormat(
  failUnlessConfirmed(({ json }) => getJsonMember(json, "result") === "success"),
  (incident, action) => {
    const messageType = chooseSplunkMessageType(incident, action);
    if (messageType === null) return null;
    const startTime = utcTimeOrUndefined(incident.startedAt);
    return {
      json: {
        message_type: messageType,
        entity_id: incident.key,
        entity_display_name: cutText(incident.text.title, SPLUNK_MAX_NAME),
        state_message: cutText(formatIncidentText(incident), SPLUNK_MAX_MESSAGE),
        state_start_time: startTime === undefined ? undefined : Math.floor(Date.parse(startTime) / 1_000),
        monitoring_tool: "Plenum",
        alert_url: incident.link ?? undefined,
      },
    };
  },
);

function chooseSplunkMessageType({ change, priority }: IncidentMessage, action: AlertAction): string | null {
  if (action === "trigger") return chooseByPriority(priority, ["CRITICAL", "WARNING", "WARNING"]);
  if (action === "acknowledge") return "ACKNOWLEDGEMENT";
  if (action === "resolve") return "RECOVERY";
  // `INFO` adds a line to Splunk's timeline without opening an incident or paging a person.
  return change === "vanished" || change === "out-of-scope" ? "INFO" : null;
}

const SERVICENOW_MAX_NAME = 100;
const SERVICENOW_MAX_DESCRIPTION = 4_000;

export const servicenowEvent = createAlertPerKeyFormat(
  (response, receiverName) => {
    const isAccepted = response.json !== undefined && getJsonMember(response.json, "error") === undefined;
    if (isAccepted || response.body.trim() === "") return null;
    // A hibernating instance of ServiceNow answers 200 with an HTML page.
    const hint = "If it is an instance of a developer, it may be asleep; wake it up in a browser.";
    return createUnconfirmedFailure(response, receiverName, hint);
  },
  (incident, action) =>
    action === "trigger" || action === "resolve"
      ? { json: { records: [buildServiceNowRecord(incident, action === "resolve")] } }
      : null,
);

function buildServiceNowRecord(incident: IncidentMessage, isEnded: boolean): Record<string, unknown> {
  const { alarm, endedAt, gateway, key, kind, link, priority, source, startedAt } = incident;
  const cleanServiceNowField = (name: string | undefined) => cleanDisplayName(name, source, SERVICENOW_MAX_NAME);
  const time = utcTimeOrUndefined(isEnded ? endedAt : startedAt);
  return {
    source: "Plenum",
    event_class: cutText(source, SERVICENOW_MAX_NAME),
    message_key: key,
    node: formatSiteName(incident, SERVICENOW_MAX_NAME),
    resource: cleanServiceNowField(alarm?.source ?? gateway?.displayName),
    metric_name: cleanServiceNowField(alarm?.trigger.displayName),
    type: kind,
    // ServiceNow's severities: "1" is critical, "2" major, "3" minor, "0" resolved.
    severity: isEnded ? "0" : chooseByPriority(priority, ["1", "2", "3"]),
    resolution_state: isEnded ? "Closing" : "New",
    description: cutText(formatIncidentText(incident), SERVICENOW_MAX_DESCRIPTION),
    time_of_event: time?.slice(0, 19).replace("T", " "),
    additional_info: JSON.stringify({ priority, ...collectSiteAndAlarmIds(incident), link: link ?? undefined }),
  };
}

/** Limits of incident.io in characters. incident.io rejects bodies above 512 kB with status 429. */
const INCIDENTIO_MAX_TITLE = 500;
const INCIDENTIO_MAX_TEXT = 1_000;

export const incidentio = createAlertPerKeyFormat(
  failUnlessConfirmed(({ json }) => typeof getJsonMember(json, "deduplication_key") === "string"),
  (incident, action, context) => {
    if (action === null || action === "acknowledge") return null;
    const { key, kind, link, priority, site, source, startedAt, text } = incident;
    return {
      headers: { authorization: `Bearer ${requireHeaderText(context.key, "Authorization")}` },
      json: {
        title: cutText(text.title, INCIDENTIO_MAX_TITLE),
        description: formatBody(text, (fieldText) => escapeMarkdown(cutText(fieldText, INCIDENTIO_MAX_TEXT))),
        deduplication_key: key,
        status: action === "resolve" ? "resolved" : "firing",
        metadata: {
          ...{ kind, source, priority, started_at: startedAt },
          ...collectSiteAndAlarmIds(incident),
          site: site === null ? undefined : formatSiteName(incident, INCIDENTIO_MAX_TITLE),
        },
        source_url: link ?? undefined,
      },
    };
  },
);

const ALERTMANAGER_NO_END_TIME = "0001-01-01T00:00:00Z";
const ALERTMANAGER_MAX_LABEL = 500;
const ALERTMANAGER_MAX_DESCRIPTION = 20_000;

export const alertmanager = createAlertPerKeyFormat(
  // Many programs accept Alertmanager's JSON and respond with any body, so only the response status counts.
  () => null,
  (incident, action, { name, nowMs }) => {
    if (action === null || action === "acknowledge") return null;
    const { endedAt, key, startedAt, text } = incident;
    const isAlertResolved = action === "resolve";
    const now = new Date(nowMs).toISOString();
    const status = isAlertResolved ? "resolved" : "firing";
    const labels = buildAlertmanagerLabels(incident);
    const annotations = {
      summary: cutText(text.title, ALERTMANAGER_MAX_LABEL),
      description: cutText(formatBody(text), ALERTMANAGER_MAX_DESCRIPTION),
    };
    const link = incident.link ?? "";
    // `startsAt` requires a UTC offset. A time without an offset is only in the description.
    const startsAt = utcTimeOrUndefined(startedAt) ?? now;
    const endsAt = isAlertResolved ? (utcTimeOrUndefined(endedAt) ?? now) : ALERTMANAGER_NO_END_TIME;
    return {
      json: {
        version: "4",
        groupKey: key,
        truncatedAlerts: 0,
        status,
        receiver: name,
        groupLabels: { alertname: labels.alertname },
        commonLabels: labels,
        commonAnnotations: annotations,
        externalURL: link,
        alerts: [{ status, labels, annotations, startsAt, endsAt, generatorURL: link, fingerprint: key }],
      },
    };
  },
);

const ALERT_NAMES = { gateway: "Gateway offline", storm: "Alarm storm", test: "Test", alarm: "Alarm" } as const;

/** Labels identify the alert. Texts are annotations, because some receivers treat changed labels as a new alert. */
function buildAlertmanagerLabels(incident: IncidentMessage): Readonly<Record<string, string | undefined>> {
  const { alarm, gateway, key, kind, priority, site, source } = incident;
  const cleanLabelValue = (name: string) => cleanDisplayName(name, source, ALERTMANAGER_MAX_LABEL);
  return {
    alertname: cleanLabelValue(alarm?.trigger.displayName || ALERT_NAMES[kind]),
    severity: chooseByPriority(priority, ["critical", "error", "warning"]),
    priority,
    source,
    key,
    site: site === null ? undefined : cleanLabelValue(site.displayName),
    ...collectSiteAndAlarmIds(incident),
    gateway: kind === "gateway" && gateway !== null ? cleanLabelValue(gateway.displayName) : undefined,
  };
}

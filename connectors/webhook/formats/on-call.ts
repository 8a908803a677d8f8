import { ConfigError } from "../../../src/core/errors/errors.ts";
import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import {
  actionOf,
  bodyOf,
  byPriority,
  confirmedBy,
  detailsOf,
  type Format,
  headingOf,
  type Message,
  markdown,
  memberOf,
  nameOf,
  pathOf,
  type RequestContext,
  refusal,
  timeWithOffset,
} from "./format.ts";

type Action = ReturnType<typeof actionOf>;

/** For a receiver with one alert per key: every request is a POST to the same address, null for none. */
function alertPerKey(
  failureIn: Format["failureIn"],
  messageFor: (
    incident: IncidentMessage,
    action: Action,
    context: RequestContext,
  ) => Pick<Message, "json" | "headers" | "allow"> | null,
): Format {
  return {
    opensAgain: "same",
    failureIn,
    requestFor(incident, operation, context) {
      const message = messageFor(incident, actionOf(incident, operation), context);
      return message === null ? null : { method: "POST", path: pathOf(context.url), ...message };
    },
  };
}

const fullText = ({ text }: IncidentMessage): string => `${headingOf(text)}\n${bodyOf(text)}`;

const siteName = ({ site, source }: IncidentMessage, most: number): string => nameOf(site?.displayName, source, most);

function idsOf({ alarm, site }: IncidentMessage): { readonly [name: string]: string | undefined } {
  return { site_id: site?.id.toString(), alarm_id: alarm?.id };
}

/** Events API v2. Together below 512,000 bytes, with 12 fields and 21 lines. */
const PAGERDUTY_MAX_SUMMARY = 1_024;
const PAGERDUTY_MAX_DETAIL = 4_000;
const PAGERDUTY_MAX_LINE = 500;

export const pagerduty = alertPerKey(
  (response, who) => {
    if (response.status === 400 && /routing[ _]key/i.test(response.body)) {
      const message = `${who} answered 400: it does not know the routing key.`;
      const hint = "Use the integration key of an integration of the kind Events API v2.";
      return new ConfigError(message, { reason: "unauthenticated", field: "key", hint });
    }
    const isAccepted = response.status !== 400 && memberOf(response.json, "status") === "success";
    return isAccepted ? null : refusal(response, who);
  },
  (incident, action, { key }) =>
    action === null
      ? null
      : {
          json: {
            routing_key: key,
            event_action: action,
            dedup_key: incident.key,
            ...(action === "trigger" ? triggerOf(incident) : {}),
          },
          allow: [400],
        },
);

function triggerOf(incident: IncidentMessage): Record<string, unknown> {
  const { kind, link, priority, source, startedAt, text } = incident;
  const linesOf = (lines: readonly string[]) =>
    lines.length === 0 ? undefined : lines.map((line) => cut(line, PAGERDUTY_MAX_LINE));
  return {
    payload: {
      summary: cut(text.title, PAGERDUTY_MAX_SUMMARY),
      source: siteName(incident, PAGERDUTY_MAX_LINE),
      severity: byPriority(priority, ["critical", "error", "warning"]),
      timestamp: timeWithOffset(startedAt),
      class: kind,
      group: source,
      custom_details: {
        ...detailsOf(text, PAGERDUTY_MAX_DETAIL),
        alarms: linesOf(text.list),
        values: linesOf(text.curves),
      },
    },
    client: "Plenum",
    client_url: link ?? undefined,
    links: link?.startsWith("https://") ? [{ href: link, text: text.linkText }] : undefined,
  };
}

/** Alert API of Opsgenie, which Jira Service Management took over, in characters. */
const JSM_MAX_MESSAGE = 130;
const JSM_MAX_DESCRIPTION = 15_000;
const JSM_MAX_TAG = 50;
const JSM_MAX_ENTITY = 512;
const JSM_MAX_DETAIL = 1_000;

/** Jira Service Management and Opsgenie: one alert for each `alias`. */
export const jsm: Format = {
  opensAgain: "same",

  requestFor(incident, operation, { url, key }) {
    const action = actionOf(incident, operation);
    const text = cut(fullText(incident), JSM_MAX_DESCRIPTION);
    const headers = { authorization: `GenieKey ${inHeader(key, "Authorization")}` };
    const below = (name: string) => pathOf(url, `/${incident.key}/${name}`, { identifierType: "alias" });
    if (action === "trigger")
      return { method: "POST", path: pathOf(url), headers, json: jsmAlert(incident), allow: [422] };
    if (action !== null) {
      const path = below(action === "resolve" ? "close" : "acknowledge");
      return { method: "POST", path, headers, json: { source: "Plenum", note: text }, allow: [422] };
    }
    // A new description neither reopens the alert nor pages.
    if (!["members", "vanished", "out-of-scope"].includes(incident.change)) return null;
    return { method: "PUT", path: below("description"), headers, json: { description: text }, allow: [422] };
  },

  failureIn(response, who) {
    if (response.status === 422 && /key format/i.test(response.body)) {
      const message = `${who} answered 422: the key is not one of its keys.`;
      const hint = "Use the key of an integration of the kind API.";
      return new ConfigError(message, { reason: "unauthenticated", field: "key", hint });
    }
    const isAccepted = response.status < 300 && typeof memberOf(response.json, "requestId") === "string";
    return isAccepted ? null : refusal(response, who);
  },
};

function jsmAlert(incident: IncidentMessage): Record<string, unknown> {
  const { key, link, priority, site, source, startedAt, text } = incident;
  return {
    message: cut(text.title, JSM_MAX_MESSAGE),
    alias: key,
    description: cut(bodyOf(text), JSM_MAX_DESCRIPTION),
    priority: byPriority(priority, ["P1", "P2", "P3"]),
    source: "Plenum",
    entity: siteName(incident, JSM_MAX_ENTITY),
    tags: [cut(`priority-${priority}`, JSM_MAX_TAG), cut(`source-${source}`, JSM_MAX_TAG)],
    details: {
      source,
      started_at: startedAt,
      ...idsOf(incident),
      site: site === null ? undefined : siteName(incident, JSM_MAX_DETAIL),
      link: link === null ? undefined : cut(link, JSM_MAX_DETAIL),
    },
  };
}

const SPLUNK_MAX_MESSAGE = 20_480;
const SPLUNK_MAX_NAME = 500;

/** Splunk On-Call (VictorOps): one incident for each `entity_id`. The key is in the address. */
export const splunkOncall = alertPerKey(
  confirmedBy(({ json }) => memberOf(json, "result") === "success"),
  (incident, action) => {
    const type = splunkType(incident, action);
    if (type === null) return null;
    const started = timeWithOffset(incident.startedAt);
    return {
      json: {
        message_type: type,
        entity_id: incident.key,
        entity_display_name: cut(incident.text.title, SPLUNK_MAX_NAME),
        state_message: cut(fullText(incident), SPLUNK_MAX_MESSAGE),
        state_start_time: started === undefined ? undefined : Math.floor(Date.parse(started) / 1_000),
        monitoring_tool: "Plenum",
        alert_url: incident.link ?? undefined,
      },
    };
  },
);

function splunkType({ change, priority }: IncidentMessage, action: Action): string | null {
  if (action === "trigger") return byPriority(priority, ["CRITICAL", "WARNING", "WARNING"]);
  if (action === "acknowledge") return "ACKNOWLEDGEMENT";
  if (action === "resolve") return "RECOVERY";
  // A line in the timeline that neither opens nor pages.
  return change === "vanished" || change === "out-of-scope" ? "INFO" : null;
}

const SERVICENOW_MAX_NAME = 100;
const SERVICENOW_MAX_DESCRIPTION = 4_000;

export const servicenowEvent = alertPerKey(
  (response, who) => {
    const isAccepted = response.json !== undefined && memberOf(response.json, "error") === undefined;
    if (isAccepted || response.body.trim() === "") return null;
    // A hibernating instance answers 200 with a page.
    return refusal(response, who, "If it is an instance of a developer, it may be asleep; wake it up in a browser.");
  },
  (incident, action) =>
    action === "trigger" || action === "resolve"
      ? { json: { records: [servicenowRecord(incident, action === "resolve")] } }
      : null,
);

function servicenowRecord(incident: IncidentMessage, isOver: boolean): Record<string, unknown> {
  const { alarm, endedAt, gateway, key, kind, link, priority, source, startedAt } = incident;
  const name = (words: string | undefined) => nameOf(words, source, SERVICENOW_MAX_NAME);
  const time = timeWithOffset(isOver ? endedAt : startedAt);
  return {
    source: "Plenum",
    event_class: cut(source, SERVICENOW_MAX_NAME),
    message_key: key,
    node: siteName(incident, SERVICENOW_MAX_NAME),
    resource: name(alarm?.source ?? gateway?.displayName),
    metric_name: name(alarm?.trigger.displayName),
    type: kind,
    // "1" is critical, "2" major, "3" minor, "0" resolved.
    severity: isOver ? "0" : byPriority(priority, ["1", "2", "3"]),
    resolution_state: isOver ? "Closing" : "New",
    description: cut(fullText(incident), SERVICENOW_MAX_DESCRIPTION),
    time_of_event: time?.slice(0, 19).replace("T", " "),
    additional_info: JSON.stringify({ priority, ...idsOf(incident), link: link ?? undefined }),
  };
}

/** incident.io rejects bodies above 512 kB with 429 each time. In characters. */
const INCIDENTIO_MAX_TITLE = 500;
const INCIDENTIO_MAX_TEXT = 1_000;

export const incidentio = alertPerKey(
  confirmedBy(({ json }) => typeof memberOf(json, "deduplication_key") === "string"),
  (incident, action, context) => {
    if (action === null || action === "acknowledge") return null;
    const { key, kind, link, priority, site, source, startedAt, text } = incident;
    return {
      headers: { authorization: `Bearer ${inHeader(context.key, "Authorization")}` },
      json: {
        title: cut(text.title, INCIDENTIO_MAX_TITLE),
        description: bodyOf(text, (each) => markdown(cut(each, INCIDENTIO_MAX_TEXT))),
        deduplication_key: key,
        status: action === "resolve" ? "resolved" : "firing",
        metadata: {
          ...{ kind, source, priority, started_at: startedAt },
          ...idsOf(incident),
          site: site === null ? undefined : siteName(incident, INCIDENTIO_MAX_TITLE),
        },
        source_url: link ?? undefined,
      },
    };
  },
);

const NO_END = "0001-01-01T00:00:00Z";
const ALERTMANAGER_MAX_LABEL = 500;
const ALERTMANAGER_MAX_DESCRIPTION = 20_000;

export const alertmanager = alertPerKey(
  // Many bridges accept this JSON with any response body; only the status counts.
  () => null,
  (incident, action, { name, nowMs }) => {
    if (action === null || action === "acknowledge") return null;
    const { endedAt, key, startedAt, text } = incident;
    const isOver = action === "resolve";
    const now = new Date(nowMs).toISOString();
    const status = isOver ? "resolved" : "firing";
    const labels = alertmanagerLabels(incident);
    const annotations = {
      summary: cut(text.title, ALERTMANAGER_MAX_LABEL),
      description: cut(bodyOf(text), ALERTMANAGER_MAX_DESCRIPTION),
    };
    const link = incident.link ?? "";
    // A time without an offset is not allowed here; the description contains it.
    const startsAt = timeWithOffset(startedAt) ?? now;
    const endsAt = isOver ? (timeWithOffset(endedAt) ?? now) : NO_END;
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

/** Labels identify the alert; texts are annotations, because some receivers treat another label as another alert. */
function alertmanagerLabels(incident: IncidentMessage): Readonly<Record<string, string | undefined>> {
  const { alarm, gateway, key, kind, priority, site, source } = incident;
  const label = (name: string) => nameOf(name, source, ALERTMANAGER_MAX_LABEL);
  return {
    alertname: label(alarm?.trigger.displayName || ALERT_NAMES[kind]),
    severity: byPriority(priority, ["critical", "error", "warning"]),
    priority,
    source,
    key,
    site: site === null ? undefined : label(site.displayName),
    ...idsOf(incident),
    gateway: kind === "gateway" && gateway !== null ? label(gateway.displayName) : undefined,
  };
}

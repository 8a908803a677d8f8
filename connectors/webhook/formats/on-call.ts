import { ConfigError } from "../../../src/core/errors/errors.ts";
import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import {
  actionOf,
  byPriority,
  type Format,
  memberOf,
  type Operation,
  pathOf,
  refusal,
  timeWithOffset,
} from "./format.ts";
import { bodyOf, detailsOf, headingOf, markdown, nameOf } from "./text.ts";

/** Longest `payload.summary` (Events API v2). */
const PAGERDUTY_MAX_SUMMARY = 1_024;
/** Keeps the event below 512,000 bytes (Events API v2), with 12 fields and 21 lines of it. */
const PAGERDUTY_MAX_DETAIL = 4_000;
const PAGERDUTY_MAX_LINE = 500;

/** PagerDuty, Events API v2: one alert for each `dedup_key`. */
export const pagerduty: Format = {
  opensAgain: "same",

  say(incident, operation, { url, key }) {
    const action = actionOf(incident, operation);
    if (action === null) return null;
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        routing_key: key,
        event_action: action,
        dedup_key: incident.key,
        ...(action === "trigger" ? triggerOf(incident) : {}),
      },
      allow: [400],
    };
  },

  judge(said, who) {
    if (said.status === 400) {
      const isTheKey = /routing[ _]key/i.test(said.body);
      if (!isTheKey) return refusal(said, who);
      return new ConfigError(`${who} answered 400: it does not know the routing key.`, {
        reason: "unauthenticated",
        field: "key",
        hint: "Use the integration key of an integration of the kind Events API v2.",
      });
    }
    return memberOf(said.json, "status") === "success" ? null : refusal(said, who);
  },
};

function triggerOf(incident: IncidentMessage): Record<string, unknown> {
  const { text } = incident;
  const linesOf = (lines: readonly string[]) =>
    lines.length === 0 ? undefined : lines.map((line) => cut(line, PAGERDUTY_MAX_LINE));
  return {
    payload: {
      summary: cut(text.title, PAGERDUTY_MAX_SUMMARY),
      source: nameOf(incident.site?.displayName, incident.source, PAGERDUTY_MAX_LINE),
      severity: severityOf(incident.priority),
      timestamp: timeWithOffset(incident.startedAt),
      class: incident.kind,
      group: incident.source,
      custom_details: {
        ...detailsOf(text, PAGERDUTY_MAX_DETAIL),
        alarms: linesOf(text.list),
        values: linesOf(text.curves),
      },
    },
    client: "Plenum",
    client_url: incident.link ?? undefined,
    links: incident.link?.startsWith("https://") ? [{ href: incident.link, text: text.linkText }] : undefined,
  };
}

function severityOf(priority: string): string {
  return byPriority(priority, ["critical", "error", "warning"]);
}

/** Sizes of the Alert API of Opsgenie, which Jira Service Management took over, in characters. */
const JSM_MAX_MESSAGE = 130;
const JSM_MAX_DESCRIPTION = 15_000;
const JSM_MAX_TAG = 50;
const JSM_MAX_ENTITY = 512;
const JSM_MAX_DETAIL = 1_000;

const SOURCE = "Plenum";

/** Alerts of Jira Service Management, and of Opsgenie: one alert for each `alias`. */
export const jsm: Format = {
  opensAgain: "same",

  say(incident, operation, { url, key }) {
    const request = requestOf(incident, operation);
    if (request === null) return null;
    const { method, under, json } = request;
    return {
      method,
      path: under === "" ? pathOf(url) : pathOf(url, `/${incident.key}/${under}`, { identifierType: "alias" }),
      headers: { authorization: `GenieKey ${inHeader(key, "Authorization")}` },
      json,
      allow: [422],
    };
  },

  judge(said, who) {
    if (said.status === 422 && /key format/i.test(said.body)) {
      return new ConfigError(`${who} answered 422: the key is not one of its keys.`, {
        reason: "unauthenticated",
        field: "key",
        hint: "Use the key of an integration of the kind API.",
      });
    }
    return typeof memberOf(said.json, "requestId") === "string" && said.status < 300 ? null : refusal(said, who);
  },
};

interface Request {
  readonly method: "POST" | "PUT";
  /** Path below the alert; empty for the list of alerts. */
  readonly under: string;
  readonly json: unknown;
}

function requestOf(incident: IncidentMessage, operation: Operation): Request | null {
  const { text } = incident;
  const description = cut(bodyOf(text), JSM_MAX_DESCRIPTION);
  switch (actionOf(incident, operation)) {
    case "trigger":
      return { method: "POST", under: "", json: alertOf(incident, description) };
    case "acknowledge":
      return { method: "POST", under: "acknowledge", json: { source: SOURCE, note: noteOf(incident) } };
    case "resolve":
      return { method: "POST", under: "close", json: { source: SOURCE, note: noteOf(incident) } };
    case null: {
      // A new description neither reopens the alert nor pages.
      const isNews = ["members", "vanished", "out-of-scope"].includes(incident.change);
      return isNews
        ? {
            method: "PUT",
            under: "description",
            json: { description: cut(noteOf(incident), JSM_MAX_DESCRIPTION) },
          }
        : null;
    }
  }
}

function noteOf(incident: IncidentMessage): string {
  const { text } = incident;
  return cut(`${headingOf(text)}\n${bodyOf(text)}`, JSM_MAX_DESCRIPTION);
}

function alertOf(incident: IncidentMessage, description: string): Record<string, unknown> {
  return {
    message: cut(incident.text.title, JSM_MAX_MESSAGE),
    alias: incident.key,
    description,
    priority: byPriority(incident.priority, ["P1", "P2", "P3"]),
    source: SOURCE,
    entity: nameOf(incident.site?.displayName, incident.source, JSM_MAX_ENTITY),
    tags: [cut(`priority-${incident.priority}`, JSM_MAX_TAG), cut(`source-${incident.source}`, JSM_MAX_TAG)],
    details: {
      source: incident.source,
      started_at: incident.startedAt,
      site_id: incident.site?.id.toString(),
      site: incident.site === null ? undefined : nameOf(incident.site.displayName, incident.source, JSM_MAX_DETAIL),
      alarm_id: incident.alarm?.id,
      link: incident.link === null ? undefined : cut(incident.link, JSM_MAX_DETAIL),
    },
  };
}

/** Longest `state_message` of the REST endpoint, in characters. */
const SPLUNK_MAX_MESSAGE = 20_480;
const SPLUNK_MAX_NAME = 500;

/** Splunk On-Call (VictorOps), REST endpoint: one incident for each `entity_id`. The key is in the address. */
export const splunkOncall: Format = {
  opensAgain: "same",

  say(incident, operation, { url }) {
    const type = typeOf(incident, operation);
    if (type === null) return null;
    const { text } = incident;
    const started = timeWithOffset(incident.startedAt);
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        message_type: type,
        entity_id: incident.key,
        entity_display_name: cut(text.title, SPLUNK_MAX_NAME),
        state_message: cut(`${headingOf(text)}\n${bodyOf(text)}`, SPLUNK_MAX_MESSAGE),
        state_start_time: started === undefined ? undefined : Math.floor(Date.parse(started) / 1_000),
        monitoring_tool: "Plenum",
        alert_url: incident.link ?? undefined,
      },
    };
  },

  judge(said, who) {
    return memberOf(said.json, "result") === "success" ? null : refusal(said, who);
  },
};

function typeOf(incident: IncidentMessage, operation: Operation): string | null {
  switch (actionOf(incident, operation)) {
    case "trigger":
      return byPriority(incident.priority, ["CRITICAL", "WARNING", "WARNING"]);
    case "acknowledge":
      return "ACKNOWLEDGEMENT";
    case "resolve":
      return "RECOVERY";
    case null:
      // A line in the timeline that neither opens nor pages.
      return incident.change === "vanished" || incident.change === "out-of-scope" ? "INFO" : null;
  }
}

/** Columns of the table of events (em_event), in characters. */
const SERVICENOW_MAX_NAME = 100;
const SERVICENOW_MAX_DESCRIPTION = 4_000;

/** ServiceNow Event Management: one alert for each `message_key`. */
export const servicenowEvent: Format = {
  opensAgain: "same",

  say(incident, operation, { url }) {
    const action = actionOf(incident, operation);
    if (action === null || action === "acknowledge") return null;
    return {
      method: "POST",
      path: pathOf(url),
      json: { records: [recordOf(incident, action === "resolve")] },
    };
  },

  judge(said, who) {
    if (said.body.trim() === "") return null;
    const isYes = said.json !== undefined && memberOf(said.json, "error") === undefined;
    // A hibernating instance answers 200 with a page.
    return isYes
      ? null
      : refusal(said, who, "If it is an instance of a developer, it may be asleep; wake it up in a browser.");
  },
};

function recordOf(incident: IncidentMessage, isOver: boolean): Record<string, unknown> {
  const { text } = incident;
  const name = (words: string | undefined) => nameOf(words, incident.source, SERVICENOW_MAX_NAME);
  return {
    source: "Plenum",
    event_class: cut(incident.source, SERVICENOW_MAX_NAME),
    message_key: incident.key,
    node: name(incident.site?.displayName),
    resource: name(incident.alarm?.source ?? incident.gateway?.displayName),
    metric_name: name(incident.alarm?.trigger.displayName),
    type: incident.kind,
    // "1" is critical, "2" major, "3" minor, "0" says that it is over.
    severity: isOver ? "0" : byPriority(incident.priority, ["1", "2", "3"]),
    resolution_state: isOver ? "Closing" : "New",
    description: cut(`${headingOf(text)}\n${bodyOf(text)}`, SERVICENOW_MAX_DESCRIPTION),
    // GMT as `2026-11-02 06:15:00`.
    time_of_event: timeWithOffset(isOver ? incident.endedAt : incident.startedAt)
      ?.slice(0, 19)
      .replace("T", " "),
    additional_info: JSON.stringify({
      priority: incident.priority,
      site_id: incident.site?.id.toString(),
      alarm_id: incident.alarm?.id,
      link: incident.link ?? undefined,
    }),
  };
}

/** incident.io rejects bodies above 512 kB with 429 each time. In characters. */
const INCIDENTIO_MAX_TITLE = 500;
const INCIDENTIO_MAX_DESCRIPTION = 20_000;

/** incident.io, HTTP alert source: one alert for each `deduplication_key`. The description is Markdown. */
export const incidentio: Format = {
  opensAgain: "same",

  say(incident, operation, { url, key }) {
    const action = actionOf(incident, operation);
    if (action === null || action === "acknowledge") return null;
    const { text } = incident;
    return {
      method: "POST",
      path: pathOf(url),
      headers: { authorization: `Bearer ${inHeader(key, "Authorization")}` },
      json: {
        title: cut(text.title, INCIDENTIO_MAX_TITLE),
        description: bodyOf(text, (each) => markdown(cut(each, INCIDENTIO_MAX_DESCRIPTION / 20))),
        deduplication_key: incident.key,
        status: action === "resolve" ? "resolved" : "firing",
        metadata: {
          kind: incident.kind,
          source: incident.source,
          priority: incident.priority,
          started_at: incident.startedAt,
          site_id: incident.site?.id.toString(),
          site:
            incident.site === null
              ? undefined
              : nameOf(incident.site.displayName, incident.source, INCIDENTIO_MAX_TITLE),
          alarm_id: incident.alarm?.id,
        },
        source_url: incident.link ?? undefined,
      },
    };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "deduplication_key") === "string" ? null : refusal(said, who);
  },
};

/** End of an active alert in the JSON of Alertmanager. */
const NO_END = "0001-01-01T00:00:00Z";
const ALERTMANAGER_MAX_LABEL = 500;
const ALERTMANAGER_MAX_DESCRIPTION = 20_000;

/** The JSON that Alertmanager posts to its webhooks, version 4, with one alert. */
export const alertmanager: Format = {
  opensAgain: "same",

  say(incident, operation, { url, name, nowMs }) {
    const action = actionOf(incident, operation);
    if (action === null || action === "acknowledge") return null;
    const { text } = incident;
    const isOver = action === "resolve";
    const now = new Date(nowMs).toISOString();
    const status = isOver ? "resolved" : "firing";
    const labels = labelsOf(incident);
    const annotations = {
      summary: cut(text.title, ALERTMANAGER_MAX_LABEL),
      description: cut(bodyOf(text), ALERTMANAGER_MAX_DESCRIPTION),
    };
    const link = incident.link ?? "";
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        version: "4",
        groupKey: incident.key,
        truncatedAlerts: 0,
        status,
        receiver: name,
        groupLabels: { alertname: labels.alertname },
        commonLabels: labels,
        commonAnnotations: annotations,
        externalURL: link,
        alerts: [
          {
            status,
            labels,
            annotations,
            // A time without an offset is not allowed here; the description contains it.
            startsAt: timeWithOffset(incident.startedAt) ?? now,
            endsAt: isOver ? (timeWithOffset(incident.endedAt) ?? now) : NO_END,
            generatorURL: link,
            fingerprint: incident.key,
          },
        ],
      },
    };
  },

  // Many bridges accept this JSON with any response body; only the status counts.
  judge: () => null,
};

const ALERT_NAMES = {
  gateway: "Gateway offline",
  storm: "Alarm storm",
  test: "Test",
  alarm: "Alarm",
} as const;

/**
 * Labels identify the alert; texts are annotations, because some receivers treat another label as another alert.
 */
function labelsOf(incident: IncidentMessage): Record<string, string> {
  const { alarm, site } = incident;
  const label = (name: string) => nameOf(name, incident.source, ALERTMANAGER_MAX_LABEL);
  return {
    alertname: label(alarm?.trigger.displayName || ALERT_NAMES[incident.kind]),
    severity: byPriority(incident.priority, ["critical", "error", "warning"]),
    priority: incident.priority,
    source: incident.source,
    key: incident.key,
    ...(site === null ? {} : { site: label(site.displayName), site_id: String(site.id) }),
    ...(alarm === null ? {} : { alarm_id: alarm.id }),
    ...(incident.kind === "gateway" && incident.gateway !== null
      ? { gateway: label(incident.gateway.displayName) }
      : {}),
  };
}

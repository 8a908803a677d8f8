import { z } from "zod";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import type { IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import { cutText, toOneLine } from "../shared/receiver/text.ts";

export interface AlertmanagerAlert {
  readonly labels: Readonly<Record<string, string>>;
  readonly annotations: Readonly<Record<string, string>>;
  readonly startsAt: string;
  readonly endsAt: string;
  readonly generatorURL?: string;
}

/** Labels and start of the first message, reused for later messages: changed labels would create a second alert. */
export const AlertIdentity = z.object({ labels: z.record(z.string(), z.string()), startsAt: z.string() });
export type AlertIdentity = z.infer<typeof AlertIdentity>;

/** End of a firing alert, from now. Without an end, Alertmanager resolves an alert after 5 minutes. */
const FIRING_END_AHEAD_MS = 7 * 86_400_000;

const MAX_LABEL_LENGTH = 200;
const MAX_ANNOTATION_LENGTH = 4_000;

/** Fixed alert names: users write Alertmanager routes with these names. */
const ALERT_NAME_BY_KIND = { gateway: "GatewayOffline", storm: "AlarmStorm", test: "PlenumTest" } as const;

export function buildAlertIdentity(
  incident: IncidentMessage,
  extraLabels: Readonly<Record<string, string>>,
  nowMs: number,
): AlertIdentity {
  const { alarm, key, kind, priority, site, source } = incident;
  const alertName = kind === "alarm" ? (alarm?.trigger.displayName ?? "") : ALERT_NAME_BY_KIND[kind];
  const labels = {
    ...extraLabels,
    alertname: cleanLabel(alertName) || "Alarm",
    source,
    ...(site === null ? {} : { site: cleanLabel(site.displayName), site_id: String(site.id) }),
    priority: cleanLabel(priority),
    kind,
    key,
  };
  return {
    labels: Object.fromEntries(Object.entries(labels).filter(([, value]) => value !== "")),
    startsAt: isoUtc(Math.min(parseTimeMs(incident.startedAt) ?? nowMs, nowMs)),
  };
}

export function buildFiringAlert(incident: IncidentMessage, identity: AlertIdentity, nowMs: number): AlertmanagerAlert {
  return buildAlert(incident, identity, isoUtc(nowMs + FIRING_END_AHEAD_MS));
}

/** Builds an ended alert. Limits the end to the time between the start of the alert and now. */
export function buildEndedAlert(incident: IncidentMessage, identity: AlertIdentity, nowMs: number): AlertmanagerAlert {
  const endMs = Math.min(parseTimeMs(incident.endedAt ?? "") ?? nowMs, nowMs);
  return buildAlert(incident, identity, isoUtc(Math.max(endMs, Date.parse(identity.startsAt))));
}

function buildAlert(incident: IncidentMessage, { labels, startsAt }: AlertIdentity, endsAt: string): AlertmanagerAlert {
  const { alarm, endedAt, link, priority, startedAt, text } = incident;
  const lacksOffset = [startedAt, endedAt].some((time) => time !== null && !hasOffset(time));
  const fieldLines = text.fields.map((field) => `${field.label}: ${field.text}`);
  const annotations: Readonly<Record<string, string>> = {
    summary: text.title,
    status: text.status,
    description: [...fieldLines, ...text.list, ...text.curves].join("\n"),
    priority,
    started_at: startedAt,
    ended_at: endedAt ?? "",
    alarm_id: alarm?.id ?? "",
    time_note: lacksOffset ? "The service gave a time without an offset; it is taken as UTC." : "",
  };
  const cleanText = (value: string) => cutText(breakMentions(value), MAX_ANNOTATION_LENGTH);
  const cleanedTexts = Object.entries(annotations).map(([name, value]) => [name, cleanText(value)]);
  return {
    labels,
    annotations: Object.fromEntries(cleanedTexts.filter(([, value]) => value !== "")),
    startsAt,
    endsAt,
    ...(link === null ? {} : { generatorURL: link }),
  };
}

/** Parses a time, without an offset as UTC; null for a text that is no time. */
function parseTimeMs(time: string): number | null {
  const ms = Date.parse(hasOffset(time) ? time : `${time}Z`);
  return Number.isNaN(ms) ? null : ms;
}

const hasOffset = (time: string): boolean => /(Z|[+-]\d\d:?\d\d)$/i.test(time);

const cleanLabel = (text: string): string => cutText(breakMentions(toOneLine(text)), MAX_LABEL_LENGTH);

/** Breaks mentions (`<!channel>`, `@everyone`) with a zero-width space; Alertmanager forwards texts unchanged. */
function breakMentions(text: string): string {
  return text.replaceAll(/<(?=[!@#])|@(?=(?:channel|everyone|here|all)\b)/gi, "$&\u200b").trim();
}

import { z } from "zod";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { cutText, toOneLine } from "../shared/receiver/message-texts.ts";
import type { IncidentMessage } from "../shared/receiver/receiver-interface.ts";

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

/** Time until `endsAt` of a firing alert. Without `endsAt`, Alertmanager resolves an alert after 5 minutes. */
const FIRING_ALERT_DURATION_MS = 7 * 86_400_000;

const MAX_ALERT_LABEL_LENGTH = 200;
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

export function buildFiringAlert(incident: IncidentMessage, identity: AlertIdentity, nowMs: number): AlertmanagerAlert {
  return buildAlert(incident, identity, isoUtc(nowMs + FIRING_ALERT_DURATION_MS));
}

/** Builds an ended alert. Limits the end to the time between the start of the alert and now. */
export function buildEndedAlert(incident: IncidentMessage, identity: AlertIdentity, nowMs: number): AlertmanagerAlert {
  const alertEndMs = Math.min(parseTimeMs(incident.endedAt ?? "") ?? nowMs, nowMs);
  return buildAlert(incident, identity, isoUtc(Math.max(alertEndMs, Date.parse(identity.startsAt))));
}

function buildAlert(incident: IncidentMessage, { labels, startsAt }: AlertIdentity, endsAt: string): AlertmanagerAlert {
  const { alarm, endedAt, link, priority, startedAt, text } = incident;
  const lacksUtcOffset = [startedAt, endedAt].some((time) => time !== null && !hasUtcOffset(time));
  const fieldLines = text.fields.map((field) => `${field.label}: ${field.text}`);
  const annotations: Readonly<Record<string, string>> = {
    summary: text.title,
    status: text.status,
    description: [...fieldLines, ...text.list, ...text.curves].join("\n"),
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

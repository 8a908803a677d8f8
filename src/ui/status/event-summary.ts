import type { AnyEvent, EventData, EventKind } from "../../core/model/event.ts";
import type { SilenceFact } from "../../core/model/silence-event-data.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { LoggedEvent } from "../../engine/store/store.ts";

export function eventSummary({ position, committedAt, event }: LoggedEvent) {
  return { position, time: committedAt, type: event.type, summary: summarizeEvent(event as AnyEvent) };
}

const silenceEventText = ({ silence }: SilenceFact) => `until ${silence.to}: ${silence.reason}`;
const EVENT_SUMMARIES: { readonly [K in EventKind]?: (data: EventData[K]) => string } = {
  "command-accepted": ({ tagId, requested }) => `tag ${tagId} to ${requested}`,
  "command-result": ({ tagId, outcome, message }) => `${tagId === null ? "" : `tag ${tagId} `}${outcome}: ${message}`,
  "command-not-restored": ({ tagId, inForce, wanted, message }) =>
    `tag ${tagId} holds ${inForce ?? "?"}, not ${wanted}: ${message}`,
  "tag-value"({ tag, value, quality, staleReason }) {
    const valueText = value === null ? "no value" : `${value}${tag.unit ? ` ${tag.unit}` : ""}`;
    const qualityText = staleReason === undefined ? quality : `${quality}: ${staleReason}`;
    return `${tag.displayName}: ${valueText}${quality === "good" ? "" : ` (${qualityText})`}`;
  },
  "tag-systems-changed": ({ tag, systems }) =>
    `${tag.displayName}: ${systems.map(({ displayName }) => displayName).join(", ") || "no system"}`,
  "series-break": ({ tag, what }) => `${tag.displayName}: other ${what.join(" and ")} than before`,
  "history-complete": (data) =>
    "site" in data
      ? `${data.site.displayName}: ${data.resolution} until ${data.until}`
      : `${data.tag.displayName}: ${data.resolution} of ${data.firstDate} to ${data.lastDate}`,
  "day-sealed": ({ site, date, revision }) => `${site.displayName}: ${date}, revision ${revision}`,
  "audit-head": ({ records, head }) => `${formatCount(records, "record")}, ${head.slice(0, 12)}…`,
  "silence-started": silenceEventText,
  "silence-ended": silenceEventText,
  "token-expiring": ({ daysLeft }) => `in ${formatCount(daysLeft, "day")}`,
  "delivery-gap": ({ sink, count, reason }) => `${sink}: ${formatCount(count, "event")} lost by ${reason}`,
  "configuration-changed"({ changes, pending }) {
    const pendingChangesText = pending.length === 0 ? "" : `; ${pending.length} wait for a restart`;
    return `${changes.map(({ path }) => path).join(", ") || "nothing yet"}${pendingChangesText}`;
  },
  "source-unavailable": ({ reason }) => reason,
  "site-status-changed": ({ site, status, reason }) =>
    `${site.displayName}: ${status}${reason === null ? "" : `. ${reason}`}`,
  "source-available": ({ unavailableSince }) => `away since ${unavailableSince}`,
  "worker-alive": ({ alarmsPolledAt }) => `alarms polled at ${alarmsPolledAt ?? "no time yet"}`,
};

export function summarizeEvent(event: AnyEvent): string {
  const summarizeEventData = EVENT_SUMMARIES[event.type] as ((data: object) => string) | undefined;
  return summarizeEventData?.(event.data) ?? eventSubjectName(event);
}

function eventSubjectName({ data, subject }: AnyEvent): string {
  if ("alarm" in data) return `${data.alarm.trigger.displayName} · ${data.alarm.site.displayName}`;
  if ("gateway" in data) return data.gateway.displayName;
  if ("host" in data) return data.host.displayName;
  if ("system" in data) return data.system.displayName;
  if ("tag" in data) return data.tag.displayName;
  return "site" in data ? data.site.displayName : subject;
}

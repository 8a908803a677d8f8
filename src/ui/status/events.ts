import type { AnyEvent } from "../../core/model/event.ts";
import { formatCount } from "../../core/values/plural.ts";
import type { LoggedEvent } from "../../engine/store/store.ts";

export function eventSummary({ position, committedAt, event }: LoggedEvent) {
  return { position, time: committedAt, type: event.type, gist: summaryOf(event as AnyEvent) };
}

export function summaryOf(event: AnyEvent): string {
  switch (event.type) {
    case "command-accepted":
      return `tag ${event.data.tagId} to ${event.data.requested}`;
    case "command-result":
      return `${event.data.tagId === null ? "" : `tag ${event.data.tagId} `}${event.data.outcome}: ${event.data.message}`;
    case "command-not-restored":
      return `tag ${event.data.tagId} holds ${event.data.inForce ?? "?"}, not ${event.data.wanted}: ${event.data.message}`;
    case "tag-value": {
      const { tag, value, quality } = event.data;
      const unit = tag.unit ? ` ${tag.unit}` : "";
      return `${tag.displayName}: ${value === null ? "no value" : `${value}${unit}`}${quality === "good" ? "" : ` (${quality})`}`;
    }
    case "tag-systems-changed":
      return `${subjectName(event)}: ${event.data.systems.map((system) => system.displayName).join(", ") || "no system"}`;
    case "series-break":
      return `${subjectName(event)}: other ${event.data.what.join(" and ")} than before`;
    case "silent-sensors":
      return `${subjectName(event)}: ${formatCount(sum(Object.values(event.data.counts)), "finding")} in ${formatCount(event.data.tags, "tag")}`;
    case "history-complete":
      if ("site" in event.data)
        return `${event.data.site.displayName}: ${event.data.resolution} until ${event.data.until}`;
      return `${event.data.tag.displayName}: ${event.data.resolution} of ${event.data.firstDate} to ${event.data.lastDate}`;
    case "day-sealed":
      return `${event.data.site.displayName}: ${event.data.date}, revision ${event.data.revision}`;
    case "audit-head":
      return `${formatCount(event.data.records, "record")}, ${event.data.head.slice(0, 12)}…`;
    case "silence-started":
    case "silence-ended":
      return `until ${event.data.silence.to}: ${event.data.silence.reason}`;
    case "token-expiring":
      return `in ${formatCount(event.data.daysLeft, "day")}`;
    case "delivery-gap":
      return `${event.data.sink}: ${formatCount(event.data.count, "event")} lost by ${event.data.reason}`;
    case "configuration-changed": {
      const { changes, pending } = event.data;
      const pendingText = pending.length === 0 ? "" : `; ${pending.length} wait for a restart`;
      return `${changes.map(({ path }) => path).join(", ") || "nothing yet"}${pendingText}`;
    }
    case "source-unavailable":
      return event.data.reason;
    case "source-available":
      return `away since ${event.data.unavailableSince}`;
    case "worker-alive":
      return `alarms polled at ${event.data.alarmsPolledAt ?? "no time yet"}`;
    default:
      return subjectName(event);
  }
}

function subjectName({ data, subject }: AnyEvent): string {
  if ("alarm" in data) return `${data.alarm.trigger.displayName} · ${data.alarm.site.displayName}`;
  if ("gateway" in data) return data.gateway.displayName;
  if ("host" in data) return data.host.displayName;
  if ("system" in data) return data.system.displayName;
  if ("tag" in data) return data.tag.displayName;
  return "site" in data ? data.site.displayName : subject;
}

const sum = (numbers: readonly number[]) => numbers.reduce((all, one) => all + one, 0);

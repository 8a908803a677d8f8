import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import { actionOf, byPriority, certainTime, type Format, pathOf } from "./format.ts";
import { bodyOf, nameOf, textOf } from "./shown.ts";

/** What Alertmanager says of an alert without an end. */
const NO_END = "0001-01-01T00:00:00Z";
const MOST_LABEL = 500;
const MOST_DESCRIPTION = 20_000;

/** The JSON that Alertmanager posts to its webhooks, version 4, with one alert. */
export const alertmanager: Format = {
  opensAgain: "same",

  say(told, deed, { url, name, nowMs }) {
    const action = actionOf(told, deed);
    if (action === null || action === "acknowledge") return null;
    const text = textOf(told);
    const isOver = action === "resolve";
    const now = new Date(nowMs).toISOString();
    const status = isOver ? "resolved" : "firing";
    const labels = labelsOf(told);
    const annotations = {
      summary: cut(text.title, MOST_LABEL),
      description: cut(bodyOf(text), MOST_DESCRIPTION),
    };
    const link = told.link ?? "";
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        version: "4",
        groupKey: told.key,
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
            // A time without an offset cannot be said here; the description has it as it came.
            startsAt: certainTime(told.startedAt) ?? now,
            endsAt: isOver ? (certainTime(told.endedAt) ?? now) : NO_END,
            generatorURL: link,
            fingerprint: told.key,
          },
        ],
      },
    };
  },

  // Dozens of bridges take this JSON and answer with whatever they like; the standard is the status alone.
  judge: () => null,
};

const NAMES = { gateway: "Gateway offline", storm: "Alarm storm", test: "Test", alarm: "Alarm" } as const;

/** Who it is; what it says stands in the annotations, because another label is another alert to some. */
function labelsOf(told: IncidentMessage): Record<string, string> {
  const { alarm, site } = told;
  const label = (name: string) => nameOf(name, told.source, MOST_LABEL);
  return {
    alertname: label(alarm?.trigger.displayName || NAMES[told.kind]),
    severity: byPriority(told.priority, ["critical", "error", "warning"]),
    priority: told.priority,
    source: told.source,
    key: told.key,
    ...(site === null ? {} : { site: label(site.displayName), site_id: String(site.id) }),
    ...(alarm === null ? {} : { alarm_id: alarm.id }),
    ...(told.kind === "gateway" && told.gateway !== null ? { gateway: label(told.gateway.displayName) } : {}),
  };
}

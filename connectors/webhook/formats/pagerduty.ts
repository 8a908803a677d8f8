import { ConfigError } from "../../../src/core/errors/errors.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import { actionOf, byPriority, certainTime, type Format, memberOf, pathOf, refusal } from "./format.ts";
import { detailsOf, nameOf, textOf } from "./shown.ts";

/** Longest `payload.summary` (Events API v2). */
const MOST_SUMMARY = 1_024;
/** Keeps the event below 512,000 bytes (Events API v2), with 12 fields and 21 lines of it. */
const MOST_DETAIL = 4_000;
const MOST_LINE = 500;

/** PagerDuty, Events API v2: one alert for each `dedup_key`. */
export const pagerduty: Format = {
  opensAgain: "same",

  say(told, deed, { url, key }) {
    const action = actionOf(told, deed);
    if (action === null) return null;
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        routing_key: key,
        event_action: action,
        dedup_key: told.key,
        ...(action === "trigger" ? triggerOf(told) : {}),
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

function triggerOf(told: IncidentMessage): Record<string, unknown> {
  const text = textOf(told);
  const timestamp = certainTime(told.startedAt);
  const isHttps = told.link?.startsWith("https://") === true;
  return {
    payload: {
      summary: cut(text.title, MOST_SUMMARY),
      source: nameOf(told.site?.displayName, told.source, MOST_LINE),
      severity: severityOf(told.priority),
      ...(timestamp === undefined ? {} : { timestamp }),
      class: told.kind,
      group: told.source,
      custom_details: {
        ...detailsOf(text, MOST_DETAIL),
        ...(text.list.length === 0 ? {} : { alarms: text.list.map((line) => cut(line, MOST_LINE)) }),
        ...(text.curves.length === 0 ? {} : { values: text.curves.map((line) => cut(line, MOST_LINE)) }),
      },
    },
    client: "Plenum",
    ...(told.link === null ? {} : { client_url: told.link }),
    ...(isHttps ? { links: [{ href: told.link, text: text.linkText }] } : {}),
  };
}

function severityOf(priority: string): string {
  return byPriority(priority, ["critical", "error", "warning"]);
}

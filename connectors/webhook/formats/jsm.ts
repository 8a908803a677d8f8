import { ConfigError } from "../../../src/core/errors/errors.ts";
import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import { actionOf, byPriority, type Deed, type Format, memberOf, pathOf, refusal } from "./format.ts";
import { bodyOf, headingOf, nameOf, textOf } from "./shown.ts";

/** Sizes of the Alert API of Opsgenie, which Jira Service Management took over, in characters. */
const MOST_MESSAGE = 130;
const MOST_DESCRIPTION = 15_000;
const MOST_TAG = 50;
const MOST_ENTITY = 512;
const MOST_DETAIL = 1_000;

const SOURCE = "Plenum";

/** Alerts of Jira Service Management, and of Opsgenie: one alert for each `alias`. */
export const jsm: Format = {
  opensAgain: "same",

  say(told, deed, { url, key }) {
    const request = requestOf(told, deed);
    if (request === null) return null;
    const { method, under, json } = request;
    return {
      method,
      path: under === "" ? pathOf(url) : pathOf(url, `/${told.key}/${under}`, { identifierType: "alias" }),
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
    return typeof memberOf(said.json, "requestId") === "string" && said.status < 300
      ? null
      : refusal(said, who);
  },
};

interface Request {
  readonly method: "POST" | "PUT";
  /** What lies under the alert; empty for the list of alerts. */
  readonly under: string;
  readonly json: unknown;
}

function requestOf(told: IncidentMessage, deed: Deed): Request | null {
  const text = textOf(told);
  const description = cut(bodyOf(text), MOST_DESCRIPTION);
  switch (actionOf(told, deed)) {
    case "trigger":
      return { method: "POST", under: "", json: alertOf(told, description) };
    case "acknowledge":
      return { method: "POST", under: "acknowledge", json: { source: SOURCE, note: noteOf(told) } };
    case "resolve":
      return { method: "POST", under: "close", json: { source: SOURCE, note: noteOf(told) } };
    case null: {
      // Its text can be changed without opening it again, and calls nobody.
      const isNews = ["members", "vanished", "out-of-scope"].includes(told.change);
      return isNews
        ? { method: "PUT", under: "description", json: { description: cut(noteOf(told), MOST_DESCRIPTION) } }
        : null;
    }
  }
}

function noteOf(told: IncidentMessage): string {
  const text = textOf(told);
  return cut(`${headingOf(text)}\n${bodyOf(text)}`, MOST_DESCRIPTION);
}

function alertOf(told: IncidentMessage, description: string): Record<string, unknown> {
  return {
    message: cut(textOf(told).title, MOST_MESSAGE),
    alias: told.key,
    description,
    priority: byPriority(told.priority, ["P1", "P2", "P3"]),
    source: SOURCE,
    entity: nameOf(told.site?.displayName, told.source, MOST_ENTITY),
    tags: [cut(`priority-${told.priority}`, MOST_TAG), cut(`source-${told.source}`, MOST_TAG)],
    details: {
      source: told.source,
      started_at: told.startedAt,
      ...(told.site === null
        ? {}
        : { site_id: String(told.site.id), site: nameOf(told.site.displayName, told.source, MOST_DETAIL) }),
      ...(told.alarm === null ? {} : { alarm_id: told.alarm.id }),
      ...(told.link === null ? {} : { link: cut(told.link, MOST_DETAIL) }),
    },
  };
}

import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import {
  actionOf,
  byPriority,
  certainTime,
  type Deed,
  type Format,
  memberOf,
  pathOf,
  refusal,
} from "./format.ts";
import { bodyOf, headingOf, textOf } from "./shown.ts";

/** Longest `state_message` of the REST endpoint, in characters. */
const MOST_MESSAGE = 20_480;
const MOST_NAME = 500;

/** Splunk On-Call (VictorOps), REST endpoint: one incident for each `entity_id`. The key is in the address. */
export const splunkOncall: Format = {
  opensAgain: "same",

  say(told, deed, { url }) {
    const type = typeOf(told, deed);
    if (type === null) return null;
    const text = textOf(told);
    const started = certainTime(told.startedAt);
    return {
      method: "POST",
      path: pathOf(url),
      json: {
        message_type: type,
        entity_id: told.key,
        entity_display_name: cut(text.title, MOST_NAME),
        state_message: cut(`${headingOf(text)}\n${bodyOf(text)}`, MOST_MESSAGE),
        ...(started === undefined ? {} : { state_start_time: Math.floor(Date.parse(started) / 1_000) }),
        monitoring_tool: "Plenum",
        ...(told.link === null ? {} : { alert_url: told.link }),
      },
    };
  },

  judge(said, who) {
    return memberOf(said.json, "result") === "success" ? null : refusal(said, who);
  },
};

function typeOf(told: IncidentMessage, deed: Deed): string | null {
  switch (actionOf(told, deed)) {
    case "trigger":
      return byPriority(told.priority, ["CRITICAL", "WARNING", "WARNING"]);
    case "acknowledge":
      return "ACKNOWLEDGEMENT";
    case "resolve":
      return "RECOVERY";
    case null:
      // A line in the time line, which opens nothing and calls nobody.
      return told.change === "vanished" || told.change === "out-of-scope" ? "INFO" : null;
  }
}

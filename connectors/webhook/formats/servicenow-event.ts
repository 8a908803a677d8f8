import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";
import { actionOf, byPriority, certainTime, type Format, memberOf, pathOf, refusal } from "./format.ts";
import { bodyOf, headingOf, nameOf, textOf } from "./shown.ts";

/** Columns of the table of events (em_event), in characters. */
const MOST_NAME = 100;
const MOST_DESCRIPTION = 4_000;

/** ServiceNow Event Management: one alert for each `message_key`. */
export const servicenowEvent: Format = {
  opensAgain: "same",

  say(told, deed, { url }) {
    const action = actionOf(told, deed);
    if (action === null || action === "acknowledge") return null;
    return { method: "POST", path: pathOf(url), json: { records: [recordOf(told, action === "resolve")] } };
  },

  judge(said, who) {
    if (said.body.trim() === "") return null;
    const isYes = said.json !== undefined && memberOf(said.json, "error") === undefined;
    // An instance that has been put to sleep answers 200 with a page.
    return isYes
      ? null
      : refusal(said, who, "If it is an instance of a developer, it may be asleep; wake it up in a browser.");
  },
};

function recordOf(told: IncidentMessage, isOver: boolean): Record<string, string> {
  const text = textOf(told);
  const name = (words: string | undefined) => nameOf(words, told.source, MOST_NAME);
  const time = timeOf(isOver ? told.endedAt : told.startedAt);
  return {
    source: "Plenum",
    event_class: cut(told.source, MOST_NAME),
    message_key: told.key,
    node: name(told.site?.displayName),
    resource: name(told.alarm?.source ?? told.gateway?.displayName),
    metric_name: name(told.alarm?.trigger.displayName),
    type: told.kind,
    // "1" is critical, "2" major, "3" minor, "0" says that it is over.
    severity: isOver ? "0" : byPriority(told.priority, ["1", "2", "3"]),
    resolution_state: isOver ? "Closing" : "New",
    description: cut(`${headingOf(text)}\n${bodyOf(text)}`, MOST_DESCRIPTION),
    ...(time === undefined ? {} : { time_of_event: time }),
    additional_info: JSON.stringify({
      priority: told.priority,
      ...(told.site === null ? {} : { site_id: String(told.site.id) }),
      ...(told.alarm === null ? {} : { alarm_id: told.alarm.id }),
      ...(told.link === null ? {} : { link: told.link }),
    }),
  };
}

/** GMT as `2026-11-02 06:15:00`. */
function timeOf(time: string | null): string | undefined {
  return certainTime(time)?.slice(0, 19).replace("T", " ");
}

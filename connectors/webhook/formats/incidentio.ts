import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import { cut } from "../../shared/receiver/text.ts";
import { actionOf, type Format, memberOf, pathOf, refusal } from "./format.ts";
import { bodyOf, markdown, nameOf, textOf } from "./shown.ts";

/** What is larger than 512 kB is answered with 429, for ever; this stays far below it. In characters. */
const MOST_TITLE = 500;
const MOST_DESCRIPTION = 20_000;

/** incident.io, HTTP alert source: one alert for each `deduplication_key`. The description is Markdown. */
export const incidentio: Format = {
  opensAgain: "same",

  say(told, deed, { url, key }) {
    const action = actionOf(told, deed);
    if (action === null || action === "acknowledge") return null;
    const text = textOf(told);
    return {
      method: "POST",
      path: pathOf(url),
      headers: { authorization: `Bearer ${inHeader(key, "Authorization")}` },
      json: {
        title: cut(text.title, MOST_TITLE),
        description: bodyOf(text, (each) => markdown(cut(each, MOST_DESCRIPTION / 20))),
        deduplication_key: told.key,
        status: action === "resolve" ? "resolved" : "firing",
        metadata: {
          kind: told.kind,
          source: told.source,
          priority: told.priority,
          started_at: told.startedAt,
          ...(told.site === null
            ? {}
            : {
                site_id: String(told.site.id),
                site: nameOf(told.site.displayName, told.source, MOST_TITLE),
              }),
          ...(told.alarm === null ? {} : { alarm_id: told.alarm.id }),
        },
        ...(told.link === null ? {} : { source_url: told.link }),
      },
    };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "deduplication_key") === "string" ? null : refusal(said, who);
  },
};

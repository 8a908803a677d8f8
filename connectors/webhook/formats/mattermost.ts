import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import type { IncidentText } from "../../shared/receiver/text.ts";
import { type Format, isWorthAMessage, pathOf, refusal } from "./format.ts";
import { bodyOf, fitting, headingOf, markdown, markdownLink, textOf } from "./shown.ts";

/** Longest post, in characters. */
const MOST_TEXT = 16_383;

/** Mattermost, incoming webhook. It gives no id, so nothing can be edited and there is no thread. */
export const mattermost: Format = {
  opensAgain: "another",

  say(told, deed, { url }) {
    if (!isWorthAMessage(told, deed)) return null;
    const text = fitting(
      textOf(told),
      (text) => postOf(told, text),
      (made) => made.length <= MOST_TEXT,
    );
    return { method: "POST", path: pathOf(url), json: { text } };
  },

  judge(said, who) {
    return said.body.trim() === "ok" ? null : refusal(said, who);
  },
};

function postOf(told: IncidentMessage, text: IncidentText): string {
  const link = told.link === null ? "" : `\n${markdownLink(text.linkText, told.link)}`;
  return `**${markdown(headingOf(text))}**\n${bodyOf(text, markdown)}${link}`;
}

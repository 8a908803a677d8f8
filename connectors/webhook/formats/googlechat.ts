import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import type { IncidentText } from "../../shared/receiver/text.ts";
import { type Format, isWorthAMessage, memberOf, pathOf, refusal } from "./format.ts";
import { bytesOf, fitting, headingOf, html, textOf } from "./shown.ts";

/** Longest message, in bytes. */
const MOST_BYTES = 32_000;

/** Google Chat, webhook of a space. Nothing can be edited; the thread keeps the messages of one alarm together. */
export const googlechat: Format = {
  opensAgain: "another",
  // "1 per second" and space: https://developers.google.com/workspace/chat/limits.
  rates: [{ count: 1, inMs: 1_000 }],

  say(told, deed, { url }) {
    if (!isWorthAMessage(told, deed)) return null;
    const message = fitting(
      textOf(told),
      (text) => messageOf(told, text),
      (made) => bytesOf(made) <= MOST_BYTES,
    );
    const path = pathOf(url, "", { messageReplyOption: "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD" });
    return { method: "POST", path, json: message };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "name") === "string" ? null : refusal(said, who);
  },
};

/** A card, because nothing in a card calls people; its texts are read as HTML. */
function messageOf(told: IncidentMessage, text: IncidentText): unknown {
  const widgets = [
    { textParagraph: { text: `<b>${html(headingOf(text))}</b>` } },
    ...text.fields.map((field) => ({
      decoratedText: { topLabel: field.label, text: html(field.text), wrapText: true },
    })),
    ...(text.list.length === 0 ? [] : [{ textParagraph: { text: html(text.list.join("\n")) } }]),
    ...(text.curves.length === 0 ? [] : [{ textParagraph: { text: html(text.curves.join("\n")) } }]),
    ...(told.link === null
      ? []
      : [{ buttonList: { buttons: [{ text: text.linkText, onClick: { openLink: { url: told.link } } }] } }]),
  ];
  return {
    fallbackText: headingOf(text).replaceAll("<", "<\u200b"),
    thread: { threadKey: told.key },
    cardsV2: [{ cardId: told.key, card: { sections: [{ widgets }] } }],
  };
}

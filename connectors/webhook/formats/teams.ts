import { ConfigError, Throttled } from "../../../src/core/errors/errors.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import type { IncidentText } from "../../shared/receiver/text.ts";
import { type Format, isWorthAMessage, pathOf, refusal } from "./format.ts";
import { bytesOf, fitting, textOf } from "./shown.ts";

/** A card of more than 28 kB is lost inside the flow, where nobody sees it; 20 kB leave room for what is put around it. */
const MOST_BYTES = 20_000;

/** Microsoft Teams by a flow of Workflows, "when a Teams webhook request is received". It gives no id. */
export const teams: Format = {
  opensAgain: "another",
  // https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using (rate limiting).
  rates: [
    { count: 4, inMs: 1_000 },
    { count: 60, inMs: 30_000 },
  ],

  say(told, deed, { url }) {
    if (!isWorthAMessage(told, deed)) return null;
    const message = fitting(
      textOf(told),
      (text) => messageOf(told, text),
      (made) => bytesOf(made) <= MOST_BYTES,
    );
    return { method: "POST", path: pathOf(url), json: message };
  },

  judge(said, who) {
    // The connectors before flows answered 200 with this in it.
    const [, code] = /HTTP error (\d{3})/i.exec(said.body) ?? [];
    if (code === "429" || code === "503") {
      return new Throttled(
        `${who} answered ${said.status} with HTTP error ${code} in it: it asks us to wait.`,
        null,
        {
          scope: "allowance",
        },
      );
    }
    if (code === "403" || code === "404" || code === "410") {
      return new ConfigError(`${who} answered ${said.status} with HTTP error ${code} in it.`, {
        field: "url",
        hint: "Make a flow in Workflows for the channel and put its address into the secret.",
      });
    }
    if (code !== undefined) return refusal(said, who);
    const body = said.body.trim();
    return said.status === 202 || body === "" || body === "1"
      ? null
      : refusal(said, who, "A flow that was made from the template answers 202.");
  },
};

function messageOf(told: IncidentMessage, text: IncidentText): unknown {
  return {
    type: "message",
    attachments: [
      {
        contentType: "application/vnd.microsoft.card.adaptive",
        contentUrl: null,
        content: {
          $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
          type: "AdaptiveCard",
          version: "1.4",
          body: [
            rich([
              { text: `${text.status}: `, weight: "Bolder", size: "Large", color: colourOf(told) },
              { text: text.title, weight: "Bolder", size: "Large" },
            ]),
            ...text.fields.map((field) =>
              rich([{ text: `${field.label}: `, weight: "Bolder" }, { text: field.text }]),
            ),
            ...[...text.list, ...text.curves].map((line) => rich([{ text: line }])),
          ],
          ...(told.link === null
            ? {}
            : { actions: [{ type: "Action.OpenUrl", title: text.linkText, url: told.link }] }),
          msteams: { width: "full" },
        },
      },
    ],
  };
}

/** Text runs are shown as they are; a text block would be read as Markdown. */
function rich(runs: readonly { readonly text: string; readonly [option: string]: string }[]): unknown {
  return {
    type: "RichTextBlock",
    inlines: runs.map((run) => ({ type: "TextRun", ...run, text: withoutDates(run.text) })),
  };
}

/** `{{DATE(…)}}` would be carried out; an unseen character in between stops it. */
function withoutDates(text: string): string {
  return text.replaceAll("{{", "{\u200b{");
}

function colourOf(told: IncidentMessage): string {
  if (told.status === "resolved") return "Good";
  return told.status === "unknown" ? "Warning" : "Attention";
}

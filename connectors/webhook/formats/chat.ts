import { ConfigError, type Failure, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import { inHeader } from "../../../src/core/http/outbound/headers.ts";
import type { IncidentMessage, IncidentReference, IncidentText } from "../../shared/receiver/receiver.ts";
import { cut, cutBytes, fitted } from "../../shared/receiver/text.ts";
import {
  byPriority,
  type Format,
  memberOf,
  NO_REFERENCE,
  needsMessage,
  type Operation,
  pathOf,
  refusal,
} from "./format.ts";
import { bodyOf, bytesOf, headingOf, html, markdown, markdownLink } from "./text.ts";

/** Longest text of one field, in UTF-16 units; texts are shortened further when the message is too long. */
const LONGEST_TEXT = 2_000;

/** Sizes of Block Kit, in characters. */
const SLACK_MAX_HEADER = 150;
const SLACK_MAX_SECTION = 3_000;
const SLACK_MAX_FIELD = 2_000;
const SLACK_MAX_FIELDS = 10;
const SLACK_MAX_FALLBACK = 300;

/** Slack, incoming webhook. It gives no id, so nothing can be edited and there is no thread. */
export const slack: Format = {
  opensAgain: "another",
  // "1 per second" and channel: https://docs.slack.dev/apis/web-api/rate-limits (incoming webhooks).
  rates: [{ count: 1, inMs: 1_000 }],

  say(incident, operation, { url }) {
    if (!needsMessage(incident, operation)) return null;
    return { method: "POST", path: pathOf(url), json: slackMessageOf(incident), allow: [410] };
  },

  judge(said, who) {
    const word = said.body.trim();
    if (said.status < 300 && word === "ok") return null;
    return failureOfWord(word, who) ?? refusal(said, who);
  },

  placeOf: () => NO_REFERENCE,
};

/** Errors of Slack, also with a success status. */
function failureOfWord(word: string, who: string): Failure | null {
  const hint = HINTS[word];
  if (hint !== undefined) return new ConfigError(`${who} answered: ${word}.`, { field: "url", hint });
  if (word === "ratelimited" || word === "rate_limited")
    return new Throttled(`${who} answered: ${word}.`, null, { scope: "allowance" });
  if (/^[a-z_]{1,60}$/.test(word)) return new Rejected(`${who} answered: ${word}.`);
  return null;
}

interface PlainText {
  readonly type: "plain_text";
  readonly text: string;
  readonly emoji: boolean;
}

interface Section {
  readonly type: "section";
  readonly text?: PlainText | { readonly type: "mrkdwn"; readonly text: string };
  readonly fields?: PlainText[];
}

const NEW_ADDRESS = "Make a new webhook in Slack and put its address into the secret.";
const HINTS: Readonly<Record<string, string>> = {
  channel_is_archived: "Take the channel out of the archive, or make a webhook for another.",
  channel_not_found: NEW_ADDRESS,
  no_service: NEW_ADDRESS,
  no_service_id: NEW_ADDRESS,
  no_team: NEW_ADDRESS,
  invalid_token: NEW_ADDRESS,
  team_disabled: NEW_ADDRESS,
  action_prohibited: "An administrator of the workspace forbids it; ask there.",
  posting_to_general_channel_denied: "An administrator of the workspace forbids it; choose another channel.",
};

/**
 * All names are in `plain_text`, which Slack does not read as markup. The first `text`, which phones show, is markup,
 * so `& < >` are escaped. That also disables `<!here>`.
 */
export function slackMessageOf(incident: IncidentMessage) {
  const { text } = incident;
  return {
    text: html(cut(headingOf(text), SLACK_MAX_FALLBACK)),
    mrkdwn: false,
    unfurl_links: false,
    unfurl_media: false,
    blocks: [
      { type: "header" as const, text: plainText(headingOf(text), SLACK_MAX_HEADER) },
      ...sectionsOf(text),
      ...linesOf(text.list),
      ...linesOf(text.curves),
      ...linkOf(incident, text),
    ],
  };
}

function linesOf(lines: readonly string[]): readonly Section[] {
  return lines.length === 0 ? [] : [{ type: "section", text: plainText(lines.join("\n"), SLACK_MAX_SECTION) }];
}

function sectionsOf({ fields }: IncidentText): readonly Section[] {
  const cells = fields.map(({ label, text }) => plainText(`${label}\n${text}`, SLACK_MAX_FIELD));
  const sections: Section[] = [];
  for (let from = 0; from < cells.length; from += SLACK_MAX_FIELDS)
    sections.push({ type: "section", fields: cells.slice(from, from + SLACK_MAX_FIELDS) });
  return sections;
}

function plainText(text: string, most: number): PlainText {
  return { type: "plain_text", text: cut(text, most), emoji: false };
}

/** No button: an app without interactivity shows a warning when it is pressed. */
function linkOf(incident: IncidentMessage, { linkText }: IncidentText): readonly Section[] {
  if (incident.link === null) return [];
  const text = `<${html(incident.link)}|${html(cut(linkText, SLACK_MAX_FALLBACK).replaceAll("|", " "))}>`;
  return text.length > SLACK_MAX_SECTION ? [] : [{ type: "section", text: { type: "mrkdwn", text } }];
}

/** Longest post, in characters. */
const MATTERMOST_MAX_TEXT = 16_383;

/** Mattermost, incoming webhook. It gives no id, so nothing can be edited and there is no thread. */
export const mattermost: Format = {
  opensAgain: "another",

  say(incident, operation, { url }) {
    if (!needsMessage(incident, operation)) return null;
    const text = fitted(
      incident.text,
      LONGEST_TEXT,
      (text) => postOf(incident, text),
      (made) => made.length <= MATTERMOST_MAX_TEXT,
    );
    return { method: "POST", path: pathOf(url), json: { text } };
  },

  judge(said, who) {
    return said.body.trim() === "ok" ? null : refusal(said, who);
  },
};

function postOf(incident: IncidentMessage, text: IncidentText): string {
  const link = incident.link === null ? "" : `\n${markdownLink(text.linkText, incident.link)}`;
  return `**${markdown(headingOf(text))}**\n${bodyOf(text, markdown)}${link}`;
}

/** Sizes of an embed, in characters; the last of all its texts together. */
const EMBED_MAX_TITLE = 256;
const EMBED_MAX_DESCRIPTION = 4_096;
const EMBED_MAX_NAME = 256;
const EMBED_MAX_VALUE = 1_024;
const EMBED_MAX_TOGETHER = 6_000;

/** Code of Discord for a message that is not there (any more). */
const UNKNOWN_MESSAGE = 10_008;

/** Discord, webhook of a channel: one message, edited in place without a notification. */
export const discord: Format = {
  opensAgain: "another",
  // Five requests in two seconds and webhook, as its X-RateLimit headers say; its documentation names no fixed number.
  rates: [{ count: 5, inMs: 2_000 }],

  say(incident, operation, { url, place }) {
    const embed = fitted(incident.text, LONGEST_TEXT, (text) => embedOf(incident, text), fits);
    const json = { embeds: [embed], allowed_mentions: { parse: [] } };
    if (operation === "open") return { method: "POST", path: pathOf(url, "", { wait: "true" }), json };
    const id = idIn(place);
    // There is no message to edit.
    if (id === null) return null;
    return { method: "PATCH", path: pathOf(url, `/messages/${id}`), json, allow: [404] };
  },

  judge(said, who) {
    if (said.status === 404) {
      return new ConfigError(`${who} answered 404: there is no such webhook.`, {
        field: "url",
        hint: "Make a new webhook for the channel and put its address into the secret.",
      });
    }
    return isId(memberOf(said.json, "id")) ? null : refusal(said, who);
  },

  placeOf(said) {
    const id = memberOf(said.json, "id");
    return { ...NO_REFERENCE, ref: { id } };
  },

  isGone: (said) => said.status === 404 && memberOf(said.json, "code") === UNKNOWN_MESSAGE,

  probe: ({ url }) => ({ method: "GET", path: pathOf(url), allow: [404] }),
};

interface Embed {
  readonly title: string;
  readonly description?: string | undefined;
  readonly fields: readonly { readonly name: string; readonly value: string }[];
  readonly [option: string]: unknown;
}

function embedOf(incident: IncidentMessage, text: IncidentText): Embed {
  const lines = [...text.list, ...text.curves];
  return {
    title: markdown(headingOf(text)),
    color: embedColour(incident),
    fields: text.fields.map(({ label, text }) => ({ name: markdown(label), value: markdown(text) })),
    description: lines.map(markdown).join("\n") || undefined,
    url: incident.link ?? undefined,
  };
}

function fits({ title, description = "", fields }: Embed): boolean {
  const together = fields.reduce(
    (sum, { name, value }) => sum + name.length + value.length,
    title.length + description.length,
  );
  return (
    together <= EMBED_MAX_TOGETHER &&
    title.length <= EMBED_MAX_TITLE &&
    description.length <= EMBED_MAX_DESCRIPTION &&
    fields.every(({ name, value }) => name.length <= EMBED_MAX_NAME && value.length <= EMBED_MAX_VALUE)
  );
}

function embedColour(incident: IncidentMessage): number {
  if (incident.status === "resolved") return 0x2e_a0_43;
  return incident.status === "unknown" ? 0x80_80_80 : 0xd7_3a_49;
}

function idIn(place: IncidentReference | null): string | null {
  const id = memberOf(place?.ref, "id");
  return isId(id) ? id : null;
}

function isId(id: unknown): id is string {
  return typeof id === "string" && /^\d{1,20}$/.test(id);
}

/** Longest message, in bytes. */
const GOOGLE_CHAT_MAX_BYTES = 32_000;

/** Google Chat, webhook of a space. Nothing can be edited; the thread keeps the messages of one alarm together. */
export const googlechat: Format = {
  opensAgain: "another",
  // "1 per second" and space: https://developers.google.com/workspace/chat/limits.
  rates: [{ count: 1, inMs: 1_000 }],

  say(incident, operation, { url }) {
    if (!needsMessage(incident, operation)) return null;
    const message = fitted(
      incident.text,
      LONGEST_TEXT,
      (text) => googleChatCardOf(incident, text),
      (made) => bytesOf(made) <= GOOGLE_CHAT_MAX_BYTES,
    );
    const path = pathOf(url, "", { messageReplyOption: "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD" });
    return { method: "POST", path, json: message };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "name") === "string" ? null : refusal(said, who);
  },
};

/** A card, because it cannot mention people; its texts are HTML. */
function googleChatCardOf(incident: IncidentMessage, text: IncidentText): unknown {
  const widgets = [
    { textParagraph: { text: `<b>${html(headingOf(text))}</b>` } },
    ...text.fields.map((field) => ({
      decoratedText: { topLabel: field.label, text: html(field.text), wrapText: true },
    })),
    ...(text.list.length === 0 ? [] : [{ textParagraph: { text: html(text.list.join("\n")) } }]),
    ...(text.curves.length === 0 ? [] : [{ textParagraph: { text: html(text.curves.join("\n")) } }]),
    ...(incident.link === null
      ? []
      : [
          {
            buttonList: { buttons: [{ text: text.linkText, onClick: { openLink: { url: incident.link } } }] },
          },
        ]),
  ];
  return {
    fallbackText: headingOf(text).replaceAll("<", "<\u200b"),
    thread: { threadKey: incident.key },
    cardsV2: [{ cardId: incident.key, card: { sections: [{ widgets }] } }],
  };
}

/** The flow silently drops a card above 28 kB; 20 kB leave space for the wrapper. */
const TEAMS_MAX_BYTES = 20_000;

/** Microsoft Teams by a flow of Workflows, "when a Teams webhook request is received". It gives no id. */
export const teams: Format = {
  opensAgain: "another",
  // https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using (rate limiting).
  rates: [
    { count: 4, inMs: 1_000 },
    { count: 60, inMs: 30_000 },
  ],

  say(incident, operation, { url }) {
    if (!needsMessage(incident, operation)) return null;
    const message = fitted(
      incident.text,
      LONGEST_TEXT,
      (text) => adaptiveCardOf(incident, text),
      (made) => bytesOf(made) <= TEAMS_MAX_BYTES,
    );
    return { method: "POST", path: pathOf(url), json: message };
  },

  judge(said, who) {
    // The connectors before flows answered 200 with this in it.
    const [, code] = /HTTP error (\d{3})/i.exec(said.body) ?? [];
    if (code === "429" || code === "503") {
      const text = `${who} answered ${said.status} with HTTP error ${code} in it: it asks us to wait.`;
      return new Throttled(text, null, { scope: "allowance" });
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

function adaptiveCardOf(incident: IncidentMessage, text: IncidentText): unknown {
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
              { text: `${text.status}: `, weight: "Bolder", size: "Large", color: cardColour(incident) },
              { text: text.title, weight: "Bolder", size: "Large" },
            ]),
            ...text.fields.map((field) => rich([{ text: `${field.label}: `, weight: "Bolder" }, { text: field.text }])),
            ...[...text.list, ...text.curves].map((line) => rich([{ text: line }])),
          ],
          actions:
            incident.link === null ? undefined : [{ type: "Action.OpenUrl", title: text.linkText, url: incident.link }],
          msteams: { width: "full" },
        },
      },
    ],
  };
}

/** Text runs are literal; a text block would be Markdown. */
function rich(runs: readonly { readonly text: string; readonly [option: string]: string }[]): unknown {
  return {
    type: "RichTextBlock",
    inlines: runs.map((run) => ({ type: "TextRun", ...run, text: withoutDates(run.text) })),
  };
}

/** Teams would evaluate `{{DATE(…)}}`; a zero-width space prevents it. */
function withoutDates(text: string): string {
  return text.replaceAll("{{", "{\u200b{");
}

function cardColour(incident: IncidentMessage): string {
  if (incident.status === "resolved") return "Good";
  return incident.status === "unknown" ? "Warning" : "Attention";
}

/** A message of more than 4,096 bytes becomes a file; the request may have 8,192, and a quote takes two of them. */
const NTFY_MAX_MESSAGE_BYTES = 3_000;
const NTFY_MAX_TITLE_BYTES = 400;

/** ntfy: one notification for each sequence id, from 2.16 on; an older server shows a new one each time. */
export const ntfy: Format = {
  opensAgain: "same",
  // 60 requests at once, then one in five seconds: https://docs.ntfy.sh/publish/#limitations.
  rates: [{ count: 60, inMs: 300_000 }],

  say(incident, operation, { url, key }) {
    const look = lookOf(incident, operation);
    if (look === null) return null;
    const { text } = incident;
    const { server, topic } = partsOf(url);
    return {
      method: "POST",
      path: server,
      headers: {
        "x-sequence-id": incident.key,
        ...(key === "" ? {} : { authorization: `Bearer ${inHeader(key, "Authorization")}` }),
      },
      json: {
        topic,
        title: cutBytes(headingOf(text), NTFY_MAX_TITLE_BYTES),
        message: cutBytes(bodyOf(text), NTFY_MAX_MESSAGE_BYTES),
        ...look,
        click: incident.link ?? undefined,
      },
    };
  },

  judge(said, who) {
    return typeof memberOf(said.json, "id") === "string" ? null : refusal(said, who);
  },
};

/** Priority (1 to 5; 2 and less are silent) and emoji. */
function lookOf(
  incident: IncidentMessage,
  operation: Operation,
): { readonly priority: number; readonly tags: readonly string[] } | null {
  if (operation === "open" || incident.change === "retriggered")
    return { priority: Number(byPriority(incident.priority, ["5", "4", "3"])), tags: ["rotating_light"] };
  if (operation === "close") return { priority: 3, tags: ["white_check_mark"] };
  if (incident.change === "vanished" || incident.change === "out-of-scope")
    return { priority: 2, tags: ["grey_question"] };
  return null;
}

/** `https://ntfy.example.com/heating`: JSON goes to the server, and names the topic. */
function partsOf(url: URL): { readonly server: string; readonly topic: string } {
  const [, server, topic] = /^(.*\/)([A-Za-z0-9_-]{1,64})$/.exec(url.pathname) ?? [];
  if (server === undefined || topic === undefined) {
    throw new ConfigError("The address of ntfy has to end with the topic.", {
      field: "url",
      hint: "Write it as https://ntfy.example.com/topic.",
    });
  }
  return { server, topic };
}

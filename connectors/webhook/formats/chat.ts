import { ConfigError, type Failure, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import { requireHeaderText } from "../../../src/core/http/outbound/secret-headers.ts";
import { cutText, cutTextToBytes, escapeHtml as html, shortenUntilFits } from "../../shared/receiver/message-texts.ts";
import type { IncidentMessage, IncidentReference, IncidentText } from "../../shared/receiver/receiver-interface.ts";
import {
  buildRequestPath,
  chooseByPriority,
  createUnconfirmedFailure,
  escapeMarkdown,
  type FormatRequest,
  failUnlessConfirmed,
  formatBody,
  formatHeading,
  getJsonMember,
  type IncidentOperation,
  NO_REFERENCE,
  type ReceiverFormat,
} from "./format.ts";

/** Maximum length of a text in UTF-16 units. Texts are shortened further if the message is too long. */
const MAX_CHAT_TEXT_LENGTH = 2_000;

/** Returns true for changes that need a message in a chat without edits: an alarm begins, ends or becomes unknown. */
function needsChatMessage(incident: IncidentMessage, operation: IncidentOperation): boolean {
  return operation !== "update" || incident.change === "vanished" || incident.change === "out-of-scope";
}

/** Creates a format for a chat without message ids. Messages cannot be edited, so only important changes are posted. */
function createPostOnlyFormat(
  { allow = [], query, ...format }: PostOnlyOptions,
  buildMessage: (incident: IncidentMessage) => unknown,
): ReceiverFormat {
  return {
    ...format,
    repeatedOpenEffect: "another",
    buildRequest: (incident, operation, { url }) =>
      needsChatMessage(incident, operation)
        ? { method: "POST", path: buildRequestPath(url, "", query), json: buildMessage(incident), allow }
        : null,
  };
}

type PostOnlyOptions = Pick<ReceiverFormat, "findFailure" | "rates"> &
  Pick<FormatRequest, "allow"> & { readonly query?: Readonly<Record<string, string>> };

const SLACK_MAX_HEADER = 150;
const SLACK_MAX_SECTION = 3_000;
const SLACK_MAX_FIELD = 2_000;
const SLACK_MAX_FIELDS = 10;
const SLACK_MAX_FALLBACK = 300;

const NEW_SLACK_ADDRESS_HINT = "Make a new webhook in Slack and put its address into the secret.";
const SLACK_HINTS: Readonly<Record<string, string>> = {
  channel_is_archived: "Take the channel out of the archive, or make a webhook for another.",
  channel_not_found: NEW_SLACK_ADDRESS_HINT,
  no_service: NEW_SLACK_ADDRESS_HINT,
  no_service_id: NEW_SLACK_ADDRESS_HINT,
  no_team: NEW_SLACK_ADDRESS_HINT,
  invalid_token: NEW_SLACK_ADDRESS_HINT,
  team_disabled: NEW_SLACK_ADDRESS_HINT,
  action_prohibited: "An administrator of the workspace forbids it; ask there.",
  posting_to_general_channel_denied: "An administrator of the workspace forbids it; choose another channel.",
};

export const slack = createPostOnlyFormat(
  {
    // Slack allows "1 per second" in a channel: https://docs.slack.dev/apis/web-api/rate-limits (incoming webhooks).
    rates: [{ count: 1, windowMs: 1_000 }],
    allow: [410],
    findFailure(response, receiverName) {
      const code = response.body.trim();
      return response.status < 300 && code === "ok"
        ? null
        : (mapSlackError(code, receiverName) ?? createUnconfirmedFailure(response, receiverName));
    },
  },
  buildSlackMessage,
);

function mapSlackError(code: string, receiverName: string): Failure | null {
  const hint = SLACK_HINTS[code];
  const message = `${receiverName} answered: ${code}.`;
  if (hint !== undefined) return new ConfigError(message, { field: "url", hint });
  if (code === "ratelimited" || code === "rate_limited") return new Throttled(message, null, { scope: "allowance" });
  return /^[a-z_]{1,60}$/.test(code) ? new Rejected(message) : null;
}

type SlackPlainText = ReturnType<typeof toSlackPlainText>;

interface SlackSection {
  readonly type: "section";
  readonly text?: SlackPlainText | { readonly type: "mrkdwn"; readonly text: string };
  readonly fields?: SlackPlainText[];
}

/** Builds a Slack message. Texts are `plain_text` without markup; the top-level `text` is markup and is escaped. */
export function buildSlackMessage({ link, text }: IncidentMessage) {
  const fieldTexts = text.fields.map(({ label, text }) => toSlackPlainText(`${label}\n${text}`, SLACK_MAX_FIELD));
  const sections: SlackSection[] = [];
  for (let firstField = 0; firstField < fieldTexts.length; firstField += SLACK_MAX_FIELDS)
    sections.push({ type: "section", fields: fieldTexts.slice(firstField, firstField + SLACK_MAX_FIELDS) });
  for (const textLines of [text.list, text.timeSeriesLines])
    if (textLines.length > 0)
      sections.push({ type: "section", text: toSlackPlainText(textLines.join("\n"), SLACK_MAX_SECTION) });
  // Use a link, because Slack shows a warning when a user clicks a button that the app does not handle.
  const linkText = html(cutText(text.linkText, SLACK_MAX_FALLBACK).replaceAll("|", " "));
  const linkMarkup = `<${html(link ?? "")}|${linkText}>`;
  if (link !== null && linkMarkup.length <= SLACK_MAX_SECTION)
    sections.push({ type: "section", text: { type: "mrkdwn", text: linkMarkup } });
  return {
    text: html(cutText(formatHeading(text), SLACK_MAX_FALLBACK)),
    mrkdwn: false,
    unfurl_links: false,
    unfurl_media: false,
    blocks: [{ type: "header" as const, text: toSlackPlainText(formatHeading(text), SLACK_MAX_HEADER) }, ...sections],
  };
}

const toSlackPlainText = (text: string, maxLength: number) =>
  ({ type: "plain_text", text: cutText(text, maxLength), emoji: false }) as const;

const MATTERMOST_MAX_TEXT = 16_383;

export const mattermost = createPostOnlyFormat(
  { findFailure: failUnlessConfirmed(({ body }) => body.trim() === "ok") },
  (incident) => ({
    text: shortenUntilFits(
      incident.text,
      MAX_CHAT_TEXT_LENGTH,
      (text) => {
        const address = incident.link?.replaceAll("(", "%28").replaceAll(")", "%29");
        const link = address === undefined ? "" : `\n[${escapeMarkdown(text.linkText)}](${address})`;
        return `**${escapeMarkdown(formatHeading(text))}**\n${formatBody(text, escapeMarkdown)}${link}`;
      },
      (message) => message.length <= MATTERMOST_MAX_TEXT,
    ),
  }),
);

/** Discord's limits of an embed, in characters. */
const DISCORD_MAX_TITLE = 256;
const DISCORD_MAX_DESCRIPTION = 4_096;
const DISCORD_MAX_FIELD_NAME = 256;
const DISCORD_MAX_FIELD_VALUE = 1_024;
const DISCORD_MAX_TOTAL_LENGTH = 6_000;

const DISCORD_UNKNOWN_MESSAGE_CODE = 10_008;

export const discord: ReceiverFormat = {
  repeatedOpenEffect: "another",
  // Discord's X-RateLimit headers allow a webhook five requests in two seconds. Its documentation gives no number.
  rates: [{ count: 5, windowMs: 2_000 }],

  buildRequest(incident, operation, { url, reference }) {
    const discordEmbed = shortenUntilFits(
      incident.text,
      MAX_CHAT_TEXT_LENGTH,
      (text) => buildDiscordEmbed(incident, text),
      fitsDiscordLimits,
    );
    const json = { embeds: [discordEmbed], allowed_mentions: { parse: [] } };
    if (operation === "open") return { method: "POST", path: buildRequestPath(url, "", { wait: "true" }), json };
    const id = readDiscordMessageId(reference);
    return id === null ? null : { method: "PATCH", path: buildRequestPath(url, `/messages/${id}`), json, allow: [404] };
  },

  findFailure(response, receiverName) {
    if (response.status === 404) {
      const hint = "Make a new webhook for the channel and put its address into the secret.";
      return new ConfigError(`${receiverName} answered 404: there is no such webhook.`, { field: "url", hint });
    }
    return isDiscordId(getJsonMember(response.json, "id")) ? null : createUnconfirmedFailure(response, receiverName);
  },

  parseReference: ({ json }) => ({ ...NO_REFERENCE, ref: { id: getJsonMember(json, "id") } }),

  isGone: ({ json, status }) => status === 404 && getJsonMember(json, "code") === DISCORD_UNKNOWN_MESSAGE_CODE,

  probe: ({ url }) => ({ method: "GET", path: buildRequestPath(url), allow: [404] }),
};

interface DiscordEmbed {
  readonly title: string;
  readonly description?: string | undefined;
  readonly fields: readonly { readonly name: string; readonly value: string }[];
  readonly [option: string]: unknown;
}

function buildDiscordEmbed({ link, status }: IncidentMessage, text: IncidentText): DiscordEmbed {
  return {
    title: escapeMarkdown(formatHeading(text)),
    color: status === "resolved" ? 0x2e_a0_43 : status === "unknown" ? 0x80_80_80 : 0xd7_3a_49,
    fields: text.fields.map(({ label, text }) => ({ name: escapeMarkdown(label), value: escapeMarkdown(text) })),
    description: [...text.list, ...text.timeSeriesLines].map(escapeMarkdown).join("\n") || undefined,
    url: link ?? undefined,
  };
}

function fitsDiscordLimits({ title, description = "", fields }: DiscordEmbed): boolean {
  const fieldLengths = fields.map(({ name, value }) => name.length + value.length);
  return (
    fieldLengths.reduce((sum, length) => sum + length, title.length + description.length) <= DISCORD_MAX_TOTAL_LENGTH &&
    title.length <= DISCORD_MAX_TITLE &&
    description.length <= DISCORD_MAX_DESCRIPTION &&
    fields.every(({ name, value }) => name.length <= DISCORD_MAX_FIELD_NAME && value.length <= DISCORD_MAX_FIELD_VALUE)
  );
}

function readDiscordMessageId(reference: IncidentReference | null): string | null {
  const id = getJsonMember(reference?.ref, "id");
  return isDiscordId(id) ? id : null;
}

const isDiscordId = (id: unknown): id is string => typeof id === "string" && /^\d{1,20}$/.test(id);

function fitTextToBytes(incident: IncidentMessage, maxBytes: number, render: (text: IncidentText) => unknown): unknown {
  const fitsMaxBytes = (message: unknown) => Buffer.byteLength(JSON.stringify(message)) <= maxBytes;
  return shortenUntilFits(incident.text, MAX_CHAT_TEXT_LENGTH, render, fitsMaxBytes);
}

const GOOGLE_CHAT_MAX_BYTES = 32_000;

export const googlechat = createPostOnlyFormat(
  {
    // Google Chat allows "1 per second" in a space: https://developers.google.com/workspace/chat/limits.
    rates: [{ count: 1, windowMs: 1_000 }],
    findFailure: failUnlessConfirmed(({ json }) => typeof getJsonMember(json, "name") === "string"),
    query: { messageReplyOption: "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD" },
  },
  (incident) => fitTextToBytes(incident, GOOGLE_CHAT_MAX_BYTES, (text) => buildGoogleChatCard(incident, text)),
);

/** Builds a Google Chat card, which cannot mention people. The texts of a card are HTML. */
function buildGoogleChatCard({ key, link }: IncidentMessage, text: IncidentText): unknown {
  const toParagraph = (paragraphText: string) => ({ textParagraph: { text: paragraphText } });
  const buildButton = (url: string) => ({
    buttonList: { buttons: [{ text: text.linkText, onClick: { openLink: { url } } }] },
  });
  const cardWidgets = [
    toParagraph(`<b>${html(formatHeading(text))}</b>`),
    ...text.fields.map((field) => ({
      decoratedText: { topLabel: field.label, text: html(field.text), wrapText: true },
    })),
    ...[text.list, text.timeSeriesLines]
      .filter(({ length }) => length > 0)
      .map((lines) => toParagraph(html(lines.join("\n")))),
    ...(link === null ? [] : [buildButton(link)]),
  ];
  return {
    fallbackText: formatHeading(text).replaceAll("<", "<\u200b"),
    thread: { threadKey: key },
    cardsV2: [{ cardId: key, card: { sections: [{ widgets: cardWidgets }] } }],
  };
}

/** Maximum size of a Teams card. Teams silently drops messages above 28 kB. */
const TEAMS_MAX_BYTES = 20_000;

/** Format for Microsoft Teams: a Workflows flow "when a Teams webhook request is received". */
export const teams = createPostOnlyFormat(
  {
    // https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
    rates: [
      { count: 4, windowMs: 1_000 },
      { count: 60, windowMs: 30_000 },
    ],
    findFailure(response, receiverName) {
      // Teams connectors, which Microsoft replaced by flows, respond 200 with the error in the body.
      const [, code] = /HTTP error (\d{3})/i.exec(response.body) ?? [];
      const message = `${receiverName} answered ${response.status} with HTTP error ${code} in it`;
      if (code === "429" || code === "503")
        return new Throttled(`${message}: it asks us to wait.`, null, { scope: "allowance" });
      if (code === "403" || code === "404" || code === "410") {
        const hint = "Make a flow in Workflows for the channel and put its address into the secret.";
        return new ConfigError(`${message}.`, { field: "url", hint });
      }
      if (code !== undefined) return createUnconfirmedFailure(response, receiverName);
      const isAccepted = response.status === 202 || ["", "1"].includes(response.body.trim());
      const hint = "A flow that was made from the template answers 202.";
      return isAccepted ? null : createUnconfirmedFailure(response, receiverName, hint);
    },
  },
  (incident) => fitTextToBytes(incident, TEAMS_MAX_BYTES, (text) => buildAdaptiveCard(incident, text)),
);

function buildAdaptiveCard({ link, status }: IncidentMessage, text: IncidentText): unknown {
  const color = status === "resolved" ? "Good" : status === "unknown" ? "Warning" : "Attention";
  const adaptiveCard = {
    $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
    type: "AdaptiveCard",
    version: "1.4",
    body: [
      buildTextRuns([
        { text: `${text.status}: `, weight: "Bolder", size: "Large", color },
        { text: text.title, weight: "Bolder", size: "Large" },
      ]),
      ...text.fields.map((field) =>
        buildTextRuns([{ text: `${field.label}: `, weight: "Bolder" }, { text: field.text }]),
      ),
      ...[...text.list, ...text.timeSeriesLines].map((line) => buildTextRuns([{ text: line }])),
    ],
    actions: link === null ? undefined : [{ type: "Action.OpenUrl", title: text.linkText, url: link }],
    msteams: { width: "full" },
  };
  const contentType = "application/vnd.microsoft.card.adaptive";
  return { type: "message", attachments: [{ contentType, contentUrl: null, content: adaptiveCard }] };
}

/** Builds text without Markdown. A zero-width space prevents Teams from evaluating `{{DATE(…)}}`. */
function buildTextRuns(runs: readonly { readonly text: string; readonly [option: string]: string }[]): unknown {
  const cardTextRuns = runs.map((run) => ({ type: "TextRun", ...run, text: run.text.replaceAll("{{", "{\u200b{") }));
  return { type: "RichTextBlock", inlines: cardTextRuns };
}

/** Maximum size of an ntfy message. Above 4,096 bytes in JSON, ntfy turns the message into a file. */
const NTFY_MAX_MESSAGE_BYTES = 3_000;
const NTFY_MAX_TITLE_BYTES = 400;

/** Format for ntfy. From ntfy 2.16, one notification per incident is updated; older servers show each message. */
export const ntfy: ReceiverFormat = {
  repeatedOpenEffect: "same",
  // 60 requests at once, then one in five seconds: https://docs.ntfy.sh/publish/#limitations.
  rates: [{ count: 60, windowMs: 300_000 }],

  buildRequest(incident, operation, { url, key }) {
    const ntfyAppearance = chooseNtfyAppearance(incident, operation);
    if (ntfyAppearance === null) return null;
    const { link, text } = incident;
    // Post JSON to the server; the topic, `heating` in `https://ntfy.example.com/heating`, is a field of the JSON.
    const [, server, topic] = /^(.*\/)([A-Za-z0-9_-]{1,64})$/.exec(url.pathname) ?? [];
    if (server === undefined) {
      const hint = "Write it as https://ntfy.example.com/topic.";
      throw new ConfigError("The address of ntfy has to end with the topic.", { field: "url", hint });
    }
    return {
      method: "POST",
      path: server,
      headers: {
        "x-sequence-id": incident.key,
        ...(key === "" ? {} : { authorization: `Bearer ${requireHeaderText(key, "Authorization")}` }),
      },
      json: {
        topic,
        title: cutTextToBytes(formatHeading(text), NTFY_MAX_TITLE_BYTES),
        message: cutTextToBytes(formatBody(text), NTFY_MAX_MESSAGE_BYTES),
        ...ntfyAppearance,
        click: link ?? undefined,
      },
    };
  },

  findFailure: failUnlessConfirmed(({ json }) => typeof getJsonMember(json, "id") === "string"),
};

/** Returns ntfy's priority (1 to 5; 1 and 2 make no sound) and tags; null for no notification. */
function chooseNtfyAppearance({ change, priority }: IncidentMessage, operation: IncidentOperation) {
  if (operation === "open" || change === "retriggered")
    return { priority: Number(chooseByPriority(priority, ["5", "4", "3"])), tags: ["rotating_light"] };
  if (operation === "close") return { priority: 3, tags: ["white_check_mark"] };
  return change === "vanished" || change === "out-of-scope" ? { priority: 2, tags: ["grey_question"] } : null;
}

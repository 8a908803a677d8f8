import { ConfigError, type Failure, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut, type IncidentText } from "../../shared/receiver/text.ts";
import { type Format, isWorthAMessage, NOWHERE, pathOf, refusal } from "./format.ts";
import { headingOf, html, textOf } from "./shown.ts";

/** Sizes of Block Kit, in characters. */
const MOST_HEADER = 150;
const MOST_SECTION = 3_000;
const MOST_FIELD = 2_000;
const MOST_FIELDS = 10;
const MOST_FALLBACK = 300;

/** Slack, incoming webhook. It gives no id, so nothing can be edited and there is no thread. */
export const slack: Format = {
  opensAgain: "another",
  // "1 per second" and channel: https://docs.slack.dev/apis/web-api/rate-limits (incoming webhooks).
  rates: [{ count: 1, inMs: 1_000 }],

  say(told, deed, { url }) {
    if (!isWorthAMessage(told, deed)) return null;
    return { method: "POST", path: pathOf(url), json: slackMessageOf(told), allow: [410] };
  },

  judge(said, who) {
    const word = said.body.trim();
    if (said.status < 300 && word === "ok") return null;
    return failureOfWord(word, who) ?? refusal(said, who);
  },

  placeOf: () => NOWHERE,
};

/** The words with which Slack says no, also where the status says yes. */
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

interface SlackMessage {
  readonly text: string;
  readonly mrkdwn: boolean;
  readonly unfurl_links: boolean;
  readonly unfurl_media: boolean;
  readonly blocks: ({ readonly type: "header"; readonly text: PlainText } | Section)[];
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
 * All names stand in `plain_text`, which Slack does not read as markup; the first `text`, which phones show, is read as
 * such, so `& < >` are escaped in it. That is all that Slack asks for, and it takes the life of `<!here>` as well.
 */
export function slackMessageOf(told: IncidentMessage): SlackMessage {
  const text = textOf(told);
  return {
    text: html(cut(headingOf(text), MOST_FALLBACK)),
    mrkdwn: false,
    unfurl_links: false,
    unfurl_media: false,
    blocks: [
      { type: "header", text: plainText(headingOf(text), MOST_HEADER) },
      ...sectionsOf(text),
      ...linesOf(text.list),
      ...linesOf(text.curves),
      ...linkOf(told, text),
    ],
  };
}

function linesOf(lines: readonly string[]): readonly Section[] {
  return lines.length === 0 ? [] : [{ type: "section", text: plainText(lines.join("\n"), MOST_SECTION) }];
}

function sectionsOf({ fields }: IncidentText): readonly Section[] {
  const cells = fields.map(({ label, text }) => plainText(`${label}\n${text}`, MOST_FIELD));
  const sections: Section[] = [];
  for (let from = 0; from < cells.length; from += MOST_FIELDS)
    sections.push({ type: "section", fields: cells.slice(from, from + MOST_FIELDS) });
  return sections;
}

function plainText(text: string, most: number): PlainText {
  return { type: "plain_text", text: cut(text, most), emoji: false };
}

/** Not as a button: an app that is not made for interaction warns whoever presses one. */
function linkOf(told: IncidentMessage, { linkText }: IncidentText): readonly Section[] {
  if (told.link === null) return [];
  const text = `<${html(told.link)}|${html(cut(linkText, MOST_FALLBACK).replaceAll("|", " "))}>`;
  return text.length > MOST_SECTION ? [] : [{ type: "section", text: { type: "mrkdwn", text } }];
}

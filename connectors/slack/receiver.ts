import { createHash, hash } from "node:crypto";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { Retryable } from "../../src/core/errors/errors.ts";
import { cutText, escapeHtml, listTextsWithFewerTimeSeries } from "../shared/receiver/message-texts.ts";
import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
  IncidentStatus,
} from "../shared/receiver/receiver-interface.ts";
import {
  checkChannelAccess,
  createSlackApi,
  type IncidentMessageMark,
  isChannelError,
  listMarkedMessages,
  type SlackResponse,
} from "./api.ts";
import type { SlackConfig } from "./config.ts";

/** Slack message in Block Kit. Alarm texts are escaped `plain_text`, in which Slack interprets no markup. */
export interface SlackMessage {
  readonly text: string;
  readonly blocks: SlackBlock[];
}

type SlackBlock =
  | { readonly type: "header"; readonly text: PlainTextObject }
  | { readonly type: "section"; readonly text: PlainTextObject }
  | { readonly type: "section"; readonly fields: (PlainTextObject | MrkdwnObject)[] }
  | { readonly type: "context"; readonly elements: MrkdwnObject[] };

type PlainTextObject = ReturnType<typeof toPlainText>;
type MrkdwnObject = ReturnType<typeof toMrkdwn>;

export type TextLengths = Readonly<Record<"text" | "header" | "field" | "list" | "timeSeries", number>>;

/** Maximum text lengths that Slack allows, or advises for `text`. */
export const FULL_TEXT_LENGTHS: TextLengths = {
  text: 4_000,
  header: 150,
  field: 2_000,
  list: 3_000,
  timeSeries: 3_000,
};

/** Shorter text lengths, used after Slack rejected a message as too large. */
export const SHORT_TEXT_LENGTHS: TextLengths = { text: 300, header: 150, field: 150, list: 1_000, timeSeries: 0 };

/** Maximum label and text pairs in a section: Slack allows 10 fields, two per pair. */
const MAX_FIELD_PAIRS = 5;

const MAX_LINK_LENGTH = 3_000;

const EMOJI_BY_STATUS: Readonly<Record<IncidentStatus, string>> = {
  active: "🔴",
  acknowledged: "🟠",
  recovering: "🟡",
  unknown: "⚪",
  resolved: "🟢",
};

export function buildMessage(incident: IncidentMessage, sizes: TextLengths): SlackMessage {
  const { fields, list } = incident.text;
  return {
    text: cutAndEscape(formatHeading(incident), sizes.text),
    blocks: [
      { type: "header", text: toPlainText(formatHeading(incident), sizes.header) },
      ...buildFieldSections(fields, sizes.field),
      ...buildListSection(list, sizes.list),
      ...buildTimeSeriesSection(incident, sizes.timeSeries),
      ...buildAlarmLinkBlock(incident),
    ],
  };
}

function buildOneLineMessage(incident: IncidentMessage, { text, list }: TextLengths): SlackMessage {
  const heading = formatHeading(incident);
  return { text: cutAndEscape(heading, text), blocks: [{ type: "section", text: toPlainText(heading, list) }] };
}

const formatHeading = ({ status, text }: IncidentMessage) => `${EMOJI_BY_STATUS[status]} ${text.status}: ${text.title}`;

function buildFieldSections(fields: IncidentMessage["text"]["fields"], maxLength: number): SlackBlock[] {
  return Array.from({ length: Math.ceil(fields.length / MAX_FIELD_PAIRS) }, (_, n) => ({
    type: "section",
    fields: fields
      .slice(n * MAX_FIELD_PAIRS, (n + 1) * MAX_FIELD_PAIRS)
      .flatMap(({ label, text }) => [toMrkdwn(`*${cutAndEscape(label, 200)}*`), toPlainText(text, maxLength)]),
  }));
}

function buildListSection(list: readonly string[], maxLength: number): SlackBlock[] {
  if (list.length === 0) return [];
  const maxListLineLength = Math.floor(maxLength / list.length) - 1;
  const listText = list.map((line) => cutText(line, maxListLineLength)).join("\n");
  return [{ type: "section", text: toPlainText(listText, maxLength) }];
}

function buildTimeSeriesSection({ text }: IncidentMessage, maxLength: number): SlackBlock[] {
  const texts = listTextsWithFewerTimeSeries(text).map(({ timeSeriesLines }) => timeSeriesLines.join("\n"));
  const fittingSeriesText = texts.find((seriesText) => escapeHtml(seriesText).length <= maxLength);
  return fittingSeriesText ? [{ type: "section", text: toPlainText(fittingSeriesText, maxLength) }] : [];
}

/** Builds a link instead of a button: Slack warns when an app does not respond to a button. */
function buildAlarmLinkBlock({ link, text }: IncidentMessage): SlackBlock[] {
  const url = link === null ? null : URL.parse(link);
  if (url === null || !/^https?:$/.test(url.protocol)) return [];
  const address = escapeHtml(url.href.replaceAll("|", "%7C"));
  if (address.length > MAX_LINK_LENGTH) return [];
  const linkText = cutAndEscape(text.linkText.replaceAll("|", " "), 75);
  return [{ type: "context", elements: [toMrkdwn(`<${address}|${linkText}>`)] }];
}

const toPlainText = (text: string, maxLength: number) =>
  ({ type: "plain_text", text: cutAndEscape(text, maxLength), emoji: false }) as const;

const toMrkdwn = (text: string) => ({ type: "mrkdwn", text, verbatim: true }) as const;

/** Cuts and escapes a text. Cuts first, so that no partial entity such as `&am` remains. */
function cutAndEscape(text: string, limit: number): string {
  for (let maxLength = limit; ; ) {
    const escapedText = escapeHtml(cutText(text, maxLength));
    if (escapedText.length <= limit) return escapedText;
    // An escaped character has at most 5 characters, so cutting a fifth of the excess never cuts too much.
    maxLength -= Math.ceil((escapedText.length - limit) / 5);
  }
}

/** Reference to a message. `closed`: the message shows that its alarm is over. */
const SlackMessageReference = z.object({ channel: z.string(), ts: z.string(), closed: z.boolean().optional() });
type SlackMessageReference = z.infer<typeof SlackMessageReference>;

const PostedMessage = z.looseObject({ channel: z.string().min(1), ts: z.string().min(1) });

/** Error codes for a message that is too large. The message is sent again with shorter texts. */
const TOO_LARGE_ERRORS = ["msg_too_long", "msg_blocks_too_long", "invalid_blocks", "invalid_blocks_format"];

/** Error codes for a deleted message with the same `client_msg_id`. Plenum then posts again without this id. */
const DELETED_DUPLICATE_ERRORS = ["duplicate_message_not_found", "duplicate_channel_not_found"];

/** Error codes for messages that cannot be edited, e.g. because of a time limit for edits. */
const NOT_EDITABLE_ERRORS = ["edit_window_closed", "cant_update_message"];

const NO_THREAD_ERRORS = ["thread_not_found", "message_not_found"];

/** Slack's error codes for a message that accepts no replies although its channel accepts messages. */
const REPLY_REFUSED_ERRORS = [
  "restricted_action_thread_locked",
  "restricted_action_non_threadable_channel",
  "cannot_reply_to_message",
];

const CLOCK_TOLERANCE_MS = 3_600_000;

const MAX_PERMALINK_LENGTH = 2_000;

/** Slack's rate limits (https://docs.slack.dev/apis/web-api/rate-limits): `chat.update` and histories have tier 3. */
const SLACK_RATE_LIMITS: NonNullable<AlarmReceiver["rates"]> = [
  { count: 1, windowMs: 1_000, limitedCalls: ["open", "update", "close"] },
  { count: 50, windowMs: 60_000, limitedCalls: ["update", "close", "find"] },
];

const MESSAGE_ID_NAMESPACE = Buffer.from("6f1d3c5e90b84f0c9a574be2a7c1d836", "hex");

/** Creates the Slack receiver: one message per incident, edited in place, and replies for important changes. */
export function createSlackReceiver(config: SlackConfig, context: ConnectorContext): AlarmReceiver {
  const api = createSlackApi(config, context);
  const { log, name } = context;

  /** Posts a message with the request key `client_msg_id`, which Slack may ignore. */
  async function postMessage(
    postTarget: object,
    idSeed: string,
    buildContent: (sizes: TextLengths) => SlackMessage,
    signal: AbortSignal,
    handledErrors: readonly string[] = [],
  ): Promise<SlackResponse> {
    function send(sizes: TextLengths, id: object, moreErrors: readonly string[]) {
      const content = { ...disableNameLinks(buildContent(sizes)), ...id, unfurl_links: false, unfurl_media: false };
      return api.post("chat.postMessage", { ...postTarget, ...content }, signal, [...handledErrors, ...moreErrors]);
    }
    const clientMessageId = { client_msg_id: createNamedUuid(idSeed) };
    const response = await send(FULL_TEXT_LENGTHS, clientMessageId, [...TOO_LARGE_ERRORS, ...DELETED_DUPLICATE_ERRORS]);
    if (hasError(response, DELETED_DUPLICATE_ERRORS)) return send(FULL_TEXT_LENGTHS, {}, []);
    return hasError(response, TOO_LARGE_ERRORS) ? send(SHORT_TEXT_LENGTHS, clientMessageId, []) : response;
  }

  async function editMessage(
    incident: IncidentMessage,
    { channel, ts }: SlackMessageReference,
    signal: AbortSignal,
  ): Promise<"edited" | "fixed" | "gone"> {
    const sendEdit = (sizes: TextLengths, moreErrors: readonly string[]) => {
      const content = disableNameLinks(buildMessage(incident, sizes));
      const message = { channel, ts, metadata: createMark(incident.key), ...content };
      return api.post("chat.update", message, signal, [...NOT_EDITABLE_ERRORS, "message_not_found", ...moreErrors]);
    };
    const fullResponse = await sendEdit(FULL_TEXT_LENGTHS, TOO_LARGE_ERRORS);
    const { error } = hasError(fullResponse, TOO_LARGE_ERRORS) ? await sendEdit(SHORT_TEXT_LENGTHS, []) : fullResponse;
    return error === null ? "edited" : error === "message_not_found" ? "gone" : "fixed";
  }

  /** Replies in the thread, but not twice after a crash. Returns false if the thread is missing. */
  async function replyInThread(
    incident: IncidentMessage,
    ref: SlackMessageReference,
    replyKind: "over" | "back" | null,
    isEdited: boolean,
    signal: AbortSignal,
  ): Promise<boolean> {
    const buildReply = (sizes: TextLengths) =>
      isEdited ? buildOneLineMessage(incident, sizes) : buildMessage(incident, sizes);
    const replyIdentity = replyKind ?? digestMessage(buildReply(FULL_TEXT_LENGTHS));
    const replyMark = { ...createMark(incident.key), event_type: "plenum_reply" } as const;
    const thread = { channel: ref.channel, ts: ref.ts };
    const replies = await listMarkedMessages(api, "conversations.replies", thread, replyMark, signal, NO_THREAD_ERRORS);
    if (replies.error !== null) return false;
    if (replies.isComplete && replies.marked.at(-1)?.payload.said === replyIdentity) return true;
    const alsoPostsInChannel = replyKind !== null && config.broadcast.includes(incident.priority);
    const metadata = { ...replyMark, event_payload: { ...replyMark.event_payload, said: replyIdentity } };
    const postTarget = { channel: ref.channel, thread_ts: ref.ts, metadata };
    const response = await postMessage(
      { ...postTarget, ...(alsoPostsInChannel ? { reply_broadcast: true } : {}) },
      `${ref.channel} ${ref.ts} ${incident.changeId} ${replyIdentity}`,
      buildReply,
      signal,
      [...NO_THREAD_ERRORS, ...(isEdited ? REPLY_REFUSED_ERRORS : [])],
    );
    if (hasError(response, NO_THREAD_ERRORS)) return false;
    if (response.error !== null)
      log.warn({ sink: name, reason: response.error }, "Slack takes no reply in a thread; its message says it all");
    return true;
  }

  /** Edits the message. Also replies in its thread if the alarm ended or came back, or if Slack allows no edit. */
  async function applyIncidentChange(
    incident: IncidentMessage,
    reference: IncidentReference,
    change: "update" | "close",
    signal: AbortSignal,
  ): Promise<IncidentReference | "gone"> {
    const { data: ref } = SlackMessageReference.safeParse(reference.ref);
    if (ref === undefined) return "gone";
    try {
      const editOutcome = await editMessage(incident, ref, signal);
      if (editOutcome === "gone") return "gone";
      const isAlarmBack = ref.closed ?? incident.change === "retriggered";
      const replyKind = change === "close" ? "over" : isAlarmBack ? "back" : null;
      const needsReply = replyKind !== null || editOutcome === "fixed";
      if (needsReply && !(await replyInThread(incident, ref, replyKind, editOutcome === "edited", signal)))
        return "gone";
    } catch (error) {
      // The configured channel has changed, so ignore errors of the old channel.
      if (ref.channel !== config.channel && isChannelError(error)) return "gone";
      throw error;
    }
    return { ...reference, ref: { channel: ref.channel, ts: ref.ts, closed: change === "close" } };
  }

  async function buildReference(channel: string, ts: string, signal: AbortSignal): Promise<IncidentReference> {
    return { ref: { channel, ts, closed: false }, ticket: null, link: await requestPermalink(channel, ts, signal) };
  }

  /** Requests a link to a message. Returns null on any error, because the message itself exists. */
  async function requestPermalink(channel: string, ts: string, signal: AbortSignal): Promise<string | null> {
    try {
      const response = await api.get("chat.getPermalink", { channel, message_ts: ts }, signal);
      const { permalink } = z.looseObject({ permalink: z.string().max(MAX_PERMALINK_LENGTH) }).parse(response.json);
      return URL.parse(permalink)?.protocol === "https:" ? permalink : null;
    } catch (error) {
      log.debug({ sink: name, err: error }, "Slack gave no link to a message");
      return null;
    }
  }

  /** Returns message metadata with incident key and sink name: two sinks may post the same alarm in one channel. */
  function createMark(key: string): IncidentMessageMark {
    return { event_type: "plenum_incident", event_payload: { key, sink: name } };
  }

  return {
    repeatedOpenEffect: "findable",
    rates: SLACK_RATE_LIMITS,
    serverId: hash("sha256", JSON.stringify([config.base_url, config.channel])),
    progressMs: api.progressMs,

    async open(incident, signal) {
      const { channel } = config;
      const postTarget = { channel, metadata: createMark(incident.key) };
      const idSeed = `${name} ${channel} ${incident.key}`;
      const response = await postMessage(postTarget, idSeed, (sizes) => buildMessage(incident, sizes), signal);
      const reference = PostedMessage.safeParse(response.json);
      if (!reference.success) throw new Retryable("Slack says that it took a message, but not where it is.");
      return buildReference(reference.data.channel, reference.data.ts, signal);
    },

    update: (incident, reference, signal) => applyIncidentChange(incident, reference, "update", signal),

    close: (incident, reference, signal) => applyIncidentChange(incident, reference, "close", signal),

    async find(incident, sinceMs, signal) {
      const { channel } = config;
      const query = { channel, oldest: (Math.max(0, sinceMs - CLOCK_TOLERANCE_MS) / 1_000).toFixed(6) };
      const history = await listMarkedMessages(api, "conversations.history", query, createMark(incident.key), signal);
      const [oldestMessage] = history.marked;
      if (oldestMessage !== undefined) return buildReference(channel, oldestMessage.ts, signal);
      if (!history.isComplete)
        log.warn({ sink: name }, "Slack's channel has too many messages to be sure that an alarm is not there already");
      return null;
    },

    probe: (signal) => checkChannelAccess(api, config.channel, signal),

    dispose: () => api.close(),
  };
}

/** Sets `parse` and `link_names` so that edits do not turn names in `text` into links. */
const disableNameLinks = (message: SlackMessage): object => ({ ...message, parse: "none", link_names: false });

const digestMessage = (message: SlackMessage): string => hash("sha256", JSON.stringify(message)).slice(0, 32);

const hasError = ({ error }: SlackResponse, codes: readonly string[]) => error !== null && codes.includes(error);

/** Returns a UUID of version 5 (RFC 9562), the same for the same text. */
function createNamedUuid(seedText: string): string {
  const hex = createHash("sha1").update(MESSAGE_ID_NAMESPACE).update(seedText).digest("hex");
  const uuidVariant = "89ab".charAt(Number.parseInt(hex.charAt(16), 16) % 4);
  const uuidParts = [hex.slice(0, 8), hex.slice(8, 12), `5${hex.slice(13, 16)}`, uuidVariant + hex.slice(17, 20)];
  return [...uuidParts, hex.slice(20, 32)].join("-");
}

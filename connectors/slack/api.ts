import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import {
  createHttpClient,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import { parseRetryAfterMs } from "../../src/core/http/retry-after.ts";
import type { Secret } from "../../src/core/runtime/log.ts";
import { secretReader } from "../../src/core/runtime/secret.ts";
import { printableLine } from "../../src/core/values/printable-text.ts";
import type { SlackConfig } from "./config.ts";

export interface SlackResponse {
  /** Slack's error code, one of `handledErrors`; null for success. */
  readonly error: string | null;
  readonly json: unknown;
  readonly scopes: readonly string[] | null;
}

const RESPONSE_TOO_LONG_CODE = "(too long)";

const SlackResponseBody = z.looseObject({
  ok: z.boolean(),
  error: z.string().catch("no reason given"),
  needed: z.string().nullable().catch(null),
  response_metadata: z.looseObject({ messages: z.array(z.string()).catch([]) }).catch({ messages: [] }),
});

type ErrorCodes = readonly string[];
type SlackApi = ReturnType<typeof createSlackApi>;

/** Creates a client of Slack's Web API. Returns the error codes in `handledErrors` and throws others. */
export function createSlackApi(config: SlackConfig, { clock }: ConnectorContext) {
  const url = new URL(config.base_url);
  const client = createHttpClient({ url, config, clock });
  const readToken = secretReader(config.token, clock);
  const apiPath = `${url.pathname.replace(/\/+$/, "")}/api/`;

  async function callMethod(
    request: ReceiverRequest,
    method: string,
    signal: AbortSignal,
    handledErrors: readonly string[],
  ): Promise<SlackResponse> {
    const headers = { authorization: `Bearer ${checkBotToken(readToken())}` };
    const response = await sendRequest(client, { ...request, headers }, clock, signal);
    const { data: body } = SlackResponseBody.safeParse(response.json);
    const scopes = response.headers["x-oauth-scopes"]?.split(",").map((scope) => scope.trim()) ?? null;
    if (body === undefined) {
      const isResponseTooLong = isIncompleteJson(response) && handledErrors.includes(RESPONSE_TOO_LONG_CODE);
      if (isResponseTooLong) return { error: RESPONSE_TOO_LONG_CODE, json: undefined, scopes };
      throw mapUnreadableResponse(response, `${client.origin} answered ${method}`);
    }
    if (body.ok || handledErrors.includes(body.error))
      return { error: body.ok ? null : body.error, json: response.json, scopes };
    const waitMs = parseRetryAfterMs(response.headers["retry-after"], clock.now());
    throw mapErrorResponse(`${client.origin} refused ${method}`, body, waitMs);
  }

  return {
    get(method: string, query: Readonly<Record<string, string>>, signal: AbortSignal, handledErrors: ErrorCodes = []) {
      const path = `${apiPath}${method}?${new URLSearchParams(query).toString()}`;
      return callMethod({ method: "GET", path }, method, signal, handledErrors);
    },
    post(method: string, json: object, signal: AbortSignal, handledErrors: ErrorCodes = []) {
      return callMethod({ method: "POST", path: apiPath + method, json }, method, signal, handledErrors);
    },
    progressMs: client.progressMs,
    close: () => client.close(),
  };
}

/** Rejects the two other secrets of Slack, which are often confused with the token. */
function checkBotToken(token: Secret): string {
  const tokenText = token.reveal().trim();
  const createTokenError = (message: string) =>
    new ConfigError(message, {
      reason: "unauthenticated",
      field: "token",
      hint: "Slack shows it under OAuth & Permissions, as Bot User OAuth Token; it begins with xoxb-.",
    });
  if (/^https?:/i.test(tokenText)) throw createTokenError("The Slack token is an address, and no bot token.");
  if (/^xapp-/i.test(tokenText)) throw createTokenError("The Slack token is an app-level token, and no bot token.");
  if (!/^[\x21-\x7e]+$/.test(tokenText)) throw createTokenError("The Slack token has characters that no token has.");
  return tokenText;
}

function mapUnreadableResponse(response: ReceiverResponse, responseSummary: string): Retryable {
  if (isIncompleteJson(response))
    return new Retryable(`${responseSummary} with more than can be read, or not to the end.`);
  return new Retryable(`${responseSummary} with something that is not Slack's.`, {
    hint: "If that stays so, check `base_url`, and what stands in between: a gateway, or a page that asks to log in.",
  });
}

const isIncompleteJson = ({ body, json }: ReceiverResponse) => json === undefined && body.trimStart().startsWith("{");

/** Message metadata by which Plenum finds its own messages. Other Slack apps can read the metadata. */
export interface IncidentMessageMark {
  readonly event_type: "plenum_incident" | "plenum_reply";
  readonly event_payload: Readonly<Record<string, string>>;
}

type MarkedSlackMessage = ReturnType<typeof matchMessageMark>[number];

const MESSAGE_PAGE_SIZES = ["100", "20", "5", "1"] as const;

const MAX_MESSAGE_PAGES = 20;

const SlackMessagesResponse = z.looseObject({
  messages: z.array(z.unknown()),
  has_more: z.boolean().catch(false),
  response_metadata: z.looseObject({ next_cursor: z.string().catch("") }).catch({ next_cursor: "" }),
});

const SlackMessageWithMetadata = z.looseObject({
  ts: z.string(),
  metadata: z.looseObject({ event_type: z.string(), event_payload: z.record(z.string(), z.unknown()) }),
});

/** Lists messages with this metadata: all of a thread, or those on the first page of a channel that has any. */
export async function listMarkedMessages(
  api: SlackApi,
  method: "conversations.history" | "conversations.replies",
  query: Readonly<Record<string, string>>,
  mark: IncidentMessageMark,
  signal: AbortSignal,
  handledErrors: readonly string[] = [],
) {
  let markedMessages: readonly MarkedSlackMessage[] = [];
  let cursor = "";
  let pageSizes: readonly string[] = MESSAGE_PAGE_SIZES;
  const buildResult = (isComplete: boolean, error: string | null = null) => ({
    marked: markedMessages,
    isComplete,
    error,
  });
  for (let page = 0; page < MAX_MESSAGE_PAGES; page += 1) {
    const [limit = "1", ...smallerPageSizes] = pageSizes;
    const messagePageQuery = { ...query, include_all_metadata: "true", limit, ...(cursor === "" ? {} : { cursor }) };
    const handledErrorsOfPage =
      smallerPageSizes.length === 0 ? handledErrors : [...handledErrors, RESPONSE_TOO_LONG_CODE];
    const response = await api.get(method, messagePageQuery, signal, handledErrorsOfPage);
    if (response.error === RESPONSE_TOO_LONG_CODE) {
      pageSizes = smallerPageSizes;
      continue;
    }
    if (response.error !== null) return buildResult(true, response.error);
    const parsedMessages = SlackMessagesResponse.safeParse(response.json);
    if (!parsedMessages.success) throw new Retryable(`Slack answered ${method} without messages.`);
    const { messages, has_more, response_metadata } = parsedMessages.data;
    markedMessages = [...markedMessages, ...messages.flatMap((message) => matchMessageMark(message, mark))].toSorted(
      (a, b) => (a.ts < b.ts ? -1 : 1),
    );
    cursor = response_metadata.next_cursor;
    if (cursor === "" && has_more) throw new Retryable(`Slack answered ${method} with a part and no word of the rest.`);
    if (cursor === "" || (method === "conversations.history" && markedMessages.length > 0)) return buildResult(true);
  }
  return buildResult(false);
}

function matchMessageMark(message: unknown, { event_type, event_payload }: IncidentMessageMark) {
  const parsedMessage = SlackMessageWithMetadata.safeParse(message);
  if (!parsedMessage.success || parsedMessage.data.metadata.event_type !== event_type) return [];
  const markPayload = parsedMessage.data.metadata.event_payload;
  const isMarkMatch = Object.entries(event_payload).every(([name, value]) => markPayload[name] === value);
  return isMarkMatch ? [{ ts: parsedMessage.data.ts, payload: markPayload }] : [];
}

const SlackChannelInfo = z.looseObject({
  channel: z.looseObject({
    is_private: z.boolean().catch(false),
    is_archived: z.boolean().catch(false),
    is_member: z.boolean().catch(true),
  }),
});

/** Checks without posting that the bot may post and read, and that the bot is in the channel. */
export async function checkChannelAccess(api: SlackApi, channel: string, signal: AbortSignal): Promise<void> {
  const { scopes } = await api.post("auth.test", {}, signal);
  const channelInfo = SlackChannelInfo.safeParse((await api.get("conversations.info", { channel }, signal)).json);
  if (!channelInfo.success) throw new Retryable("Slack answered conversations.info without a channel.");
  const { is_archived, is_member, is_private } = channelInfo.data.channel;
  const error = is_archived ? "is_archived" : is_member ? null : "not_in_channel";
  const errorBody = SlackResponseBody.parse({ ok: false, error });
  if (error !== null) throw mapErrorResponse("Slack would refuse every message", errorBody, null);
  const neededScopes = ["chat:write", is_private ? "groups:history" : "channels:history"];
  const missingScopes = neededScopes.filter((scope) => scopes?.includes(scope) === false);
  if (missingScopes.length > 0) {
    const message = `The Slack token has not the scopes that are needed: ${missingScopes.join(", ")}.`;
    const hint = "Add them to the app's bot scopes (OAuth & Permissions), and install the app in the workspace again.";
    throw new ConfigError(message, { reason: "forbidden", field: "token", hint });
  }
}

const NEW_TOKEN_HINT = "Put the bot token of an installed app (xoxb-…) where `token` says.";
const ASK_ADMINISTRATOR_HINT = "Ask the administrator of the Slack workspace.";
const ALLOW_POSTING_HINT = "Let the bot post there (channel settings, posting permissions), or set another `channel`.";
const ARCHIVED_CHANNEL_HINT = "Unarchive the channel, or set another `channel`.";

const SLACK_HINTS: Readonly<Record<"unauthenticated" | "forbidden" | "channel", Readonly<Record<string, string>>>> = {
  unauthenticated: {
    invalid_auth: NEW_TOKEN_HINT,
    not_authed: NEW_TOKEN_HINT,
    account_inactive: NEW_TOKEN_HINT,
    token_revoked: NEW_TOKEN_HINT,
    token_expired: "Put a new token where `token` says, or switch token rotation off in the app's settings.",
    not_allowed_token_type: NEW_TOKEN_HINT,
  },
  forbidden: {
    missing_scope: "Add it to the app's bot scopes (OAuth & Permissions), and install the app in the workspace again.",
    no_permission: "Invite the bot into the channel, and check the app's scopes.",
    access_denied: ASK_ADMINISTRATOR_HINT,
    accesslimited: ASK_ADMINISTRATOR_HINT,
    ekm_access_denied: ASK_ADMINISTRATOR_HINT,
    enterprise_is_restricted: ASK_ADMINISTRATOR_HINT,
    team_access_not_granted: ASK_ADMINISTRATOR_HINT,
    two_factor_setup_required: ASK_ADMINISTRATOR_HINT,
    metadata_must_be_sent_from_app: NEW_TOKEN_HINT,
  },
  channel: {
    channel_not_found: "Check `channel`; into a private channel the bot has to be invited.",
    not_in_channel: "Invite the bot into the channel: type /invite and its name there.",
    is_archived: ARCHIVED_CHANNEL_HINT,
    is_inactive: ARCHIVED_CHANNEL_HINT,
    restricted_action: ALLOW_POSTING_HINT,
    restricted_action_read_only_channel: ALLOW_POSTING_HINT,
    restricted_action_thread_only_channel: ALLOW_POSTING_HINT,
    restricted_action_non_threadable_channel: ALLOW_POSTING_HINT,
  },
};

/** Error codes for rate limits. `message_limit_exceeded`: limit of a free workspace. */
const RATE_LIMIT_ERROR_CODES = ["ratelimited", "rate_limited", "message_limit_exceeded"];

const UNAVAILABLE_ERROR_CODES = [
  "service_unavailable",
  "team_added_to_org",
  "org_login_required",
  "external_channel_migrating",
];

/** Error codes for failures inside Slack, after which the operation may have succeeded in part. */
const SLACK_SERVER_ERROR_CODES = ["fatal_error", "internal_error", "request_timeout", "update_failed"];

/** Maps an error response, which has HTTP status 200. An unknown code rejects the message. */
function mapErrorResponse(
  requestDescription: string,
  { error, needed, response_metadata: { messages } }: z.infer<typeof SlackResponseBody>,
  waitMs: number | null,
): Failure {
  const code = cleanText(error, 80);
  const message = `${requestDescription}: ${code}`;
  const findErrorHint = (kind: keyof typeof SLACK_HINTS) =>
    Object.hasOwn(SLACK_HINTS[kind], code) ? SLACK_HINTS[kind][code] : undefined;
  for (const reason of ["unauthenticated", "forbidden"] as const) {
    const hint = findErrorHint(reason);
    const scopeText = reason === "unauthenticated" || needed === null ? "" : ` (it needs ${cleanText(needed, 200)})`;
    if (hint !== undefined) return new ConfigError(`${message}${scopeText}.`, { reason, field: "token", hint });
  }
  const hint = findErrorHint("channel");
  if (hint !== undefined) return new ConfigError(`${message}.`, { field: "channel", hint });
  if (RATE_LIMIT_ERROR_CODES.includes(code)) return new Throttled(`${message}.`, waitMs, { scope: "allowance" });
  if (UNAVAILABLE_ERROR_CODES.includes(code)) return new Throttled(`${message}.`, waitMs, { scope: "everything" });
  if (SLACK_SERVER_ERROR_CODES.includes(code)) return new Retryable(`${message}.`);
  const errorDetails = cleanText(messages.join(" "), 300);
  return new Rejected(`${message}.${errorDetails === "" ? "" : ` It said: ${errorDetails}`}`);
}

export const isChannelError = (error: unknown): boolean => error instanceof ConfigError && error.field === "channel";

const cleanText = (text: string, maxLength: number): string => printableLine(text).trim().slice(0, maxLength);

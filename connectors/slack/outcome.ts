import { ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { retryAfterMs } from "../../src/core/http/retry-after.ts";
import { printable } from "../../src/core/values/printable.ts";

/** Slack said no, with HTTP 200 as it does. */
export interface Refusal {
  /** Who said so, and to what: `https://slack.com refused chat.update`. */
  readonly said: string;
  /** Slack's word for the reason. */
  readonly code: string;
  /** The scope that is missing. */
  readonly needed: string | null;
  /** What Slack says besides. */
  readonly details: readonly string[];
  readonly retryAfter: string | undefined;
}

const NEW_TOKEN = "Put the bot token of an installed app (xoxb-…) where `token` says.";
const ASK_ADMINISTRATOR = "Ask whoever administers the Slack workspace.";

/** What a person has to do, by Slack's word. */
const TOKEN_TROUBLE: ReadonlyMap<string, string> = new Map(
  Object.entries({
    invalid_auth: NEW_TOKEN,
    not_authed: NEW_TOKEN,
    account_inactive: NEW_TOKEN,
    token_revoked: NEW_TOKEN,
    token_expired: "Put a new token where `token` says, or switch token rotation off in the app's settings.",
    not_allowed_token_type: NEW_TOKEN,
  }),
);

const NOT_ALLOWED: ReadonlyMap<string, string> = new Map(
  Object.entries({
    missing_scope:
      "Add it to the app's bot scopes (OAuth & Permissions), and install the app in the workspace again.",
    no_permission: "Invite the bot into the channel, and check the app's scopes.",
    access_denied: ASK_ADMINISTRATOR,
    accesslimited: ASK_ADMINISTRATOR,
    ekm_access_denied: ASK_ADMINISTRATOR,
    enterprise_is_restricted: ASK_ADMINISTRATOR,
    team_access_not_granted: ASK_ADMINISTRATOR,
    two_factor_setup_required: ASK_ADMINISTRATOR,
    metadata_must_be_sent_from_app: NEW_TOKEN,
  }),
);

const POSTING = "Let the bot post there (channel settings, posting permissions), or set another `channel`.";

const CHANNEL_TROUBLE: ReadonlyMap<string, string> = new Map(
  Object.entries({
    channel_not_found: "Check `channel`; into a private channel the bot has to be invited.",
    not_in_channel: "Invite the bot into the channel: type /invite and its name there.",
    is_archived: "Unarchive the channel, or set another `channel`.",
    is_inactive: "Unarchive the channel, or set another `channel`.",
    restricted_action: POSTING,
    restricted_action_read_only_channel: POSTING,
    restricted_action_thread_only_channel: POSTING,
    restricted_action_non_threadable_channel: POSTING,
  }),
);

/** Told to wait, and it was surely not carried out. `message_limit_exceeded` is the limit of a free workspace. */
const LIMITED = ["ratelimited", "rate_limited", "message_limit_exceeded"];

/** Away for a while; it may have been carried out. */
const AWAY = ["service_unavailable", "team_added_to_org", "org_login_required", "external_channel_migrating"];

/** Slack's own trouble: "it's possible some aspect of the operation succeeded". */
const TROUBLE = ["fatal_error", "internal_error", "request_timeout", "update_failed"];

/** What a word means that the caller does not understand itself. An unknown one: this will not be taken as it is. */
export function failureOf(refusal: Refusal, nowMs: number): Failure {
  const code = clean(refusal.code, 80);
  const said = `${refusal.said}: ${code}`;
  const ofToken = TOKEN_TROUBLE.get(code);
  if (ofToken !== undefined) {
    return new ConfigError(`${said}.`, { reason: "unauthenticated", field: "token", hint: ofToken });
  }
  const notAllowed = NOT_ALLOWED.get(code);
  if (notAllowed !== undefined) {
    const scope = refusal.needed === null ? "" : ` (it needs ${clean(refusal.needed, 200)})`;
    return new ConfigError(`${said}${scope}.`, { reason: "forbidden", field: "token", hint: notAllowed });
  }
  const ofChannel = CHANNEL_TROUBLE.get(code);
  if (ofChannel !== undefined) return new ConfigError(`${said}.`, { field: "channel", hint: ofChannel });
  const waitMs = retryAfterMs(refusal.retryAfter, nowMs);
  if (LIMITED.includes(code)) return new Throttled(`${said}.`, waitMs, { scope: "allowance" });
  if (AWAY.includes(code)) return new Throttled(`${said}.`, waitMs, { scope: "everything" });
  if (TROUBLE.includes(code)) return new Retryable(`${said}.`);
  const details = clean(refusal.details.join(" "), 300);
  return new Rejected(`${said}.${details === "" ? "" : ` It said: ${details}`}`);
}

/** Whether it is about the channel and not about what was said. */
export function isAboutChannel(error: unknown): boolean {
  return error instanceof ConfigError && error.field === "channel";
}

function clean(text: string, most: number): string {
  return printable(text).trim().slice(0, most);
}

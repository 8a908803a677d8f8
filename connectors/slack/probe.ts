import { z } from "zod";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { SlackApi } from "./api.ts";
import { failureOf } from "./outcome.ts";

const Info = z.looseObject({
  channel: z.looseObject({
    is_private: z.boolean().catch(false),
    is_archived: z.boolean().catch(false),
    // A gateway may leave it out; Slack itself never does for a channel.
    is_member: z.boolean().catch(true),
  }),
});

/** Proves, without posting, that the token is good, that the bot may post and read, and that it is in the channel. */
export async function proveChannel(api: SlackApi, channel: string, signal: AbortSignal): Promise<void> {
  const { scopes } = await api.post("auth.test", {}, signal);
  const info = Info.safeParse((await api.get("conversations.info", { channel }, signal)).json);
  if (!info.success) throw new Retryable("Slack answered conversations.info without a channel.");
  const { is_archived, is_member, is_private } = info.data.channel;
  if (is_archived) throw refusalOf("is_archived");
  if (!is_member) throw refusalOf("not_in_channel");
  const wanted = ["chat:write", is_private ? "groups:history" : "channels:history"];
  const missing = wanted.filter((scope) => scopes?.includes(scope) === false);
  if (missing.length > 0) {
    throw new ConfigError(`The Slack token has not the scopes that are needed: ${missing.join(", ")}.`, {
      reason: "forbidden",
      field: "token",
      hint: "Add them to the app's bot scopes (OAuth & Permissions), and install the app in the workspace again.",
    });
  }
}

/** What Slack would say to the first message. */
function refusalOf(code: string): Error {
  const said = "Slack would refuse every message";
  return failureOf({ said, code, needed: null, details: [], retryAfter: undefined }, 0);
}

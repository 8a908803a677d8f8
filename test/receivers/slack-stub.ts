import type { ServerResponse } from "node:http";
import type { SeenRequest, StubResponse } from "../connectors/stub-server.ts";
import { jsonReply, type ReceiverIncident, startReceiverStub } from "./receiver-server.ts";
import { findBlockError, findMarkup, listBlockTexts } from "./slack-rules.ts";

export const SLACK_TOKEN = "xoxb-1234567890-canary-of-the-slack-bot";
export const SLACK_CHANNEL = "C0123ABCD";

type Json = Record<string, unknown>;

export interface SlackMessage {
  readonly channel: string;
  readonly ts: string;
  readonly threadTs: string | null;
  readonly isBroadcast: boolean;
  readonly metadata: Json | null;
  readonly versions: readonly { readonly text: string; readonly blocks: readonly Json[] }[];
}

export interface SlackCall {
  readonly method: string;
  readonly args: Json;
  readonly seen: SeenRequest;
}

type ScriptedReply = (call: SlackCall, response: ServerResponse) => StubResponse | null | undefined;
export type SlackStub = Awaited<ReturnType<typeof startSlackStub>>;

interface Workspace {
  tokens: string[];
  scopes: string[];
  isArchived: boolean;
  isMember: boolean;
  isPrivate: boolean;
  isEditable: boolean;
  mostOfPage: number;
  hasPermalinks: boolean;
  padding: number;
}

const SCOPES: Readonly<Record<string, string | null>> = {
  "auth.test": null,
  "chat.postMessage": "chat:write",
  "chat.update": "chat:write",
  "chat.getPermalink": null,
  "conversations.info": "channels:read",
  "conversations.history": "channels:history",
  "conversations.replies": "channels:history",
};

/**
 * Slack's Web API as far as an app with a bot token needs it, by its documentation: yes and no are both status 200; the
 * metadata of messages comes only when it is asked for; a message left without blocks keeps its old ones. It assumes the
 * worst where the documentation is silent: `client_msg_id` is ignored.
 */
export async function startSlackStub(now: () => number = Date.now) {
  const busy = slackReply({ ok: false, error: "ratelimited" }, 429, { "retry-after": "30" });
  const { common, interrupt, secret } = await startReceiverStub(busy);
  const { stub } = common;
  const messages: { -readonly [K in keyof SlackMessage]: SlackMessage[K] }[] = [];
  const calls: SlackCall[] = [];
  const scriptedReplies = new Map<string, ScriptedReply>();
  const deleted = new Set<string>();
  let lastTs = 0;
  const workspace: Workspace = {
    tokens: [SLACK_TOKEN],
    scopes: ["chat:write", "channels:read", "channels:history"],
    isArchived: false,
    isMember: true,
    isPrivate: false,
    isEditable: true,
    mostOfPage: 999,
    hasPermalinks: true,
    padding: 0,
  };

  /** Microseconds since 1970, never the same twice. */
  function newTs(): string {
    lastTs = Math.max(lastTs + 100, now() * 1_000);
    return `${Math.floor(lastTs / 1e6)}.${String(lastTs % 1e6).padStart(6, "0")}`;
  }

  const findMessage = (channel: unknown, ts: unknown) =>
    messages.find((one) => one.channel === channel && one.ts === ts && !deleted.has(one.ts));
  const isPosting = (method: string) => method === "chat.postMessage" || method === "chat.update";

  function refusalOfContent(args: Json, isEdit: boolean): Json | null {
    const { text, blocks, metadata } = args;
    if (typeof text !== "string" || text.trim() === "") return { error: "no_text" };
    if (text.length > 40_000) return { error: "msg_too_long" };
    const blockError = findBlockError(blocks, isEdit);
    if (blockError !== null) return { error: "invalid_blocks", response_metadata: { messages: [blockError] } };
    if (metadata !== undefined) {
      const { event_type, event_payload } = metadata as Json;
      const isFlat =
        typeof event_payload === "object" &&
        Object.values(event_payload ?? {}).every((value) => typeof value !== "object");
      if (typeof event_type !== "string" || !isFlat) return { error: "invalid_metadata_format" };
    }
    return null;
  }

  const methods: Readonly<Record<string, (args: Json) => Json>> = {
    "auth.test": () => ({ url: "https://example.slack.com/", team: "Example", user: "plenum", bot_id: "B1" }),
    "conversations.info": ({ channel }) => ({
      channel: {
        id: channel,
        name: "alarms",
        is_archived: workspace.isArchived,
        is_member: workspace.isMember,
        is_private: workspace.isPrivate,
      },
    }),

    "chat.postMessage"(args) {
      const { channel, thread_ts, metadata = null, text, blocks = [], reply_broadcast } = args;
      if (workspace.isArchived) return { error: "is_archived" };
      if (!workspace.isMember) return { error: "not_in_channel" };
      const refusal = refusalOfContent(args, false);
      if (refusal !== null) return refusal;
      if (thread_ts !== undefined && findMessage(channel, thread_ts) === undefined)
        return { error: "thread_not_found" };
      const ts = newTs();
      messages.push({
        channel: String(channel),
        ts,
        threadTs: typeof thread_ts === "string" ? thread_ts : null,
        isBroadcast: reply_broadcast === true,
        metadata: metadata as Json | null,
        versions: [{ text: String(text), blocks: blocks as Json[] }],
      });
      return { channel, ts, message: { type: "message", bot_id: "B1", text, ts } };
    },

    "chat.update"(args) {
      const { channel, ts, text, blocks, metadata } = args;
      if (workspace.isArchived) return { error: "is_inactive" };
      const message = findMessage(channel, ts);
      if (message === undefined) return { error: "message_not_found" };
      if (!workspace.isEditable) return { error: "edit_window_closed" };
      const refusal = refusalOfContent(args, true);
      if (refusal !== null) return refusal;
      const previousBlocks = message.versions.at(-1)?.blocks ?? [];
      message.versions = [...message.versions, { text: String(text), blocks: (blocks as Json[]) ?? previousBlocks }];
      if (metadata !== undefined) message.metadata = metadata as Json;
      return { channel, ts, text };
    },

    "chat.getPermalink"({ channel, message_ts }) {
      if (!workspace.hasPermalinks || findMessage(channel, message_ts) === undefined)
        return { error: "message_not_found" };
      const id = String(message_ts).replace(".", "");
      return { channel, permalink: `https://example.slack.com/archives/${String(channel)}/p${id}` };
    },

    "conversations.history"(args) {
      if (!workspace.isMember) return { error: "not_in_channel" };
      const oldest = Number(args.oldest ?? 0);
      const all = messages.filter(
        (one) =>
          one.channel === args.channel &&
          !deleted.has(one.ts) &&
          (one.threadTs === null || one.isBroadcast) &&
          Number(one.ts) > oldest,
      );
      return page(all, args, true);
    },

    "conversations.replies"(args) {
      if (findMessage(args.channel, args.ts) === undefined) return { error: "thread_not_found" };
      return page(
        messages.filter((one) => one.ts === args.ts || (one.threadTs === args.ts && !deleted.has(one.ts))),
        args,
        false,
      );
    },
  };

  function page(all: readonly SlackMessage[], args: Json, isNewestFirst: boolean): Json {
    const from = Number(args.cursor ?? 0);
    const limit = Math.min(Number(args.limit ?? 100), workspace.mostOfPage);
    if (!(limit >= 1 && limit <= 999)) return { error: "invalid_limit" };
    const pageMessages = all.slice(from, from + limit).map(({ ts, threadTs, metadata, versions }) => ({
      type: "message",
      ts,
      ...(threadTs === null ? {} : { thread_ts: threadTs }),
      ...versions.at(-1),
      ...(args.include_all_metadata === "true" && metadata !== null ? { metadata } : {}),
    }));
    const hasMore = from + limit < all.length;
    return {
      messages: isNewestFirst ? pageMessages.toReversed() : pageMessages,
      has_more: hasMore,
      response_metadata: { next_cursor: hasMore ? String(from + limit) : "" },
    };
  }

  function executeCall({ method, args, seen }: SlackCall): Json {
    const token = /^Bearer (\S+)$/.exec(seen.headers.authorization ?? "")?.[1];
    if (token === undefined) return { error: "not_authed" };
    if (!workspace.tokens.includes(token)) return { error: "token_revoked" };
    const neededScope = SCOPES[method];
    const execute = methods[method];
    if (neededScope === undefined || execute === undefined) return { error: "unknown_method" };
    if (neededScope !== null && !workspace.scopes.includes(neededScope)) {
      return { error: "missing_scope", needed: neededScope, provided: workspace.scopes.join(",") };
    }
    if (method !== "auth.test" && args.channel !== SLACK_CHANNEL) return { error: "channel_not_found" };
    return execute(args);
  }

  function parseCall(seen: SeenRequest): SlackCall {
    const url = new URL(seen.url, "http://slack.test");
    const method = /^\/(?:.*\/)?api\/([\w.]+)$/.exec(url.pathname)?.[1] ?? "";
    const isJson = seen.headers["content-type"] === "application/json; charset=utf-8";
    if (seen.method === "POST" && !isJson) return { method, args: {}, seen };
    const args =
      seen.method === "POST" ? (JSON.parse(seen.body.toString()) as Json) : Object.fromEntries(url.searchParams);
    return { method, args, seen };
  }

  stub.respond = (seen, response) => {
    const call = parseCall(seen);
    calls.push(call);
    const scriptedReply = scriptedReplies.get(call.method)?.(call, response);
    if (scriptedReply !== null && scriptedReply !== undefined) return scriptedReply;
    if (response.destroyed) return null;
    const padding = workspace.padding === 0 ? {} : { padding: "x".repeat(workspace.padding) };
    const scopes = { "x-oauth-scopes": workspace.scopes.join(",") };
    const carryOut = () => {
      const result = executeCall(call);
      return slackReply({ ok: result.error === undefined, ...result, ...padding }, 200, scopes);
    };
    return isPosting(call.method) ? interrupt(carryOut, response, call.method === "chat.postMessage") : carryOut();
  };

  function listTexts(message: SlackMessage): readonly string[] {
    const replies = messages.filter(({ threadTs }) => threadTs === message.ts);
    return [message, ...replies].flatMap(({ versions }) =>
      versions.map(({ text, blocks }) => [text, ...listBlockTexts(blocks)].join("\n")),
    );
  }

  return {
    ...common,
    config: { token: secret(SLACK_TOKEN), channel: SLACK_CHANNEL, base_url: stub.url, allow_networks: ["127.0.0.0/8"] },
    url: stub.url,
    calls,
    messages,
    workspace,
    incidents(): readonly ReceiverIncident[] {
      return messages
        .filter(({ threadTs, metadata, ts }) => threadTs === null && metadata !== null && !deleted.has(ts))
        .map((message) => {
          const { key } = (message.metadata?.event_payload ?? {}) as { readonly key?: string };
          const lastText = message.versions.at(-1)?.text ?? "";
          return { key: key ?? null, isOpen: !lastText.startsWith("🟢"), texts: listTexts(message) };
        });
    },
    answer(method: string, by: ScriptedReply | null) {
      if (by === null) scriptedReplies.delete(method);
      else scriptedReplies.set(method, by);
    },
    remove(ts: string) {
      deleted.add(ts);
    },
    clear: (): void => messages.forEach(({ ts }) => void deleted.add(ts)),
    chatter(count: number, text = "Has anybody seen my keys?", threadTs: string | null = null) {
      for (let n = 0; n < count; n += 1) {
        messages.push({
          channel: SLACK_CHANNEL,
          ts: newTs(),
          threadTs,
          isBroadcast: false,
          metadata: null,
          versions: [{ text, blocks: [] }],
        });
      }
    },
    obeyed: () => messages.flatMap(({ versions }) => versions.flatMap(findMarkup)),
  };
}

export function slackReply(body: unknown, status = 200, headers: Readonly<Record<string, string>> = {}): StubResponse {
  return jsonReply(status, body, { "content-type": "application/json; charset=utf-8", ...headers });
}

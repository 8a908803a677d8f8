import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Lookup } from "../../src/core/http/outbound/guard.ts";
import { createHttpClient } from "../../src/core/http/outbound/http-end.ts";
import {
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Secret } from "../../src/core/runtime/log.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import type { SlackConfig } from "./config.ts";
import { failureOf } from "./outcome.ts";

/** Slack's Web API, as far as it is used here: a method is called, and says yes, or no with a word. */
export interface SlackApi {
  /** A method that reads. Of words that are `understood` the caller knows the meaning; any other is thrown. */
  get(method: string, query: Query, signal: AbortSignal, understood?: readonly string[]): Promise<Answer>;
  /** A method that changes something, or that takes no query. */
  post(method: string, body: object, signal: AbortSignal, understood?: readonly string[]): Promise<Answer>;
  /** When the last request began, on the monotonic clock. */
  lastStepMs(): number;
  close(): Promise<void>;
}

type Query = Readonly<Record<string, string>>;

export interface Answer {
  /** One of the words that are `understood`; null where Slack said yes. */
  readonly error: string | null;
  readonly json: unknown;
  /** The scopes of the token; null where the answer does not say. */
  readonly scopes: readonly string[] | null;
}

/** A word of ours, beside Slack's own: the answer began as JSON, and was longer than is read, or broke off. */
export const TOO_LONG = "(too long)";

const Body = z.looseObject({
  ok: z.boolean(),
  error: z.string().catch("no reason given"),
  needed: z.string().nullable().catch(null),
  response_metadata: z.looseObject({ messages: z.array(z.string()).catch([]) }).catch({ messages: [] }),
});

export function createSlackApi(config: SlackConfig, context: ConnectorContext, lookup?: Lookup): SlackApi {
  const url = new URL(config.base_url);
  const { clock } = context;
  const end = createHttpClient({ url, config, clock, ...(lookup === undefined ? {} : { lookup }) });
  const token = cachedSecret(config.token, clock);
  const base = `${url.pathname.replace(/\/+$/, "")}/api/`;

  async function call(
    question: ReceiverRequest,
    method: string,
    signal: AbortSignal,
    understood: readonly string[] = [],
  ): Promise<Answer> {
    const headers = { authorization: `Bearer ${bearerOf(token())}` };
    const said = await sendRequest(end, { ...question, headers }, clock, signal);
    const told = Body.safeParse(said.json);
    const scopes = scopesOf(said);
    if (!told.success) {
      if (isUnfinished(said) && understood.includes(TOO_LONG)) {
        return { error: TOO_LONG, json: undefined, scopes };
      }
      throw notUnderstood(said, `${end.origin} answered ${method}`);
    }
    const { ok, error: code, needed, response_metadata } = told.data;
    if (ok) return { error: null, json: said.json, scopes };
    if (understood.includes(code)) return { error: code, json: said.json, scopes };
    throw failureOf(
      {
        said: `${end.origin} refused ${method}`,
        code,
        needed,
        details: response_metadata.messages,
        retryAfter: said.headers["retry-after"],
      },
      clock.now(),
    );
  }

  return {
    get(method, query, signal, understood) {
      const path = `${base}${method}?${new URLSearchParams(query).toString()}`;
      return call({ method: "GET", path }, method, signal, understood);
    },
    post(method, body, signal, understood) {
      return call({ method: "POST", path: base + method, json: body }, method, signal, understood);
    },
    lastStepMs: end.lastStepMs,
    close: () => end.close(),
  };
}

/** The token as a header can carry it; the other two secrets that Slack hands out are taken for it again and again. */
function bearerOf(token: Secret): string {
  const text = token.reveal().trim();
  const complain = (message: string) =>
    new ConfigError(message, {
      reason: "unauthenticated",
      field: "token",
      hint: "Slack shows it under OAuth & Permissions, as Bot User OAuth Token; it begins with xoxb-.",
    });
  if (/^https?:/i.test(text)) throw complain("The Slack token is an address, and no bot token.");
  if (/^xapp-/i.test(text)) throw complain("The Slack token is an app-level token, and no bot token.");
  if (!/^[\x21-\x7e]+$/.test(text)) throw complain("The Slack token has characters that no token has.");
  return text;
}

/** A yes and a no are JSON with `ok`; whatever else came with status 200, nobody knows what was done. */
function notUnderstood(said: ReceiverResponse, who: string): Retryable {
  if (isUnfinished(said)) {
    return new Retryable(`${who} with more than can be read, or not to the end.`);
  }
  return new Retryable(`${who} with something that is not Slack's.`, {
    hint: "If that stays so, check `base_url`, and what stands in between: a gateway, or a page that asks to log in.",
  });
}

function isUnfinished({ body, json }: ReceiverResponse): boolean {
  return json === undefined && body.trimStart().startsWith("{");
}

function scopesOf(said: ReceiverResponse): readonly string[] | null {
  return said.headers["x-oauth-scopes"]?.split(",").map((scope) => scope.trim()) ?? null;
}

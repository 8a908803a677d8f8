import { z } from "zod";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { createHttpClient } from "../../src/core/http/outbound/http-end.ts";
import {
  failureOfResponse,
  type ReceiverRequest,
  type ReceiverResponse,
  sendRequest,
} from "../../src/core/http/outbound/request.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret } from "../../src/core/runtime/secret.ts";
import { printable } from "../../src/core/values/printable.ts";
import { cut } from "../shared/receiver/text.ts";
import type { JiraConfig } from "./config.ts";

/** Refusals that carry words of Jira's own, looked at here before they get their meaning. */
const WITH_WORDS = [400, 401, 403, 404, 409, 413];
/** Longest words of Jira's that are passed on, in characters. */
const MAX_WORDS = 400;
/** Jira lets in whoever it does not know as nobody, and says so only in this header. */
const UNKNOWN_USER = /AUTHENTICATED_FAILED|AUTHENTICATION_DENIED/;

/** What Jira says in words where it refuses. */
const Refusal = z.object({
  errorMessages: z.array(z.string()).default([]),
  errors: z.record(z.string(), z.unknown()).default({}),
});

/** One Jira: questions below its address, with the account's name on them. */
export interface Jira {
  readonly origin: string;
  /** `path` begins behind `/rest/api/3`; `allow` are statuses beside 2xx that the caller understands. */
  ask(question: ReceiverRequest, signal: AbortSignal): Promise<ReceiverResponse>;
  /** The same, and its answer in the form that it has to have. */
  read<T>(question: ReceiverRequest, schema: z.ZodType<T>, signal: AbortSignal): Promise<T>;
  /** When the last request began, on the monotonic clock. */
  lastStepMs(): number;
  close(): Promise<void>;
}

export function createJira(config: JiraConfig, clock: Clock): Jira {
  const base = new URL(config.url);
  const root = `${base.pathname.replace(/\/+$/, "")}/rest/api/${config.deployment === "cloud" ? 3 : 2}`;
  const end = createHttpClient({ url: base, config, clock });
  const token = cachedSecret(config.token, clock);

  function authorization(): string {
    const text = token().reveal();
    if (config.user !== undefined) return `Basic ${Buffer.from(`${config.user}:${text}`).toString("base64")}`;
    if (/^[\x21-\x7e]+$/.test(text)) return `Bearer ${text}`;
    throw new ConfigError("A personal access token is one line of plain ASCII characters without blanks.", {
      field: "token",
      hint: "Put nothing but the token into the file or the variable.",
    });
  }

  const jira: Jira = {
    origin: end.origin,
    lastStepMs: end.lastStepMs,

    async ask(question, signal) {
      const { allow = [], path } = question;
      const headers = { authorization: authorization() };
      const said = await sendRequest(
        end,
        { ...question, path: root + path, headers, allow: WITH_WORDS },
        clock,
        signal,
      );
      if (UNKNOWN_USER.test(said.headers["x-seraph-loginreason"] ?? "")) throw unknownUser(end.origin);
      if (said.status < 300) return believed(said, end.origin);
      if (allow.includes(said.status) && said.json !== undefined) return said;
      throw failureOf(said, end.origin, clock.now());
    },

    async read(question, schema, signal) {
      return readAs(await jira.ask(question, signal), schema, end.origin);
    },

    close: () => end.close(),
  };
  return jira;
}

/** The answer in the form that it has to have. Where it has not, nobody knows what was carried out. */
export function readAs<T>(said: ReceiverResponse, schema: z.ZodType<T>, origin: string): T {
  const read = schema.safeParse(said.json);
  if (read.success) return read.data;
  throw notJira(said, origin);
}

/** Jira's own words, as one line; empty where it said none. */
export function wordsOf(said: ReceiverResponse): string {
  const { errorMessages, errors } = refusalOf(said);
  const named = Object.entries(errors).map(([field, text]) => `${field}: ${String(text)}`);
  return cut(printable([...errorMessages, ...named].join(" ")), MAX_WORDS);
}

function refusalOf(said: ReceiverResponse): z.infer<typeof Refusal> {
  return Refusal.safeParse(said.json).data ?? { errorMessages: [], errors: {} };
}

function failureOf(said: ReceiverResponse, origin: string, nowMs: number): Error {
  const { status } = said;
  const words = wordsOf(said);
  if (status === 409)
    return new Retryable(`${origin} answered 409: somebody else edits it just now. ${words}`);
  if (status === 400 && words !== "") return refused(said, origin);
  const body = said.json === undefined ? said.body : words;
  return (
    failureOfResponse({ status, headers: said.headers, body, isCut: false }, origin, nowMs) ??
    new Retryable(`${origin} answered ${status}.`)
  );
}

/** Only summary and description come from the alarm; whatever else does not fit was configured, here or there. */
function refused(said: ReceiverResponse, origin: string): ConfigError | Rejected {
  const fields = Object.keys(refusalOf(said).errors);
  const others = fields.filter((field) => field !== "summary" && field !== "description");
  const sentence = `${origin} answered 400. It said: ${wordsOf(said)}`;
  const [other] = others;
  if (other === undefined) return new Rejected(sentence);
  return new ConfigError(sentence, {
    reason: "validation",
    field: other === "issuetype" ? "issue_type" : other === "project" ? "project" : "fields",
    hint: `Check ${others.map((field) => printable(field)).join(", ")} in the options, or what the project asks for.`,
  });
}

function unknownUser(origin: string): ConfigError {
  return new ConfigError(`${origin} does not accept who we are.`, {
    reason: "unauthenticated",
    hint: "Check user and token: the token may be wrong, have expired, or want a sign-in in the browser first.",
  });
}

function believed(said: ReceiverResponse, origin: string): ReceiverResponse {
  if (said.body.trim() !== "" && said.json === undefined) throw notJira(said, origin);
  const words = wordsOf(said);
  if (words === "") return said;
  throw new Rejected(`${origin} answered ${said.status}, and refused it all the same. It said: ${words}`);
}

function notJira({ status }: ReceiverResponse, origin: string): Retryable {
  return new Retryable(`${origin} answered ${status}, but not as Jira does.`, {
    hint: "Check that url leads to Jira itself, and not to a page for signing in.",
  });
}

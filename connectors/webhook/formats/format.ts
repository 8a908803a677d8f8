import { type Failure, Rejected, Retryable } from "../../../src/core/errors/errors.ts";
import { isHtmlPage } from "../../../src/core/http/html-page-detection.ts";
import type { ReceiverRequest, ReceiverResponse } from "../../../src/core/http/outbound/request.ts";
import { printableLine } from "../../../src/core/values/printable-text.ts";
import type {
  AlarmReceiver,
  IncidentMessage,
  IncidentReference,
  IncidentText,
} from "../../shared/receiver/receiver-interface.ts";

export type IncidentOperation = "open" | "update" | "close";

export interface RequestContext {
  readonly url: URL;
  readonly key: string;
  readonly name: string;
  readonly reference: IncidentReference | null;
  readonly nowMs: number;
}

export type FormatRequest = Omit<ReceiverRequest, "text">;

export interface ReceiverFormat {
  readonly repeatedOpenEffect: Exclude<AlarmReceiver["repeatedOpenEffect"], "findable">;
  readonly rates?: AlarmReceiver["rates"];
  /** Returns null if the change needs no request, or if a request would reopen an alert that a person closed. */
  buildRequest(incident: IncidentMessage, operation: IncidentOperation, context: RequestContext): FormatRequest | null;
  /** Returns the failure that a response with 2xx or an allowed status reports; null for success. */
  findFailure(response: ReceiverResponse, receiverName: string): Failure | null;
  parseReference?(response: ReceiverResponse): IncidentReference;
  isGone?(response: ReceiverResponse): boolean;
  /** Builds a harmless request that tests the credentials. For a format without it, only the connection is tested. */
  probe?(context: RequestContext): FormatRequest;
}

export const NO_REFERENCE: IncidentReference = { ref: null, ticket: null, link: null };

/** Joins paths: `/v2/alerts` and `/KEY/close` become `/v2/alerts/KEY/close`. */
export function buildRequestPath(url: URL, pathSuffix = "", query: Readonly<Record<string, string>> = {}): string {
  const queryParams = new URLSearchParams(url.search);
  for (const [name, value] of Object.entries(query)) queryParams.set(name, value);
  const path = pathSuffix === "" ? url.pathname : url.pathname.replace(/\/$/, "") + pathSuffix;
  // Keep the spelling of the configured query: the receiver may verify a signature of the URL.
  return path + (Object.keys(query).length === 0 ? url.search : `?${queryParams}`);
}

/** Creates the failure for a response that does not confirm the request. An HTML page (of a proxy) is retryable. */
export function createUnconfirmedFailure(
  response: ReceiverResponse,
  receiverName: string,
  hint?: string,
): Rejected | Retryable {
  const { status } = response;
  const bodyText = printableLine(response.body).trim();
  if (status < 300 && isHtmlPage(bodyText)) {
    const htmlPageHint = "If that stays so, check whether url leads to the receiver, and not to a page for signing in.";
    const message = `${receiverName} answered ${status} with a page, and does not say that it took it.`;
    return new Retryable(message, { hint: hint ?? htmlPageHint });
  }
  const quotedBody = bodyText === "" || isHtmlPage(bodyText) ? "" : ` It said: ${bodyText.slice(0, 200)}`;
  const message = `${receiverName} answered ${status}, but does not say that it took it.${quotedBody}`;
  return new Rejected(message, hint === undefined ? {} : { hint });
}

export function failUnlessConfirmed(
  isConfirmation: (response: ReceiverResponse) => boolean,
): ReceiverFormat["findFailure"] {
  return (response, receiverName) =>
    isConfirmation(response) ? null : createUnconfirmedFailure(response, receiverName);
}

export function getJsonMember(json: unknown, name: string): unknown {
  return typeof json === "object" && json !== null && Object.hasOwn(json, name)
    ? (json as Record<string, unknown>)[name]
    : undefined;
}

export function chooseByPriority(priority: string, choices: readonly [a: string, b: string, c: string]): string {
  return choices["AB".indexOf(priority)] ?? choices[2];
}

/** Zero-width space. Inserted after a character, it removes the character's special meaning. */
const ZERO_WIDTH_SPACE = "\u200b";

/** Puts the status before the title, because a phone shows only the beginning of a message. */
export const formatHeading = ({ status, title }: IncidentText): string => `${status}: ${title}`;

/** Formats everything except the title, one item per line. Time series come last, where texts are cut. */
export function formatBody(text: IncidentText, escapeText: (text: string) => string = (text) => text): string {
  return [
    ...text.fields.map(({ label, text }) => `${escapeText(label)}: ${escapeText(text)}`),
    ...text.list.map(escapeText),
    ...text.timeSeriesLines.map(escapeText),
  ].join("\n");
}

/** Escapes Markdown of chats. A zero-width space splits `<!channel>`, which Mattermost reads even after a backslash. */
export function escapeMarkdown(text: string): string {
  return (
    text
      .replaceAll(/[\\`*_[\]|~>#]/g, "\\$&")
      // Leave times such as 07:15:00 unchanged, because `:15:` is no emoji there.
      .replaceAll(/[<@&]|:(?!\d\d:)(?=[\w+-]+:|\/\/)/g, `$&${ZERO_WIDTH_SPACE}`)
      .replaceAll(/www\./gi, (word) => `${word.slice(0, 3)}${ZERO_WIDTH_SPACE}.`)
      .replaceAll(/\n\s*/g, `\n${ZERO_WIDTH_SPACE}`)
  );
}

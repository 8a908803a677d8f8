import { type Failure, Rejected, Retryable } from "../../../src/core/errors/errors.ts";
import { isPage } from "../../../src/core/http/html-page.ts";
import type { ReceiverRequest, ReceiverResponse } from "../../../src/core/http/outbound/request.ts";
import { printable } from "../../../src/core/values/printable.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "../../shared/receiver/receiver.ts";

/** What is to be done at the receiver: the calls of `Receiver` that send something. */
export type Operation = "open" | "update" | "close";

/** What a format needs beside the incident. */
export interface RequestContext {
  /** The address of the configuration, whole. */
  readonly url: URL;
  /** The option `key`, revealed; empty where the format has none. It goes into what is sent and nowhere else. */
  readonly key: string;
  /** The sink's name in the configuration. */
  readonly name: string;
  /** Where it is; null when it is opened. */
  readonly place: IncidentReference | null;
  readonly nowMs: number;
}

export type Message = Omit<ReceiverRequest, "text">;

/** How one receiver wants to be spoken to, and what its answers mean. Pure. */
export interface Format {
  readonly opensAgain: Exclude<Receiver["opensAgain"], "findable">;
  /** The documented limits of the receiver. */
  readonly rates?: Receiver["rates"];
  /** What is sent; null: nothing, because the receiver cannot be told, or would open again what a person closed. */
  say(incident: IncidentMessage, operation: Operation, at: RequestContext): Message | null;
  /** What an answer of 2xx, or of a status that the message allows, means; null for yes. `who` names the receiver. */
  judge(said: ReceiverResponse, who: string): Failure | null;
  /** Where it is, by the answer to its opening; without this it has no id there. */
  placeOf?(said: ReceiverResponse): IncidentReference;
  /** Whether the answer to an update or a close says that it is not there any more. */
  isGone?(said: ReceiverResponse): boolean;
  /** A question that changes nothing and proves that we would be accepted; without it only the connection is tried. */
  probe?(at: RequestContext): Message;
}

/** Where a thing without an id is: at the address. */
export const NO_REFERENCE: IncidentReference = { ref: null, ticket: null, link: null };

/**
 * What is told to a receiver that keeps one thing for each key and pages people. Any other change would reach it only as
 * another trigger, and that opens again what a person has closed there.
 */
export function actionOf(
  incident: IncidentMessage,
  operation: Operation,
): "trigger" | "acknowledge" | "resolve" | null {
  if (operation === "open") return "trigger";
  if (operation === "close") return "resolve";
  if (incident.change === "retriggered") return "trigger";
  return incident.change === "acknowledged" ? "acknowledge" : null;
}

/**
 * What is told where every message stands by itself: a beginning, an end, and that nobody knows any more. Null where
 * nothing is sent.
 */
export function needsMessage(incident: IncidentMessage, operation: Operation): boolean {
  return operation !== "update" || incident.change === "vanished" || incident.change === "out-of-scope";
}

/** The address itself, or what lies under it: `/v2/alerts` and `/KEY/close` is `/v2/alerts/KEY/close`. */
export function pathOf(url: URL, under = "", query: Readonly<Record<string, string>> = {}): string {
  const search = new URLSearchParams(url.search);
  for (const [name, value] of Object.entries(query)) search.set(name, value);
  const path = under === "" ? url.pathname : url.pathname.replace(/\/$/, "") + under;
  // What stands in the address already is sent as it stands there: a signature may be over its spelling.
  const requested = Object.keys(query).length === 0 ? url.search : `?${search}`;
  return path + requested;
}

/**
 * The answer does not say yes, so it is never taken for one. A page is nobody's no to this alarm: somebody on the way says
 * it, or a receiver that is away (`<html>We are back at 12:00`), so it passes, and the alarm must not be given up for it.
 */
export function refusal(said: ReceiverResponse, who: string, hint?: string): Rejected | Retryable {
  const text = printable(said.body).trim();
  if (said.status < 300 && isPage(text)) {
    return new Retryable(`${who} answered ${said.status} with a page, and does not say that it took it.`, {
      hint:
        hint ??
        "If that stays so, check whether url leads to the receiver, and not to a page for signing in.",
    });
  }
  const words = text === "" || isPage(text) ? "" : ` It said: ${text.slice(0, 200)}`;
  return new Rejected(
    `${who} answered ${said.status}, but does not say that it took it.${words}`,
    hint === undefined ? {} : { hint },
  );
}

/** A member of an answer that is a JSON object; undefined where there is none. */
export function memberOf(json: unknown, name: string): unknown {
  return typeof json === "object" && json !== null && Object.hasOwn(json, name)
    ? (json as Record<string, unknown>)[name]
    : undefined;
}

/** A time that has an offset; undefined for any other, because nobody shall guess. */
export function timeWithOffset(time: string | null): string | undefined {
  return time?.endsWith("Z") === true && !Number.isNaN(Date.parse(time)) ? time : undefined;
}

/** What a priority of the service is called there; the last of the names also for letters that nobody knows. */
export function byPriority(priority: string, names: readonly [a: string, b: string, c: string]): string {
  return names["AB".indexOf(priority)] ?? names[2];
}

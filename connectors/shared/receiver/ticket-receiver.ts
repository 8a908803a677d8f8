import { z } from "zod";
import type { ConnectorContext } from "../../../src/core/connector.ts";
import { ConfigError, type Failure, Retryable } from "../../../src/core/errors/errors.ts";
import { httpStatusToFailure, type ReceiverResponse } from "../../../src/core/http/outbound/request.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { type SecretRef, secretReader } from "../../../src/core/runtime/secret.ts";
import type { ReceiverConfig } from "./config.ts";
import { chooseMessagePhrases, type MessagePhraseName, toOneLine } from "./message-texts.ts";
import type { AlarmReceiver, IncidentMessage, IncidentReference } from "./receiver-interface.ts";

const TICKET_SEARCH_RETRY_MS = 60_000;

/** Ticket system such as Jira. A `done` ticket can be reopened; a `closed` ticket cannot. */
export interface TicketSystem {
  readonly ticketPlural: "issues" | "incidents";
  readonly idPattern: RegExp;
  /** Time after the creation of a ticket during which a search may not find the ticket. */
  readonly searchLagMs: number;
  createTicket(incident: IncidentMessage, signal: AbortSignal): Promise<Ticket>;
  readState(id: string, signal: AbortSignal): Promise<TicketState | null>;
  update(id: string, update: TicketUpdate, signal: AbortSignal): Promise<boolean>;
  close(id: string, update: TicketUpdate, signal: AbortSignal): Promise<boolean>;
  search(incident: IncidentMessage, signal: AbortSignal): Promise<readonly (Ticket & { readonly isDone: boolean })[]>;
  addNote(id: string, note: string, signal: AbortSignal): Promise<void>;
}

type TicketState = "open" | "done" | "closed";

export interface Ticket {
  readonly id: string;
  readonly ticket: string | null;
  readonly link: string;
}

export interface TicketUpdate {
  readonly incident: IncidentMessage;
  /** True if the alarm of a `done` ticket is active again. */
  readonly reopens: boolean;
  /** Labels of the fields in the comment; null for no comment. */
  readonly noteLabels: readonly string[] | null;
  readonly reference: IncidentReference;
}

/** Creates the receiver for a ticket system. A ticket that a person closed stays closed until its alarm comes back. */
export function createTicketReceiver(
  system: TicketSystem,
  config: Pick<ReceiverConfig, "language" | "words">,
  { clock, log }: Pick<ConnectorContext, "clock" | "log">,
): Pick<AlarmReceiver, "repeatedOpenEffect" | "open" | "update" | "close" | "find"> {
  const phrases = chooseMessagePhrases(config.language, config.words);
  /** Ticket reference. `over`: the ticket shows the alarm's end, so the next update reports the alarm's return. */
  const TicketReference = z.object({ id: z.string().regex(system.idPattern), over: z.boolean() });
  const toReference = ({ id, ticket, link }: Ticket): IncidentReference => ({ ref: { id, over: false }, ticket, link });

  return {
    repeatedOpenEffect: "findable",

    open: async (incident, signal) => toReference(await system.createTicket(incident, signal)),

    async update(incident, reference, signal) {
      const { id, over } = TicketReference.parse(reference.ref);
      const ticketState = await system.readState(id, signal);
      const isAlarmBack = over || incident.change === "retriggered";
      if (ticketState !== null && ticketState !== "open" && !isAlarmBack) return reference;
      if (ticketState === null || ticketState === "closed") return "gone";
      const noteLabels =
        chooseTicketNotePhrases(incident, isAlarmBack)?.map((name) => toOneLine(phrases[name])) ?? null;
      const ticketUpdate = { incident, reopens: ticketState === "done", noteLabels, reference };
      const ticketExists = await system.update(id, ticketUpdate, signal);
      return ticketExists ? { ...reference, ref: { id, over: false } } : "gone";
    },

    async close(incident, reference, signal) {
      const { id } = TicketReference.parse(reference.ref);
      const ticketState = await system.readState(id, signal);
      const noteLabels = [toOneLine(phrases.ended), toOneLine(phrases.lasted)];
      const ticketUpdate = { incident, reopens: false, noteLabels, reference };
      // The ticket may be closed already, by a person or by a request whose response was lost.
      const ticketExists = ticketState === "open" ? await system.close(id, ticketUpdate, signal) : ticketState !== null;
      return ticketExists ? { ...reference, ref: { id, over: true } } : "gone";
    },

    async find(incident, sinceMs, signal) {
      const [oldestTicket, ...otherTickets] = await system.search(incident, signal);
      if (oldestTicket === undefined) {
        // Use the absolute difference, so that a clock that was set back does not extend the wait.
        const remainingSearchLagMs = system.searchLagMs - Math.abs(clock.now() - sinceMs);
        return remainingSearchLagMs <= 0 ? null : { retryInMs: Math.min(remainingSearchLagMs, TICKET_SEARCH_RETRY_MS) };
      }
      const duplicateTickets = otherTickets.filter(({ isDone }) => !isDone);
      if (duplicateTickets.length > 0)
        log.warn(
          { ticket: oldestTicket.ticket, duplicates: duplicateTickets.map(({ ticket }) => ticket) },
          `an alarm has several ${system.ticketPlural}; the oldest is kept up to date`,
        );
      const duplicateTicketNote = `Duplicate of ${oldestTicket.ticket ?? oldestTicket.id}; Plenum keeps only that one up to date.`;
      for (const { id } of duplicateTickets) await system.addNote(id, duplicateTicketNote, signal);
      return toReference(oldestTicket);
    },
  };
}

function chooseTicketNotePhrases({ change }: IncidentMessage, isBack: boolean): readonly MessagePhraseName[] | null {
  if (isBack) return ["since"];
  if (change === "acknowledged") return ["acknowledgedBy", "message"];
  if (change === "recovering") return [];
  return change === "vanished" || change === "out-of-scope" ? ["unknown"] : null;
}

/** Creates a function that logs each warning once, with the first affected ticket, instead of for every alarm. */
export function createWarnOncePerMessage(log: ConnectorContext["log"], logFields: object) {
  const loggedMessages = new Set<string>();
  return (message: string, { ticket }: Pick<IncidentReference, "ticket">): void => {
    if (!loggedMessages.has(message)) log.warn({ ticket, ...logFields }, message);
    loggedMessages.add(message);
  };
}

export function mapTicketError(response: ReceiverResponse, errorText: string, origin: string, nowMs: number): Failure {
  const { status, headers } = response;
  const body = response.json === undefined ? response.body : errorText;
  const failure = httpStatusToFailure({ status, headers, body, isTruncated: false }, origin, nowMs);
  return failure ?? new Retryable(`${origin} answered ${status}.`);
}

type HttpCredentials = { readonly [name in "password" | "token"]?: SecretRef | undefined } & {
  readonly user?: string | undefined;
};

/** Returns the header for Basic (`user` with `password`) or Bearer (`token`). Reads the secret at each call. */
export function createAuthorizationReader({ user, password, token }: HttpCredentials, clock: Clock) {
  const secretRef = password ?? token;
  if (secretRef === undefined) return () => ({});
  const readSecret = secretReader(secretRef, clock);
  return (): { readonly authorization?: string } => {
    const secretText = readSecret().reveal();
    if (password !== undefined)
      return { authorization: `Basic ${Buffer.from(`${user}:${secretText}`).toString("base64")}` };
    if (/^[\x21-\x7e]+$/.test(secretText)) return { authorization: `Bearer ${secretText}` };
    const hint = "Put nothing but the token into the file or the variable.";
    throw new ConfigError("A token is one line of plain ASCII characters without blanks.", { field: "token", hint });
  };
}

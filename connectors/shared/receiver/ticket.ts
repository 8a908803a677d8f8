import { z } from "zod";
import type { ConnectorContext } from "../../../src/core/connector.ts";
import { ConfigError, type Failure, Retryable } from "../../../src/core/errors/errors.ts";
import { failureOfResponse, type ReceiverResponse } from "../../../src/core/http/outbound/request.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { cachedSecret, type SecretRef } from "../../../src/core/runtime/secret.ts";
import type { ReceiverConfig } from "./config.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "./receiver.ts";
import { choosePhrases, type PhraseName, toOneLine } from "./text.ts";

/** Time until the next search for a ticket that may exist. */
const SEARCH_RETRY_MS = 60_000;

/** Ticket system such as Jira. A `done` ticket can be reopened; a `closed` ticket cannot. */
export interface TicketSystem {
  readonly tickets: "issues" | "incidents";
  readonly idPattern: RegExp;
  /** Time after an opening during which a search may miss the ticket. */
  readonly searchLagMs: number;
  create(incident: IncidentMessage, signal: AbortSignal): Promise<Ticket>;
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
  /** True if the alarm of a done ticket is back. */
  readonly reopens: boolean;
  /** Labels of the fields in the comment; null for no comment. */
  readonly noteLabels: readonly string[] | null;
  readonly reference: IncidentReference;
}

/** A ticket that a person closed stays closed until its alarm comes back. */
export function createTicketReceiver(
  system: TicketSystem,
  config: Pick<ReceiverConfig, "language" | "words">,
  { clock, log }: Pick<ConnectorContext, "clock" | "log">,
): Pick<Receiver, "opensAgain" | "open" | "update" | "close" | "find"> {
  const words = choosePhrases(config.language, config.words);
  /** Ticket reference. `over`: the last message was the end, so a later message means that the alarm is back. */
  const Ref = z.object({ id: z.string().regex(system.idPattern), over: z.boolean() });
  const toReference = ({ id, ticket, link }: Ticket): IncidentReference => ({ ref: { id, over: false }, ticket, link });

  return {
    opensAgain: "findable",

    open: async (incident, signal) => toReference(await system.create(incident, signal)),

    async update(incident, reference, signal) {
      const { id, over } = Ref.parse(reference.ref);
      const state = await system.readState(id, signal);
      const isBack = over || incident.change === "retriggered";
      if (state !== null && state !== "open" && !isBack) return reference;
      if (state === null || state === "closed") return "gone";
      const noteLabels = chooseNotePhrases(incident, isBack)?.map((name) => toOneLine(words[name])) ?? null;
      const update = { incident, reopens: state === "done", noteLabels, reference };
      const exists = await system.update(id, update, signal);
      return exists ? { ...reference, ref: { id, over: false } } : "gone";
    },

    async close(incident, reference, signal) {
      const { id } = Ref.parse(reference.ref);
      const state = await system.readState(id, signal);
      const noteLabels = [toOneLine(words.ended), toOneLine(words.lasted)];
      const update = { incident, reopens: false, noteLabels, reference };
      // A person, or a request with a lost response, may have closed it already.
      const exists = state === "open" ? await system.close(id, update, signal) : state !== null;
      return exists ? { ...reference, ref: { id, over: true } } : "gone";
    },

    async find(incident, sinceMs, signal) {
      const [first, ...others] = await system.search(incident, signal);
      if (first === undefined) {
        // A clock that was set back must not extend the wait.
        const leftMs = system.searchLagMs - Math.abs(clock.now() - sinceMs);
        return leftMs <= 0 ? null : { againInMs: Math.min(leftMs, SEARCH_RETRY_MS) };
      }
      const duplicates = others.filter(({ isDone }) => !isDone);
      if (duplicates.length > 0)
        log.warn(
          { ticket: first.ticket, duplicates: duplicates.map(({ ticket }) => ticket) },
          `an alarm has several ${system.tickets}; the oldest is kept up to date`,
        );
      const note = `Duplicate of ${first.ticket ?? first.id}; Plenum keeps only that one up to date.`;
      for (const { id } of duplicates) await system.addNote(id, note, signal);
      return toReference(first);
    },
  };
}

function chooseNotePhrases({ change }: IncidentMessage, isBack: boolean): readonly PhraseName[] | null {
  if (isBack) return ["since"];
  if (change === "acknowledged") return ["acknowledgedBy", "message"];
  if (change === "recovering") return [];
  return change === "vanished" || change === "out-of-scope" ? ["unknown"] : null;
}

/** Creates a function that logs each warning only once, instead of for every alarm. */
export function createWarnOnce(log: ConnectorContext["log"]): (message: string, fields: object) => void {
  const logged = new Set<string>();
  return (message, fields) => {
    if (!logged.has(message)) log.warn(fields, message);
    logged.add(message);
  };
}

/** Maps a response with the error text of a ticket system. */
export function mapTicketError(response: ReceiverResponse, errorText: string, origin: string, nowMs: number): Failure {
  const { status, headers } = response;
  const body = response.json === undefined ? response.body : errorText;
  const failure = failureOfResponse({ status, headers, body, isCut: false }, origin, nowMs);
  return failure ?? new Retryable(`${origin} answered ${status}.`);
}

interface HttpCredentials {
  readonly user?: string | undefined;
  readonly password?: SecretRef | undefined;
  readonly token?: SecretRef | undefined;
}

/** Returns the header for Basic (`user` with `password`) or Bearer (`token`). Reads the secret at each call. */
export function createAuthorization(options: HttpCredentials, clock: Clock): () => { readonly authorization?: string } {
  const { user, password, token } = options;
  const secretRef = password ?? token;
  if (secretRef === undefined) return () => ({});
  const secret = cachedSecret(secretRef, clock);
  return () => {
    const text = secret().reveal();
    if (password !== undefined) return { authorization: `Basic ${Buffer.from(`${user}:${text}`).toString("base64")}` };
    if (/^[\x21-\x7e]+$/.test(text)) return { authorization: `Bearer ${text}` };
    const hint = "Put nothing but the token into the file or the variable.";
    throw new ConfigError("A token is one line of plain ASCII characters without blanks.", { field: "token", hint });
  };
}

import { createHash } from "node:crypto";
import type { Alarm, Priority, Site } from "../../../src/core/model/building.ts";
import type { IncidentText } from "./text.ts";

/**
 * What one alarm is at a receiver: one ticket, one thread, one page. So is a gateway that explains the alarms behind it,
 * and a storm of alarms that are told together. It is opened once, edited in place, and closed when the service says
 * that it is over.
 */
export interface Incident {
  /** The same for the same episode, always and everywhere: 32 hexadecimal digits. */
  readonly key: string;
  readonly kind: "alarm" | "gateway" | "storm" | "test";
  readonly status: IncidentStatus;
  /** What happened last; `members` that something did to what is folded into it. */
  readonly change: Change;
  /** Of the event that said so, for request keys and message ids. */
  readonly changeId: string;
  /** Name of the source. */
  readonly source: string;
  /** Null where it concerns several sites. */
  readonly site: Site | null;
  /** Of several alarms the most urgent. */
  readonly priority: Priority;
  /** ISO 8601 UTC, or as the service gave it without an offset. */
  readonly startedAt: string;
  readonly endedAt: string | null;
  /** Null where it is not one alarm. */
  readonly alarm: Alarm | null;
  /** The gateway that it is about, or that explains it. */
  readonly gateway: { readonly id: string; readonly displayName: string } | null;
  readonly members: Members;
  /** Address of the status page's view of it; null when none is configured. */
  readonly link: string | null;
}

/**
 * `unknown`: it vanished or went out of sight, so nobody knows whether it is over. That closes nothing.
 */
export type IncidentStatus = "active" | "acknowledged" | "recovering" | "unknown" | "resolved";

export type Change =
  | "raised"
  | "retriggered"
  | "acknowledged"
  | "unacknowledged"
  | "recovering"
  | "changed"
  | "vanished"
  | "out-of-scope"
  | "resolved"
  | "members";

/** What is folded into an incident; of an alarm by itself none. */
export interface Members {
  readonly total: number;
  readonly active: number;
  /** The most urgent of those that are active, then the latest that are over; at most 20. */
  readonly shown: readonly Member[];
}

export interface Member {
  readonly title: string;
  readonly site: string;
  readonly priority: Priority;
  readonly status: IncidentStatus;
  readonly startedAt: string;
  readonly endedAt: string | null;
}

/** The key of what an episode, a gateway's absence or a storm is at every receiver. */
export function incidentKey(source: string, kind: Incident["kind"], episode: string): string {
  return createHash("sha256")
    .update(JSON.stringify([source, kind, episode]))
    .digest("hex")
    .slice(0, 32);
}

/** An incident and what is to be read of it, in the language of the sink. */
export interface IncidentMessage extends Incident {
  readonly text: IncidentText;
}

/** Where an incident is at the receiver. */
export interface IncidentReference {
  /** What the receiver's later calls need, such as an id. Anything that JSON can say. */
  readonly ref: unknown;
  /** What people call it there, such as `FM-1234`; null where it has no name. */
  readonly ticket: string | null;
  /** https address of it; null where the answer carries none. */
  readonly link: string | null;
}

/** Not known yet: it is to be looked for again after so many milliseconds. */
interface SearchLater {
  readonly againInMs: number;
}

/** What a receiver is called for. */
export type Call = "open" | "update" | "close" | "find";

/** A documented limit of a receiver: at most `count` calls in any `inMs` milliseconds, e.g. 4 in 1,000. */
export interface Rate {
  readonly count: number;
  readonly inMs: number;
  /** The calls that count; all of them without this. */
  readonly of?: readonly Call[];
}

/**
 * One foreign system that people look at. `createReceiverSink` makes a sink of it and owns all that is hard: which
 * incident an event is about, folding, waiting, what was opened already, and what a crash may have left in doubt. So a
 * receiver only says things, one at a time.
 *
 * What a call throws means what it means of a sink's `write`; in particular `Retryable` and `Throttled` of the scope
 * `everything` say that the call may have been carried out all the same, any other failure that it was not.
 */
export interface Receiver {
  /**
   * What opening again with the same key makes: `same` the same thing, `findable` a second one, though `find` tells,
   * `another` a second one, and nobody can know.
   */
  readonly opensAgain: "same" | "findable" | "another";
  /**
   * What tells it from others there where that is more than the key, such as labels. It is written down before the
   * opening leaves and handed to `open`, so that one that is said again opens the same. Anything that JSON can say.
   */
  identify?(incident: IncidentMessage): unknown;
  /** Opens it: pages, posts, creates. */
  open(incident: IncidentMessage, signal: AbortSignal, identity?: unknown): Promise<IncidentReference>;
  /**
   * Says what is new of what is open there, without calling people once more. A receiver that cannot, or that would
   * open again what a person closed, does nothing. `gone`: it is not there any more.
   */
  update(
    incident: IncidentMessage,
    reference: IncidentReference,
    signal: AbortSignal,
  ): Promise<IncidentReference | "gone">;
  /** Says that it is over, and closes it. `gone`: it is not there any more, or somebody has closed it. */
  close(
    incident: IncidentMessage,
    reference: IncidentReference,
    signal: AbortSignal,
  ): Promise<IncidentReference | "gone">;
  /**
   * Looks for what an opening in doubt may have made; null when there surely is nothing. A receiver whose search lags
   * behind says when it may be sure; only this incident waits for that. `sinceMs`: when the opening began, milliseconds
   * since 1970.
   */
  find?(
    incident: IncidentMessage,
    sinceMs: number,
    signal: AbortSignal,
  ): Promise<IncidentReference | SearchLater | null>;
  /** The documented limits of the receiver; the sink keeps to them, beside what an answer orders. */
  readonly rates?: readonly Rate[];
  /** Says again what is open after so many milliseconds although nothing is new, where the far end forgets. */
  readonly repeatMs?: number;
  /** For so many milliseconds after an end `close` is repeated as well. */
  readonly repeatClosedMs?: number;
  /** Proves that the far end would accept us, without posting anything. */
  probe(signal: AbortSignal): Promise<void>;
  /** Tells one far end from another; see `Sink`. */
  readonly farEnd?: string;
  /** When a call last got a step further; see `Sink`. */
  lastStepMs?(): number;
  /** Frees what it holds; may be called more than once. */
  dispose(): Promise<void>;
}

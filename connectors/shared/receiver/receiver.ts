import { createHash } from "node:crypto";
import type { Alarm, Priority, Site } from "../../../src/core/model/building.ts";

/**
 * One alarm at a receiver: one ticket, thread or page. A gateway with the alarms behind it, and a storm, are incidents
 * too. An incident is opened once, edited in place, and closed when the service reports the end.
 */
export interface Incident {
  /** Stable for the episode: 32 hexadecimal digits. */
  readonly key: string;
  readonly kind: "alarm" | "gateway" | "storm" | "test";
  readonly status: IncidentStatus;
  /** Last change; `members` for a change of a folded alarm. */
  readonly change: Change;
  /** Id of the event that caused the change, for request keys and message ids. */
  readonly changeId: string;
  /** Name of the source. */
  readonly source: string;
  /** Null for several sites. */
  readonly site: Site | null;
  /** Priority; of a group the most urgent one. */
  readonly priority: Priority;
  /** ISO 8601 UTC, or as the service gave it without an offset. */
  readonly startedAt: string;
  readonly endedAt: string | null;
  /** Null for a group. */
  readonly alarm: Alarm | null;
  /** The offline gateway that is the incident or explains it. */
  readonly gateway: { readonly id: string; readonly displayName: string } | null;
  readonly members: Members;
  /** Address of the status page's view of it; null when none is configured. */
  readonly link: string | null;
}

/** `unknown`: the alarm vanished or is no longer visible to the token. That closes nothing. */
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

/** Members of a group; empty for one alarm. */
export interface Members {
  readonly total: number;
  readonly active: number;
  /** Active members by priority, then the last ended ones; at most 20. */
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

/** Returns the key of an incident, the same at every receiver. */
export function incidentKey(source: string, kind: Incident["kind"], episode: string): string {
  return createHash("sha256")
    .update(JSON.stringify([source, kind, episode]))
    .digest("hex")
    .slice(0, 32);
}

/**
 * Text of an incident: plain, neither escaped nor cut. Each receiver escapes it for its format and shortens it with
 * `cut`.
 */
export interface IncidentText {
  /** One line without the status; stable for the life of the incident. */
  readonly title: string;
  /** The status in words. */
  readonly status: string;
  /** Labels and texts in reading order; a text may have several lines. */
  readonly fields: readonly { readonly label: string; readonly text: string }[];
  /** One line for each member, where there are any. */
  readonly list: readonly string[];
  /**
   * Time series: a heading with the time of the last value, then one line for each tag. They contain block characters
   * for a fixed-width font. Receivers drop them first when space is short.
   */
  readonly curves: readonly string[];
  /** Text of the link. */
  readonly linkText: string;
}

/** An incident with its text in the language of the sink. */
export interface IncidentMessage extends Incident {
  readonly text: IncidentText;
}

/** Reference to an incident at the receiver. */
export interface IncidentReference {
  /** Data for later calls, such as an id; any JSON value. */
  readonly ref: unknown;
  /** Visible name, such as `FM-1234`; null without one. */
  readonly ticket: string | null;
  /** https address; null when the response has none. */
  readonly link: string | null;
}

/** The search is not conclusive yet: search again after this time. */
interface SearchLater {
  readonly againInMs: number;
}

/** Kinds of calls. */
export type Call = "open" | "update" | "close" | "find";

/** A documented limit of a receiver: at most `count` calls in any `inMs` milliseconds, e.g. 4 in 1,000. */
export interface Rate {
  readonly count: number;
  readonly inMs: number;
  /** Calls that count; all by default. */
  readonly of?: readonly Call[];
}

/**
 * A foreign system that shows incidents to people. `createReceiverSink` turns it into a sink and owns folding, timing,
 * retries and recovery after a crash. A receiver only sends one message at a time.
 *
 * Errors have the same meaning as errors of `Sink.write`. After `Retryable`, or `Throttled` with scope `everything`,
 * the call may have succeeded; after any other error it did not.
 */
export interface Receiver {
  /**
   * Result of a second opening with the same key: `same` incident; a `findable` duplicate that `find` detects; or
   * `another` one that cannot be detected.
   */
  readonly opensAgain: "same" | "findable" | "another";
  /**
   * Identity at the receiver where the key is not enough, such as labels; any JSON value. The sink stores it before
   * the opening, so that a repeated opening uses the same identity.
   */
  identify?(incident: IncidentMessage): unknown;
  /** Opens the incident: pages, posts, creates. */
  open(incident: IncidentMessage, signal: AbortSignal, identity?: unknown): Promise<IncidentReference>;
  /**
   * Updates an open incident without paging again. Does nothing where the receiver cannot, or where it would reopen
   * what a person closed. `gone`: the incident no longer exists.
   */
  update(
    incident: IncidentMessage,
    reference: IncidentReference,
    signal: AbortSignal,
  ): Promise<IncidentReference | "gone">;
  /** Closes the incident. `gone`: it no longer exists, or a person closed it. */
  close(
    incident: IncidentMessage,
    reference: IncidentReference,
    signal: AbortSignal,
  ): Promise<IncidentReference | "gone">;
  /**
   * Searches for the result of an opening that may have succeeded; null when it certainly did not. `sinceMs`: start of
   * the opening, milliseconds since 1970.
   */
  find?(
    incident: IncidentMessage,
    sinceMs: number,
    signal: AbortSignal,
  ): Promise<IncidentReference | SearchLater | null>;
  /** Documented limits of the receiver; the sink keeps to them in addition to Retry-After. */
  readonly rates?: readonly Rate[];
  /** Repeats open incidents after this time, for receivers that forget them. */
  readonly repeatMs?: number;
  /** Repeats `close` for this time after the end. */
  readonly repeatClosedMs?: number;
  /** Checks access without posting anything. */
  probe(signal: AbortSignal): Promise<void>;
  /** Identity of the endpoint; see `Sink`. */
  readonly farEnd?: string;
  /** Time of the last progress of a call; see `Sink`. */
  lastStepMs?(): number;
  /** Frees resources; may be called more than once. */
  dispose(): Promise<void>;
}

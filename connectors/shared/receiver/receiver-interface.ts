import { hash } from "node:crypto";
import type { Alarm, AlarmPriority, Site } from "../../../src/core/model/building.ts";

/** Incident at a receiver (ticket, thread or page): one alarm, an offline gateway with its alarms, or a storm. */
export interface Incident {
  /** Key of the incident, stable for the episode: 32 hexadecimal digits. */
  readonly key: string;
  readonly kind: "alarm" | "gateway" | "storm" | "test";
  readonly status: IncidentStatus;
  readonly change: IncidentChangeKind;
  /** Id of the event that changed the incident, for request keys and message ids. */
  readonly changeId: string;
  readonly source: string;
  readonly site: Site | null;
  readonly priority: AlarmPriority;
  /** Start in ISO 8601: UTC, or the text of the service if it has no offset. */
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly alarm: Alarm | null;
  readonly gateway: { readonly id: string; readonly displayName: string } | null;
  readonly members: IncidentMemberSummary;
  /** Link to the status page; null if its address is not configured. */
  readonly link: string | null;
}

/** Status of an incident. `unknown`: the alarm vanished or is no longer visible; the incident stays open. */
export type IncidentStatus = "active" | "acknowledged" | "recovering" | "unknown" | "resolved";

export type IncidentChangeKind =
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

export interface IncidentMemberSummary {
  readonly total: number;
  readonly active: number;
  /** At most 20 members: active members by priority, then the members that ended last. */
  readonly shown: readonly IncidentGroupMember[];
}

export interface IncidentGroupMember {
  readonly title: string;
  readonly site: string;
  readonly priority: AlarmPriority;
  readonly status: IncidentStatus;
  readonly startedAt: string;
  readonly endedAt: string | null;
}

export const computeIncidentKey = (source: string, kind: Incident["kind"], episode: string): string =>
  hash("sha256", JSON.stringify([source, kind, episode])).slice(0, 32);

export interface IncidentText {
  /** Title in one line, without the status; does not change while the incident exists. */
  readonly title: string;
  readonly status: string;
  /** Labelled texts in reading order; a text may have several lines. */
  readonly fields: readonly { readonly label: string; readonly text: string }[];
  readonly list: readonly string[];
  /** Time series: a heading and one line per tag, for a fixed-width font. Dropped first when space is short. */
  readonly timeSeriesLines: readonly string[];
  readonly linkText: string;
}

export interface IncidentMessage extends Incident {
  readonly text: IncidentText;
}

export interface IncidentReference {
  /** Receiver's data for later calls, such as an id; any JSON value. */
  readonly ref: unknown;
  readonly ticket: string | null;
  readonly link: string | null;
}

export type ReceiverCall = "open" | "update" | "close" | "find";

/** Rate limit: at most `count` calls in any `windowMs` milliseconds, e.g. 4 in 1,000. */
export interface RateLimit {
  readonly count: number;
  readonly windowMs: number;
  /** Kinds of calls that the limit counts; absent for all kinds. */
  readonly limitedCalls?: readonly ReceiverCall[];
}

/** Updates or closes an incident. Returns `gone` if the incident no longer exists or a person closed it. */
type ChangeIncident = (
  incident: IncidentMessage,
  reference: IncidentReference,
  signal: AbortSignal,
) => Promise<IncidentReference | "gone">;

/** Receiver of alarms. A call that throws `Retryable`, or `Throttled` with scope `everything`, may have succeeded. */
export interface AlarmReceiver {
  /** Effect of a second `open` call for a key: the `same` incident, a duplicate that `find` finds, or `another` one. */
  readonly repeatedOpenEffect: "same" | "findable" | "another";
  /** Returns data, such as labels, that identifies the incident in addition to its key. Stored before `open`. */
  identify?(incident: IncidentMessage): unknown;
  open(incident: IncidentMessage, signal: AbortSignal, identity?: unknown): Promise<IncidentReference>;
  /** Updates an incident without paging again. Never reopens an incident that a person closed. */
  update: ChangeIncident;
  close: ChangeIncident;
  /** Searches for an incident that an `open` call at `sinceMs` may have created. Returns null if the call did not. */
  find?(
    incident: IncidentMessage,
    sinceMs: number,
    signal: AbortSignal,
  ): Promise<IncidentReference | { readonly retryInMs: number } | null>;
  /** Documented rate limits, which the sink obeys in addition to Retry-After. */
  readonly rates?: readonly RateLimit[];
  /** Interval for sending an unchanged incident again, for receivers that expire alerts; absent for never. */
  readonly resendIntervalMs?: number;
  /** Time after the end of an alarm during which the sink sends the ended incident again. */
  readonly resendAfterCloseMs?: number;
  probe(signal: AbortSignal): Promise<void>;
  readonly serverId?: string;
  progressMs?(): number;
  dispose(): Promise<void>;
}

import { createHash } from "node:crypto";
import type { Alarm, Priority, Site } from "../../../src/core/model/building.ts";

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

import type { Alarm, AlarmPriority, Site } from "../../../src/core/model/building.ts";
import {
  computeIncidentKey,
  type Incident,
  type IncidentChangeKind,
  type IncidentGroupMember,
  type IncidentMemberSummary,
  type IncidentReference,
  type IncidentStatus,
} from "./receiver-interface.ts";

/** Stored incident: facts from events, the last state sent to the receiver, and a request in progress. */
export interface StoredIncident {
  readonly kind: Incident["kind"];
  readonly source: string;
  readonly episode: string;
  readonly site: Site | null;
  readonly alarm: Alarm | null;
  readonly gateway: Incident["gateway"];
  readonly priority: AlarmPriority;
  readonly status: IncidentStatus;
  readonly change: IncidentChangeKind;
  readonly changeId: string;
  readonly startedAt: string;
  readonly endedAt: string | null;
  readonly retriggers: number;
  /** Key of the group (gateway outage or storm) that the alarm belongs to; null for none. */
  readonly into: string | null;
  /** Time at which the sink received the first event of the incident. */
  readonly metMs: number;
  readonly changedMs: number;
  /** Time at which the delay of the option `hold` begins. */
  readonly holdFromMs: number;
  /** Set if alarms are still active after their gateway came back: deadline for their end; data of `gateway-online`. */
  readonly settling?: { readonly untilMs: number; readonly time: string; readonly changeId: string };
  /** Position in the event log of the last applied event. */
  readonly through: number;
  /** Wall time of a request to open the incident, while its result is unknown. */
  readonly openingMs: number | null;
  /** Data that identifies the incident at the receiver; absent if the incident key is enough. */
  readonly openingAs?: unknown;
  /** Time of the next search at the receiver for an incident whose creation got no reply. */
  readonly lookAtMs?: number;
  /** State that was last sent to the receiver; null before the first message. */
  readonly told: SentIncidentState | null;
  /** Lines of the sent time series, and how often the alarm had come back when the sink built these lines. */
  readonly curves?: { readonly retriggers: number; readonly lines: readonly string[] };
  /** Digest of a message that the receiver rejected. The sink resends the same message only after a new event. */
  readonly refused?: string;
}

export interface SentIncidentState {
  /** Reference of the incident at the receiver, such as the ticket. */
  readonly place: IncidentReference;
  readonly status: IncidentStatus;
  readonly retriggers: number;
  readonly digest: string;
  readonly isClosed: boolean;
  /** True if the result of a request to close or reopen the incident is unknown. */
  readonly isInDoubt?: true;
  readonly atMs: number;
}

/** Limits stored times to now: the wall clock may have been set back while the worker was stopped. */
export function clampIncidentTimes(storedIncident: StoredIncident, nowMs: number): StoredIncident {
  const { told, openingMs, lookAtMs, ...otherFields } = storedIncident;
  const latestStoredMs = Math.max(
    storedIncident.metMs,
    storedIncident.changedMs,
    storedIncident.holdFromMs,
    told?.atMs ?? 0,
    openingMs ?? 0,
  );
  if (latestStoredMs <= nowMs) return storedIncident;
  const clampTimeToNow = (ms: number) => Math.min(ms, nowMs);
  return {
    ...otherFields,
    openingMs,
    metMs: clampTimeToNow(storedIncident.metMs),
    changedMs: clampTimeToNow(storedIncident.changedMs),
    holdFromMs: clampTimeToNow(storedIncident.holdFromMs),
    told: told === null ? null : { ...told, atMs: clampTimeToNow(told.atMs) },
  };
}

export function createStoredIncident(
  kind: Incident["kind"],
  source: string,
  episode: string,
  incidentFields: Pick<
    StoredIncident,
    "priority" | "change" | "changeId" | "startedAt" | "metMs" | "holdFromMs" | "changedMs" | "through"
  > &
    Partial<StoredIncident>,
): StoredIncident {
  return {
    ...{ kind, source, episode, site: null, alarm: null, gateway: null, status: "active", endedAt: null },
    ...{ retriggers: 0, into: null, openingMs: null, told: null },
    ...incidentFields,
  };
}

export type IncidentLedger = Map<string, StoredIncident>;

export const getIncidentKey = ({ source, kind, episode }: Pick<StoredIncident, "source" | "kind" | "episode">) =>
  computeIncidentKey(source, kind, episode);

export const isResolved = ({ status }: Pick<StoredIncident, "status">) => status === "resolved";

const MAX_LISTED_GROUP_MEMBERS = 20;

export const findMembers = (ledger: IncidentLedger, groupKey: string): readonly StoredIncident[] =>
  [...ledger.values()].filter(({ into }) => into === groupKey);

export function toIncident(
  key: string,
  storedIncident: StoredIncident,
  ledger: IncidentLedger,
  statusUrl: string | undefined,
): Incident {
  const { kind, source, site, alarm, gateway, status, changeId, startedAt, endedAt } = storedIncident;
  const groupMembers =
    storedIncident.kind === "gateway" || storedIncident.kind === "storm" ? findMembers(ledger, key) : [];
  return {
    ...{ key, kind, source, site, alarm, gateway, status, changeId, startedAt, endedAt },
    priority:
      [storedIncident.priority, ...groupMembers.map(({ priority }) => priority)].sort()[0] ?? storedIncident.priority,
    change: findChangeSinceSent(storedIncident),
    members: summarizeGroupMembers(groupMembers),
    link: statusUrl === undefined ? null : buildStatusPageLink(statusUrl, storedIncident),
  };
}

function findChangeSinceSent({ told, status, retriggers, change }: StoredIncident): IncidentChangeKind {
  if (told === null || status === "resolved" || status === "unknown") return change;
  if (retriggers !== told.retriggers || told.isClosed || told.isInDoubt) return "retriggered";
  if (status === told.status) return change === "members" ? "members" : "changed";
  if (status === "acknowledged" || status === "recovering") return status;
  return told.status === "acknowledged" ? "unacknowledged" : "changed";
}

function summarizeGroupMembers(members: readonly StoredIncident[]): IncidentMemberSummary {
  const sortedMembers = members.toSorted(
    (a, b) =>
      Number(isResolved(a)) - Number(isResolved(b)) ||
      (isResolved(a) ? 0 : a.priority.localeCompare(b.priority)) ||
      b.startedAt.localeCompare(a.startedAt) ||
      a.episode.localeCompare(b.episode),
  );
  return {
    total: members.length,
    active: members.filter((member) => !isResolved(member)).length,
    shown: sortedMembers.slice(0, MAX_LISTED_GROUP_MEMBERS).map(toGroupMember),
  };
}

function toGroupMember({ alarm, site, priority, status, startedAt, endedAt }: StoredIncident): IncidentGroupMember {
  const memberTitle = alarm?.trigger.displayName || alarm?.description || alarm?.id || "";
  return { title: memberTitle, site: site?.displayName ?? "", priority, status, startedAt, endedAt };
}

function buildStatusPageLink(statusUrl: string, { alarm, source }: StoredIncident): string {
  const url = new URL(statusUrl);
  if (alarm !== null) url.hash = `alarm/${encodeURIComponent(source)}/${encodeURIComponent(alarm.id)}`;
  return url.href;
}

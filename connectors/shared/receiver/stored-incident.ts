import type { Alarm, Priority, Site } from "../../../src/core/model/building.ts";
import {
  type Change,
  type Incident,
  type IncidentReference,
  type IncidentStatus,
  incidentKey,
  type Member,
  type Members,
} from "./receiver.ts";

/**
 * What a sink remembers of an incident, by its key: what is true, what the receiver was told of it, and what may be on
 * its way there. The difference between the first two is what there is to do, however many events made it.
 */
export interface StoredIncident {
  readonly kind: Incident["kind"];
  readonly source: string;
  readonly episode: string;
  readonly site: Site | null;
  readonly alarm: Alarm | null;
  readonly gateway: Incident["gateway"];
  readonly priority: Priority;
  readonly status: IncidentStatus;
  readonly change: Change;
  readonly changeId: string;
  readonly startedAt: string;
  readonly endedAt: string | null;
  /** How often it came back after it had been over, or was triggered again while it was active. */
  readonly retriggers: number;
  /** Key of what it is folded into; null where it stands by itself. */
  readonly into: string | null;
  /**
   * When it came to stand by itself, and when something last happened to it, milliseconds since 1970. As all times here
   * but `openingMs`, by a clock that does not go back.
   */
  readonly metMs: number;
  readonly changedMs: number;
  /** Since when its `hold` is counted; of a list that of the alarm which it began with. */
  readonly holdFromMs: number;
  /**
   * Of a gateway that is back while alarms behind it are active: until when they may end with it, milliseconds since 1970,
   * and when it came back, UTC, by which event. Absent otherwise.
   */
  readonly settling?: { readonly untilMs: number; readonly time: string; readonly changeId: string };
  /** Position in the log of the last event that counted for it. */
  readonly through: number;
  /**
   * Since when an opening is on its way, by the wall clock, so that it may be there although nobody knows; null when none
   * is.
   */
  readonly openingMs: number | null;
  /** Of an opening on its way: what tells it from others there; absent where the receiver needs only the key. */
  readonly openingAs?: unknown;
  /** Of an opening in doubt: when it is looked for again, milliseconds since 1970. */
  readonly lookAtMs?: number;
  /** Null while the receiver knows nothing of it. */
  readonly told: SentState | null;
  /** How the values went, as it was told at the opening or when it came back so often; absent where nothing was read. */
  readonly curves?: { readonly retriggers: number; readonly lines: readonly string[] };
  /** What the receiver refused for good, as a digest: the same is not said again unasked. */
  readonly refused?: string;
}

export interface SentState {
  readonly place: IncidentReference;
  readonly status: IncidentStatus;
  readonly retriggers: number;
  /** Of what was said last. */
  readonly digest: string;
  readonly isClosed: boolean;
  /** Its end or its return was on its way, so that nobody knows whether it is closed there; absent where somebody does. */
  readonly isInDoubt?: true;
  /** When it was said, milliseconds since 1970. */
  readonly atMs: number;
}

/**
 * As it is remembered from before: the wall clock may have been set back meanwhile, and nothing waits for a time to come
 * again. Of an opening in doubt the receiver says once more when it is to be looked for.
 */
export function clampTimes(stored: StoredIncident, nowMs: number): StoredIncident {
  const { told, openingMs, lookAtMs, ...rest } = stored;
  const latestMs = Math.max(
    stored.metMs,
    stored.changedMs,
    stored.holdFromMs,
    told?.atMs ?? 0,
    openingMs ?? 0,
  );
  if (latestMs <= nowMs) return stored;
  const upTo = (ms: number) => Math.min(ms, nowMs);
  return {
    ...rest,
    openingMs,
    metMs: upTo(stored.metMs),
    changedMs: upTo(stored.changedMs),
    holdFromMs: upTo(stored.holdFromMs),
    told: told === null ? null : { ...told, atMs: upTo(told.atMs) },
  };
}

/** All incidents that a sink remembers. */
export type IncidentLedger = Map<string, StoredIncident>;

export const keyOf = ({ source, kind, episode }: Pick<StoredIncident, "source" | "kind" | "episode">) =>
  incidentKey(source, kind, episode);

export const isOver = ({ status }: Pick<StoredIncident, "status">) => status === "resolved";

const SHOWN_MEMBERS = 20;

export function membersOf(ledger: IncidentLedger, key: string): readonly StoredIncident[] {
  return [...ledger.values()].filter(({ into }) => into === key);
}

/** What is to be said of an incident now. */
export function incidentOf(
  key: string,
  stored: StoredIncident,
  ledger: IncidentLedger,
  statusUrl: string | undefined,
): Incident {
  const { kind, source, site, alarm, gateway, status, changeId, startedAt, endedAt } = stored;
  const folded = stored.kind === "gateway" || stored.kind === "storm" ? membersOf(ledger, key) : [];
  return {
    ...{ key, kind, source, site, alarm, gateway, status, changeId, startedAt, endedAt },
    priority: [stored.priority, ...folded.map(({ priority }) => priority)].sort()[0] ?? stored.priority,
    change: changeSince(stored),
    members: shown(folded),
    link: statusUrl === undefined ? null : linkTo(statusUrl, stored),
  };
}

/** What happened since the receiver was told, which may be several things: the one that people have to know. */
function changeSince({ told, status, retriggers, change }: StoredIncident): Change {
  if (told === null || status === "resolved" || status === "unknown") return change;
  if (retriggers !== told.retriggers || told.isClosed || told.isInDoubt) return "retriggered";
  if (status === told.status) return change === "members" ? "members" : "changed";
  if (status === "acknowledged" || status === "recovering") return status;
  return told.status === "acknowledged" ? "unacknowledged" : "changed";
}

function shown(folded: readonly StoredIncident[]): Members {
  const rank = (member: StoredIncident) => (isOver(member) ? 1 : 0);
  const sorted = [...folded].sort(
    (a, b) =>
      rank(a) - rank(b) ||
      (isOver(a) ? 0 : a.priority.localeCompare(b.priority)) ||
      b.startedAt.localeCompare(a.startedAt) ||
      a.episode.localeCompare(b.episode),
  );
  return {
    total: folded.length,
    active: folded.filter((member) => !isOver(member)).length,
    shown: sorted.slice(0, SHOWN_MEMBERS).map(memberOf),
  };
}

function memberOf({ alarm, site, priority, status, startedAt, endedAt }: StoredIncident): Member {
  const title = alarm?.trigger.displayName || alarm?.description || alarm?.id || "";
  return { title, site: site?.displayName ?? "", priority, status, startedAt, endedAt };
}

function linkTo(statusUrl: string, { alarm, source }: StoredIncident): string {
  const url = new URL(statusUrl);
  if (alarm !== null) url.hash = `alarm/${encodeURIComponent(source)}/${encodeURIComponent(alarm.id)}`;
  return url.href;
}

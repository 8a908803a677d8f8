import type { Tag } from "../../core/model/building.ts";
import type { CommandResult } from "../../core/model/command-facts.ts";
import type { Kind } from "../../core/model/event.ts";
import type { HistoryGap } from "../../engine/sync/history/progress.ts";
import type {
  StoredAlarm,
  StoredHistory,
  StoredLeftOut,
  StoredPoll,
  StoredQuarantine,
  StoredValue,
} from "../../engine/sync/snapshot.ts";
import type { Ticket } from "../../engine/views/tickets.ts";
import type { TagWork } from "../../ui/operator/work.ts";

/** Everything that the state and a running worker know about one tag. */
export interface TagExplanation {
  readonly source: string;
  readonly tag: Tag;
  readonly siteId: number | null;
  readonly missingSince: string | null;
  readonly value: StoredValue | null;
  readonly quarantine: StoredQuarantine | null;
  /** Why the replies have no usable value of it; null while they have one. */
  readonly leftOut: StoredLeftOut | null;
  /** Null when no worker answers: what is due and what was asked last only a worker knows. */
  readonly work: TagWork | null;
  readonly worker: WorkerThere;
  /** `fetchedSince`: from then on everything up to the watermark is had. */
  readonly history: readonly {
    readonly key: string;
    readonly held: StoredHistory;
    readonly hadSince: string;
  }[];
  /** What is not had of it, and what was answered without a value, with the reason. */
  readonly holes: readonly HistoryGap[];
  readonly sinks: readonly SinkPlace[];
  readonly commands: readonly CommandResult[];
}

export interface AlarmExplanation {
  readonly source: string;
  readonly held: StoredAlarm;
  /** What the log still has of it, newest first, at most 50. */
  readonly told: readonly { readonly time: string; readonly type: Kind; readonly late: boolean }[];
  readonly polls: readonly (StoredPoll & { readonly job: string; readonly nextAt: string | null })[];
  readonly worker: WorkerThere;
  readonly sinks: readonly SinkPlace[];
  /** Where people find it at the receivers. */
  readonly tickets: readonly Ticket[];
}

/** Where a sink is, seen from the last event of the thing. */
export interface SinkPlace {
  readonly sink: string;
  /** `settled`: delivered, or left out by the sink's filter. Null when the log holds no event of the thing. */
  readonly last: "settled" | "waiting" | "refused" | null;
  /** Events that it will get still; at most so many where `exact` is false. */
  readonly behind: number;
  readonly exact: boolean;
}

/** `silent`: a worker is there and does not answer in time, so that what it alone knows is missing. */
export type WorkerThere = "open" | "none" | "silent";

import type { Clock } from "../../core/runtime/clock.ts";
import { createCache, WATCHED_MS } from "./cached-documents.ts";
import type { Status, StatusHealth } from "./report.ts";
import type { LiveSink } from "./sinks.ts";
import type { SourceHealth } from "./sources.ts";
import { type CommitTrouble, isFull } from "./state-health.ts";

/**
 * Response of `/readyz`: the worker is ready when polls are not late, the state accepts writes, and no sink is blocked for long. It
 * needs no password, so it contains names and no texts of other systems.
 */
export interface Readiness {
  readonly ready: boolean;
  /** Empty when it is ready. */
  readonly reasons: readonly NotReady[];
  /** Incomplete parts that do not affect readiness; absent when all is complete. */
  readonly notes?: readonly string[];
}

interface NotReady {
  readonly reason: "starting-or-stopping" | "poll-late" | "commit-failed" | "disk-full" | "sink-blocked";
  /** `source/campus/alarms`, `sink/lake`, `state`, `worker`. */
  readonly subject: string;
  /** One sentence for people. */
  readonly message: string;
}

/** Time for which a sink may be blocked before the worker stops being ready, in milliseconds; see docs/operations.md. */
export const SINK_BLOCKED_MS = 10 * 60_000;
/** States of sinks that are not blocked. */
const UNBLOCKED: readonly string[] = ["idle", "delivering", "starting"];

export function createReadiness(options: {
  readonly clock: Clock;
  readonly health: Status["health"];
  /** False before everything has started, and from the beginning of a stop on. */
  readonly isRunning: () => boolean;
  readonly commitTrouble: () => CommitTrouble | null;
}): () => Promise<Readiness> {
  const { clock, isRunning, commitTrouble } = options;
  // Clients without a password may request this as often as they like.
  const cache = createCache(clock);

  async function check(): Promise<Readiness> {
    const failed = commitTrouble();
    const message = `Nothing could be written to the state since ${failed?.since}; the log says why.`;
    const commits: readonly NotReady[] =
      failed === null ? [] : [{ reason: "commit-failed", subject: "state", message }];
    const health = await options.health().catch(() => null);
    const reasons = [...commits, ...(health === null ? [UNREADABLE] : reasonsIn(health))];
    const notes = health?.sources.flatMap(inventoryNote) ?? [];
    return { ready: reasons.length === 0, reasons, ...(notes.length === 0 ? {} : { notes }) };
  }

  return async () => {
    if (isRunning()) return cache("readiness", WATCHED_MS, check);
    const message = "The worker is starting or stopping.";
    return { ready: false, reasons: [{ reason: "starting-or-stopping", subject: "worker", message }] };
  };
}

const UNREADABLE: NotReady = {
  reason: "commit-failed",
  subject: "state",
  message: "The state cannot be read; the log says why.",
};
const DISK_FULL: NotReady = {
  reason: "disk-full",
  subject: "state",
  message: "The disk that holds the state is full, or nearly; free some space.",
};

function reasonsIn({ sources, sinks, disk, now }: StatusHealth): readonly NotReady[] {
  return [
    ...(isFull(disk.free) ? [DISK_FULL] : []),
    ...sources.flatMap(latePolls),
    ...sinks.flatMap((sink) => blockedSink(sink, Date.parse(now))),
  ];
}

/** Polls that never succeeded are not late during the first inventory; the note explains it. */
function inventoryNote({ name, firstInventory }: SourceHealth): readonly string[] {
  const message = firstInventory?.message ?? null;
  return message === null ? [] : [`${name}: ${message}`];
}

function latePolls({ name, jobs, unavailable }: SourceHealth): readonly NotReady[] {
  return jobs
    .filter(({ late }) => late)
    .map((job) => {
      const last = job.lastSuccess === null ? "there was none yet" : `the last was at ${job.lastSuccess}`;
      const isRefused = unavailable.some((each) => each.job === job.name);
      return {
        reason: "poll-late",
        subject: `source/${name}/${job.name}`,
        message: `A good poll of ${name}, ${job.name}, was due by ${job.dueBy} at the latest, and ${last}.${isRefused ? " The service refuses it: let the token have the right, or switch the schedule off." : ""}`,
      };
    });
}

function blockedSink({ name, state, since }: LiveSink, nowMs: number): readonly NotReady[] {
  if (UNBLOCKED.includes(state) || nowMs - Date.parse(since) <= SINK_BLOCKED_MS) return [];
  const message = `The sink ${name} takes no events since ${since} (${state}); \`plenum status\` says why.`;
  return [{ reason: "sink-blocked", subject: `sink/${name}`, message }];
}

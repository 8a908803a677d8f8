import { sentence } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { Conflict, type Store } from "../../engine/store/store.ts";
import { createMade, WATCHED_MS } from "./cached-documents.ts";
import { hasLittleSpace } from "./disk.ts";
import type { Status, StatusHealth } from "./report.ts";
import type { LiveSink } from "./sink-report.ts";
import type { SourceHealth } from "./source-health.ts";

/**
 * Decides whether the worker does its job: polls are not older than promised, the state accepts writes, and no sink is blocked for
 * long. The response needs no password, so it contains names and no messages.
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
  /** Subject: `source/campus/alarms`, `sink/lake`, `state`, `worker`. */
  readonly subject: string;
  /** One sentence for people, without anybody's words. */
  readonly message: string;
}

interface ReadinessOptions {
  readonly clock: Clock;
  readonly health: Status["health"];
  /** False before everything has started and from the beginning of a stop on. */
  readonly isRunning: () => boolean;
  readonly commitTrouble: () => CommitTrouble | null;
}

/** A sink may be blocked for so long before the worker stops being ready, in milliseconds; docs/operations.md says so. */
export const SINK_BLOCKED_MS = 10 * 60_000;
/** Being delivered to, or with nothing to take, or about to begin. */
const UNBLOCKED: readonly string[] = ["idle", "delivering", "starting"];

export function createReadiness(options: ReadinessOptions): () => Promise<Readiness> {
  const { clock, isRunning, commitTrouble } = options;
  // Anybody may ask, as often as he likes.
  const made = createMade(clock);

  async function look(): Promise<Pick<Required<Readiness>, "reasons" | "notes">> {
    const failed = commitTrouble();
    const commits: readonly NotReady[] =
      failed === null
        ? []
        : [
            {
              reason: "commit-failed",
              subject: "state",
              message: `Nothing could be written to the state since ${failed.since}; the log says why.`,
            },
          ];
    const { reasons, notes } = await found(options.health);
    return { reasons: [...commits, ...reasons], notes };
  }

  return async () => {
    if (!isRunning()) {
      const message = "The worker is starting or stopping.";
      return { ready: false, reasons: [{ reason: "starting-or-stopping", subject: "worker", message }] };
    }
    const { reasons, notes } = await made("readiness", WATCHED_MS, look);
    return { ready: reasons.length === 0, reasons, ...(notes.length === 0 ? {} : { notes }) };
  };
}

async function found(health: Status["health"]): Promise<Pick<Required<Readiness>, "reasons" | "notes">> {
  let known: StatusHealth;
  try {
    known = await health();
  } catch {
    const message = "The state cannot be read; the log says why.";
    return { reasons: [{ reason: "commit-failed", subject: "state", message }], notes: [] };
  }
  const { sources, sinks, disk, now } = known;
  const reasons: readonly NotReady[] = [
    ...(hasLittleSpace(disk.free)
      ? [
          {
            reason: "disk-full" as const,
            subject: "state",
            message: "The disk that holds the state is full, or nearly; free some space.",
          },
        ]
      : []),
    ...sources.flatMap(latePolls),
    ...sinks.flatMap((sink) => blocked(sink, Date.parse(now))),
  ];
  return { reasons, notes: sources.flatMap(inventoryNote) };
}

/** Polls that never succeeded are not late while pages of the first inventory arrive; the answer says why. */
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

function blocked({ name: sink, state, since }: LiveSink, nowMs: number): readonly NotReady[] {
  if (UNBLOCKED.includes(state) || nowMs - Date.parse(since) <= SINK_BLOCKED_MS) return [];
  return [
    {
      reason: "sink-blocked",
      subject: `sink/${sink}`,
      message: `The sink ${sink} takes no events since ${since} (${state}); \`plenum status\` says why.`,
    },
  ];
}

/** Why the state does not take what is to be remembered, and since when (UTC); null while the last write succeeded. */
export interface CommitTrouble {
  readonly since: string;
  readonly problem: string;
}

type Kind = "commit" | "settle" | "slot";

interface WatchedStore {
  readonly store: Store;
  trouble(): CommitTrouble | null;
}

/**
 * The same store, which notes whether its writes succeed, each kind by itself: what is polled, what sinks have taken,
 * slots of the quota. On a disk that is nearly full a slot of 50 bytes may still fit where no event does.
 */
export function watchCommits(store: Store, clock: Clock): WatchedStore {
  const troubles = new Map<Kind, CommitTrouble>();

  async function noting<T>(kind: Kind, write: () => Promise<T>): Promise<T> {
    try {
      const written = await write();
      troubles.delete(kind);
      return written;
    } catch (error) {
      // A conflict is the store's word about a key, not about the disk.
      if (!(error instanceof Conflict)) {
        const since = troubles.get(kind)?.since ?? isoUtc(clock.now());
        troubles.set(kind, { since, problem: sentence(error) });
      }
      throw error;
    }
  }

  return {
    trouble: () => [...troubles.values()].toSorted((a, b) => (a.since < b.since ? -1 : 1))[0] ?? null,
    store: {
      ...store,
      commit: (change) => noting("commit", () => store.commit(change)),
      putDeferred: (set, key, value) => noting("commit", () => store.putDeferred(set, key, value)),
      outbox: {
        ...store.outbox,
        settle: (sink, settlement) => noting("settle", () => store.outbox.settle(sink, settlement)),
      },
      quotaStore: {
        ...store.quotaStore,
        save: (key, slot) => noting("slot", () => store.quotaStore.save(key, slot)),
      },
    },
  };
}

/** For a person; empty while writes succeed. */
export function commitNotices(trouble: CommitTrouble | null): readonly string[] {
  if (trouble === null) return [];
  return [
    `Nothing could be written to the state since ${trouble.since}, so nothing new is stored or sent: ${trouble.problem}`,
  ];
}

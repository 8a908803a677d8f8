import type { Clock } from "../clock.ts";
import type { CommitTrouble } from "./commits.ts";
import { hasLittleSpace } from "./disk.ts";
import { createMade, WATCHED_MS } from "./remembered.ts";
import type { Status, StatusReport } from "./report.ts";
import type { SinkReport } from "./sink-report.ts";
import type { SourceReport } from "./source-report.ts";

/**
 * Whether the worker does what it is there for: polls are not older than promised, the state takes what is to be
 * remembered, and no sink is blocked for long. The answer needs no password, so it names things and quotes nobody.
 */
export interface Readiness {
  readonly ready: boolean;
  /** Empty when it is ready. */
  readonly reasons: readonly NotReady[];
}

export interface NotReady {
  readonly reason: "starting-or-stopping" | "poll-late" | "commit-failed" | "disk-full" | "sink-blocked";
  /** What it is about: `source/campus/alarms`, `sink/lake`, `state`, `worker`. */
  readonly subject: string;
  /** One sentence for people, without anybody's words. */
  readonly message: string;
}

export interface ReadinessOptions {
  readonly clock: Clock;
  readonly report: Status["report"];
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

  async function look(): Promise<readonly NotReady[]> {
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
    return [...commits, ...(await reported(options.report))];
  }

  return async () => {
    const reasons: readonly NotReady[] = isRunning()
      ? await made("readiness", WATCHED_MS, look)
      : [
          {
            reason: "starting-or-stopping",
            subject: "worker",
            message: "The worker is starting or stopping.",
          },
        ];
    return { ready: reasons.length === 0, reasons };
  };
}

async function reported(report: Status["report"]): Promise<readonly NotReady[]> {
  let shown: StatusReport;
  try {
    shown = await report();
  } catch {
    return [
      { reason: "commit-failed", subject: "state", message: "The state cannot be read; the log says why." },
    ];
  }
  const { sources, sinks, store, now } = shown;
  return [
    ...(hasLittleSpace(store.free)
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
}

function latePolls({ name, jobs, unavailable }: SourceReport): readonly NotReady[] {
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

function blocked({ sink, state, since }: SinkReport, nowMs: number): readonly NotReady[] {
  if (UNBLOCKED.includes(state) || since === null || nowMs - Date.parse(since) <= SINK_BLOCKED_MS) return [];
  return [
    {
      reason: "sink-blocked",
      subject: `sink/${sink}`,
      message: `The sink ${sink} takes no events since ${since} (${state}); \`plenum status\` says why.`,
    },
  ];
}

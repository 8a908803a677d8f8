/**
 * One recurring piece of work of one source at certain times: a poll of a list, of the alarms, of the token.
 *
 * `run` does the work once and returns. What it throws decides what happens next, by its class in src/core/errors/errors.ts;
 * nothing that a run could not finish may be left half told: it commits whole or not at all.
 */
export interface Job {
  /** Also the key of its state in the documents `poll/<source>`, and the label of its metrics. */
  readonly name: string;
  /** Cron expression of 5 or 6 fields in UTC; false switches the job off. */
  readonly schedule: string | false;
  /**
   * True: runs once at the start, in the order of the list of jobs, one after the other (but see `isLong`), and takes its
   * ticks only after that. False: waits for its first tick and starts with it, whatever the others are doing.
   */
  readonly firstRun: boolean;
  /** True: its first run may take minutes, so the first runs of the jobs after it do not wait for its end. */
  readonly isLong?: boolean;
  /** The ability of the token that the job needs (interface, Authentication 3), for a clear sentence after a 403. */
  readonly ability?: string;
  run(signal: AbortSignal): Promise<JobOutcome>;
}

/**
 * `ok`: done; `remark` (one sentence) where a person should know that a part of it is refused for good.
 * `incomplete`: the run told what it could be sure of, and something has to wait for another run, for this reason
 * (one sentence). It is repeated with back-off, or at the next tick if that is earlier.
 */
export type JobOutcome =
  | { readonly kind: "ok"; readonly remark?: string }
  | { readonly kind: "incomplete"; readonly reason: string };

export const OK: JobOutcome = { kind: "ok" };

export function incomplete(reason: string): JobOutcome {
  return { kind: "incomplete", reason };
}

/** When a poll succeeded, by the wall clock and by measured time, milliseconds. */
export interface PollTime {
  readonly atMs: number;
  readonly monotonicMs: number;
}

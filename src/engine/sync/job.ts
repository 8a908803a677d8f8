/** Recurring job of a source, such as the alarm poll. The type of the job's error decides when the job runs again. */
export interface SyncJob {
  /** Name of the job; also the key of its state in the documents `poll/<source>`, and its metrics label. */
  readonly name: string;
  /** Cron expression of 5 or 6 fields in UTC; false switches the job off. */
  readonly schedule: string | false;
  /** True: the job runs once at the start, after the earlier jobs of the list, before it follows its schedule. */
  readonly firstRun: boolean;
  /** True: the job's first run may take minutes, so the first runs of later jobs do not wait for its end. */
  readonly isLong?: boolean;
  /** The token's permission that the job needs, such as `read:tags`. The message after a 403 names it. */
  readonly ability?: string;
  run(signal: AbortSignal): Promise<JobOutcome>;
}

export type RunnableJob = Pick<SyncJob, "run">;

/** Outcome of a job. `remark`: a note, such as a refused site. `incomplete`: the next run must get the missing data. */
export type JobOutcome =
  | { readonly kind: "ok"; readonly remark?: string }
  | { readonly kind: "incomplete"; readonly reason: string };

export const JOB_OUTCOME_OK: JobOutcome = { kind: "ok" };

export function incompleteJobOutcome(reason: string): JobOutcome {
  return { kind: "incomplete", reason };
}

export interface PollTime {
  readonly atMs: number;
  readonly monotonicMs: number;
}

/** Continuous work that follows target intervals instead of a schedule: live reads and history. */
export interface LoopJob extends Pick<SyncJob, "name" | "ability"> {
  /** Works until `draining` aborts. Rejects if all of its work fails; the scheduler restarts it after a pause. */
  follow(run: LoopJobRun): Promise<void>;
}

export interface LoopJobRun {
  readonly draining: AbortSignal;
  readonly forced: AbortSignal;
  /** True when the service was unavailable since the previous run, so earlier failures prove nothing. */
  readonly afterOutage?: boolean;
  readonly reportSuccess: () => void;
}

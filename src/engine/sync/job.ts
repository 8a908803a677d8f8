/** One recurring piece of work of a source. The class of its error decides when it runs again. */
export interface Job {
  /** Also the key of its state in the documents `poll/<source>`, and the label of its metrics. */
  readonly name: string;
  /** Cron expression of 5 or 6 fields in UTC; false switches the job off. */
  readonly schedule: string | false;
  /** True: runs once at the start, one job after the other in the order of the list, and takes ticks only after that. */
  readonly firstRun: boolean;
  /** True: the first run may take minutes, so the first runs of later jobs do not wait for its end. */
  readonly isLong?: boolean;
  /** The ability of the token that the job needs (interface, Authentication 3), for the message after a 403. */
  readonly ability?: string;
  run(signal: AbortSignal): Promise<JobOutcome>;
}

/** `remark`: a part is refused for good. `incomplete`: a part waits for the next run. Texts are one sentence. */
export type JobOutcome =
  | { readonly kind: "ok"; readonly remark?: string }
  | { readonly kind: "incomplete"; readonly reason: string };

export const OK: JobOutcome = { kind: "ok" };

export function incomplete(reason: string): JobOutcome {
  return { kind: "incomplete", reason };
}

export interface PollTime {
  readonly atMs: number;
  readonly monotonicMs: number;
}

/** Continuous work that follows target intervals instead of a schedule: live reads and history. */
export interface Follower extends Pick<Job, "name" | "ability"> {
  /** Works until `draining` aborts. Rejects with failures that concern all of its work, and restarts after a pause. */
  follow(run: RunContext): Promise<void>;
}

export interface RunContext {
  readonly draining: AbortSignal;
  readonly forced: AbortSignal;
  /** True when the service was unavailable since the previous run, so earlier failures prove nothing. */
  readonly afterOutage?: boolean;
  readonly well: () => void;
}

import type { JobReport } from "./job-report.ts";

/**
 * How far a number can be believed: it is as good as the list that it was counted in. An unknown number is shown as
 * unknown, never as 0.
 *
 * | state   | meaning                                                                   |
 * | ------- | ------------------------------------------------------------------------- |
 * | `whole` | the list was read, lately enough                                          |
 * | `part`  | the last reading left something out; there may be more than is held       |
 * | `old`   | the list cannot be read, or was not for longer than it should; see `held` |
 * | `never` | nothing of it was read yet                                                |
 * | `off`   | the configuration does not follow it                                      |
 */
export interface Reading {
  readonly state: "whole" | "part" | "old" | "never" | "off";
  /** The last good reading, UTC. */
  readonly at: string | null;
  /** Number that is known from an earlier reading. */
  readonly held: number;
}

export function readingOf(known: {
  readonly job: JobReport | undefined;
  readonly isOff: boolean;
  /** False while the service, or this list of it, is unavailable. */
  readonly isAvailable: boolean;
  readonly held: number;
}): Reading {
  const { job, isOff, isAvailable, held } = known;
  if (isOff) return { state: "off", at: null, held };
  const at = job?.lastSuccess ?? null;
  // A reading that had a part only, and nothing to show for it, was none.
  if (job === undefined || at === null || (job.partly && held === 0)) return { state: "never", at: null, held };
  if (job.late || !isAvailable) return { state: "old", at, held };
  return { state: job.partly ? "part" : "whole", at, held };
}

/** The number, or null while it is not known. */
export function knownCount({ state, held }: Reading): number | null {
  return state === "whole" ? held : null;
}

/** The same for what hardly ever changes: a list of tags does not become unknown by being some hours old. */
export function lastCount({ at, held }: Reading): number | null {
  return at === null ? null : held;
}

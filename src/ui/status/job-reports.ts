import { isoUtc } from "../../core/values/iso-utc.ts";
import type { PollTime } from "../../engine/sync/live-tag-state.ts";
import type { StoredJob } from "../../engine/sync/stored-documents.ts";

export interface JobReport {
  readonly name: string;
  readonly lastSuccess: string | null;
  readonly lastAttempt: string | null;
  readonly problem: string | null;
  /** True if the last poll received only a part of the list. */
  readonly partly: boolean;
  readonly dueBy: string | null;
  readonly late: boolean;
}

/** Returns the time at which a job becomes late after a successful poll, in milliseconds since 1970. */
export type JobDueTime = (lastMs: number) => number | null;

/** Due times of a source's jobs, in display order. Jobs that are `off` are not displayed. */
export type JobDueTimes = ReadonlyMap<string, JobDueTime | "off">;

const FIRST_POLL_WAIT_MS = 3 * 60_000;

/** Computes ages by the monotonic clock, because the wall clock jumps when a suspended machine resumes. */
export function jobReports(options: {
  readonly polls: ReadonlyMap<string, StoredJob>;
  /** Last successful polls since the start; the stored polls can be a minute old. */
  readonly lastPolls: ReadonlyMap<string, PollTime>;
  /** Time of the newest tag value. It replaces the time of the last live read if no worker is running. */
  readonly newestValue?: string | null;
  readonly dueTimes: JobDueTimes;
  readonly started: PollTime | null;
  /** Monotonic time of the first inventory's latest page. A poll without success is late some time after this page. */
  readonly inventoryPageMs?: number | null;
  readonly now: PollTime;
}): readonly JobReport[] {
  const { polls, lastPolls, newestValue, dueTimes, started, inventoryPageMs, now } = options;
  function storedSuccessTime(name: string): string | null {
    const storedTime = polls.get(name)?.lastSuccess ?? null;
    if (name !== "live") return storedTime;
    if (newestValue !== undefined) return newestValue;
    // Stored successes include live reads without values, so use only a success before the worker's start.
    return storedTime !== null && started !== null && Date.parse(storedTime) < started.atMs ? storedTime : null;
  }

  /** Returns the milliseconds until a job is late; negative for a late job, null for a job that is never late. */
  function msUntilJobIsLate(dueTime: JobDueTime, last: PollTime | undefined, storedAt: string | null): number | null {
    const msUntilDueAfter = (lastMs: number, elapsedMs: number) => {
      const dueAtMs = dueTime(lastMs);
      return dueAtMs === null ? null : dueAtMs - lastMs - elapsedMs;
    };
    if (last !== undefined) return msUntilDueAfter(last.atMs, now.monotonicMs - last.monotonicMs);
    const successMs = storedAt === null ? null : Date.parse(storedAt);
    if (started === null) return successMs === null ? null : msUntilDueAfter(successMs, now.atMs - successMs);
    const workerUptimeMs = now.monotonicMs - started.monotonicMs;
    if (successMs === null) {
      const inventoryWaitMs = now.monotonicMs - (inventoryPageMs ?? started.monotonicMs);
      return msUntilDueAfter(started.atMs, Math.min(workerUptimeMs, inventoryWaitMs));
    }
    const msUntilDueAtStart = msUntilDueAfter(successMs, Math.max(0, started.atMs - successMs));
    return msUntilDueAtStart === null ? null : Math.max(msUntilDueAtStart, FIRST_POLL_WAIT_MS) - workerUptimeMs;
  }
  return [...new Set([...dueTimes.keys(), ...polls.keys()])]
    .filter((name) => dueTimes.get(name) !== "off")
    .map((name): JobReport => {
      const storedPoll = polls.get(name);
      const lastPoll = lastPolls.get(name);
      const storedTime = storedSuccessTime(name);
      const lastSuccess = lastPoll === undefined ? storedTime : laterIsoTime(storedTime, isoUtc(lastPoll.atMs));
      const lastAttempt = laterIsoTime(storedPoll?.lastAttempt ?? null, lastSuccess);
      const problem = storedPoll?.problem ?? null;
      const dueTime = dueTimes.get(name);
      const msUntilDue = typeof dueTime === "function" ? msUntilJobIsLate(dueTime, lastPoll, storedTime) : null;
      return {
        name,
        lastSuccess,
        lastAttempt,
        problem,
        partly: problem !== null && lastSuccess !== null && lastSuccess === lastAttempt,
        dueBy: msUntilDue === null ? null : isoUtc(Math.round((now.atMs + msUntilDue) / 1_000) * 1_000),
        late: msUntilDue !== null && msUntilDue < 0,
      };
    });
}

function laterIsoTime(a: string | null, b: string | null): string | null {
  if (a === null || b === null) return a ?? b;
  return Date.parse(b) > Date.parse(a) ? b : a;
}

/**
 * Reliability of a count, such as the number of tags in the service's list. An unknown count is never displayed as 0.
 *
 * | state   | meaning                                                               |
 * | ------- | --------------------------------------------------------------------- |
 * | `whole` | the list was read recently                                            |
 * | `part`  | the last reading was incomplete; there may be more than `storedCount` |
 * | `old`   | the list cannot be read, or was not read for too long                 |
 * | `never` | the list was not read yet                                             |
 * | `off`   | the configuration does not poll the list                              |
 */
export interface CountReliability {
  readonly state: "whole" | "part" | "old" | "never" | "off";
  /** UTC time of the last successful reading of the list. */
  readonly at: string | null;
  /** Number of stored objects of the list. */
  readonly storedCount: number;
}

/** `isAvailable`: false while the service or the list is unavailable. */
export function countReliabilityOf(
  job: JobReport | undefined,
  storedCount: number,
  isOff: boolean,
  isAvailable: boolean,
): CountReliability {
  if (isOff) return { state: "off", at: null, storedCount };
  const at = job?.lastSuccess ?? null;
  // A list that was read in part without any result counts as not read.
  if (job === undefined || at === null || (job.partly && storedCount === 0))
    return { state: "never", at: null, storedCount };
  if (job.late || !isAvailable) return { state: "old", at, storedCount };
  return { state: job.partly ? "part" : "whole", at, storedCount };
}

export const reliableCount = ({ state, storedCount }: CountReliability): number | null =>
  state === "whole" ? storedCount : null;

/** Returns the count of the last reading, which is valid for hours in lists that rarely change, such as tags. */
export const lastKnownCount = ({ at, storedCount }: CountReliability): number | null =>
  at === null ? null : storedCount;

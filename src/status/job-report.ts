import { isoUtc } from "../clock.ts";
import type { HeldPoll } from "../sync/snapshot.ts";

/** Every job of a source with the time of its last good poll: an age that is larger than it should be shows. */
export interface JobReport {
  readonly name: string;
  /** Null when it never succeeded. */
  readonly lastSuccess: string | null;
  readonly lastAttempt: string | null;
  /** One sentence, null while all is well. */
  readonly problem: string | null;
  /** True when the last poll had a part of what it wanted, and not all. */
  readonly partly: boolean;
  /** From when on a good poll is overdue; null where no time is set. */
  readonly dueBy: string | null;
  readonly late: boolean;
}

/** From when on a job is late whose last good poll was at a time, both in milliseconds since 1970; null: never. */
export type Pace = (lastMs: number) => number | null;

/** The jobs of a source by name, in the order in which they are shown; one that is switched off is not shown. */
export type Paces = ReadonlyMap<string, Pace | "off">;

export function jobReports(known: {
  readonly polls: ReadonlyMap<string, HeldPoll>;
  /** Last good polls that a worker tells of; what is written in the state can be a minute old. */
  readonly heard: ReadonlyMap<string, string>;
  /** When the value that was read last was read: a run of live reads that read nothing was no good poll. */
  readonly newestValue: string | null;
  readonly paces: Paces;
  /** Null when no worker is running. */
  readonly startedAtMs: number | null;
  readonly nowMs: number;
}): readonly JobReport[] {
  const { polls, heard, newestValue, paces, startedAtMs, nowMs } = known;
  const names = new Set([...paces.keys(), ...polls.keys()]);
  return [...names]
    .filter((name) => paces.get(name) !== "off")
    .map((name): JobReport => {
      const poll = polls.get(name);
      const lastSuccess = name === "live" ? newestValue : later(poll?.lastSuccess, heard.get(name));
      const lastAttempt = later(poll?.lastAttempt, lastSuccess);
      const problem = poll?.problem ?? null;
      const pace = paces.get(name);
      // A job that never succeeded is waited for from the start on.
      const sinceMs = lastSuccess === null ? startedAtMs : Date.parse(lastSuccess);
      const dueMs = sinceMs === null || typeof pace !== "function" ? null : pace(sinceMs);
      return {
        name,
        lastSuccess,
        lastAttempt,
        problem,
        partly: problem !== null && lastSuccess !== null && lastSuccess === lastAttempt,
        dueBy: dueMs === null ? null : isoUtc(dueMs),
        late: dueMs !== null && nowMs > dueMs,
      };
    });
}

function later(a: string | null | undefined, b: string | null | undefined): string | null {
  if (a === null || a === undefined) return b ?? null;
  if (b === null || b === undefined) return a;
  return Date.parse(b) > Date.parse(a) ? b : a;
}

import { isoUtc } from "../../core/values/iso-utc.ts";
import type { StoredPoll } from "../../engine/sync/snapshot.ts";
import type { PollTime } from "../../engine/sync/work.ts";

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

/** After a start each job has at least so many milliseconds for its first poll, however old the stored one is. */
const FIRST_POLL_MS = 3 * 60_000;

/** A moment of this process by the wall clock and by measured time, milliseconds. */
export type Moment = PollTime;

/**
 * How old a poll is, is measured time, because the wall clock may step: 2 h forward where a suspended machine goes on. Only
 * the age that a poll has at the start of the worker comes from stored wall times.
 */
export function jobReports(known: {
  readonly polls: ReadonlyMap<string, StoredPoll>;
  /** Last successful polls of this run; those in the state can be a minute old. */
  readonly lastPolls: ReadonlyMap<string, PollTime>;
  /** When the newest value was read, where no worker says when it last read one. */
  readonly newestValue?: string | null;
  readonly paces: Paces;
  /** Null when no worker is running. */
  readonly started: Moment | null;
  /** When the last page of a first inventory came, monotonic milliseconds: polls that never succeeded wait for it. */
  readonly inventoryMs?: number | null;
  readonly now: Moment;
}): readonly JobReport[] {
  const { polls, lastPolls, newestValue, paces, started, inventoryMs, now } = known;
  const names = new Set([...paces.keys(), ...polls.keys()]);

  function storedSuccess(name: string): string | null {
    const stored = polls.get(name)?.lastSuccess ?? null;
    if (name !== "live") return stored;
    if (newestValue !== undefined) return newestValue;
    // A run of live reads that read nothing is stored as a success; before this start there is no better word.
    return stored !== null && started !== null && Date.parse(stored) < started.atMs ? stored : null;
  }

  /** Milliseconds from now on until the poll is late, below 0 where it is; null: never. */
  function leftMs(pace: Pace, last: PollTime | undefined, stored: string | null): number | null {
    const allowedMs = (lastMs: number) => {
      const dueMs = pace(lastMs);
      return dueMs === null ? null : dueMs - lastMs;
    };
    const left = (allowed: number | null, elapsedMs: number) => (allowed === null ? null : allowed - elapsedMs);
    if (last !== undefined) return left(allowedMs(last.atMs), now.monotonicMs - last.monotonicMs);
    const storedMs = stored === null ? null : Date.parse(stored);
    if (started === null) return storedMs === null ? null : left(allowedMs(storedMs), now.atMs - storedMs);
    const ranMs = now.monotonicMs - started.monotonicMs;
    if (storedMs === null) {
      const waitedMs = now.monotonicMs - (inventoryMs ?? started.monotonicMs);
      return left(allowedMs(started.atMs), Math.min(ranMs, waitedMs));
    }
    const remaining = left(allowedMs(storedMs), Math.max(0, started.atMs - storedMs));
    return remaining === null ? null : Math.max(remaining, FIRST_POLL_MS) - ranMs;
  }

  return [...names]
    .filter((name) => paces.get(name) !== "off")
    .map((name): JobReport => {
      const poll = polls.get(name);
      const last = lastPolls.get(name);
      const stored = storedSuccess(name);
      const lastSuccess = last === undefined ? stored : later(stored, isoUtc(last.atMs));
      const lastAttempt = later(poll?.lastAttempt, lastSuccess);
      const problem = poll?.problem ?? null;
      const pace = paces.get(name);
      const left = typeof pace === "function" ? leftMs(pace, last, stored) : null;
      return {
        name,
        lastSuccess,
        lastAttempt,
        problem,
        partly: problem !== null && lastSuccess !== null && lastSuccess === lastAttempt,
        dueBy: left === null ? null : isoUtc(Math.round((now.atMs + left) / 1_000) * 1_000),
        late: left !== null && left < 0,
      };
    });
}

function later(a: string | null | undefined, b: string | null | undefined): string | null {
  if (a === null || a === undefined) return b ?? null;
  if (b === null || b === undefined) return a;
  return Date.parse(b) > Date.parse(a) ? b : a;
}

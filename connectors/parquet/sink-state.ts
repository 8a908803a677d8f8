import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import type { ObjectStore } from "./object-store.ts";
import { writerFileOf } from "./paths.ts";

/**
 * What the sink remembers, so that what is repeated after a crash overwrites what was there and nothing else.
 *
 * A landing is written down before its first object is put: which positions it holds, and under which keys. It counts
 * as settled when the cursor has passed it, which is the same transaction. After a crash in between, events are offered
 * from the cursor on, and gathered into the very same landings:
 *
 *     cursor 100    landings 101–200, 201–350    offered 101 102 … → land at 200, land at 350, go on as usual
 */
export interface SinkState {
  /** Random, and part of every name: what one state has landed, no other overwrites. */
  readonly writerId: string;
  /** Landings that were begun and are not settled, by position. */
  readonly stagedCommits: readonly StagedCommit[];
  /** Days to be sealed, oldest first. */
  readonly completeDays: readonly CompleteDay[];
  /** Compactions that were begun. */
  readonly compactions: readonly Compaction[];
  /** Days whose files are to be compacted, by `dayKey`. */
  readonly uncompacted: ReadonlyMap<string, UncompactedDay>;
  /** When files were compacted last, wall time in milliseconds; null where that never happened. */
  readonly compactedAtMs: number | null;
}

/** A day of a site that has files which no compaction has seen. */
export interface UncompactedDay {
  /** Null for facts about no single site. */
  readonly site: string | null;
  readonly day: string;
  /** Names of the tables. */
  readonly tables: readonly string[];
  /** When the first and the last of these files landed, wall time in milliseconds. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export interface StagedCommit {
  readonly from: number;
  readonly through: number;
  /** What was, or shall be, put. */
  readonly keys: readonly string[];
}

export interface Compaction {
  readonly result: string;
  readonly sources: readonly string[];
}

const WRITER = "life";
const STAGED = "landings";
const COMPACTION = "compaction";
const COMPLETE_DAY = "seal ";
const UNCOMPACTED = "loose ";
const COMPACTED = "compacted";

interface Writer {
  readonly id: string;
  /** Last position that is settled. */
  readonly through: number;
}

/**
 * What is remembered. A new life begins where there is none, and where the lake shows that this one has landed more than
 * is remembered here: the state is an older copy, and its positions mean other events from here on.
 */
export async function openSinkState(
  { memory, log }: Pick<ConnectorContext, "memory" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<SinkState> {
  const all = await memory.all<unknown>();
  const stagedCommits = (all.get(STAGED) ?? []) as readonly StagedCommit[];
  const completeDays = [...all]
    .filter(([key]) => key.startsWith(COMPLETE_DAY))
    .map(([, day]) => day as CompleteDay);
  const rest = {
    completeDays: completeDays.toSorted((a, b) => (a.day < b.day ? -1 : 1)),
    // A version before this one had one at a time.
    compactions: [(all.get(COMPACTION) ?? []) as Compaction | readonly Compaction[]].flat(),
    uncompacted: new Map(
      [...all]
        .filter(([key]) => key.startsWith(UNCOMPACTED))
        .map(([key, day]) => [key.slice(UNCOMPACTED.length), day as UncompactedDay]),
    ),
    compactedAtMs: (all.get(COMPACTED) ?? null) as number | null,
  };
  const known = all.get(WRITER) as Writer | undefined;
  if (known !== undefined) {
    const committed = await committedThrough(known.id, store, signal);
    if (committed <= Math.max(known.through, stagedCommits.at(-1)?.through ?? 0)) {
      return { writerId: known.id, stagedCommits, ...rest };
    }
    log.warn(
      { remembered: known.through, landed: committed },
      "the lake has more than this state remembers, so the state is an older copy; what is told again lies there twice, with the same event_id",
    );
  }
  const writer: Writer = { id: randomBytes(6).toString("hex"), through: 0 };
  await memory.put(
    new Map<string, unknown>([
      [WRITER, writer],
      [STAGED, null],
    ]),
  );
  return { writerId: writer.id, stagedCommits: [], ...rest };
}

async function committedThrough(writerId: string, store: ObjectStore, signal: AbortSignal): Promise<number> {
  const bytes = await store.get(writerFileOf(writerId), signal);
  if (bytes === null) return 0;
  const { through } = JSON.parse(Buffer.from(bytes).toString()) as { through?: unknown };
  return typeof through === "number" ? through : 0;
}

/** Says in the lake how far a life goes, before anything of it is put. */
export async function recordProgress(
  { writerId, store }: { readonly writerId: string; readonly store: ObjectStore },
  through: number,
  signal: AbortSignal,
): Promise<void> {
  await store.put(writerFileOf(writerId), Buffer.from(`${JSON.stringify({ through })}\n`), signal);
}

/** Landings that are begun. */
export function rememberStaged(stagedCommits: readonly StagedCommit[]): SinkStateChange {
  return new Map([[STAGED, stagedCommits]]);
}

/** All of them are in the lake, and the cursor passes them; days are to be sealed. */
export function rememberSettled(
  writerId: string,
  through: number,
  completeDays: readonly CompleteDay[],
): SinkStateChange {
  const known: Writer = { id: writerId, through };
  return new Map<string, unknown>([[WRITER, known], [STAGED, null], ...rememberDays(completeDays)]);
}

export function rememberDays(completeDays: readonly CompleteDay[]): SinkStateChange {
  return new Map(completeDays.map((day) => [keyOf(day), day]));
}

/** Of two seals of a day the later one counts. */
export function mergeDays(
  completeDays: readonly CompleteDay[],
  more: readonly CompleteDay[],
): readonly CompleteDay[] {
  return [...new Map([...completeDays, ...more].map((day) => [keyOf(day), day])).values()];
}

export function rememberCompactions(compactions: readonly Compaction[]): SinkStateChange {
  return new Map([[COMPACTION, compactions.length === 0 ? null : compactions]]);
}

/** A compaction was begun, and has to be completed or undone before the next. */
export async function isCompacting(memory: Pick<ConnectorContext["memory"], "get">): Promise<boolean> {
  return ((await memory.get(COMPACTION)) ?? null) !== null;
}

/** These days have files to be compacted; null where a day has none any more. */
export function rememberUncompacted(days: ReadonlyMap<string, UncompactedDay | null>): SinkStateChange {
  return new Map([...days].map(([key, day]) => [`${UNCOMPACTED}${key}`, day]));
}

export function rememberCompactedAt(wallMs: number): SinkStateChange {
  return new Map([[COMPACTED, wallMs]]);
}

export function dayKey(day: string, site: string | null): string {
  return `${day} ${site ?? ""}`;
}

export function forgetDay(day: CompleteDay): SinkStateChange {
  return new Map([[keyOf(day), null]]);
}

function keyOf({ site, day }: CompleteDay): string {
  return `${COMPLETE_DAY}${dayKey(day, site)}`;
}

/** A UTC day of a site of which the worker's ledger says that all is known. */
export interface CompleteDay {
  readonly site: string | null;
  /** Such as `2026-11-21`. */
  readonly day: string;
  /** 1, and one more each time when something of the day has changed afterwards. */
  readonly revision: number;
  /** What the ledger says of the day, as the event has it. */
  readonly account: unknown;
}

/** The seal that an event tells; null for any other event. */
export function completeDayIn(event: Event): CompleteDay | null {
  const known = event as AnyEvent;
  if (known.type !== "day-sealed") return null;
  const { date, revision } = known.data;
  return { site: known.siteid ?? null, day: date, revision, account: known.data };
}

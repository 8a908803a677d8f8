import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import type { ObjectStore } from "./object-store.ts";
import { writerFileOf } from "./paths.ts";

/**
 * State of the sink, which lets a repetition after a crash overwrite its own files and nothing else.
 *
 * A commit is recorded, with its positions and keys, before its first object is put. It is settled in the
 * transaction that moves the cursor past it. After a crash in between, the events are redelivered from the cursor
 * and fill the same commits:
 *
 *   cursor 100    staged 101–200, 201–350    redelivered 101 102 … → commit at 200, commit at 350, continue
 */
export interface SinkState {
  /** Random id in every file name: two states never overwrite each other's files. */
  readonly writerId: string;
  /** Commits that were started and are not settled, by position. */
  readonly stagedCommits: readonly StagedCommit[];
  /** Days to be finalized, oldest first. */
  readonly completeDays: readonly CompleteDay[];
  /** Compactions that were started and not completed. */
  readonly compactions: readonly Compaction[];
  /** Days with files to compact, by `dayKey`. */
  readonly uncompacted: ReadonlyMap<string, UncompactedDay>;
  /** When the last compaction pass began, wall time in milliseconds; null where there was none. */
  readonly compactedAtMs: number | null;
}

/** Day of a site with files that no compaction has merged. */
export interface UncompactedDay {
  /** Null for facts about no single site. */
  readonly site: string | null;
  readonly day: string;
  readonly tables: readonly string[];
  /** When the first and last of these files were committed, wall time in milliseconds. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

export interface StagedCommit {
  readonly from: number;
  readonly through: number;
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
  /** Last settled position. */
  readonly through: number;
}

/**
 * Loads the state. Starts with a new writer id where there is none, and where the lake has more commits of this
 * writer than the state records: the state is then an older copy, and its positions will mean other events.
 */
export async function openSinkState(
  { memory, log }: Pick<ConnectorContext, "memory" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<SinkState> {
  const all = await memory.all<unknown>();
  const stagedCommits = (all.get(STAGED) ?? []) as readonly StagedCommit[];
  const completeDays = [...all].filter(([key]) => key.startsWith(COMPLETE_DAY)).map(([, day]) => day as CompleteDay);
  const rest = {
    completeDays: completeDays.toSorted((a, b) => (a.day < b.day ? -1 : 1)),
    // Earlier versions stored a single compaction.
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

/** Records in the lake how far a writer goes, before it puts the first file. */
export async function recordProgress(
  { writerId, store }: { readonly writerId: string; readonly store: ObjectStore },
  through: number,
  signal: AbortSignal,
): Promise<void> {
  await store.put(writerFileOf(writerId), Buffer.from(`${JSON.stringify({ through })}\n`), signal);
}

export function rememberStaged(stagedCommits: readonly StagedCommit[]): SinkStateChange {
  return new Map([[STAGED, stagedCommits]]);
}

/** State change of a settlement: all commits are in the lake, and the cursor passes them. */
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

/** Adds days; a later revision replaces an earlier one. */
export function mergeDays(completeDays: readonly CompleteDay[], more: readonly CompleteDay[]): readonly CompleteDay[] {
  return [...new Map([...completeDays, ...more].map((day) => [keyOf(day), day])).values()];
}

export function rememberCompactions(compactions: readonly Compaction[]): SinkStateChange {
  return new Map([[COMPACTION, compactions.length === 0 ? null : compactions]]);
}

/** True while a compaction must be completed or undone. */
export async function isCompacting(memory: Pick<ConnectorContext["memory"], "get">): Promise<boolean> {
  return ((await memory.get(COMPACTION)) ?? null) !== null;
}

/** State change for days with files to compact; null removes a day. */
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

/** UTC day of a site that the worker's ledger has accounted for, and that is to be finalized. */
export interface CompleteDay {
  readonly site: string | null;
  /** Such as `2026-11-21`. */
  readonly day: string;
  /** Starts at 1 and rises with each later change of the day. */
  readonly revision: number;
  readonly account: unknown;
}

/** Returns the complete day of a `day-sealed` event; null for any other event. */
export function completeDayIn(event: Event): CompleteDay | null {
  const known = event as AnyEvent;
  if (known.type !== "day-sealed") return null;
  const { date, revision } = known.data;
  return { site: known.siteid ?? null, day: date, revision, account: known.data };
}

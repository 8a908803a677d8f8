import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import type { ObjectStore } from "./object-store.ts";
import { writerKeyOf } from "./paths.ts";

/**
 * State of the sink, with which a repetition after a crash overwrites only its own files. A commit is recorded before
 * its first object is put, and settled in the transaction that moves the cursor past it:
 *
 *   cursor 100    staged 101–200, 201–350    redelivered 101 102 … → commit at 200, commit at 350, continue
 */
export interface SinkState {
  /** Random id in every file name. */
  readonly writerId: string;
  readonly stagedCommits: readonly StagedCommit[];
  /** Days to be finalized, oldest first. */
  readonly completeDays: readonly CompleteDay[];
  readonly compactions: readonly Compaction[];
  readonly uncompacted: ReadonlyMap<string, UncompactedDay>;
  /** Wall time at which the last compaction pass began. */
  readonly compactedAtMs: number | null;
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

/** The site is null for rows of no single site. */
export interface SiteDay {
  readonly site: string | null;
  /** Such as `2026-11-21`. */
  readonly day: string;
}

/** Day that the worker's ledger has accounted for. */
export interface CompleteDay extends SiteDay {
  readonly revision: number;
  readonly account: unknown;
}

/** Day with files that no compaction has merged. */
export interface UncompactedDay extends SiteDay {
  readonly tables: readonly string[];
  /** Wall times at which the first and last of these files were committed. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

const WRITER = "life";
const STAGED = "landings";
const COMPACTION = "compaction";
const COMPLETE_DAY = "seal ";
const UNCOMPACTED = "loose ";
const COMPACTED = "compacted";

interface Writer {
  readonly id: string;
  readonly through: number;
}

/** Loads the state. If the lake has more commits of this writer, the state is an old copy: takes a new writer id. */
export async function openSinkState(
  { memory, log }: Pick<ConnectorContext, "memory" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<SinkState> {
  const all = await memory.all<unknown>();
  const startingWith = (prefix: string) => [...all].filter(([key]) => key.startsWith(prefix));
  const stagedCommits = (all.get(STAGED) ?? []) as readonly StagedCommit[];
  const rest = {
    completeDays: startingWith(COMPLETE_DAY)
      .map(([, day]) => day as CompleteDay)
      .sort((a, b) => (a.day < b.day ? -1 : 1)),
    // Earlier versions stored a single compaction.
    compactions: [(all.get(COMPACTION) ?? []) as Compaction | readonly Compaction[]].flat(),
    uncompacted: new Map(
      startingWith(UNCOMPACTED).map(([key, day]) => [key.slice(UNCOMPACTED.length), day as UncompactedDay]),
    ),
    compactedAtMs: (all.get(COMPACTED) ?? null) as number | null,
  };
  const writer = all.get(WRITER) as Writer | undefined;
  if (writer !== undefined) {
    const committed = await committedThrough(writer.id, store, signal);
    if (committed <= Math.max(writer.through, stagedCommits.at(-1)?.through ?? 0)) {
      return { writerId: writer.id, stagedCommits, ...rest };
    }
    log.warn(
      { remembered: writer.through, landed: committed },
      "the lake has more than this state remembers, so the state is an older copy; what is told again lies there twice, with the same event_id",
    );
  }
  const writerId = randomBytes(6).toString("hex");
  await memory.put(stateChange({ writer: { id: writerId, through: 0 }, stagedCommits: [] }));
  return { writerId, stagedCommits: [], ...rest };
}

async function committedThrough(writerId: string, store: ObjectStore, signal: AbortSignal): Promise<number> {
  const bytes = await store.get(writerKeyOf(writerId), signal);
  if (bytes === null) return 0;
  const { through } = JSON.parse(Buffer.from(bytes).toString()) as { through?: unknown };
  return typeof through === "number" ? through : 0;
}

/** A day or key that is null is removed. */
export function stateChange(parts: {
  readonly writer?: Writer;
  readonly stagedCommits?: readonly StagedCommit[];
  readonly compactions?: readonly Compaction[];
  readonly completeDays?: readonly CompleteDay[];
  readonly finalizedDay?: CompleteDay;
  readonly uncompacted?: ReadonlyMap<string, UncompactedDay | null>;
  readonly compactedAtMs?: number;
}): SinkStateChange {
  const { compactedAtMs, compactions, finalizedDay, stagedCommits, writer } = parts;
  const change = new Map<string, unknown>();
  if (writer !== undefined) change.set(WRITER, writer);
  if (stagedCommits !== undefined) change.set(STAGED, stagedCommits.length === 0 ? null : stagedCommits);
  if (compactions !== undefined) change.set(COMPACTION, compactions.length === 0 ? null : compactions);
  for (const day of parts.completeDays ?? []) change.set(`${COMPLETE_DAY}${dayKey(day)}`, day);
  if (finalizedDay !== undefined) change.set(`${COMPLETE_DAY}${dayKey(finalizedDay)}`, null);
  for (const [key, day] of parts.uncompacted ?? []) change.set(`${UNCOMPACTED}${key}`, day);
  if (compactedAtMs !== undefined) change.set(COMPACTED, compactedAtMs);
  return change;
}

/** True while a crash could leave a compaction that must be completed or undone. */
export async function isCompacting(memory: Pick<ConnectorContext["memory"], "get">): Promise<boolean> {
  return ((await memory.get(COMPACTION)) ?? null) !== null;
}

/** A later revision of a day replaces an earlier one. */
export function mergeDays(completeDays: readonly CompleteDay[], more: readonly CompleteDay[]): readonly CompleteDay[] {
  return [...new Map([...completeDays, ...more].map((day) => [dayKey(day), day])).values()];
}

export function dayKey({ day, site }: SiteDay): string {
  return `${day} ${site ?? ""}`;
}

/** Returns null for any other event than `day-sealed`. */
export function completeDayIn(event: Event): CompleteDay | null {
  const { data, siteid, type } = event as AnyEvent;
  if (type !== "day-sealed") return null;
  return { site: siteid ?? null, day: data.date, revision: data.revision, account: data };
}

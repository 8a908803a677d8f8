import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import { writerPositionKey } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";

/**
 * State of the sink. After a crash, a repeated commit overwrites only its own files: a commit is recorded before
 * its first object is put, and settled in the transaction that moves the cursor past the commit:
 *
 *   cursor 100    staged 101–200, 201–350    redelivered 101 102 … → commit at 200, commit at 350, continue
 */
export interface SinkState {
  readonly writerId: string;
  readonly stagedCommits: readonly StagedCommit[];
  /** Days to be finalized, oldest first. */
  readonly completeDays: readonly CompleteDay[];
  readonly compactions: readonly StoredCompaction[];
  readonly uncompacted: ReadonlyMap<string, UncompactedDay>;
  /** Wall time at which the last compaction pass began. */
  readonly compactedAtMs: number | null;
}

export interface StagedCommit {
  readonly from: number;
  readonly through: number;
  readonly keys: readonly string[];
}

export interface StoredCompaction {
  readonly result: string;
  readonly sources: readonly string[];
}

/** Day of a site; the site is null for rows that belong to no single site. */
export interface SiteDay {
  readonly site: string | null;
  /** UTC day, such as `2026-11-21`. */
  readonly day: string;
}

/** Day that the worker's ledger has accounted for. */
export interface CompleteDay extends SiteDay {
  readonly revision: number;
  readonly account: unknown;
}

export interface UncompactedDay extends SiteDay {
  readonly tables: readonly string[];
  /** Wall time at which the first of the files was committed. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

const WRITER_KEY = "life";
const STAGED_COMMITS_KEY = "landings";
const COMPACTIONS_KEY = "compaction";
const COMPLETE_DAY_PREFIX = "seal ";
const UNCOMPACTED_PREFIX = "loose ";
const COMPACTED_AT_KEY = "compacted";

interface WriterPosition {
  readonly id: string;
  readonly through: number;
}

/** Loads the state. Takes a new writer id if the state is an old copy: the lake has later commits of the writer. */
export async function openSinkState(
  { sinkState, log }: Pick<ConnectorContext, "sinkState" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<SinkState> {
  const all = await sinkState.all<unknown>();
  const listEntries = (prefix: string) => [...all].filter(([key]) => key.startsWith(prefix));
  const stagedCommits = (all.get(STAGED_COMMITS_KEY) ?? []) as readonly StagedCommit[];
  const restOfSinkState = {
    completeDays: listEntries(COMPLETE_DAY_PREFIX)
      .map(([, day]) => day as CompleteDay)
      .sort((a, b) => (a.day < b.day ? -1 : 1)),
    // Earlier versions stored a single compaction.
    compactions: [(all.get(COMPACTIONS_KEY) ?? []) as StoredCompaction | readonly StoredCompaction[]].flat(),
    uncompacted: new Map(
      listEntries(UNCOMPACTED_PREFIX).map(([key, day]) => [
        key.slice(UNCOMPACTED_PREFIX.length),
        day as UncompactedDay,
      ]),
    ),
    compactedAtMs: (all.get(COMPACTED_AT_KEY) ?? null) as number | null,
  };
  const writer = all.get(WRITER_KEY) as WriterPosition | undefined;
  if (writer !== undefined) {
    const committedPosition = await readCommittedPosition(writer.id, store, signal);
    if (committedPosition <= Math.max(writer.through, stagedCommits.at(-1)?.through ?? 0)) {
      return { writerId: writer.id, stagedCommits, ...restOfSinkState };
    }
    log.warn(
      { remembered: writer.through, landed: committedPosition },
      "the lake has more than this state remembers, so the state is an older copy; what is told again lies there twice, with the same event_id",
    );
  }
  const writerId = randomBytes(6).toString("hex");
  await sinkState.put(encodeChange({ writer: { id: writerId, through: 0 }, stagedCommits: [] }));
  return { writerId, stagedCommits: [], ...restOfSinkState };
}

async function readCommittedPosition(writerId: string, store: ObjectStore, signal: AbortSignal): Promise<number> {
  const bytes = await store.get(writerPositionKey(writerId), signal);
  if (bytes === null) return 0;
  const { through } = JSON.parse(Buffer.from(bytes).toString()) as { through?: unknown };
  return typeof through === "number" ? through : 0;
}

export function encodeChange(parts: {
  readonly writer?: WriterPosition;
  readonly stagedCommits?: readonly StagedCommit[];
  readonly compactions?: readonly StoredCompaction[];
  readonly completeDays?: readonly CompleteDay[];
  readonly finalizedDay?: CompleteDay;
  readonly uncompacted?: ReadonlyMap<string, UncompactedDay | null>;
  readonly compactedAtMs?: number;
}): SinkStateChange {
  const { compactedAtMs, compactions, finalizedDay, stagedCommits, writer } = parts;
  const entries = new Map<string, unknown>();
  if (writer !== undefined) entries.set(WRITER_KEY, writer);
  if (stagedCommits !== undefined) entries.set(STAGED_COMMITS_KEY, stagedCommits.length === 0 ? null : stagedCommits);
  if (compactions !== undefined) entries.set(COMPACTIONS_KEY, compactions.length === 0 ? null : compactions);
  for (const day of parts.completeDays ?? []) entries.set(`${COMPLETE_DAY_PREFIX}${buildDayKey(day)}`, day);
  if (finalizedDay !== undefined) entries.set(`${COMPLETE_DAY_PREFIX}${buildDayKey(finalizedDay)}`, null);
  for (const [key, day] of parts.uncompacted ?? []) entries.set(`${UNCOMPACTED_PREFIX}${key}`, day);
  if (compactedAtMs !== undefined) entries.set(COMPACTED_AT_KEY, compactedAtMs);
  return entries;
}

/** Returns true while a compaction is recorded, which must be completed or undone after a crash. */
export async function isCompacting(sinkState: Pick<ConnectorContext["sinkState"], "get">): Promise<boolean> {
  return ((await sinkState.get(COMPACTIONS_KEY)) ?? null) !== null;
}

/** Combines days; a later revision of a day replaces an earlier revision. */
export function mergeDays(completeDays: readonly CompleteDay[], more: readonly CompleteDay[]): readonly CompleteDay[] {
  return [...new Map([...completeDays, ...more].map((day) => [buildDayKey(day), day])).values()];
}

export function buildDayKey({ day, site }: SiteDay): string {
  return `${day} ${site ?? ""}`;
}

/** Returns the complete day of a `day-sealed` event; null for other events. */
export function parseCompleteDay(event: Event): CompleteDay | null {
  const { data, siteid, type } = event as AnyEvent;
  if (type !== "day-sealed") return null;
  return { site: siteid ?? null, day: data.date, revision: data.revision, account: data };
}

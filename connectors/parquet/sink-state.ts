import { randomBytes } from "node:crypto";
import type { ConnectorContext, SinkStateChange } from "../../src/core/connector.ts";
import type { AnyEvent, Event } from "../../src/core/model/event.ts";
import { buildWriterPositionKey } from "./lake-paths.ts";
import type { ObjectStore } from "./object-store.ts";

/**
 * State of the sink. After a crash, a repeated commit overwrites only its own files: a commit is recorded before
 * its first object is put, and settled in the transaction that moves the cursor past the commit:
 *   cursor 100    staged 101–200, 201–350    redelivered 101 102 … → commit at 200, commit at 350, continue
 */
export interface ParquetSinkState {
  readonly writerId: string;
  readonly stagedCommits: readonly StagedCommit[];
  /** Days to be finalized, oldest first. */
  readonly completeDays: readonly CompleteDay[];
  readonly compactions: readonly StoredCompaction[];
  readonly uncompacted: ReadonlyMap<string, UncompactedDay>;
  /** Wall time at which the last hourly compaction pass began. */
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

/** Day with complete history, reported by a `day-sealed` event. */
export interface CompleteDay extends SiteDay {
  readonly revision: number;
  readonly account: unknown;
}

export interface UncompactedDay extends SiteDay {
  readonly tables: readonly string[];
  /** Wall time of the first commit since the last merge of this day. */
  readonly sinceMs: number;
  readonly lastMs: number;
}

const WRITER_STATE_KEY = "life";
const STAGED_COMMITS_KEY = "landings";
const COMPACTIONS_STATE_KEY = "compaction";
const COMPLETE_DAY_KEY_PREFIX = "seal ";
const UNCOMPACTED_DAY_KEY_PREFIX = "loose ";
const COMPACTION_TIME_STATE_KEY = "compacted";

interface LakeWriterPosition {
  readonly id: string;
  readonly through: number;
}

/** Loads the state. If the lake has later commits of its writer, the state is an old copy and gets a new writer id. */
export async function loadSinkState(
  { sinkState, log }: Pick<ConnectorContext, "sinkState" | "log">,
  store: ObjectStore,
  signal: AbortSignal,
): Promise<ParquetSinkState> {
  const storedEntries = await sinkState.all<unknown>();
  const listStateEntries = (prefix: string) => [...storedEntries].filter(([key]) => key.startsWith(prefix));
  const stagedCommits = (storedEntries.get(STAGED_COMMITS_KEY) ?? []) as readonly StagedCommit[];
  const otherState = {
    completeDays: listStateEntries(COMPLETE_DAY_KEY_PREFIX)
      .map(([, day]) => day as CompleteDay)
      .sort((a, b) => (a.day < b.day ? -1 : 1)),
    // Earlier versions stored a single compaction.
    compactions: [
      (storedEntries.get(COMPACTIONS_STATE_KEY) ?? []) as StoredCompaction | readonly StoredCompaction[],
    ].flat(),
    uncompacted: new Map(
      listStateEntries(UNCOMPACTED_DAY_KEY_PREFIX).map(([key, day]) => [
        key.slice(UNCOMPACTED_DAY_KEY_PREFIX.length),
        day as UncompactedDay,
      ]),
    ),
    compactedAtMs: (storedEntries.get(COMPACTION_TIME_STATE_KEY) ?? null) as number | null,
  };
  const writerPosition = storedEntries.get(WRITER_STATE_KEY) as LakeWriterPosition | undefined;
  if (writerPosition !== undefined) {
    const committedPosition = await readCommittedPosition(writerPosition.id, store, signal);
    if (committedPosition <= Math.max(writerPosition.through, stagedCommits.at(-1)?.through ?? 0))
      return { writerId: writerPosition.id, stagedCommits, ...otherState };
    log.warn(
      { storedPosition: writerPosition.through, lakePosition: committedPosition },
      "the lake has more commits than this state, so the state is an older copy; events that are sent again are in the lake twice, with the same event_id",
    );
  }
  const writerId = randomBytes(6).toString("hex");
  await sinkState.put(encodeSinkStateChange({ writer: { id: writerId, through: 0 }, stagedCommits: [] }));
  return { writerId, stagedCommits: [], ...otherState };
}

async function readCommittedPosition(writerId: string, store: ObjectStore, signal: AbortSignal): Promise<number> {
  const fileBytes = await store.get(buildWriterPositionKey(writerId), signal);
  if (fileBytes === null) return 0;
  const { through } = JSON.parse(Buffer.from(fileBytes).toString()) as { through?: unknown };
  return typeof through === "number" ? through : 0;
}

export function encodeSinkStateChange(state: {
  readonly writer?: LakeWriterPosition;
  readonly stagedCommits?: readonly StagedCommit[];
  readonly compactions?: readonly StoredCompaction[];
  readonly completeDays?: readonly CompleteDay[];
  readonly finalizedDay?: CompleteDay;
  readonly uncompactedDays?: ReadonlyMap<string, UncompactedDay | null>;
  readonly compactedAtMs?: number;
}): SinkStateChange {
  const { compactedAtMs, compactions, finalizedDay, stagedCommits, writer } = state;
  const changes = new Map<string, unknown>();
  if (writer !== undefined) changes.set(WRITER_STATE_KEY, writer);
  if (stagedCommits !== undefined) changes.set(STAGED_COMMITS_KEY, stagedCommits.length === 0 ? null : stagedCommits);
  if (compactions !== undefined) changes.set(COMPACTIONS_STATE_KEY, compactions.length === 0 ? null : compactions);
  for (const day of state.completeDays ?? []) changes.set(`${COMPLETE_DAY_KEY_PREFIX}${buildSiteDayKey(day)}`, day);
  if (finalizedDay !== undefined) changes.set(`${COMPLETE_DAY_KEY_PREFIX}${buildSiteDayKey(finalizedDay)}`, null);
  for (const [key, day] of state.uncompactedDays ?? []) changes.set(`${UNCOMPACTED_DAY_KEY_PREFIX}${key}`, day);
  if (compactedAtMs !== undefined) changes.set(COMPACTION_TIME_STATE_KEY, compactedAtMs);
  return changes;
}

/** Returns true while a compaction is recorded, which must be completed or undone after a crash. */
export const isCompacting = async (sinkState: Pick<ConnectorContext["sinkState"], "get">): Promise<boolean> =>
  ((await sinkState.get(COMPACTIONS_STATE_KEY)) ?? null) !== null;

/** Combines days; a later revision of a day replaces an earlier revision. */
export function combineCompleteDays(completeDays: readonly CompleteDay[], newDays: readonly CompleteDay[]) {
  return [...new Map([...completeDays, ...newDays].map((day) => [buildSiteDayKey(day), day])).values()];
}

export const buildSiteDayKey = ({ day, site }: SiteDay): string => `${day} ${site ?? ""}`;

export function parseCompleteDay(event: Event): CompleteDay | null {
  const { data, siteid, type } = event as AnyEvent;
  if (type !== "day-sealed") return null;
  return { site: siteid ?? null, day: data.date, revision: data.revision, account: data };
}

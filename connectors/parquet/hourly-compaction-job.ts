import type { SinkStateChange } from "../../src/core/connector.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { LAKE_TABLES } from "../shared/lake/tables.ts";
import { dayPartition, type LakePartition, UNIX_EPOCH_DAY } from "./lake-paths.ts";
import { buildSiteDayKey, encodeSinkStateChange, type ParquetSinkState, type UncompactedDay } from "./sink-state.ts";
import type { LakeTableFormat } from "./table-format.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MAX_DAY_MERGE_DELAY_MS = DAY_MS;
const PARTITIONS_PER_JOIN = 50;

type CompactionStep = { readonly partitionsToJoin: readonly LakePartition[] } | { readonly mergeKey: string };

export type HourlyCompaction = ReturnType<typeof createHourlyCompaction>;

/**
 * Compacts the files of each day and site, in one pass per hour.
 *   a commit settles ─► its days are uncompacted ─► once an hour: join their small files
 *                                               └─► the day is over and had no commit for an hour:
 *                                                   merge each table into one file, write the manifest, forget the day
 * The transaction that settles a commit also stores its uncompacted days. Before its first pass, the job searches the
 * complete lake once for such days. `onMerged` is called when all tables of a day are merged.
 */
export function createHourlyCompaction(
  state: Pick<ParquetSinkState, "uncompacted" | "compactedAtMs">,
  format: LakeTableFormat,
  clock: Clock,
  onMerged: (day: UncompactedDay, signal: AbortSignal) => Promise<void>,
) {
  const uncompactedDays = new Map(state.uncompacted);
  const startMs = clock.monotonic();
  const startWallMs = clock.now();
  /** Monotonic time of the last commit of each day, converted from wall time for days that an earlier process wrote. */
  const committedMsByDay = new Map(
    [...uncompactedDays].map(([key, { lastMs }]) => [key, startMs - getElapsedMs(lastMs, startWallMs)] as const),
  );
  let compactionStartMs =
    startMs - (state.compactedAtMs === null ? HOUR_MS : getElapsedMs(state.compactedAtMs, startWallMs));
  let compactionWallMs = startWallMs;
  let pendingSteps: CompactionStep[] | null = null;
  let partitionSearch = state.compactedAtMs === null ? findAllPartitions() : null;
  let searchSignal: AbortSignal = AbortSignal.abort();

  async function* findAllPartitions(): AsyncGenerator<LakePartition> {
    for (const table of LAKE_TABLES) {
      if (table.rowPolicy === "append") yield* format.listPartitions(table, () => searchSignal);
    }
  }

  /** Finds the next partition in the lake and marks its day as uncompacted. Returns false at the end of the search. */
  async function continuePartitionSearch(signal: AbortSignal): Promise<boolean> {
    if (partitionSearch === null) return false;
    searchSignal = signal;
    const { done, value } = await partitionSearch.next();
    if (done === true) {
      partitionSearch = null;
      return false;
    }
    if (value.dayAndSite?.day !== UNIX_EPOCH_DAY) noteUncompactedRows(value, 0, startMs - HOUR_MS);
    return true;
  }

  function noteUncompactedRows({ dayAndSite, table }: LakePartition, commitWallMs: number, commitMs: number) {
    if (dayAndSite === null || dayAndSite.day === null) return null;
    const { day, site } = dayAndSite;
    const key = buildSiteDayKey({ day, site });
    const storedDay = uncompactedDays.get(key);
    const tables = [...new Set([...(storedDay?.tables ?? []), table.name])];
    const { sinceMs = commitWallMs, lastMs = commitWallMs } = storedDay ?? {};
    uncompactedDays.set(key, { site, day, tables, sinceMs, lastMs: Math.max(commitWallMs, lastMs) });
    committedMsByDay.set(key, Math.max(commitMs, committedMsByDay.get(key) ?? commitMs));
    return key;
  }

  function isDayMergeDue(key: string, { day, sinceMs }: UncompactedDay): boolean {
    const nowMs = clock.now();
    const dayEndMs = Date.parse(day) + DAY_MS;
    if (nowMs < dayEndMs) return false;
    const hadNoCommitForAnHour = clock.monotonic() - (committedMsByDay.get(key) ?? 0) >= HOUR_MS;
    return hadNoCommitForAnHour || nowMs - Math.max(sinceMs, dayEndMs) >= MAX_DAY_MERGE_DELAY_MS;
  }

  function planCompactionSteps(lastStartMs: number): CompactionStep[] {
    const days = [...uncompactedDays].toSorted(([a], [b]) => (a < b ? -1 : 1));
    const { merge = [], join = [] } = Object.groupBy(days, ([key, day]) =>
      isDayMergeDue(key, day) ? "merge" : "join",
    );
    const partitions = join
      .filter(([key]) => (committedMsByDay.get(key) ?? 0) >= lastStartMs)
      .flatMap(([, day]) => listPartitionsOfDay(day));
    const partitionsByTable = Map.groupBy(partitions, ({ table }) => table);
    const joinSteps = [...partitionsByTable.values()]
      .flatMap((partitionsOfTable) => splitIntoGroups(partitionsOfTable, PARTITIONS_PER_JOIN))
      .map((partitionsToJoin) => ({ partitionsToJoin }));
    return [...joinSteps, ...merge.map(([key]) => ({ mergeKey: key }))];
  }

  async function mergeDayFiles(key: string, signal: AbortSignal): Promise<SinkStateChange> {
    const day = uncompactedDays.get(key);
    // A day that got new rows since the hourly pass began waits for the next pass.
    if (day === undefined || !isDayMergeDue(key, day)) return new Map();
    for (const partition of listPartitionsOfDay(day)) await format.mergeFiles(partition, signal);
    await onMerged(day, signal);
    uncompactedDays.delete(key);
    committedMsByDay.delete(key);
    return encodeSinkStateChange({ uncompactedDays: new Map([[key, null]]) });
  }

  return {
    /** Marks the days of partitions with new rows as uncompacted. Returns the change of the sink state. */
    noteCommit(partitions: Iterable<LakePartition>): SinkStateChange {
      const changedUncompactedDays = new Map<string, UncompactedDay | null>();
      for (const partition of partitions) {
        const key = noteUncompactedRows(partition, clock.now(), clock.monotonic());
        if (key !== null) changedUncompactedDays.set(key, uncompactedDays.get(key) ?? null);
      }
      return encodeSinkStateChange({ uncompactedDays: changedUncompactedDays });
    },
    /** Does one join or merge; returns null if none is due. The next pass repeats a failed step. */
    async runStep(signal: AbortSignal): Promise<SinkStateChange | null> {
      // Plan a pass each hour, even if one is unfinished: joins for days with new commits first, then due merges.
      if (clock.monotonic() - compactionStartMs >= HOUR_MS) {
        if (await continuePartitionSearch(signal)) return new Map();
        const lastCompactionStartMs = compactionStartMs;
        [compactionStartMs, compactionWallMs] = [clock.monotonic(), clock.now()];
        pendingSteps = planCompactionSteps(lastCompactionStartMs);
      }
      if (pendingSteps === null) return null;
      const nextCompactionStep = pendingSteps.shift();
      if (nextCompactionStep === undefined) {
        pendingSteps = null;
        return encodeSinkStateChange({ compactedAtMs: compactionWallMs });
      }
      if ("mergeKey" in nextCompactionStep) return mergeDayFiles(nextCompactionStep.mergeKey, signal);
      await format.joinFiles(nextCompactionStep.partitionsToJoin, signal);
      return new Map();
    },
  };
}

/** Returns the elapsed time, or one hour if the clock was set back. */
const getElapsedMs = (pastMs: number, nowMs: number): number => (nowMs < pastMs ? HOUR_MS : nowMs - pastMs);

const listPartitionsOfDay = ({ day, site, tables }: UncompactedDay): readonly LakePartition[] =>
  LAKE_TABLES.filter(({ name }) => tables.includes(name)).map((table) => dayPartition(table, day, site));

const splitIntoGroups = <T>(items: readonly T[], size: number): readonly T[][] =>
  Array.from({ length: Math.ceil(items.length / size) }, (_, n) => items.slice(n * size, n * size + size));

import type { SinkStateChange } from "../../src/core/connector.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { EPOCH_DAY, type LakePartition, toPartition } from "./lake-paths.ts";
import { buildDayKey, encodeChange, type SinkState, type UncompactedDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longest time for which late rows may delay the merge of a day's files. */
const MAX_MERGE_DELAY_MS = DAY_MS;
const PARTITIONS_PER_JOIN = 50;

type CompactionStep = { readonly join: readonly LakePartition[] } | { readonly mergeKey: string };

export type HourlyCompaction = ReturnType<typeof createHourlyCompaction>;

/**
 * Compacts the files of each day and site.
 *
 *   a commit settles ─► its days are uncompacted ─► once an hour: join their small files
 *                                               └─► the day is over and had no commit for an hour:
 *                                                   merge each table into one file, write the manifest, forget the day
 *
 * The transaction that settles a commit also stores its uncompacted days. A state without a compaction pass searches
 * the complete lake once. `onMerged` is called when all tables of a day are merged.
 */
export function createHourlyCompaction(
  state: Pick<SinkState, "uncompacted" | "compactedAtMs">,
  format: TableFormat,
  clock: Clock,
  onMerged: (day: UncompactedDay, signal: AbortSignal) => Promise<void>,
) {
  const uncompacted = new Map(state.uncompacted);
  const startMs = clock.monotonic();
  const wallMs = clock.now();
  /** Monotonic time of the last commit of each day, converted from wall time for days of an earlier process. */
  const committedAtMs = new Map(
    [...uncompacted].map(([key, { lastMs }]) => [key, startMs - elapsedSinceMs(lastMs, wallMs)] as const),
  );
  let passStartMs = startMs - (state.compactedAtMs === null ? HOUR_MS : elapsedSinceMs(state.compactedAtMs, wallMs));
  let passWallMs = wallMs;
  let pendingSteps: CompactionStep[] | null = null;
  let dayGenerator = state.compactedAtMs === null ? listDayPartitions() : null;
  let searchSignal: AbortSignal = AbortSignal.abort();

  async function* listDayPartitions(): AsyncGenerator<LakePartition> {
    for (const table of TABLES) {
      if (table.rowPolicy === "append") yield* format.partitions(table, () => searchSignal);
    }
  }

  /** Notes the next partition found in the lake as uncompacted; returns false at the end. */
  async function continueSearch(signal: AbortSignal): Promise<boolean> {
    if (dayGenerator === null) return false;
    searchSignal = signal;
    const { done, value } = await dayGenerator.next();
    if (done === true) {
      dayGenerator = null;
      return false;
    }
    if (value.dayAndSite?.day !== EPOCH_DAY) noteRows(value, 0, startMs - HOUR_MS);
    return true;
  }

  function noteRows({ dayAndSite: of, table }: LakePartition, lastMs: number, monotonicMs: number): string | null {
    if (of === null || of.day === null) return null;
    const { day, site } = of;
    const key = buildDayKey({ day, site });
    const storedDay = uncompacted.get(key);
    const tables = [...new Set([...(storedDay?.tables ?? []), table.name])];
    const latestMs = Math.max(lastMs, storedDay?.lastMs ?? lastMs);
    uncompacted.set(key, { site, day, tables, sinceMs: storedDay?.sinceMs ?? lastMs, lastMs: latestMs });
    committedAtMs.set(key, Math.max(monotonicMs, committedAtMs.get(key) ?? monotonicMs));
    return key;
  }

  function isMergeDue(key: string, { day, sinceMs }: UncompactedDay): boolean {
    const nowMs = clock.now();
    const dayEndMs = Date.parse(day) + DAY_MS;
    if (nowMs < dayEndMs) return false;
    const isDayQuiet = clock.monotonic() - (committedAtMs.get(key) ?? 0) >= HOUR_MS;
    return isDayQuiet || nowMs - Math.max(sinceMs, dayEndMs) >= MAX_MERGE_DELAY_MS;
  }

  function planSteps(lastPassMs: number): CompactionStep[] {
    const mergeSteps: CompactionStep[] = [];
    const partitionsByTable = new Map<string, LakePartition[]>();
    for (const [key, day] of [...uncompacted].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      if (isMergeDue(key, day)) mergeSteps.push({ mergeKey: key });
      else if ((committedAtMs.get(key) ?? 0) >= lastPassMs) {
        for (const partition of listPartitions(day)) {
          const { name } = partition.table;
          partitionsByTable.set(name, [...(partitionsByTable.get(name) ?? []), partition]);
        }
      }
    }
    const joinGroups = [...partitionsByTable.values()].flatMap((all) => splitIntoGroups(all, PARTITIONS_PER_JOIN));
    return [...joinGroups.map((join) => ({ join })), ...mergeSteps];
  }

  async function mergeDay(key: string, signal: AbortSignal): Promise<SinkStateChange> {
    const day = uncompacted.get(key);
    // A day that got new rows since the pass began waits for the next pass.
    if (day === undefined || !isMergeDue(key, day)) return new Map();
    for (const partition of listPartitions(day)) await format.compact(partition, signal);
    await onMerged(day, signal);
    uncompacted.delete(key);
    committedAtMs.delete(key);
    return encodeChange({ uncompacted: new Map([[key, null]]) });
  }

  return {
    /** Stores which partitions have new rows; returns the change of the sink's state. */
    noteCommit(partitions: Iterable<LakePartition>): SinkStateChange {
      const changedDays = new Map<string, UncompactedDay | null>();
      for (const partition of partitions) {
        const key = noteRows(partition, clock.now(), clock.monotonic());
        if (key !== null) changedDays.set(key, uncompacted.get(key) ?? null);
      }
      return encodeChange({ uncompacted: changedDays });
    },
    /** Does one join or merge; returns null if none is due. A failed step waits for the next pass. */
    async step(signal: AbortSignal): Promise<SinkStateChange | null> {
      // A pass that takes longer than an hour starts again with the open day; other days stay uncompacted.
      if (clock.monotonic() - passStartMs >= HOUR_MS) {
        if (await continueSearch(signal)) return new Map();
        const lastPassStartMs = passStartMs;
        [passStartMs, passWallMs] = [clock.monotonic(), clock.now()];
        pendingSteps = planSteps(lastPassStartMs);
      }
      if (pendingSteps === null) return null;
      const nextStep = pendingSteps.shift();
      if (nextStep === undefined) {
        pendingSteps = null;
        return encodeChange({ compactedAtMs: passWallMs });
      }
      if ("mergeKey" in nextStep) return mergeDay(nextStep.mergeKey, signal);
      const [partition] = nextStep.join;
      if (partition !== undefined) await format.join(partition.table, nextStep.join, signal);
      return new Map();
    },
  };
}

/** Returns the elapsed time, or one hour if the clock was set back. */
function elapsedSinceMs(thenMs: number, nowMs: number): number {
  return nowMs < thenMs ? HOUR_MS : nowMs - thenMs;
}

function listPartitions({ day, site, tables }: UncompactedDay): readonly LakePartition[] {
  return TABLES.filter(({ name }) => tables.includes(name)).map((table) => toPartition(table, day, site));
}

function splitIntoGroups<T>(all: readonly T[], size: number): readonly T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, n) => all.slice(n * size, n * size + size));
}

import type { SinkStateChange } from "../../src/core/connector.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { FIRST_DAY, type Partition, partitionOf } from "./paths.ts";
import { dayKey, type SinkState, stateChange, type UncompactedDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longest wait of a day with late rows for its merge. */
const MAX_WAIT_MS = DAY_MS;
/** Partitions of one table in one step, which is one commit of a Delta table. */
const JOINED_AT_ONCE = 50;

type Step = { readonly join: readonly Partition[] } | { readonly mergeKey: string };

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
  /** Monotonic times, converted from wall time for days of an earlier start. */
  const committedAtMs = new Map(
    [...uncompacted].map(([key, { lastMs }]) => [key, startMs - elapsedMs(lastMs, wallMs)] as const),
  );
  /** Monotonic time at which the last pass began. */
  let passStartMs = startMs - (state.compactedAtMs === null ? HOUR_MS : elapsedMs(state.compactedAtMs, wallMs));
  let passWallMs = wallMs;
  let steps: Step[] | null = null;
  let dayGenerator = state.compactedAtMs === null ? allDays() : null;
  let searchSignal: AbortSignal = AbortSignal.abort();

  async function* allDays(): AsyncGenerator<Partition> {
    for (const table of TABLES) {
      if (table.rowPolicy === "append") yield* format.partitions(table, () => searchSignal);
    }
  }

  /** Notes one partition that another state or an earlier version left; returns false at the end. */
  async function continueSearch(signal: AbortSignal): Promise<boolean> {
    if (dayGenerator === null) return false;
    searchSignal = signal;
    const { done, value } = await dayGenerator.next();
    if (done === true) {
      dayGenerator = null;
      return false;
    }
    if (value.dayAndSite?.day !== FIRST_DAY) noteRows(value, 0, startMs - HOUR_MS);
    return true;
  }

  function noteRows({ dayAndSite: of, table }: Partition, lastMs: number, monotonicMs: number): string | null {
    if (of === null || of.day === null) return null;
    const { day, site } = of;
    const key = dayKey({ day, site });
    const before = uncompacted.get(key);
    const tables = [...new Set([...(before?.tables ?? []), table.name])];
    const latestMs = Math.max(lastMs, before?.lastMs ?? lastMs);
    uncompacted.set(key, { site, day, tables, sinceMs: before?.sinceMs ?? lastMs, lastMs: latestMs });
    committedAtMs.set(key, Math.max(monotonicMs, committedAtMs.get(key) ?? monotonicMs));
    return key;
  }

  function isMergeDue(key: string, { day, sinceMs }: UncompactedDay): boolean {
    const nowMs = clock.now();
    const endMs = Date.parse(day) + DAY_MS;
    if (nowMs < endMs) return false;
    const isQuiet = clock.monotonic() - (committedAtMs.get(key) ?? 0) >= HOUR_MS;
    return isQuiet || nowMs - Math.max(sinceMs, endMs) >= MAX_WAIT_MS;
  }

  /** Oldest day first. */
  function planSteps(lastPassMs: number): Step[] {
    const merges: Step[] = [];
    const joins = new Map<string, Partition[]>();
    for (const [key, day] of [...uncompacted].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      if (isMergeDue(key, day)) merges.push({ mergeKey: key });
      else if ((committedAtMs.get(key) ?? 0) >= lastPassMs) {
        for (const partition of partitionsOf(day)) {
          const { name } = partition.table;
          joins.set(name, [...(joins.get(name) ?? []), partition]);
        }
      }
    }
    const groups = [...joins.values()].flatMap((all) => splitIntoGroups(all, JOINED_AT_ONCE));
    return [...groups.map((join) => ({ join })), ...merges];
  }

  async function merge(key: string, signal: AbortSignal): Promise<SinkStateChange> {
    const day = uncompacted.get(key);
    // A day that got new rows since the pass began waits for the next pass.
    if (day === undefined || !isMergeDue(key, day)) return new Map();
    for (const partition of partitionsOf(day)) await format.compact(partition, signal);
    await onMerged(day, signal);
    uncompacted.delete(key);
    committedAtMs.delete(key);
    return stateChange({ uncompacted: new Map([[key, null]]) });
  }

  return {
    /** Notes new rows; returns the state change for the settlement. */
    noteCommit(partitions: Iterable<Partition>): SinkStateChange {
      const changed = new Map<string, UncompactedDay | null>();
      for (const partition of partitions) {
        const key = noteRows(partition, clock.now(), clock.monotonic());
        if (key !== null) changed.set(key, uncompacted.get(key) ?? null);
      }
      return stateChange({ uncompacted: changed });
    },

    /** Joins or merges one group; null where nothing is due. A failed step waits for the next pass. */
    async step(signal: AbortSignal): Promise<SinkStateChange | null> {
      // A pass that takes longer than an hour starts again with the open day; other days stay uncompacted.
      if (clock.monotonic() - passStartMs >= HOUR_MS) {
        if (await continueSearch(signal)) return new Map();
        const lastPassMs = passStartMs;
        [passStartMs, passWallMs] = [clock.monotonic(), clock.now()];
        steps = planSteps(lastPassMs);
      }
      if (steps === null) return null;
      const next = steps.shift();
      if (next === undefined) {
        steps = null;
        return stateChange({ compactedAtMs: passWallMs });
      }
      if ("mergeKey" in next) return merge(next.mergeKey, signal);
      const [partition] = next.join;
      if (partition !== undefined) await format.join(partition.table, next.join, signal);
      return new Map();
    },
  };
}

/** Returns the length of a pass where the clock was set back. */
function elapsedMs(thenMs: number, nowMs: number): number {
  return nowMs < thenMs ? HOUR_MS : nowMs - thenMs;
}

function partitionsOf({ day, site, tables }: UncompactedDay): readonly Partition[] {
  return TABLES.filter(({ name }) => tables.includes(name)).map((table) => partitionOf(table, day, site));
}

function splitIntoGroups<T>(all: readonly T[], size: number): readonly T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, n) => all.slice(n * size, n * size + size));
}

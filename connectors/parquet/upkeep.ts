import type { SinkStateChange } from "../../src/core/connector.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { TABLES } from "../shared/lake/tables.ts";
import { FIRST_DAY, isDivided, type Partition, partitionOf } from "./paths.ts";
import { dayKey, rememberCompactedAt, rememberUncompacted, type SinkState, type UncompactedDay } from "./sink-state.ts";
import type { TableFormat } from "./table-format.ts";

/**
 * Compacts the files of each day and site, with or without a ledger of history.
 *
 *   a commit settles ─► its days are uncompacted ─► once an hour: join their small files
 *                                               └─► the day is over and had no commit for an hour:
 *                                                   merge each table into one file, write the manifest, forget the day
 *
 * The transaction that settles a commit also stores its uncompacted days, so they survive crashes and long stops.
 * A state without a compaction pass searches the complete lake once.
 */
export interface Upkeep {
  /** Notes new rows in these partitions; returns the state change for the settlement. */
  committed(partitions: Iterable<Partition>): SinkStateChange;
  /** Does one step, a day or a table; null where nothing is due. A failed step waits for the next pass. */
  step(signal: AbortSignal): Promise<SinkStateChange | null>;
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
/** Longest time that a day with late rows waits for its merge, and between its merges. */
const MOST_WAIT_MS = DAY_MS;
/** Partitions of one table joined in one step: one commit of a Delta table. */
const JOINED_AT_ONCE = 50;

type Work = { readonly join: readonly Partition[] } | { readonly merge: string };

export function createUpkeep(options: {
  readonly state: Pick<SinkState, "uncompacted" | "compactedAtMs">;
  readonly format: TableFormat;
  readonly clock: Clock;
  /** Called when all tables of the day are merged. */
  readonly onMerged: (day: UncompactedDay, signal: AbortSignal) => Promise<void>;
}): Upkeep {
  const { state, clock, format, onMerged } = options;
  const uncompacted = new Map(state.uncompacted);
  /**
   * Time of a day's last commit on the monotonic clock; converted from wall time for days of an earlier start.
   */
  const committedAt = new Map<string, number>();
  const startMs = clock.monotonic();
  const wallMs = clock.now();
  for (const [key, day] of uncompacted) committedAt.set(key, startMs - since(day.lastMs, wallMs));
  /** When the last pass began, on the monotonic clock. */
  let passMs = startMs - (state.compactedAtMs === null ? HOUR_MS : since(state.compactedAtMs, wallMs));
  let passWallMs = wallMs;
  let work: Work[] | null = null;
  let search = state.compactedAtMs === null ? allDays() : null;
  let searching: AbortSignal = AbortSignal.abort();

  async function* allDays(): AsyncGenerator<Partition> {
    for (const table of TABLES) {
      if (table.rowPolicy === "append" && isDivided(table)) yield* format.partitions(table, () => searching);
    }
  }

  /** Notes one partition that another state or an earlier version left; returns false when all are noted. */
  async function searchOn(signal: AbortSignal): Promise<boolean> {
    if (search === null) return false;
    searching = signal;
    const { done, value } = await search.next();
    if (done === true) {
      search = null;
      return false;
    }
    if (value.of !== null && value.of.day !== FIRST_DAY) note(value, 0, startMs - HOUR_MS);
    return true;
  }

  function note({ of, table }: Partition, lastMs: number, monotonicMs: number): string | null {
    if (of === null || of.day === null) return null;
    const { day, site } = of;
    const key = dayKey(day, site);
    const known = uncompacted.get(key);
    const tables = known?.tables.includes(table.name) ? known.tables : [...(known?.tables ?? []), table.name];
    const latestMs = Math.max(lastMs, known?.lastMs ?? lastMs);
    uncompacted.set(key, { site, day, tables, sinceMs: known?.sinceMs ?? lastMs, lastMs: latestMs });
    committedAt.set(key, Math.max(monotonicMs, committedAt.get(key) ?? monotonicMs));
    return key;
  }

  function isToBeMerged(key: string, { day, sinceMs }: UncompactedDay): boolean {
    const nowMs = clock.now();
    const endMs = Date.parse(day) + DAY_MS;
    if (nowMs < endMs) return false;
    const isQuiet = clock.monotonic() - (committedAt.get(key) ?? 0) >= HOUR_MS;
    return isQuiet || nowMs - Math.max(sinceMs, endMs) >= MOST_WAIT_MS;
  }

  /** Returns the work of this pass, the oldest day first. */
  function plan(beforeMs: number): Work[] {
    const merges: Work[] = [];
    const joins = new Map<string, Partition[]>();
    for (const [key, day] of [...uncompacted].toSorted(([a], [b]) => (a < b ? -1 : 1))) {
      if (isToBeMerged(key, day)) {
        merges.push({ merge: key });
        continue;
      }
      if ((committedAt.get(key) ?? 0) < beforeMs) continue;
      for (const partition of partitionsOf(day)) {
        const { name } = partition.table;
        joins.set(name, [...(joins.get(name) ?? []), partition]);
      }
    }
    const parts = [...joins.values()].flatMap((all) => inParts(all, JOINED_AT_ONCE));
    return [...parts.map((join) => ({ join })), ...merges];
  }

  async function merge(key: string, signal: AbortSignal): Promise<SinkStateChange> {
    const day = uncompacted.get(key);
    // Rows may have landed since the pass began; then the day waits for the next one.
    if (day === undefined || !isToBeMerged(key, day)) return new Map();
    for (const partition of partitionsOf(day)) await format.compact(partition, signal);
    await onMerged(day, signal);
    uncompacted.delete(key);
    committedAt.delete(key);
    return rememberUncompacted(new Map([[key, null]]));
  }

  return {
    committed(partitions) {
      const keys = new Set<string>();
      for (const partition of partitions) {
        const key = note(partition, clock.now(), clock.monotonic());
        if (key !== null) keys.add(key);
      }
      return rememberUncompacted(new Map([...keys].map((key) => [key, uncompacted.get(key) ?? null])));
    },

    async step(signal) {
      // A pass that takes longer than an hour starts again: the open day comes first, and other days stay
      // uncompacted.
      if (clock.monotonic() - passMs >= HOUR_MS) {
        if (await searchOn(signal)) return new Map();
        const beforeMs = passMs;
        [passMs, passWallMs] = [clock.monotonic(), clock.now()];
        work = plan(beforeMs);
      }
      if (work === null) return null;
      const next = work.shift();
      if (next === undefined) {
        work = null;
        return rememberCompactedAt(passWallMs);
      }
      if ("merge" in next) return merge(next.merge, signal);
      const [partition] = next.join;
      if (partition !== undefined) await format.join(partition.table, next.join, signal);
      return new Map();
    },
  };
}

/** Milliseconds between two wall times; the length of a pass where the clock was set back. */
function since(thenMs: number, nowMs: number): number {
  return nowMs < thenMs ? HOUR_MS : nowMs - thenMs;
}

function partitionsOf({ day, site, tables }: UncompactedDay): readonly Partition[] {
  return TABLES.filter(({ name }) => tables.includes(name)).map((table) => partitionOf(table, day, site));
}

function inParts<T>(all: readonly T[], size: number): readonly T[][] {
  return Array.from({ length: Math.ceil(all.length / size) }, (_, n) => all.slice(n * size, n * size + size));
}

import type { EventNumber } from "../../core/model/delivery-sequence.ts";
import { createEpoch, type DamagedRowQuarantine } from "./damage-quarantine.ts";
import type { SqlDriver, SqlStatement } from "./sql-driver.ts";
import type { SinkPosition } from "./store.ts";

export interface StoredSinkCursor extends SinkPosition {
  readonly counted: EventNumber;
}

export type SinkCursorColumn = "position" | "urgent";

export type SinkCursorRepair = Pick<DamagedRowQuarantine, "repairCursors" | "isCursorLost" | "claimCursor">;

interface SinkCursorRow extends SinkPosition {
  readonly number: number;
  readonly epoch: string;
  readonly sound: number | boolean;
}

/**
 * Stores the cursors of sinks. A sink may be behind with values (v) and ahead with urgent events (a), up to `urgent`:
 *
 *   log      v1 v2 a3 v4 v5 a6 v7      position 2, urgent 6: v1, v2, a3 and a6 are settled; v4 comes next
 *
 * Cursor and sequence number move together, so that an event gets the same number after a crash.
 */
export function createSinkCursors({ query, dialect }: SqlDriver, isCached: boolean, repair?: SinkCursorRepair) {
  let cachedCursors: Map<string, StoredSinkCursor> | null = null;
  let cursorsPromise: Promise<Map<string, StoredSinkCursor>> | null = null;

  async function loadSinkCursors(): Promise<Map<string, StoredSinkCursor>> {
    const rows = await query<SinkCursorRow>(
      `select name as sink, position, urgent, ended, counted as number, epoch, ${dialect.isIntactSql("sink")} as sound
       from sink where source = $1`,
    );
    if (rows.some(({ sound }) => !sound) && repair?.repairCursors() === true) return loadSinkCursors();
    return new Map(
      rows.map(({ sink, position, urgent, ended, epoch, number }) => [
        sink,
        { sink, position, urgent, ended, counted: { epoch, number } },
      ]),
    );
  }

  async function readCachedCursors(): Promise<ReadonlyMap<string, StoredSinkCursor>> {
    if (cachedCursors !== null) return cachedCursors;
    if (!isCached) return loadSinkCursors();
    cursorsPromise ??= loadSinkCursors();
    const runningRead = cursorsPromise;
    try {
      const cursors = await runningRead;
      if (cursorsPromise === runningRead) cachedCursors = cursors;
      return cursors;
    } finally {
      if (cursorsPromise === runningRead) cursorsPromise = null;
    }
  }

  function forgetCachedCursors(): void {
    cachedCursors = null;
    cursorsPromise = null;
  }

  return {
    findCursor: async (sink: string): Promise<StoredSinkCursor | undefined> => (await readCachedCursors()).get(sink),
    forget: forgetCachedCursors,
    applyMove(sink: string, through: number, counted: EventNumber | undefined, column: SinkCursorColumn): void {
      const stored = cachedCursors?.get(sink);
      if (stored === undefined) {
        forgetCachedCursors();
        return;
      }
      const isLaterSequence = counted?.epoch === stored.counted.epoch && counted.number > stored.counted.number;
      const movedSinkCursor = {
        ...stored,
        [column]: Math.max(through, stored[column]),
        counted: isLaterSequence ? counted : stored.counted,
      };
      cachedCursors?.set(sink, movedSinkCursor);
    },
    register: (sink: string, position: number): SqlStatement => ({
      text: dialect.insert("sink", {
        ...{ name: "$2", position: "$3::bigint", dropped: "0", ended: "null" },
        ...{ counted: "0", epoch: "$4", urgent: "0" },
      }),
      values: [sink, position, createEpoch()],
    }),
    /** Moves a cursor forward, never back, whatever the order of settlements. Numbers of an old epoch are ignored. */
    moveCursor: (sink: string, through: number, counted: EventNumber | undefined, column: SinkCursorColumn) => ({
      text: dialect.update(
        "sink",
        {
          [column]: `greatest(${column}, $3::bigint)`,
          counted: "case when epoch = $4::text then greatest(counted, $5::bigint) else counted end",
        },
        "name = $2",
      ),
      values: [sink, through, counted?.epoch ?? null, counted?.number ?? 0],
      name: `move_${column}`,
    }),
    addDroppedEvents: (sink: string, count: number): SqlStatement => ({
      text: dialect.update("sink", { dropped: "dropped + $3::bigint" }, "name = $2"),
      values: [sink, count],
    }),
    beginEpoch: (sink: string): SqlStatement => ({
      text: dialect.update("sink", { counted: "0", epoch: "$3" }, "name = $2"),
      values: [sink, createEpoch()],
    }),
    setEnded: (sink: string, reason: string | null): SqlStatement => ({
      text: dialect.update("sink", { ended: "$3::text" }, "name = $2"),
      values: [sink, reason],
    }),
  };
}

export type SinkCursors = ReturnType<typeof createSinkCursors>;

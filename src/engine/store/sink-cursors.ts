import type { EventNumber } from "../../core/model/delivery-sequence.ts";
import { createEpoch, type DamageQuarantine } from "./damage-quarantine.ts";
import type { SqlDriver, SqlStatement } from "./sql-driver.ts";
import type { SinkPosition } from "./store.ts";

export interface StoredSink extends SinkPosition {
  readonly counted: EventNumber;
}

/** `position` is the cursor for all events, `urgent` the one for urgent events. */
export type CursorColumn = "position" | "urgent";

export type CursorRepair = Pick<DamageQuarantine, "repairCursors" | "isCursorLost" | "claimCursor">;

interface SinkRow extends SinkPosition {
  readonly number: number;
  readonly epoch: string;
  readonly sound: number | boolean;
}

/**
 * Stores the cursors of sinks. A sink that is behind with values may be ahead with urgent events, up to `urgent`:
 *
 *   log      v1 v2 a3 v4 v5 a6 v7      position 2, urgent 6: v1, v2, a3 and a6 are settled; v4 comes next
 *
 * Cursor and sequence number move together, so that an event gets the same number after a crash.
 */
export function createSinkCursors({ query, dialect }: SqlDriver, isCached: boolean, damage?: CursorRepair) {
  let cachedSinks: Map<string, StoredSink> | null = null;
  let sinksPromise: Promise<Map<string, StoredSink>> | null = null;

  async function loadSinks(): Promise<Map<string, StoredSink>> {
    const rows = await query<SinkRow>(
      `select name as sink, position, urgent, ended, counted as number, epoch, ${dialect.isSound("sink")} as sound
       from sink where source = $1`,
    );
    if (rows.some(({ sound }) => !sound) && damage?.repairCursors() === true) return loadSinks();
    return new Map(
      rows.map(({ sink, position, urgent, ended, epoch, number }) => [
        sink,
        { sink, position, urgent, ended, counted: { epoch, number } },
      ]),
    );
  }

  async function readSinks(): Promise<ReadonlyMap<string, StoredSink>> {
    if (cachedSinks !== null) return cachedSinks;
    if (!isCached) return loadSinks();
    sinksPromise ??= loadSinks();
    const currentRead = sinksPromise;
    try {
      const sinks = await currentRead;
      // The sinks may have changed since.
      if (sinksPromise === currentRead) cachedSinks = sinks;
      return sinks;
    } finally {
      if (sinksPromise === currentRead) sinksPromise = null;
    }
  }

  function forgetCached(): void {
    cachedSinks = null;
    sinksPromise = null;
  }

  return {
    find: async (sink: string): Promise<StoredSink | undefined> => (await readSinks()).get(sink),
    forget: forgetCached,
    applyMove(sink: string, through: number, counted: EventNumber | undefined, cursor: CursorColumn): void {
      const storedSink = cachedSinks?.get(sink);
      if (storedSink === undefined) {
        forgetCached();
        return;
      }
      const isLater = counted?.epoch === storedSink.counted.epoch && counted.number > storedSink.counted.number;
      const movedSink = {
        ...storedSink,
        [cursor]: Math.max(through, storedSink[cursor]),
        counted: isLater ? counted : storedSink.counted,
      };
      cachedSinks?.set(sink, movedSink);
    },
    register: (sink: string, position: number): SqlStatement => ({
      text: dialect.insert("sink", {
        ...{ name: "$2", position: "$3::bigint", dropped: "0", ended: "null" },
        ...{ counted: "0", epoch: "$4", urgent: "0" },
      }),
      values: [sink, position, createEpoch()],
    }),
    /** Moves a cursor forward, never back, whatever the order of settlements. Numbers of an old epoch are ignored. */
    moveTo: (sink: string, through: number, counted: EventNumber | undefined, cursor: CursorColumn): SqlStatement => ({
      text: dialect.update(
        "sink",
        {
          [cursor]: `greatest(${cursor}, $3::bigint)`,
          counted: "case when epoch = $4::text then greatest(counted, $5::bigint) else counted end",
        },
        "name = $2",
      ),
      values: [sink, through, counted?.epoch ?? null, counted?.number ?? 0],
      name: `move_${cursor}`,
    }),
    addDropped: (sink: string, count: number): SqlStatement => ({
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

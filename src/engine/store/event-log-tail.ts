import { parseEvent } from "../../core/codec/stored-event.ts";
import type { Event } from "../../core/model/event.ts";
import type { LoggedEvent } from "./store.ts";

/** Most characters of events in the tail; a batch of 100 good values has 26,000. */
const MAX_TAIL_CHARACTERS = 1_000_000;
/** The tail starts again after a larger event: of a backfill of 12 MB it would keep only the last events. */
const MAX_EVENT_CHARACTERS = 4_096;

interface TailRow {
  readonly position: number;
  readonly committedAt: string;
  readonly body: string;
  readonly characters: number;
  event?: Event;
}

/** Caches the newest events of the log, so that sinks that keep up do not read the disk and share parsed events. */
export type LogTail = ReturnType<typeof createLogTail>;

export function createLogTail() {
  // Empty arrays in place: the garbage collector would keep the bodies of a replaced array until a full collection.
  const rows: TailRow[] = [];
  const uncommittedRows: TailRow[] = [];
  let characters = 0;
  /** The tail has every event after this position; null when it is empty. */
  let startPosition: number | null = null;

  function clearTail(): void {
    rows.length = 0;
    characters = 0;
    startPosition = null;
  }

  function dropWhile(isDropped: (row: TailRow) => boolean): void {
    let count = 0;
    for (let row = rows[0]; row !== undefined && isDropped(row); row = rows[count]) {
      characters -= row.characters;
      startPosition = row.position;
      count += 1;
    }
    rows.splice(0, count);
  }

  return {
    /** Adds an event of the running transaction; it joins the tail when that transaction is committed. */
    add(row: TailRow): void {
      uncommittedRows.push(row);
    },
    committed(): void {
      if (uncommittedRows.length === 0) return;
      const lastLarge = uncommittedRows.findLastIndex((row) => row.characters > MAX_EVENT_CHARACTERS);
      if (lastLarge >= 0) {
        clearTail();
        uncommittedRows.splice(0, lastLarge + 1);
      }
      const [first] = uncommittedRows;
      if (first !== undefined) startPosition ??= first.position - 1;
      for (const row of uncommittedRows) characters += row.characters;
      rows.push(...uncommittedRows);
      uncommittedRows.length = 0;
      if (characters > MAX_TAIL_CHARACTERS) dropWhile(() => characters > MAX_TAIL_CHARACTERS);
    },
    rolledBack(): void {
      uncommittedRows.length = 0;
    },
    /** Null when the tail does not reach back to the position. */
    after(position: number, limit: number, maxCharacters: number): readonly LoggedEvent[] | null {
      if (startPosition === null || position < startPosition) return null;
      const firstIndex = indexAfter(rows, position);
      const foundEvents: LoggedEvent[] = [];
      let sum = 0;
      for (let at = firstIndex; at < rows.length && foundEvents.length < limit; at += 1) {
        const row = rows[at] as TailRow;
        sum += row.characters;
        if (foundEvents.length > 0 && sum > maxCharacters) break;
        row.event ??= parseEvent(row.body);
        foundEvents.push({ position: row.position, committedAt: row.committedAt, event: row.event });
      }
      return foundEvents;
    },
    /** Drops events that every reader has passed. */
    dropThrough(position: number): void {
      dropWhile((row) => row.position <= position);
    },
    noteRemoved(position: number): void {
      if (position >= (rows[0]?.position ?? Number.POSITIVE_INFINITY)) clearTail();
    },
    clear: clearTail,
  };
}

/** Positions ascend, with gaps where an event was a repeat. */
function indexAfter(rows: readonly TailRow[], position: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middleIndex = (low + high) >> 1;
    if ((rows[middleIndex]?.position ?? 0) <= position) low = middleIndex + 1;
    else high = middleIndex;
  }
  return low;
}

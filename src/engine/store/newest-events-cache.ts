import { parseEvent } from "../../core/codec/stored-event.ts";
import type { Event } from "../../core/model/event.ts";
import type { LoggedEvent } from "./store.ts";

/** Size limit of the cache; a batch of 100 measured values has 26,000 characters. */
const MAX_LOG_TAIL_CHARACTERS = 1_000_000;
/** A larger event empties the cache, because a backfill of 12 MB would leave only its last events in it. */
const MAX_CACHED_EVENT_CHARACTERS = 4_096;

interface LogTailRow {
  readonly position: number;
  readonly committedAt: string;
  readonly body: string;
  readonly characters: number;
  event?: Event;
}

/** Caches the newest events of the log, so that sinks that keep up do not read the disk and share parsed events. */
export type EventLogTail = ReturnType<typeof createEventLogTail>;

export function createEventLogTail() {
  // Empty arrays in place: the garbage collector would keep the bodies of a replaced array until a full collection.
  const rows: LogTailRow[] = [];
  const uncommittedRows: LogTailRow[] = [];
  let characters = 0;
  /** Position before the first cached event; null without cached events. */
  let startPosition: number | null = null;

  function clearLogTail(): void {
    rows.length = 0;
    characters = 0;
    startPosition = null;
  }

  function dropLeadingEvents(isDropped: (row: LogTailRow) => boolean): void {
    let count = 0;
    for (let row = rows[0]; row !== undefined && isDropped(row); row = rows[count]) {
      characters -= row.characters;
      startPosition = row.position;
      count += 1;
    }
    rows.splice(0, count);
  }

  return {
    add(row: LogTailRow): void {
      uncommittedRows.push(row);
    },
    onCommit(): void {
      if (uncommittedRows.length === 0) return;
      const lastLargeEventIndex = uncommittedRows.findLastIndex((row) => row.characters > MAX_CACHED_EVENT_CHARACTERS);
      if (lastLargeEventIndex >= 0) {
        clearLogTail();
        uncommittedRows.splice(0, lastLargeEventIndex + 1);
      }
      const [firstRow] = uncommittedRows;
      if (firstRow !== undefined) startPosition ??= firstRow.position - 1;
      for (const row of uncommittedRows) characters += row.characters;
      rows.push(...uncommittedRows);
      uncommittedRows.length = 0;
      if (characters > MAX_LOG_TAIL_CHARACTERS) dropLeadingEvents(() => characters > MAX_LOG_TAIL_CHARACTERS);
    },
    onRollback(): void {
      uncommittedRows.length = 0;
    },
    eventsAfter(position: number, limit: number, maxCharacters: number): readonly LoggedEvent[] | null {
      if (startPosition === null || position < startPosition) return null;
      const firstRowIndex = findIndexAfterPosition(rows, position);
      const cachedEvents: LoggedEvent[] = [];
      let characterCount = 0;
      for (let index = firstRowIndex; index < rows.length && cachedEvents.length < limit; index += 1) {
        const row = rows[index] as LogTailRow;
        characterCount += row.characters;
        if (cachedEvents.length > 0 && characterCount > maxCharacters) break;
        row.event ??= parseEvent(row.body);
        cachedEvents.push({ position: row.position, committedAt: row.committedAt, event: row.event });
      }
      return cachedEvents;
    },
    dropThrough(position: number): void {
      dropLeadingEvents((row) => row.position <= position);
    },
    noteRemoved(position: number): void {
      if (position >= (rows[0]?.position ?? Number.POSITIVE_INFINITY)) clearLogTail();
    },
    clear: clearLogTail,
  };
}

function findIndexAfterPosition(rows: readonly LogTailRow[], position: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middleIndex = (low + high) >> 1;
    if ((rows[middleIndex]?.position ?? 0) <= position) low = middleIndex + 1;
    else high = middleIndex;
  }
  return low;
}

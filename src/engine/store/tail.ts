import { eventIn } from "../../core/codec/stored-event.ts";
import type { Event } from "../../core/model/event.ts";
import type { LoggedEvent } from "./store.ts";

/** The tail takes so many characters of events at most; a batch of 100 good values has 26,000. */
const CHARACTERS = 1_000_000;
/**
 * Behind an event of more characters the tail begins anew. A backfill writes 12 MB of them at a time, of which the tail
 * could keep the last: nobody would find there what comes next, and the collector has to carry it through.
 */
const LONGEST = 4_096;

interface Row {
  readonly position: number;
  readonly committedAt: string;
  readonly body: string;
  /** Those that it will be when a sink gets it. */
  readonly characters: number;
  event?: Event;
}

/**
 * The newest events of the log as they were committed, so that sinks which follow need not read them from the disk, and
 * each is parsed once for all of them. It has every event behind its beginning, if it has one.
 */
export interface Tail {
  /** An event that a transaction wrote; it belongs to the tail once that has been committed. */
  add(row: Row): void;
  committed(): void;
  /** The transaction came to nothing. */
  rolledBack(): void;
  /** The first events after a position; null when the tail does not reach back that far. */
  after(position: number, limit: number, maxCharacters: number): readonly LoggedEvent[] | null;
  /** Whoever reads here has what it says up to a position: kept any longer, it would only have to be cleared away later. */
  passed(position: number): void;
  /** Events up to a position were removed from the log. */
  removed(position: number): void;
  /** The log may have changed in any other way. */
  clear(): void;
}

export function createTail(): Tail {
  // Emptied in place, both: a list that is given up for another one may be old by then, and the collector leaves what it
  // holds where it is, body and event, until it looks through all of the memory.
  const rows: Row[] = [];
  const added: Row[] = [];
  let characters = 0;
  /** Of every event behind this position there is a row; null when nothing is known. */
  let begin: number | null = null;

  function clear(): void {
    rows.length = 0;
    characters = 0;
    begin = null;
  }

  /** Lets go of the first rows as long as that is so. */
  function shorten(isSo: (row: Row) => boolean): void {
    let count = 0;
    for (let row = rows[0]; row !== undefined && isSo(row); row = rows[count]) {
      characters -= row.characters;
      begin = row.position;
      count += 1;
    }
    rows.splice(0, count);
  }

  return {
    add(row) {
      added.push(row);
    },
    committed() {
      if (added.length === 0) return;
      const large = added.findLastIndex((row) => row.characters > LONGEST);
      if (large >= 0) {
        clear();
        added.splice(0, large + 1);
      }
      const [first] = added;
      if (first !== undefined) begin ??= first.position - 1;
      for (const row of added) characters += row.characters;
      rows.push(...added);
      added.length = 0;
      if (characters > CHARACTERS) shorten(() => characters > CHARACTERS);
    },
    rolledBack() {
      added.length = 0;
    },
    after(position, limit, maxCharacters) {
      if (begin === null || position < begin) return null;
      const from = indexAfter(rows, position);
      const found: LoggedEvent[] = [];
      let sum = 0;
      for (let at = from; at < rows.length && found.length < limit; at += 1) {
        const row = rows[at] as Row;
        sum += row.characters;
        if (found.length > 0 && sum > maxCharacters) break;
        row.event ??= eventIn(row.body);
        found.push({ position: row.position, committedAt: row.committedAt, event: row.event });
      }
      return found;
    },
    passed(position) {
      shorten((row) => row.position <= position);
    },
    removed(position) {
      if (position >= (rows[0]?.position ?? Number.POSITIVE_INFINITY)) clear();
    },
    clear,
  };
}

/** Positions rise, with holes where something was refused. */
function indexAfter(rows: readonly Row[], position: number): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rows[middle]?.position ?? 0) <= position) low = middle + 1;
    else high = middle;
  }
  return low;
}

import type { Event } from "../../src/core/model/event.ts";
import { dayOf, emitRows } from "../shared/lake/rows.ts";
import { columnIndexOf, type Row, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns, sorting } from "./columns.ts";
import { isDivided, type Partition, partitionOf, undivided } from "./paths.ts";

/** Thrown for an event that cannot be mapped to rows; a retry cannot help. */
export class UnmappableEvent extends Error {}

/**
 * Rows waiting to be written. Not durable: after a crash the events are redelivered from the sink's cursor.
 */
export interface RowBuffer {
  /** Positions of the first and last event; 0 while empty, or for events without a log position. */
  readonly from: number;
  readonly through: number;
  readonly events: number;
  readonly rows: number;
  /** Characters of their distinct texts. */
  readonly characters: number;
  /** Adds the rows of an event. Throws `UnmappableEvent` where it makes none; the event counts as added. */
  add(event: Event, position: number, committedAt: string): void;
  /** Rows to append, by table, day and site. */
  batches(): readonly PartitionBatch[];
  /** Updates of rows that change. */
  changes(): readonly Change[];
}

export interface PartitionBatch {
  readonly partition: Partition;
  readonly columns: Columns;
  /** In the order of the file. */
  sorted(): Promise<Uint32Array>;
}

export interface Change {
  readonly partition: Partition;
  readonly updates: readonly Row[];
  /** Partition whose files are removed with this change, because `updates` contains their rows. */
  readonly from?: Partition;
}

const DAY_MS = 86_400_000;
/** Index of the site column; -1 where the table has none. */
const siteColumn = (table: Table) => table.columns.findIndex(({ name }) => name === "site_id");

export function createRowBuffer(): RowBuffer {
  let from = 0;
  let through = 0;
  let events = 0;
  let rows = 0;
  const tableBuffers = new Map<Table, ReturnType<typeof createTableBuffer>>();
  const changes = new Map<string, { partition: Partition; updates: Row[] }>();

  function addRow(table: Table, row: Row): void {
    rows += 1;
    if (table.rowPolicy !== "append") {
      addChange(table, row);
      return;
    }
    const tableBuffer = tableBuffers.get(table) ?? createTableBuffer(table);
    tableBuffers.set(table, tableBuffer);
    tableBuffer.add(row);
  }

  function addChange(table: Table, row: Row): void {
    const partition = isDivided(table) ? partitionIn(table, row) : undivided(table);
    const known = changes.get(partition.folder) ?? { partition, updates: [] };
    known.updates.push([...row]);
    changes.set(partition.folder, known);
  }

  return {
    get from() {
      return from;
    },
    get through() {
      return through;
    },
    get events() {
      return events;
    },
    get rows() {
      return rows;
    },
    get characters() {
      return [...tableBuffers.values()].reduce((sum, { columns }) => sum + columns.characters, 0);
    },

    add(event, position, committedAt) {
      if (events === 0) from = position;
      through = position;
      events += 1;
      try {
        emitRows({ event, position, committedAt }, addRow);
      } catch (error) {
        throw new UnmappableEvent(error instanceof Error ? error.message : String(error), { cause: error });
      }
    },

    batches: () => [...tableBuffers.values()].flatMap((tableBuffer) => tableBuffer.batches()),
    changes: () => [...changes.values()],
  };
}

function createTableBuffer(table: Table) {
  const columns = createColumns(table);
  const time = columnIndexOf(table, table.time);
  const site = siteColumn(table);
  const folders = new Map<string, { readonly partition: Partition; readonly rows: number[] }>();
  let last: { readonly day: number; readonly site: unknown; readonly rows: number[] } | null = null;

  /** Caches the last partition: an event has one site, and most rows have the day of the row before. */
  function rowsFor(row: Row): number[] {
    const day = Math.floor(Number(row[time]) / DAY_MS);
    if (last !== null && last.day === day && last.site === row[site]) return last.rows;
    const partition = partitionIn(table, row);
    const known = folders.get(partition.folder) ?? { partition, rows: [] };
    folders.set(partition.folder, known);
    last = { day, site: row[site], rows: known.rows };
    return known.rows;
  }

  return {
    columns,
    add(row: Row): void {
      rowsFor(row).push(columns.add(row));
    },
    batches(): readonly PartitionBatch[] {
      const sorted = sorting(columns);
      return [...folders.values()].map(({ partition, rows }) => ({
        partition,
        columns,
        sorted: () => sorted(rows),
      }));
    },
  };
}

function partitionIn(table: Table, row: Row): Partition {
  const site = row[siteColumn(table)];
  const timeMs = Number(row[columnIndexOf(table, table.time)]);
  // rows.ts writes 0 for an alarm without a time.
  const day = timeMs === 0 ? null : dayOf(timeMs);
  return partitionOf(table, day, typeof site === "string" ? site : null);
}

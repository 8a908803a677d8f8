import type { Event } from "../../src/core/model/event.ts";
import { dayOf, emitRows } from "../shared/lake/rows.ts";
import { columnIndexOf, type Row, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns, createSorter } from "./columns.ts";
import { isDivided, type Partition, partitionOf, undividedPartition } from "./paths.ts";

/** A retry cannot help: the event cannot be mapped to rows. */
export class UnmappableEvent extends Error {}

export interface PartitionBatch {
  readonly partition: Partition;
  readonly columns: Columns;
  sorted(): Promise<Uint32Array>;
}

export interface Change {
  readonly partition: Partition;
  readonly updates: readonly Row[];
  /** Partition to be emptied, because `updates` contain its rows. */
  readonly from?: Partition;
}

export type RowBuffer = ReturnType<typeof createRowBuffer>;

const DAY_MS = 86_400_000;

/** Rows waiting to be written. Not durable: after a crash, the events are redelivered from the cursor. */
export function createRowBuffer() {
  let from = 0;
  let through = 0;
  let events = 0;
  let rows = 0;
  const tableBuffers = new Map<Table, ReturnType<typeof createTableBuffer>>();
  const changes = new Map<string, { partition: Partition; updates: Row[] }>();

  function addRow(table: Table, row: Row): void {
    rows += 1;
    if (table.rowPolicy === "append") {
      const tableBuffer = tableBuffers.get(table) ?? createTableBuffer(table);
      tableBuffers.set(table, tableBuffer);
      tableBuffer.add(row);
      return;
    }
    const partition = isDivided(table) ? partitionIn(table, row) : undividedPartition(table);
    const change = changes.get(partition.folder) ?? { partition, updates: [] };
    change.updates.push([...row]);
    changes.set(partition.folder, change);
  }

  return {
    /** Log positions of the first and last event. */
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

    /** Throws `UnmappableEvent` where an event makes no rows; the event counts as added. */
    add(event: Event, position: number, committedAt: string): void {
      if (events === 0) from = position;
      through = position;
      events += 1;
      try {
        emitRows({ event, position, committedAt }, addRow);
      } catch (error) {
        throw new UnmappableEvent(error instanceof Error ? error.message : String(error), { cause: error });
      }
    },

    batches: (): readonly PartitionBatch[] =>
      [...tableBuffers.values()].flatMap((tableBuffer) => tableBuffer.batches()),
    changes: (): readonly Change[] => [...changes.values()],
  };
}

function createTableBuffer(table: Table) {
  const columns = createColumns(table);
  const time = columnIndexOf(table, table.time);
  const site = siteIndexOf(table);
  const folders = new Map<string, { readonly partition: Partition; readonly rows: number[] }>();
  let last: { readonly day: number; readonly site: unknown; readonly rows: number[] } | null = null;

  /** Caches the last partition: an event has one site, and most rows have the day of the row before. */
  function rowsFor(row: Row): number[] {
    const day = Math.floor(Number(row[time]) / DAY_MS);
    if (last !== null && last.day === day && last.site === row[site]) return last.rows;
    const partition = partitionIn(table, row);
    const inFolder = folders.get(partition.folder) ?? { partition, rows: [] };
    folders.set(partition.folder, inFolder);
    last = { day, site: row[site], rows: inFolder.rows };
    return inFolder.rows;
  }

  return {
    columns,
    add: (row: Row) => rowsFor(row).push(columns.add(row)),
    batches(): readonly PartitionBatch[] {
      const sorted = createSorter(columns);
      return [...folders.values()].map(({ partition, rows }) => ({ partition, columns, sorted: () => sorted(rows) }));
    },
  };
}

function siteIndexOf(table: Table): number {
  return table.columns.findIndex(({ name }) => name === "site_id");
}

function partitionIn(table: Table, row: Row): Partition {
  const site = row[siteIndexOf(table)];
  const timeMs = Number(row[columnIndexOf(table, table.time)]);
  // rows.ts writes 0 for an alarm without a time.
  return partitionOf(table, timeMs === 0 ? null : dayOf(timeMs), typeof site === "string" ? site : null);
}

import type { Event } from "../../src/core/model/event.ts";
import { dayOf, emitRows } from "../shared/lake/rows.ts";
import { columnIndexOf, type Row, type Table } from "../shared/lake/table.ts";
import { type Columns, createColumns, sorting } from "./columns.ts";
import { isDivided, type Partition, partitionOf, undivided } from "./paths.ts";

/** An event cannot be told as rows, and never will be. */
export class UnmappableEvent extends Error {}

/** Rows that were taken and are not in the lake yet. */
export interface RowBuffer {
  /** Positions of the first and the last event in it; 0 while there is none, or where they stand nowhere in the log. */
  readonly from: number;
  readonly through: number;
  readonly events: number;
  /** Rows of all tables. */
  readonly rows: number;
  /** Characters of their texts, each word once. */
  readonly characters: number;
  /** Throws `Untold` where the event makes no rows; it counts as taken all the same. */
  add(event: Event, position: number, committedAt: string): void;
  /** Rows that are appended, by table, day and site. */
  batches(): readonly PartitionBatch[];
  /** News of rows that change. */
  changes(): readonly Change[];
}

/** Rows of one partition. */
export interface PartitionBatch {
  readonly partition: Partition;
  readonly columns: Columns;
  /** In the order of the file. */
  sorted(): Promise<Uint32Array>;
}

export interface Change {
  readonly partition: Partition;
  readonly updates: readonly Row[];
  /** Another partition whose files go with this change, because `news` has their rows. */
  readonly from?: Partition;
}

const DAY_MS = 86_400_000;
/** Where a row has no site, the place of no column. */
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

/** Rows of one table, and which of them lie in which partition. */
function createTableBuffer(table: Table) {
  const columns = createColumns(table);
  const time = columnIndexOf(table, table.time);
  const site = siteColumn(table);
  const folders = new Map<string, { readonly partition: Partition; readonly rows: number[] }>();
  let last: { readonly day: number; readonly site: unknown; readonly rows: number[] } | null = null;

  /** Rows of one event are of one site, and nearly always of the day of the row before. */
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
  // rows.ts writes 0 where the time of an alarm is not known.
  const day = timeMs === 0 ? null : dayOf(timeMs);
  return partitionOf(table, day, typeof site === "string" ? site : null);
}

import type { Event } from "../../src/core/model/event.ts";
import { emitRows, formatUtcDay } from "../shared/lake/event-rows.ts";
import { findColumnIndex, type Row, type Table } from "../shared/lake/table-model.ts";
import { type Columns, createColumns, createSorter } from "./columnar-rows.ts";
import { hasPartitions, type LakePartition, toPartition, undividedPartition } from "./lake-paths.ts";

/** Error for an event that cannot be mapped to rows; a retry cannot help. */
export class UnmappableEvent extends Error {}

export interface PartitionBatch {
  readonly partition: LakePartition;
  readonly columns: Columns;
  sorted(): Promise<Uint32Array>;
}

export interface PartitionUpdates {
  readonly partition: LakePartition;
  readonly updates: readonly Row[];
  /** Partition to be emptied, because `updates` contain its rows. */
  readonly from?: LakePartition;
}

export type RowBuffer = ReturnType<typeof createRowBuffer>;

const DAY_MS = 86_400_000;

/** Rows waiting to be written. Not durable: after a crash, the events are redelivered from the cursor. */
export function createRowBuffer() {
  let firstPosition = 0;
  let lastPosition = 0;
  let events = 0;
  let rows = 0;
  const tableBuffers = new Map<Table, ReturnType<typeof createTableBuffer>>();
  const changes = new Map<string, { partition: LakePartition; updates: Row[] }>();

  function addRow(table: Table, row: Row): void {
    rows += 1;
    if (table.rowPolicy === "append") {
      const tableBuffer = tableBuffers.get(table) ?? createTableBuffer(table);
      tableBuffers.set(table, tableBuffer);
      tableBuffer.add(row);
      return;
    }
    const partition = hasPartitions(table) ? findPartition(table, row) : undividedPartition(table);
    const partitionUpdates = changes.get(partition.folder) ?? { partition, updates: [] };
    partitionUpdates.updates.push([...row]);
    changes.set(partition.folder, partitionUpdates);
  }

  return {
    get from() {
      return firstPosition;
    },
    get through() {
      return lastPosition;
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
    /** Adds an event. Throws `UnmappableEvent` if the event makes no rows; the event still counts as added. */
    add(event: Event, position: number, committedAt: string): void {
      if (events === 0) firstPosition = position;
      lastPosition = position;
      events += 1;
      try {
        emitRows({ event, position, committedAt }, addRow);
      } catch (error) {
        throw new UnmappableEvent(error instanceof Error ? error.message : String(error), { cause: error });
      }
    },
    batches: (): readonly PartitionBatch[] =>
      [...tableBuffers.values()].flatMap((tableBuffer) => tableBuffer.batches()),
    changes: (): readonly PartitionUpdates[] => [...changes.values()],
  };
}

function createTableBuffer(table: Table) {
  const columns = createColumns(table);
  const timeIndex = findColumnIndex(table, table.time);
  const siteIndex = findSiteIndex(table);
  const folders = new Map<string, { readonly partition: LakePartition; readonly rows: number[] }>();
  let lastPartition: { readonly day: number; readonly site: unknown; readonly rows: number[] } | null = null;

  /** Adds a row. Caches the last partition, because most rows have the day and site of the row before. */
  function findPartitionRows(row: Row): number[] {
    const day = Math.floor(Number(row[timeIndex]) / DAY_MS);
    if (lastPartition?.day === day && lastPartition.site === row[siteIndex]) return lastPartition.rows;
    const partition = findPartition(table, row);
    const folderEntry = folders.get(partition.folder) ?? { partition, rows: [] };
    folders.set(partition.folder, folderEntry);
    lastPartition = { day, site: row[siteIndex], rows: folderEntry.rows };
    return folderEntry.rows;
  }

  return {
    columns,
    add: (row: Row) => findPartitionRows(row).push(columns.add(row)),
    batches(): readonly PartitionBatch[] {
      const sortRows = createSorter(columns);
      return [...folders.values()].map(({ partition, rows }) => ({ partition, columns, sorted: () => sortRows(rows) }));
    },
  };
}

function findSiteIndex(table: Table): number {
  return table.columns.findIndex(({ name }) => name === "site_id");
}

function findPartition(table: Table, row: Row): LakePartition {
  const site = row[findSiteIndex(table)];
  const timeMs = Number(row[findColumnIndex(table, table.time)]);
  // event-rows.ts writes 0 for an alarm without a time.
  return toPartition(table, timeMs === 0 ? null : formatUtcDay(timeMs), typeof site === "string" ? site : null);
}

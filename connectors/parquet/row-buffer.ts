import type { Event } from "../../src/core/model/event.ts";
import { emitEventRows, formatUtcDay } from "../shared/lake/event-rows.ts";
import { findColumnIndex, type LakeRow, type LakeTable } from "../shared/lake/table-model.ts";
import { buildWholeTablePartition, dayPartition, hasDayPartitions, type LakePartition } from "./lake-paths.ts";
import { type ColumnarRows, createColumnarRows, createRowSorter } from "./rows-to-columns.ts";

/** Error for an event that cannot be mapped to rows; a retry cannot help. */
export class UnmappableEventError extends Error {}

export interface PartitionBatch {
  readonly partition: LakePartition;
  readonly columns: ColumnarRows;
  sortRowIndexes(): Promise<Uint32Array>;
}

export interface PartitionUpdates {
  readonly partition: LakePartition;
  readonly updates: readonly LakeRow[];
  /** Former partition of the rows in `updates`; the former partition must be emptied. */
  readonly formerPartition?: LakePartition;
}

export type RowBuffer = Readonly<ReturnType<typeof createRowBuffer>>;

const DAY_MS = 86_400_000;

/** Rows waiting to be written. Not durable: after a crash, the events are redelivered from the cursor. */
export function createRowBuffer() {
  const rowBufferByTable = new Map<LakeTable, ReturnType<typeof createTableRowBuffer>>();
  const updatesByFolder = new Map<string, { partition: LakePartition; updates: LakeRow[] }>();

  function addLakeRow(table: LakeTable, row: LakeRow): void {
    buffer.rowCount += 1;
    if (table.rowPolicy === "append") {
      const tableRowBuffer = rowBufferByTable.get(table) ?? createTableRowBuffer(table);
      rowBufferByTable.set(table, tableRowBuffer);
      tableRowBuffer.addRow(row);
      return;
    }
    const partition = hasDayPartitions(table) ? findRowPartition(table, row) : buildWholeTablePartition(table);
    const partitionUpdates = updatesByFolder.get(partition.folder) ?? { partition, updates: [] };
    partitionUpdates.updates.push([...row]);
    updatesByFolder.set(partition.folder, partitionUpdates);
  }

  const buffer = {
    /** Position of the first event in the event log. */
    from: 0,
    /** Position of the last event in the event log. */
    through: 0,
    eventCount: 0,
    rowCount: 0,
    get characterCount(): number {
      return [...rowBufferByTable.values()].reduce((sum, { columns }) => sum + columns.characterCount, 0);
    },
    /** Adds an event. Throws `UnmappableEventError` if it cannot be mapped to rows; it still counts as added. */
    addEvent(event: Event, position: number, committedAt: string): void {
      if (buffer.eventCount === 0) buffer.from = position;
      buffer.through = position;
      buffer.eventCount += 1;
      try {
        emitEventRows({ event, position, committedAt }, addLakeRow);
      } catch (error) {
        throw new UnmappableEventError(error instanceof Error ? error.message : String(error), { cause: error });
      }
    },
    batches: (): readonly PartitionBatch[] =>
      [...rowBufferByTable.values()].flatMap((tableBuffer) => tableBuffer.batches()),
    updatedPartitions: (): readonly PartitionUpdates[] => [...updatesByFolder.values()],
  };
  return buffer;
}

function createTableRowBuffer(table: LakeTable) {
  const columns = createColumnarRows(table);
  const timeColumnIndex = findColumnIndex(table, table.time);
  const siteColumnIndex = findSiteColumnIndex(table);
  const partitions = new Map<string, { readonly partition: LakePartition; readonly rowIndexes: number[] }>();
  let lastPartition: { readonly day: number; readonly site: unknown; readonly rowIndexes: number[] } | null = null;

  /** Finds the row indexes of a partition. Caches the last: most rows have the day and site of the row before. */
  function findPartitionRowIndexes(row: LakeRow): number[] {
    const day = Math.floor(Number(row[timeColumnIndex]) / DAY_MS);
    if (lastPartition?.day === day && lastPartition.site === row[siteColumnIndex]) return lastPartition.rowIndexes;
    const partition = findRowPartition(table, row);
    const partitionEntry = partitions.get(partition.folder) ?? { partition, rowIndexes: [] };
    partitions.set(partition.folder, partitionEntry);
    lastPartition = { day, site: row[siteColumnIndex], rowIndexes: partitionEntry.rowIndexes };
    return partitionEntry.rowIndexes;
  }

  return {
    columns,
    addRow: (row: LakeRow) => findPartitionRowIndexes(row).push(columns.add(row)),
    batches(): readonly PartitionBatch[] {
      const sortRows = createRowSorter(columns);
      return Array.from(partitions.values(), ({ partition, rowIndexes }) => ({
        partition,
        columns,
        sortRowIndexes: () => sortRows(rowIndexes),
      }));
    },
  };
}

const findSiteColumnIndex = (table: LakeTable): number => table.columns.findIndex(({ name }) => name === "site_id");

function findRowPartition(table: LakeTable, row: LakeRow): LakePartition {
  const site = row[findSiteColumnIndex(table)];
  const timeMs = Number(row[findColumnIndex(table, table.time)]);
  // event-rows.ts writes 0 for an alarm without a time.
  return dayPartition(table, timeMs === 0 ? null : formatUtcDay(timeMs), typeof site === "string" ? site : null);
}

/** Type of a column: `time` is UTC in ms since 1970, `number` a double, `integer` has 64 bits, `json` is a text. */
export type ColumnType = "text" | "time" | "number" | "integer" | "boolean" | "json";

export type Cell = string | number | boolean | null;

export interface Column {
  readonly name: string;
  readonly type: ColumnType;
  readonly isNullable: boolean;
  /** Description for the documentation and for comments in a database. */
  readonly about: string;
}

/**
 * Lifecycle of rows:
 * - `append`: rows never change. Two rows with the same key come from the same event, which was delivered twice.
 * - `latest`: one row for each key, replaced by a row observed later.
 * - `versions`: one row for each state of an object, from `valid_from` to `valid_to` (`applyRowUpdates`).
 */
export type TableRowPolicy = "append" | "latest" | "versions";

/** Table of the lake (docs/lake.md); event-rows.ts makes the rows. */
export interface LakeTable {
  readonly name: string;
  readonly about: string;
  readonly rowPolicy: TableRowPolicy;
  readonly columns: readonly Column[];
  /** Columns that identify a row and are never null. */
  readonly key: readonly string[];
  /** Time column that decides the day of a row. */
  readonly time: string;
  readonly sortedBy: readonly string[];
}

export type RowCells = Readonly<Record<string, Cell>>;

export type LakeRow = readonly Cell[];

export function findColumnIndex(table: LakeTable, columnName: string): number {
  const index = table.columns.findIndex(({ name }) => name === columnName);
  if (index < 0) throw new Error(`The table ${table.name} has no column ${columnName}.`);
  return index;
}

/**
 * Applies updates to rows of a table that change; applying them twice changes nothing. Returns `storedRows` if nothing
 * changes. In a table of versions, an update with `is_current` starts a state, one without it ends the current state:
 *   stored  4711 Supply °C  from 08:00  current      update  4711 Supply K  from 09:00  current
 *   →       4711 Supply °C  from 08:00 to 09:00,     4711 Supply K  from 09:00  current
 */
export function applyRowUpdates(table: LakeTable, storedRows: readonly LakeRow[], updates: readonly LakeRow[]) {
  if (table.rowPolicy === "append") throw new Error(`Rows of ${table.name} do not change.`);
  const isVersionTable = table.rowPolicy === "versions";
  const getObjectKey = createObjectKeyBuilder(table);
  const compareRows = createRowAgeComparator(table);
  const isCurrentColumnIndex = isVersionTable ? findColumnIndex(table, "is_current") : -1;
  const rows = [...storedRows];
  /** Newest row of each object, and the index of the row with its current state. */
  const latestRowByObject = new Map<string, { newest: LakeRow; currentRowIndex: number | null }>();
  storedRows.forEach((row, index) => {
    const latestRow = latestRowByObject.get(getObjectKey(row));
    const newestRow = latestRow === undefined || compareRows(row, latestRow.newest) > 0 ? row : latestRow.newest;
    const currentRowIndex =
      !isVersionTable || row[isCurrentColumnIndex] === true ? index : (latestRow?.currentRowIndex ?? null);
    latestRowByObject.set(getObjectKey(row), { newest: newestRow, currentRowIndex });
  });

  let isAnyRowChanged = false;
  for (const row of updates.toSorted(compareRows)) {
    const latestRow = latestRowByObject.get(getObjectKey(row));
    if (latestRow !== undefined && compareRows(row, latestRow.newest) <= 0) continue;
    const currentRowIndex = latestRow?.currentRowIndex ?? rows.length;
    const currentRow = rows[currentRowIndex];
    const startsNewState = !isVersionTable || row[isCurrentColumnIndex] === true;
    let nextRow = row;
    if (isVersionTable) {
      if (currentRow === undefined ? !startsNewState : startsNewState && hasSameState(table, currentRow, row)) continue;
      if (currentRow !== undefined) {
        nextRow = delayObjectStateStart(table, currentRow, row);
        rows[currentRowIndex] = endObjectState(table, currentRow, nextRow, startsNewState);
      }
    }
    const rowIndex = isVersionTable ? rows.length : currentRowIndex;
    if (startsNewState) rows[rowIndex] = nextRow;
    latestRowByObject.set(getObjectKey(row), { newest: row, currentRowIndex: startsNewState ? rowIndex : null });
    isAnyRowChanged = true;
  }
  return isAnyRowChanged ? rows : storedRows;
}

function createObjectKeyBuilder(table: LakeTable): (row: LakeRow) => string {
  const keyIndexes = table.key.filter((name) => name !== "valid_from").map((name) => findColumnIndex(table, name));
  return (row) => JSON.stringify(keyIndexes.map((index) => row[index]));
}

function createRowAgeComparator(table: LakeTable): (a: LakeRow, b: LakeRow) => number {
  const timeIndex = findColumnIndex(table, "observed_at");
  const positionIndex = findColumnIndex(table, "position");
  return (a, b) => Number(a[timeIndex]) - Number(b[timeIndex]) || Number(a[positionIndex]) - Number(b[positionIndex]);
}

const EVENT_COLUMN_NAMES = ["observed_at", "event_id", "position"];
/** Columns about the time and origin of a row, not about the object's state. */
const BOOKKEEPING_COLUMN_NAMES = ["valid_from", "valid_to", "is_current", ...EVENT_COLUMN_NAMES];

const hasSameState = (table: LakeTable, a: LakeRow, b: LakeRow): boolean =>
  table.columns.every(({ name }, index) => BOOKKEEPING_COLUMN_NAMES.includes(name) || a[index] === b[index]);

/** Sets `valid_from` at least 1 ms after that of the previous state, even if a clock was set back. */
function delayObjectStateStart(table: LakeTable, previousRow: LakeRow, row: LakeRow): LakeRow {
  const validFromIndex = findColumnIndex(table, "valid_from");
  return replaceCell(
    row,
    validFromIndex,
    Math.max(Number(row[validFromIndex]), Number(previousRow[validFromIndex]) + 1),
  );
}

/** Ends a state. If no state follows, the row gets time and id of the ending event, so older events are ignored. */
function endObjectState(table: LakeTable, row: LakeRow, endingRow: LakeRow, hasNextState: boolean): LakeRow {
  const rowWithEnd = replaceCell(
    row,
    findColumnIndex(table, "valid_to"),
    endingRow[findColumnIndex(table, "valid_from")] ?? null,
  );
  const endedRow = replaceCell(rowWithEnd, findColumnIndex(table, "is_current"), false);
  if (hasNextState) return endedRow;
  return EVENT_COLUMN_NAMES.reduce((updatedRow, name) => {
    const index = findColumnIndex(table, name);
    return replaceCell(updatedRow, index, endingRow[index] ?? null);
  }, endedRow);
}

const replaceCell = (row: LakeRow, index: number, cell: Cell): LakeRow =>
  row.map((oldCell, cellIndex) => (cellIndex === index ? cell : oldCell));

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
 * - `append`: each row once and for good. The same key comes again only with the same event.
 * - `latest`: one row for each key, replaced by a row observed later.
 * - `versions`: one row for each state of an object, from `valid_from` to `valid_to` (`applyUpdates`).
 */
export type RowPolicy = "append" | "latest" | "versions";

/** Table of the lake (docs/lake.md); event-rows.ts makes the rows. */
export interface Table {
  readonly name: string;
  readonly about: string;
  readonly rowPolicy: RowPolicy;
  readonly columns: readonly Column[];
  /** Columns that identify a row and are never null. */
  readonly key: readonly string[];
  /** Time column that decides the day of a row. */
  readonly time: string;
  readonly sortedBy: readonly string[];
}

export type RowCells = Readonly<Record<string, Cell>>;

export type Row = readonly Cell[];

export function findColumnIndex(table: Table, column: string): number {
  const index = table.columns.findIndex(({ name }) => name === column);
  if (index < 0) throw new Error(`The table ${table.name} has no column ${column}.`);
  return index;
}

/**
 * Applies updates to rows of a table that change; applying them twice changes nothing. Returns `stored` where nothing
 * changes. In a table of versions, an update with `is_current` starts a state, one without it ends the current state:
 *
 *   stored  4711 Supply °C  from 08:00  current      update  4711 Supply K  from 09:00  current
 *   →       4711 Supply °C  from 08:00 to 09:00,     4711 Supply K  from 09:00  current
 */
export function applyUpdates(table: Table, stored: readonly Row[], updates: readonly Row[]): readonly Row[] {
  if (table.rowPolicy === "append") throw new Error(`Rows of ${table.name} do not change.`);
  const isVersions = table.rowPolicy === "versions";
  const getObjectKey = createObjectKey(table);
  const compare = createAgeComparator(table);
  const currentIndex = isVersions ? findColumnIndex(table, "is_current") : -1;
  const rows = [...stored];
  /** Newest row of each object, and the index of its current row. */
  const latestByObject = new Map<string, { newest: Row; at: number | null }>();
  stored.forEach((row, index) => {
    const latestEntry = latestByObject.get(getObjectKey(row));
    const newestRow = latestEntry === undefined || compare(row, latestEntry.newest) > 0 ? row : latestEntry.newest;
    const at = !isVersions || row[currentIndex] === true ? index : (latestEntry?.at ?? null);
    latestByObject.set(getObjectKey(row), { newest: newestRow, at });
  });

  let isChanged = false;
  for (const row of updates.toSorted(compare)) {
    const latestEntry = latestByObject.get(getObjectKey(row));
    if (latestEntry !== undefined && compare(row, latestEntry.newest) <= 0) continue;
    const at = latestEntry?.at ?? rows.length;
    const currentRow = rows[at];
    const startsState = !isVersions || row[currentIndex] === true;
    let next = row;
    if (isVersions) {
      if (currentRow === undefined ? !startsState : startsState && hasSameState(table, currentRow, row)) continue;
      if (currentRow !== undefined) {
        next = delayStateStart(table, currentRow, row);
        rows[at] = endObjectState(table, currentRow, next, startsState);
      }
    }
    const index = isVersions ? rows.length : at;
    if (startsState) rows[index] = next;
    latestByObject.set(getObjectKey(row), { newest: row, at: startsState ? index : null });
    isChanged = true;
  }
  return isChanged ? rows : stored;
}

function createObjectKey(table: Table): (row: Row) => string {
  const indexes = table.key.filter((name) => name !== "valid_from").map((name) => findColumnIndex(table, name));
  return (row) => JSON.stringify(indexes.map((index) => row[index]));
}

function createAgeComparator(table: Table): (a: Row, b: Row) => number {
  const observedIndex = findColumnIndex(table, "observed_at");
  const position = findColumnIndex(table, "position");
  return (a, b) => Number(a[observedIndex]) - Number(b[observedIndex]) || Number(a[position]) - Number(b[position]);
}

const TRACE_COLUMNS = ["observed_at", "event_id", "position"];
/** Columns about the time and origin of a row, not about the object's state. */
const NON_STATE_COLUMNS = ["valid_from", "valid_to", "is_current", ...TRACE_COLUMNS];

function hasSameState(table: Table, a: Row, b: Row): boolean {
  return table.columns.every(({ name }, index) => NON_STATE_COLUMNS.includes(name) || a[index] === b[index]);
}

/** Lets a state start at least 1 ms after the state before, even if a clock was set back. */
function delayStateStart(table: Table, before: Row, row: Row): Row {
  const startIndex = findColumnIndex(table, "valid_from");
  return replaceCell(row, startIndex, Math.max(Number(row[startIndex]), Number(before[startIndex]) + 1));
}

/** Ends a state. Without a following state, takes the ending event's trace, so that older events are recognized. */
function endObjectState(table: Table, row: Row, by: Row, isFollowed: boolean): Row {
  const to = replaceCell(row, findColumnIndex(table, "valid_to"), by[findColumnIndex(table, "valid_from")] ?? null);
  const endedRow = replaceCell(to, findColumnIndex(table, "is_current"), false);
  if (isFollowed) return endedRow;
  return TRACE_COLUMNS.reduce((traced, name) => {
    const index = findColumnIndex(table, name);
    return replaceCell(traced, index, by[index] ?? null);
  }, endedRow);
}

function replaceCell(row: Row, index: number, cell: Cell): Row {
  return row.map((each, at) => (at === index ? cell : each));
}

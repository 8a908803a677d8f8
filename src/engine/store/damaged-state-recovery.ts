import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseEvent } from "../../core/codec/stored-event.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { createDamagedRowQuarantine, createEpoch } from "./damage-quarantine.ts";
import { createEventLog } from "./event-log.ts";
import { prepareSchema } from "./schema.ts";
import { type Database, openDatabase, rowChecksum } from "./sqlite.ts";
import { openSqlitePages, type SqlitePages, type StoredValue } from "./sqlite-page-format.ts";
import { stateFilePath } from "./state-folder.ts";

/** Number of events per transaction, so that a running worker waits a few milliseconds only. */
const EVENTS_PER_COMMIT = 100;

export type RecoveryReport = Awaited<ReturnType<typeof recoverEvents>>;

/** Copies undelivered events, but no documents, from a quarantined file to the state in use. A worker may run. */
export async function recoverEvents(folder: string, file: string, clock: Clock) {
  const stateFileInUse = stateFilePath(folder);
  if (!existsSync(file)) throw new ConfigError(`There is no file ${file}.`);
  if (!existsSync(stateFileInUse)) {
    throw new ConfigError(`There is no state in ${folder} yet.`, { hint: "Start the worker first." });
  }
  if (resolve(file) === resolve(stateFileInUse)) {
    throw new ConfigError(`${file} is the state in use.`, {
      hint: "Name a file that was set aside; `plenum state check` lists them.",
    });
  }
  using pages = openSqlitePages(file, "all");
  using database = openDatabase(stateFileInUse);
  prepareSchema(database, false);
  database.exec("pragma synchronous = full");
  const { pageByPosition, cursors: cursorBySink, report } = scanSqlitePages(pages);
  const sinksInUse = database
    .prepare("select name from sink where ended is null")
    .all<{ readonly name: string }>()
    .map(({ name }) => name);
  const firstPosition = Math.min(...sinksInUse.map((name) => cursorBySink.get(name) ?? 0));
  const { counts } = await appendOldEvents(pages, pageByPosition, firstPosition, database, clock);
  const knownSinks = new Set([...sinksInUse, ...cursorBySink.keys()]);
  const cursors = [...knownSinks].map((name) => [name, cursorBySink.get(name) ?? null] as const);
  return { ...report, ...counts, cursors: Object.fromEntries(cursors) };
}

/** Copies undelivered events and cursors into a new file; all events if a cursor may be lost. */
export async function recoverIntoNewFile(file: string, database: Database, clock: Clock): Promise<RecoveryReport> {
  using pages = openSqlitePages(file, "all");
  const scannedRows = scanSqlitePages(pages);
  const { pageByPosition, cursors: cursorBySink, isCursorLost, report } = scannedRows;
  const { lostPositions, isOrderDamaged } = findUnreachableEvents(file);
  const mustStartOver = isCursorLost || isOrderDamaged || cursorBySink.size === 0;
  const firstPosition = mustStartOver ? 0 : Math.min(...cursorBySink.values());
  const copiedEvents = await appendOldEvents(pages, pageByPosition, firstPosition, database, clock, lostPositions);
  const { counts, positions } = copiedEvents;
  database.transaction(() => {
    const insertSink = database.prepare(
      `insert into sink (name, position, ended, epoch, urgent, checksum)
         values (?1, ?2, ?3, ?4, ?5, row_checksum(?1, ?2, 0, ?3, 0, ?4, ?5)) on conflict do nothing`,
    );
    const newPosition = (oldPosition: number) =>
      isOrderDamaged ? 0 : (positions.findLast(([before]) => before <= oldPosition)?.[1] ?? 0);
    const markResend = database.prepare(
      "insert into again (sink, position, checksum) values (?1, ?2, row_checksum(?1, ?2)) on conflict do nothing",
    );
    for (const [name, old] of cursorBySink) {
      insertSink.run(name, newPosition(old), null, createEpoch(), newPosition(scannedRows.urgentBySink.get(name) ?? 0));
      for (const [before, now] of positions) if (before <= old && lostPositions.has(before)) markResend.run(name, now);
    }
    for (const [name, reason] of scannedRows.ended) insertSink.run(name, 0, reason, createEpoch(), 0);
    restoreQuotaRows(database, scannedRows);
    if (isCursorLost || cursorBySink.size === 0)
      database
        .prepare(
          "insert into damaged (found_ms, table_name, part, key, body) values (?, 'sink', '', '', cast(? as blob))",
        )
        .run(clock.now(), file);
  });
  return { ...report, ...counts, cursors: Object.fromEntries(cursorBySink) };
}

/**
 * Finds events that only an index still has, because a page of the table is damaged. `isOrderDamaged`: a page is in
 * the wrong place of the table, so a cursor may have skipped events, and every sink gets all events again.
 */
function findUnreachableEvents(file: string) {
  const lostPositions = new Set<number>();
  let isOrderDamaged = false;
  try {
    // Open the file as immutable, because SQLite would delete a write-ahead log that it does not understand.
    using database = openDatabase(`${pathToFileURL(file).href}?immutable=1`, { readOnly: true });
    const positionsInTableOrder = "select position, lag(position) over () as previous from event not indexed";
    isOrderDamaged =
      database.number(`select exists (select 1 from (${positionsInTableOrder}) where position <= previous)`) > 0;
    const lostRows = database
      .prepare(
        `select entry.position from event as entry indexed by event_by_class where entry.telemetry in (0, 1)
           and not exists (select 1 from event as found not indexed where found.position = entry.position)`,
      )
      .all<{ readonly position: number }>();
    for (const { position } of lostRows) lostPositions.add(position);
  } catch {
    // Ignore an unreadable table or index, because the caller also scans the pages.
  }
  return { lostPositions, isOrderDamaged };
}

function restoreQuotaRows(database: Database, { quota, pauses }: ReturnType<typeof scanSqlitePages>): void {
  const insertSlotStatement = database.prepare(
    `insert into quota (bucket, id, sent_ms, counted_ms, checksum) values (?, ?, ?, ?, ?) on conflict do update set
       sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms, checksum = excluded.checksum
       where excluded.counted_ms > quota.counted_ms`,
  );
  const insertPauseStatement = database.prepare(
    `insert into quota_hold (bucket, said_ms, until_ms, checksum) values (?, ?, ?, ?) on conflict do update set
       said_ms = excluded.said_ms, until_ms = excluded.until_ms, checksum = excluded.checksum
       where excluded.until_ms > quota_hold.until_ms`,
  );
  for (const values of quota) insertSlotStatement.run(...values);
  for (const values of pauses) insertPauseStatement.run(...values);
}

export function formatRecovery(
  quarantinedFile: string,
  { taken, damaged, deadLetters, marks, others }: RecoveryReport,
): string {
  return `It was set aside as ${quarantinedFile}, and a fresh one begun. ${taken} events that a sink had not got were taken over and are sent with their ids. Lost to the sinks are ${damaged} events of which too little is left, ${deadLetters} dead letters and ${marks} marks to send an event again. ${others} rows of other kinds stay in that file: what was known of the building is read again, and commands and the audit log start empty. Check the disk and the memory of this machine.`;
}

async function appendOldEvents(
  pages: SqlitePages,
  pageByPosition: ReadonlyMap<number, number>,
  firstPosition: number,
  database: Database,
  clock: Clock,
  missedPositions: ReadonlySet<number> = new Set(),
) {
  const wantedPositions = [...pageByPosition]
    .filter(([position]) => position > firstPosition || missedPositions.has(position))
    .toSorted(([a], [b]) => a - b);
  const log = createEventLog(database, clock, createDamagedRowQuarantine(database, clock, undefined));
  const newPositionByOldPosition: (readonly [old: number, now: number])[] = [];
  let copiedCount = 0;
  for (let offset = 0; offset < wantedPositions.length; offset += EVENTS_PER_COMMIT) {
    const recoveredEvents = wantedPositions.slice(offset, offset + EVENTS_PER_COMMIT).flatMap(([position, page]) => {
      const event = readEventFromPage(pages, page, position);
      return event === null ? [] : [{ position, event }];
    });
    database.transaction(() => {
      for (const { position, event } of recoveredEvents) {
        copiedCount += 1 - log.appendEvents([event], clock.now()).length;
        newPositionByOldPosition.push([position, log.end()]);
      }
    });
    await yieldToEventLoop();
  }
  const { length } = wantedPositions;
  const appendedCounts = { taken: copiedCount, known: length - copiedCount, delivered: pageByPosition.size - length };
  return { counts: appendedCounts, positions: newPositionByOldPosition };
}

function scanSqlitePages(pages: SqlitePages) {
  const pageByPosition = new Map<number, number>();
  const damagedPositions = new Set<number>();
  const deadLetterIds = new Set<number>();
  const cursorBySink = new Map<string, number>();
  const urgentCursorBySink = new Map<string, number>();
  const endReasonBySink = new Map<string, string>();
  const quotaSlots: (readonly StoredValue[])[] = [];
  const quotaPauses: (readonly StoredValue[])[] = [];
  const resendMarks = new Set<string>();
  const otherRowKeys = new Set<string>();
  const positionsInIdIndex = new Set<number>();
  const positionsInClassIndex = new Set<number>();
  let isCursorLost = false;
  for (let page = 1; page <= pages.count; page += 1) {
    const pageCells = pages.readCells(page);
    let cursorsOnPage = 0;
    for (const { rowid, values } of pageCells) {
      const cursor = parseSinkCursorRow(values);
      if (cursor !== null) {
        cursorsOnPage += 1;
        // Keep the lowest position of a sink, because a stale page may hold an older row.
        const { sink, position, urgent, ended: reason } = cursor;
        if (typeof reason === "string") endReasonBySink.set(sink, reason);
        else {
          cursorBySink.set(sink, Math.min(cursorBySink.get(sink) ?? position, position));
          urgentCursorBySink.set(sink, Math.min(urgentCursorBySink.get(sink) ?? urgent, urgent));
        }
      } else if (isIntactEvent(values)) pageByPosition.set(rowid ?? 0, page);
      else if (isIntactDeadLetter(values)) deadLetterIds.add(rowid ?? 0);
      else if (looksLikeEventRow(values)) damagedPositions.add(rowid ?? 0);
      else if (isRowChecksumValid(values, 2)) resendMarks.add(`${values[0]} ${values[1]}`);
      else if (values.length === 2 && typeof values[0] === "string" && typeof values[1] === "number") {
        positionsInIdIndex.add(values[1]);
      } else if (values.length === 3 && typeof values[1] === "number" && values[1] === values[2]) {
        positionsInClassIndex.add(values[1]);
      } else if (isRowChecksumValid(values, 4)) quotaSlots.push(values);
      else if (isRowChecksumValid(values, 3)) {
        if (typeof values[1] === "number" && typeof values[2] === "number") quotaPauses.push(values);
        else otherRowKeys.add(`${values[0]} ${values[1]}`);
      }
    }
    if (cursorsOnPage > 0 && cursorsOnPage < pages.statedRowCount(page)) isCursorLost = true;
  }
  for (const position of positionsInIdIndex) if (positionsInClassIndex.has(position)) damagedPositions.add(position);
  const damagedEventCount = [...damagedPositions].filter((position) => !pageByPosition.has(position)).length;
  // Treat a sink as active if any row shows it as active, even an old row: repeated delivery loses no event.
  for (const sink of cursorBySink.keys()) endReasonBySink.delete(sink);
  return {
    ...{ pageByPosition, cursors: cursorBySink, urgentBySink: urgentCursorBySink },
    ...{ ended: endReasonBySink, isCursorLost, quota: quotaSlots, pauses: quotaPauses },
    report: {
      ...{ pages: pages.count, found: pageByPosition.size, damaged: damagedEventCount },
      ...{ deadLetters: deadLetterIds.size, marks: resendMarks.size, others: otherRowKeys.size },
    },
  };
}

function isRowChecksumValid(values: readonly StoredValue[], columnCount: number): boolean {
  return values.length === columnCount + 1 && rowChecksum(...values.slice(0, columnCount)) === values[columnCount];
}

function readEventFromPage(pages: SqlitePages, page: number, position: number): Event | null {
  const values = pages.readCells(page).find((cell) => cell.rowid === position && isIntactEvent(cell.values))?.values;
  return values === undefined ? null : parseEvent(String(values[EVENT_BODY_COLUMN_INDEX]));
}

/** Order of columns: position (as the rowid), id, kind, telemetry, committed_ms, bytes, body, … */
const EVENT_BODY_COLUMN_INDEX = 6;
const EVENT_COLUMN_COUNT = 9;

function looksLikeEventRow(values: readonly StoredValue[]): boolean {
  const columnTypesText = values.map((value) => (value === null ? "null" : typeof value)).join(" ");
  return columnTypesText === "null string string number number number string number number";
}

function isIntactEvent(values: readonly StoredValue[]): boolean {
  if (values.length !== EVENT_COLUMN_COUNT || typeof values[EVENT_BODY_COLUMN_INDEX] !== "string") return false;
  return rowChecksum(...values.slice(1, EVENT_BODY_COLUMN_INDEX + 1)) === values[EVENT_COLUMN_COUNT - 1];
}

/** Columns: id (as the rowid), sink, position, reason, at_ms, committed_ms, resending, body, checksum, number, epoch. */
function isIntactDeadLetter(values: readonly StoredValue[]): boolean {
  const [, sink, position, reason, atMs, committed, , body, checksum, ...sequenceValues] = values;
  if (sink === undefined || position === undefined || reason === undefined || body === undefined) return false;
  if (atMs === undefined || committed === undefined) return false;
  // Dead letters had no sequence number before schema version 6.
  if (sequenceValues.length !== 0 && sequenceValues.length !== 2) return false;
  return rowChecksum(sink, position, atMs, committed, reason, ...sequenceValues, body) === checksum;
}

/** Columns: name, position, dropped, ended, checksum, counted and epoch since schema 6, urgent since schema 7. */
function parseSinkCursorRow(values: readonly StoredValue[]) {
  const [sink, position, , ended] = values;
  const urgentPosition = values[7] ?? 0;
  // A row of the table `quota` has five values as well; its fourth value is a time.
  if (typeof ended !== "string" && ended !== null) return null;
  if (![5, 7, 8].includes(values.length) || typeof sink !== "string") return null;
  if (typeof position !== "number" || typeof urgentPosition !== "number") return null;
  if (rowChecksum(...values.slice(0, 4), ...values.slice(5)) !== values[4]) return null;
  return { sink, position, urgent: urgentPosition, ended };
}

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { parseEvent } from "../../core/codec/stored-event.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import { createDamageQuarantine, createEpoch } from "./damage-quarantine.ts";
import { createEventLog } from "./event-log.ts";
import { prepareSchema } from "./schema.ts";
import { type Database, openDatabase, rowChecksum } from "./sqlite.ts";
import { openPages, type SqlitePages, type StoredValue } from "./sqlite-pages.ts";
import { stateFile } from "./state-folder.ts";

export interface SalvageReport {
  readonly pages: number;
  readonly found: number;
  readonly taken: number;
  readonly known: number;
  readonly delivered: number;
  readonly damaged: number;
  readonly deadLetters: number;
  readonly marks: number;
  /** Rows of other tables: documents of the building and of sinks, and records such as those of the audit log. */
  readonly others: number;
  /** Null for a sink in use whose cursor is lost: it gets all events. */
  readonly cursors: Readonly<Record<string, number | null>>;
}

/** Events per transaction, so that a running worker waits a few milliseconds only. */
const EVENTS_PER_COMMIT = 100;

/** Commits undelivered events of a quarantined file to the state in use; documents stay. A worker may run. */
export async function salvageFile(folder: string, file: string, clock: Clock): Promise<SalvageReport> {
  const targetFile = stateFile(folder);
  if (!existsSync(file)) throw new ConfigError(`There is no file ${file}.`);
  if (!existsSync(targetFile)) {
    throw new ConfigError(`There is no state in ${folder} yet.`, { hint: "Start the worker first." });
  }
  if (resolve(file) === resolve(targetFile)) {
    throw new ConfigError(`${file} is the state in use.`, {
      hint: "Name a file that was set aside; `plenum state check` lists them.",
    });
  }
  const pages = openPages(file, "all");
  const database = openDatabase(targetFile);
  try {
    prepareSchema(database, false);
    database.exec("pragma synchronous = full");
    return await recoverEvents(pages, database, clock);
  } finally {
    database.close();
    pages.close();
  }
}

async function recoverEvents(pages: SqlitePages, database: Database, clock: Clock): Promise<SalvageReport> {
  const scannedRows = scanPages(pages);
  const { pageByPosition, cursors } = scannedRows;
  const inUse = database
    .prepare("select name from sink where ended is null")
    .all<{ readonly name: string }>()
    .map(({ name }) => name);
  const firstPosition = Math.min(...inUse.map((name) => cursors.get(name) ?? 0));
  const { counts } = await appendEvents(pages, pageByPosition, firstPosition, database, clock);
  return {
    ...countScannedRows(pages, scannedRows),
    ...counts,
    cursors: Object.fromEntries(
      [...new Set([...inUse, ...cursors.keys()])].map((name) => [name, cursors.get(name) ?? null]),
    ),
  };
}

/** Copies at a start, with the cursors. If a cursor may be lost, copying begins with the oldest event. */
export async function recoverIntoNewFile(file: string, database: Database, clock: Clock): Promise<SalvageReport> {
  const pages = openPages(file, "all");
  try {
    const scannedRows = scanPages(pages);
    const { pageByPosition, cursors, isCursorLost } = scannedRows;
    const firstPosition = isCursorLost || cursors.size === 0 ? 0 : Math.min(...cursors.values());
    const missedPositions = findUnreachableEvents(file);
    const appended = await appendEvents(pages, pageByPosition, firstPosition, database, clock, missedPositions);
    const { counts, positions } = appended;
    database.transaction(() => {
      const insertion = database.prepare(
        `insert into sink (name, position, ended, epoch, urgent, checksum)
         values (?1, ?2, ?3, ?4, ?5, row_checksum(?1, ?2, 0, ?3, 0, ?4, ?5)) on conflict do nothing`,
      );
      const newPosition = (old: number) => positions.findLast(([before]) => before <= old)?.[1] ?? 0;
      const marking = database.prepare(
        "insert into again (sink, position, checksum) values (?1, ?2, row_checksum(?1, ?2)) on conflict do nothing",
      );
      for (const [name, old] of cursors) {
        insertion.run(name, newPosition(old), null, createEpoch(), newPosition(scannedRows.urgents.get(name) ?? 0));
        for (const [before, now] of positions) if (before <= old && missedPositions.has(before)) marking.run(name, now);
      }
      for (const [name, reason] of scannedRows.ended) insertion.run(name, 0, reason, createEpoch(), 0);
      restoreQuota(database, scannedRows);
      if (isCursorLost || cursors.size === 0)
        database
          .prepare(
            "insert into damaged (found_ms, table_name, part, key, body) values (?, 'sink', '', '', cast(? as blob))",
          )
          .run(clock.now(), file);
    });
    return { ...countScannedRows(pages, scannedRows), ...counts, cursors: Object.fromEntries(cursors) };
  } finally {
    pages.close();
  }
}

/** Events that an index has and no search finds, because a page above them is damaged: sinks did not get them. */
function findUnreachableEvents(file: string): ReadonlySet<number> {
  let database: Database | null = null;
  try {
    // Immutable: SQLite would delete a write-ahead log that it does not understand.
    database = openDatabase(`${pathToFileURL(file).href}?immutable=1`, { readOnly: true });
    const rows = database
      .prepare(
        `select entry.position from event as entry indexed by event_by_class where entry.telemetry in (0, 1)
           and not exists (select 1 from event as found not indexed where found.position = entry.position)`,
      )
      .all<{ readonly position: number }>();
    return new Set(rows.map(({ position }) => position));
  } catch {
    return new Set();
  } finally {
    database?.close();
  }
}

function restoreQuota(database: Database, { quota, holds }: ReturnType<typeof scanPages>): void {
  const slotStatement = database.prepare(
    `insert into quota (bucket, id, sent_ms, counted_ms, checksum) values (?, ?, ?, ?, ?) on conflict do update set
       sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms, checksum = excluded.checksum
       where excluded.counted_ms > quota.counted_ms`,
  );
  const pauseStatement = database.prepare(
    `insert into quota_hold (bucket, said_ms, until_ms, checksum) values (?, ?, ?, ?) on conflict do update set
       said_ms = excluded.said_ms, until_ms = excluded.until_ms, checksum = excluded.checksum
       where excluded.until_ms > quota_hold.until_ms`,
  );
  for (const values of quota) slotStatement.run(...values);
  for (const values of holds) pauseStatement.run(...values);
}

export function formatRecovery(aside: string, { taken, damaged, deadLetters, marks, others }: SalvageReport): string {
  return `It was set aside as ${aside}, and a fresh one begun. ${taken} events that a sink had not got were taken over and are sent with their ids. Lost to the sinks are ${damaged} events of which too little is left, ${deadLetters} dead letters and ${marks} marks to send an event again. ${others} rows of other kinds stay in that file: what was known of the building is read again, and commands and the audit log begin anew. Check the disk and the memory of this machine.`;
}

function countScannedRows(
  pages: SqlitePages,
  { pageByPosition, damaged, deadLetters, marks, others }: ReturnType<typeof scanPages>,
) {
  return { pages: pages.count, found: pageByPosition.size, damaged, deadLetters, marks, others };
}

async function appendEvents(
  pages: SqlitePages,
  pageByPosition: ReadonlyMap<number, number>,
  from: number,
  database: Database,
  clock: Clock,
  missedPositions: ReadonlySet<number> = new Set(),
) {
  const wantedPositions = [...pageByPosition]
    .filter(([position]) => position > from || missedPositions.has(position))
    .toSorted(([a], [b]) => a - b);
  const log = createEventLog(database, clock, createDamageQuarantine(database, clock, undefined));
  const positions: (readonly [old: number, now: number])[] = [];
  let takenCount = 0;
  for (let offset = 0; offset < wantedPositions.length; offset += EVENTS_PER_COMMIT) {
    const eventSlice = wantedPositions.slice(offset, offset + EVENTS_PER_COMMIT).flatMap(([position, page]) => {
      const event = readEvent(pages, page, position);
      return event === null ? [] : [{ position, event }];
    });
    database.transaction(() => {
      for (const { position, event } of eventSlice) {
        takenCount += 1 - log.appendEvents([event], clock.now()).length;
        positions.push([position, log.end()]);
      }
    });
    await yieldToEventLoop();
  }
  const { length } = wantedPositions;
  const counts = { taken: takenCount, known: length - takenCount, delivered: pageByPosition.size - length };
  return { counts, positions };
}

function scanPages(pages: SqlitePages) {
  const pageByPosition = new Map<number, number>();
  const damagedPositions = new Set<number>();
  const letterIds = new Set<number>();
  const cursors = new Map<string, number>();
  const urgents = new Map<string, number>();
  const ended = new Map<string, string>();
  const quota: (readonly StoredValue[])[] = [];
  const holds: (readonly StoredValue[])[] = [];
  const marks = new Set<string>();
  const others = new Set<string>();
  const indexedById = new Set<number>();
  const indexedByClass = new Set<number>();
  let isCursorLost = false;
  for (let page = 1; page <= pages.count; page += 1) {
    const cells = pages.cells(page);
    let cursorsHere = 0;
    for (const { rowid, values } of cells) {
      const cursor = parseCursor(values);
      if (cursor !== null) {
        cursorsHere += 1;
        // A stale page may hold an older row: the lowest position loses nothing.
        const { sink, position, urgent, ended: reason } = cursor;
        if (typeof reason === "string") ended.set(sink, reason);
        else {
          cursors.set(sink, Math.min(cursors.get(sink) ?? position, position));
          urgents.set(sink, Math.min(urgents.get(sink) ?? urgent, urgent));
        }
      } else if (isSoundEvent(values)) pageByPosition.set(rowid ?? 0, page);
      else if (isDeadLetter(values)) letterIds.add(rowid ?? 0);
      else if (looksLikeEvent(values)) damagedPositions.add(rowid ?? 0);
      else if (isSoundRow(values, 2)) marks.add(`${values[0]} ${values[1]}`);
      else if (values.length === 2 && typeof values[0] === "string" && typeof values[1] === "number") {
        indexedById.add(values[1]);
      } else if (values.length === 3 && typeof values[1] === "number" && values[1] === values[2]) {
        indexedByClass.add(values[1]);
      } else if (isSoundRow(values, 4)) quota.push(values);
      else if (isSoundRow(values, 3)) {
        if (typeof values[1] === "number" && typeof values[2] === "number") holds.push(values);
        else others.add(`${values[0]} ${values[1]}`);
      }
    }
    if (cursorsHere > 0 && cursorsHere < pages.stated(page)) isCursorLost = true;
  }
  for (const position of indexedById) if (indexedByClass.has(position)) damagedPositions.add(position);
  const damaged = [...damagedPositions].filter((position) => !pageByPosition.has(position)).length;
  // An older row may be wrong about whether a sink has ended: delivering again loses nothing.
  for (const sink of cursors.keys()) ended.delete(sink);
  return {
    ...{ pageByPosition, damaged, cursors, urgents, ended, isCursorLost, quota, holds },
    ...{ deadLetters: letterIds.size, marks: marks.size, others: others.size },
  };
}

function isSoundRow(values: readonly StoredValue[], columns: number): boolean {
  return values.length === columns + 1 && rowChecksum(...values.slice(0, columns)) === values[columns];
}

function readEvent(pages: SqlitePages, page: number, position: number): Event | null {
  const values = pages.cells(page).find((cell) => cell.rowid === position && isSoundEvent(cell.values))?.values;
  return values === undefined ? null : parseEvent(String(values[BODY_COLUMN]));
}

/** Order of columns: position (as the rowid), id, kind, telemetry, committed_ms, bytes, body, … */
const BODY_COLUMN = 6;
const EVENT_COLUMN_COUNT = 9;

function looksLikeEvent(values: readonly StoredValue[]): boolean {
  const typeText = values.map((value) => (value === null ? "null" : typeof value)).join(" ");
  return typeText === "null string string number number number string number number";
}

function isSoundEvent(values: readonly StoredValue[]): boolean {
  if (values.length !== EVENT_COLUMN_COUNT || typeof values[BODY_COLUMN] !== "string") return false;
  return rowChecksum(...values.slice(1, BODY_COLUMN + 1)) === values[EVENT_COLUMN_COUNT - 1];
}

/** Columns: id (as the rowid), sink, position, reason, at_ms, committed_ms, resending, body, checksum, number, epoch. */
function isDeadLetter(values: readonly StoredValue[]): boolean {
  const [, sink, position, reason, atMs, committed, , body, checksum, ...numbering] = values;
  if (sink === undefined || position === undefined || reason === undefined || body === undefined) return false;
  if (atMs === undefined || committed === undefined) return false;
  // Before schema 6 letters had no number.
  if (numbering.length !== 0 && numbering.length !== 2) return false;
  return rowChecksum(sink, position, atMs, committed, reason, ...numbering, body) === checksum;
}

/** Columns: name, position, dropped, ended, checksum, counted and epoch since schema 6, urgent since schema 7. */
function parseCursor(values: readonly StoredValue[]) {
  const [sink, position, , ended] = values;
  const urgent = values[7] ?? 0;
  // A row of the quota has five values as well, of which the fourth is a time.
  if (typeof ended !== "string" && ended !== null) return null;
  if (![5, 7, 8].includes(values.length) || typeof sink !== "string") return null;
  if (typeof position !== "number" || typeof urgent !== "number") return null;
  if (rowChecksum(...values.slice(0, 4), ...values.slice(5)) !== values[4]) return null;
  return { sink, position, urgent, ended };
}

import { existsSync } from "node:fs";
import { resolve } from "node:path";
import type { Clock } from "../clock.ts";
import { ConfigError } from "../errors.ts";
import type { Event } from "../event.ts";
import { eventIn } from "../stored-event.ts";
import { breath } from "../waiting.ts";
import { checksumOf } from "./checksum.ts";
import { createDamage } from "./damage.ts";
import { createEventLog } from "./event-log.ts";
import { stateFile } from "./folder.ts";
import { openPages, type Pages } from "./pages.ts";
import type { StoredValue } from "./record-format.ts";
import { prepareSchema } from "./schema.ts";
import { type Database, openDatabase } from "./sqlite.ts";

/** What was found in a damaged state file, and what became of it. */
export interface Salvaged {
  readonly pages: number;
  /** Events that are what was committed. */
  readonly found: number;
  /** Of these, taken into the log of the state in use. */
  readonly taken: number;
  /** In that log already. */
  readonly known: number;
  /** Every sink in use had them. */
  readonly delivered: number;
  /** Events of which too little is left, as far as they can be counted. */
  readonly damaged: number;
  readonly deadLetters: number;
  /** How far each sink was; null for a sink in use of which nothing was found, which so gets everything. */
  readonly cursors: Readonly<Record<string, number | null>>;
}

/** Events that are committed in one go, so that a running worker waits a few milliseconds only. */
const SLICE = 100;

/**
 * Takes what was not delivered out of a file that was set aside, into the log of the state that is in use. It goes to
 * every sink there, with its ids, by which receivers fold what they had. Nothing else is taken: what we believe of the
 * building is asked again, and an old journal of commands must not come back. The file itself stays as it is.
 *
 * It is an ordinary commit of another process, so a worker may run.
 */
export async function salvage(folder: string, file: string, clock: Clock): Promise<Salvaged> {
  const target = stateFile(folder);
  if (!existsSync(file)) throw new ConfigError(`There is no file ${file}.`);
  if (!existsSync(target)) {
    throw new ConfigError(`There is no state in ${folder} yet.`, { hint: "Start the worker first." });
  }
  if (resolve(file) === resolve(target)) {
    throw new ConfigError(`${file} is the state in use.`, {
      hint: "Name a file that was set aside; `plenum state check` lists them.",
    });
  }
  const pages = openPages(file);
  const database = openDatabase(target);
  try {
    prepareSchema(database, false);
    database.exec("pragma synchronous = full");
    return await take(pages, database, clock);
  } finally {
    database.close();
    pages.close();
  }
}

async function take(pages: Pages, database: Database, clock: Clock): Promise<Salvaged> {
  const { places, damaged, deadLetters, cursors } = lookThrough(pages);
  const inUse = database
    .prepare("select name from sink where ended is null")
    .all<{ readonly name: string }>()
    .map(({ name }) => name);
  const from = Math.min(...inUse.map((name) => cursors.get(name) ?? 0));
  const wanted = [...places].filter(([position]) => position > from).toSorted(([a], [b]) => a - b);
  const log = createEventLog(database, clock, createDamage(database, clock, undefined));
  let taken = 0;
  for (let at = 0; at < wanted.length; at += SLICE) {
    const events = wanted
      .slice(at, at + SLICE)
      .flatMap(([position, page]) => eventAt(pages, page, position) ?? []);
    const known = database.transaction(() => log.append(events, clock.now()));
    taken += events.length - known.length;
    await breath();
  }
  return {
    pages: pages.count,
    found: places.size,
    taken,
    known: wanted.length - taken,
    delivered: places.size - wanted.length,
    damaged,
    deadLetters,
    cursors: Object.fromEntries(
      [...new Set([...inUse, ...cursors.keys()])].map((name) => [name, cursors.get(name) ?? null]),
    ),
  };
}

/** Where which event lies, and how far the sinks were. */
function lookThrough(pages: Pages) {
  /** The page of each sound event, by position. */
  const places = new Map<number, number>();
  const spoiled = new Set<number>();
  const letters = new Set<number>();
  const cursors = new Map<string, number>();
  for (let page = 1; page <= pages.count; page += 1) {
    for (const { rowid, values } of pages.cells(page)) {
      if (isSoundEvent(values)) places.set(rowid ?? 0, page);
      else if (isLetter(values)) letters.add(rowid ?? 0);
      else if (looksLikeEvent(values)) spoiled.add(rowid ?? 0);
      const cursor = cursorOf(values);
      // A page that was left behind may hold an older word: the lowest loses nothing.
      if (cursor !== null)
        cursors.set(cursor.sink, Math.min(cursors.get(cursor.sink) ?? cursor.position, cursor.position));
    }
  }
  const damaged = [...spoiled].filter((position) => !places.has(position)).length;
  return { places, damaged, deadLetters: letters.size, cursors };
}

function eventAt(pages: Pages, page: number, position: number): Event | null {
  const values = pages
    .cells(page)
    .find((cell) => cell.rowid === position && isSoundEvent(cell.values))?.values;
  return values === undefined ? null : eventIn(String(values[BODY]));
}

/** Columns in the order of the table: position (as the rowid), id, kind, telemetry, committed_ms, bytes, body, … */
const BODY = 6;
const EVENT_COLUMNS = 9;

function looksLikeEvent(values: readonly StoredValue[]): boolean {
  const types = values.map((value) => (value === null ? "null" : typeof value)).join(" ");
  return types === "null string string number number number string number number";
}

function isSoundEvent(values: readonly StoredValue[]): boolean {
  if (values.length !== EVENT_COLUMNS || typeof values[BODY] !== "string") return false;
  return checksumOf(...values.slice(1, BODY + 1)) === values[EVENT_COLUMNS - 1];
}

/** Columns: id (as the rowid), sink, position, reason, at_ms, committed_ms, resending, body, checksum, number, epoch. */
function isLetter([
  ,
  sink,
  position,
  reason,
  at,
  committed,
  ,
  body,
  checksum,
  ...counted
]: readonly StoredValue[]): boolean {
  if (sink === undefined || position === undefined || reason === undefined || body === undefined)
    return false;
  if (at === undefined || committed === undefined) return false;
  // Before schema 6 letters had no number.
  if (counted.length !== 0 && counted.length !== 2) return false;
  return checksumOf(sink, position, at, committed, reason, ...counted, body) === checksum;
}

/** Columns: name, position, dropped, ended, checksum, counted and epoch since schema 6, urgent since schema 7. */
function cursorOf(
  values: readonly StoredValue[],
): { readonly sink: string; readonly position: number } | null {
  const [sink, position] = values;
  if (![5, 7, 8].includes(values.length) || typeof sink !== "string" || typeof position !== "number")
    return null;
  return checksumOf(...values.slice(0, 4), ...values.slice(5)) === values[4] ? { sink, position } : null;
}

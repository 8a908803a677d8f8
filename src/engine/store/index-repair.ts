import { closeSync, fsyncSync, openSync, readFileSync, rmSync, writeSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { beginEpoch } from "./epoch.ts";
import { DAMAGED } from "./event-log.ts";
import { Damaged, type Database, type Repair } from "./sqlite.ts";

/** Indexes are rebuilt at most once in this time, in milliseconds: damage that comes back so soon is not in them. */
const AGAIN_MS = 3_600_000;

/** The rows that both indexes of the log know and that the table does not have any more. */
const UNREACHABLE = `select byid.position, byid.id from event as byid indexed by sqlite_autoindex_event_1
  where not exists (select 1 from event as found not indexed where found.position = byid.position)
    and exists (select 1 from event as byclass indexed by event_by_class
      where byclass.telemetry in (0, 1) and byclass.position = byid.position)`;

/**
 * Repairs damage that is met while the file is open: the indexes are rebuilt from the rows. When that does not help, the
 * file is condemned: `damaged` aborts, the worker is built again, and its start replaces the file (`open.ts`).
 */
export function createIndexRepair(
  database: Database,
  clock: Pick<Clock, "now" | "monotonic">,
  log: Log | undefined,
): Repair & { readonly damaged: AbortSignal } {
  const condemned = new AbortController();
  let repairedMs = Number.NEGATIVE_INFINITY;

  return {
    damaged: condemned.signal,
    attempt(error) {
      if (condemned.signal.aborted || clock.monotonic() - repairedMs < AGAIN_MS) return false;
      repairedMs = clock.monotonic();
      let lost = 0;
      try {
        database.transaction(() => {
          lost = giveUpUnreachable(database, clock.now());
          database.exec("reindex");
        });
      } catch (failure) {
        // Two rows with one id cannot be indexed: the rows themselves are damaged.
        throw failure instanceof Damaged
          ? failure
          : new Damaged(`${database.path} is damaged (its indexes cannot be rebuilt).`, { cause: failure });
      }
      log?.error(
        { file: database.path, lost, err: error },
        `The indexes of the state did not match its rows and were rebuilt; ${lost} events were lost and are dead letters of the sinks that had not got them. Check the disk and the memory of this machine.`,
      );
      return true;
    },
    failed(error) {
      if (condemned.signal.aborted) return;
      condemn(database.path);
      log?.error(
        { file: database.path, err: error },
        "The state file is damaged beyond its indexes. The worker starts again with a fresh one and takes over what was not delivered.",
      );
      condemned.abort(error);
    },
  };
}

/** Rebuilding an index forgets rows that only it still knows, so they become dead letters of who had not got them. */
function giveUpUnreachable(database: Database, nowMs: number): number {
  let rows: readonly { readonly position: number; readonly id: string }[];
  try {
    rows = database.prepare(UNREACHABLE).all();
  } catch (error) {
    // An index that cannot be read says nothing of the rows.
    if (error instanceof Damaged) return 0;
    throw error;
  }
  const pending = `sink.ended is null and (sink.position < ?2 or exists (select 1 from again
    where again.sink = sink.name and again.position = ?2))`;
  for (const { position, id } of rows) {
    beginEpoch(database, "ended is null and sink.position < ?2", position);
    database
      .prepare(
        `insert into dead_letter (sink, position, reason, at_ms, committed_ms, body)
         select sink.name, ?2, ?3, ?1, ?1, ?4 from sink where ${pending} on conflict do nothing`,
      )
      .run(nowMs, position, DAMAGED, id);
    database
      .prepare(
        "insert into damaged (found_ms, table_name, part, key, body) values (?, 'event', '', ?, cast(? as blob))",
      )
      .run(nowMs, id, id);
  }
  return rows.length;
}

const CONDEMNED = "plenum.db-condemned";

const condemnedFile = (file: string) => join(dirname(file), CONDEMNED);

/**
 * Notes on the disk that a state file must not be opened any more; `aside` names the file that it became, while what was
 * not delivered is still being taken out of it.
 */
export function condemn(file: string, aside = ""): void {
  const descriptor = openSync(condemnedFile(file), "w", 0o600);
  try {
    writeSync(descriptor, aside);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** Null when the file may be opened; otherwise the name of the file that it became, or an empty text. */
export function condemnation(file: string): string | null {
  try {
    return readFileSync(condemnedFile(file), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
}

export function pardon(file: string): void {
  rmSync(condemnedFile(file), { force: true });
}

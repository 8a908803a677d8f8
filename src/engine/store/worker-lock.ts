import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { emptyOut, lockFile, preparePrivateFile } from "./folder.ts";
import { Busy, Damaged, type Database, openDatabase } from "./sqlite.ts";

export interface WorkerLock {
  release(): void;
}

interface LockOptions {
  readonly clock: Clock;
  readonly log?: Log;
}

/**
 * One worker per folder. The lock is an exclusive transaction on a database of its own that is held as long as the
 * worker lives: the kernel frees it however the process ends, so there is never a stale lock to remove.
 *
 * The lock is the kernel's, not what the file holds: nothing is ever written into it. What stands in it came from
 * elsewhere, and SQLite may not take it for a database. It says so only after it has found the file unlocked, so nobody
 * holds it then, and the file is emptied in its place; another file would be another lock.
 */
export function lockFolder(folder: string, options: LockOptions): WorkerLock {
  const path = lockFile(folder);
  preparePrivateFile(path);
  try {
    const database = lockedDespiteContent(path, options);
    return { release: () => database.close() };
  } catch (error) {
    if (!(error instanceof Busy)) throw error;
    throw new ConfigError(`Another worker uses the state folder ${folder}.`, {
      cause: error,
      hint: "Stop it, or set state.folder to another folder for this one.",
    });
  }
}

function lockedDespiteContent(path: string, { clock, log }: LockOptions): Database {
  try {
    return locked(path);
  } catch (error) {
    if (!(error instanceof Damaged)) throw error;
    const aside = emptyOut(path, clock.now());
    log?.warn(
      { file: path, aside },
      "The lock file held something that is not ours. It was copied aside and emptied; nothing is lost by it.",
    );
    return locked(path);
  }
}

function locked(path: string): Database {
  const database = openDatabase(path, { busyMs: 0 });
  try {
    database.exec("begin exclusive");
    return database;
  } catch (error) {
    database.close();
    throw error;
  }
}

import { ConfigError, Retryable } from "../errors.ts";
import { lockFile, preparePrivateFile } from "./folder.ts";
import { openDatabase } from "./sqlite.ts";

export interface WorkerLock {
  release(): void;
}

/**
 * One worker per folder. The lock is an exclusive transaction on a database of its own that is held as long as the
 * worker lives: the kernel frees it however the process ends, so there is never a stale lock to remove.
 */
export function lockFolder(folder: string): WorkerLock {
  const path = lockFile(folder);
  preparePrivateFile(path);
  const database = openDatabase(path, { busyMs: 0 });
  try {
    database.exec("begin exclusive");
  } catch (error) {
    database.close();
    if (!(error instanceof Retryable)) throw error;
    throw new ConfigError(`Another worker uses the state folder ${folder}.`, {
      cause: error,
      hint: "Stop it, or set state.folder to another folder for this one.",
    });
  }
  return { release: () => database.close() };
}

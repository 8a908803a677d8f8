import { randomBytes } from "node:crypto";
import { readFileSync, realpathSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { beginEpoch } from "./damage.ts";
import type { createDocuments } from "./documents.ts";
import { sizeOf, stateFile } from "./folder.ts";
import type { Database } from "./sqlite.ts";
import type { SeenCopy, StateCopy } from "./store.ts";

interface StateLocation {
  /** The file's inode and birth time, which a copy does not share. */
  readonly file: string;
  readonly folder: string;
  readonly machine: string | null;
  readonly host: string;
}

const SET = "state-file";
const LOCATION = "plenum.db";
const COPY = "copy";
/** The name that systemd gives a machine: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html */
const MACHINE_ID = "/etc/machine-id";

type Documents = Pick<ReturnType<typeof createDocuments>, "document" | "change">;

/** Detects a restored or copied file, and starts new epochs: receivers may have seen its numbers for other events. */
export function detectCopy(
  database: Database,
  documents: Documents,
  nowMs: number,
  machine: () => string | null = machineName,
): void {
  const { ino, birthtimeNs } = statSync(database.path, { bigint: true });
  const folder = realpathSync(dirname(database.path));
  const now: StateLocation = { file: `${ino} ${birthtimeNs}`, folder, machine: machine(), host: hostname() };
  const before = documents.document<StateLocation>(SET, LOCATION);
  if (before !== undefined && JSON.stringify(before) === JSON.stringify(now)) return;
  documents.change({ set: SET, put: [[LOCATION, now]] });
  if (before === undefined || before.file === now.file) return;
  beginEpoch(database, "true");
  const isHere = before.machine === now.machine;
  if (isHere && !isOriginalAt(before)) return;
  const identity = randomBytes(4).toString("hex");
  const from = { folder: before.folder, host: before.host };
  const copy: StateCopy & { readonly file: string } = { identity, at: isoUtc(nowMs), from, isHere, file: before.file };
  documents.change({ set: SET, put: [[COPY, copy]] });
}

const SESSION = "session";

export const LOST_LOG =
  "The state was in use when its worker ended, and its write-ahead log (plenum.db-wal) is missing or cannot be read: commits since the log was last copied into plenum.db, up to 4 MiB, may be lost. What happened since is sent again with the same ids, and every sink counts anew. Back up plenum.db together with plenum.db-wal, or with SQLite's .backup, after which nothing is missing.";

/** Detects a lost write-ahead log by the note of an open worker; returns its time. Call it inside a transaction. */
export function detectLostLog(
  database: Database,
  documents: Documents,
  nowMs: number,
  hasLog: boolean,
): string | undefined {
  const isLost = !hasLog && documents.document<string>(SET, SESSION) === "open";
  documents.change({ set: SET, put: [[SESSION, "open"]] });
  if (!isLost) return undefined;
  beginEpoch(database, "true");
  return isoUtc(nowMs);
}

export function noteClosed(database: Database, documents: Documents): void {
  try {
    database.transaction(() => documents.change({ set: SET, put: [[SESSION, "closed"]] }));
  } catch {
    // The next start finds the write-ahead log and checks it.
  }
}

/** Returns the original of this state; undefined when the state is no known copy. */
export function readCopy(documents: Pick<Documents, "document">): SeenCopy | undefined {
  const copy = documents.document<StateCopy & { readonly file: string }>(SET, COPY);
  if (copy === undefined) return undefined;
  const { file, ...original } = copy;
  return { ...original, isOriginalThere: original.isHere && isOriginalAt({ file, folder: original.from.folder }) };
}

function isOriginalAt({ file, folder }: Pick<StateLocation, "file" | "folder">): boolean {
  try {
    const path = stateFile(folder);
    const { ino, birthtimeNs } = statSync(path, { bigint: true });
    return `${ino} ${birthtimeNs}` === file && sizeOf(path) > 0;
  } catch {
    return false;
  }
}

function machineName(): string | null {
  try {
    return readFileSync(MACHINE_ID, "utf8").trim() || null;
  } catch {
    return null;
  }
}

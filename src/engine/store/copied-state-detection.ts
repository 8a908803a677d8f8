import { randomBytes } from "node:crypto";
import { readFileSync, realpathSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { beginEpoch } from "./damage-quarantine.ts";
import type { createDocuments } from "./documents.ts";
import type { Database } from "./sqlite.ts";
import { fileBytes, stateFile } from "./state-folder.ts";
import type { SeenCopy, StateCopy } from "./store.ts";

interface StateLocation {
  /** The file's inode and birth time, which a copy does not share. */
  readonly file: string;
  readonly folder: string;
  readonly machine: string | null;
  readonly host: string;
}

const STATE_FILE_SET = "state-file";
const STATE_LOCATION_KEY = "plenum.db";
const COPY_KEY = "copy";
/** The name that systemd gives a machine: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html */
const MACHINE_ID_FILE = "/etc/machine-id";

type CopyRecord = StateCopy & { readonly file: string };
type DocumentAccess = Pick<ReturnType<typeof createDocuments>, "document" | "change">;

/** Detects a restored or copied file, and starts new epochs: receivers may have seen its numbers for other events. */
export function detectCopy(
  database: Database,
  documents: DocumentAccess,
  nowMs: number,
  machine: () => string | null = readMachineId,
): void {
  const { ino, birthtimeNs } = statSync(database.path, { bigint: true });
  const folder = realpathSync(dirname(database.path));
  const location: StateLocation = { file: `${ino} ${birthtimeNs}`, folder, machine: machine(), host: hostname() };
  const lastLocation = documents.document<StateLocation>(STATE_FILE_SET, STATE_LOCATION_KEY);
  if (lastLocation !== undefined && JSON.stringify(lastLocation) === JSON.stringify(location)) return;
  documents.change({ set: STATE_FILE_SET, put: [[STATE_LOCATION_KEY, location]] });
  if (lastLocation === undefined || lastLocation.file === location.file) return;
  beginEpoch(database, "true");
  const isHere = lastLocation.machine === location.machine;
  if (isHere && !isOriginalAt(lastLocation)) return;
  const identity = randomBytes(4).toString("hex");
  const { file, folder: originalFolder, host } = lastLocation;
  const copy: CopyRecord = { identity, at: isoUtc(nowMs), from: { folder: originalFolder, host }, isHere, file };
  documents.change({ set: STATE_FILE_SET, put: [[COPY_KEY, copy]] });
}

const STORE_SESSION_KEY = "session";

export const LOST_LOG_MESSAGE =
  "The state was in use when its worker ended, and its write-ahead log (plenum.db-wal) is missing or cannot be read: commits since the log was last copied into plenum.db, up to 4 MiB, may be lost. What happened since is sent again with the same ids, and every sink counts anew. Back up plenum.db together with plenum.db-wal, or with SQLite's .backup, after which nothing is missing.";

/** Detects a lost write-ahead log by the note of an open worker; returns its time. Call it inside a transaction. */
export function detectLostLog(
  database: Database,
  documents: DocumentAccess,
  nowMs: number,
  hasLog: boolean,
): string | undefined {
  const isLogLost = !hasLog && documents.document<string>(STATE_FILE_SET, STORE_SESSION_KEY) === "open";
  documents.change({ set: STATE_FILE_SET, put: [[STORE_SESSION_KEY, "open"]] });
  if (!isLogLost) return undefined;
  beginEpoch(database, "true");
  return isoUtc(nowMs);
}

export function recordRegularClose(database: Database, documents: DocumentAccess): void {
  try {
    database.transaction(() => documents.change({ set: STATE_FILE_SET, put: [[STORE_SESSION_KEY, "closed"]] }));
  } catch {
    // The next start finds the write-ahead log and checks it.
  }
}

/** Returns the original of this state; undefined when the state is no known copy. */
export function readCopy(documents: Pick<DocumentAccess, "document">): SeenCopy | undefined {
  const copy = documents.document<CopyRecord>(STATE_FILE_SET, COPY_KEY);
  if (copy === undefined) return undefined;
  const { file, ...original } = copy;
  return { ...original, isOriginalThere: original.isHere && isOriginalAt({ file, folder: original.from.folder }) };
}

function isOriginalAt({ file, folder }: Pick<StateLocation, "file" | "folder">): boolean {
  try {
    const path = stateFile(folder);
    const { ino, birthtimeNs } = statSync(path, { bigint: true });
    return `${ino} ${birthtimeNs}` === file && fileBytes(path) > 0;
  } catch {
    return false;
  }
}

function readMachineId(): string | null {
  try {
    return readFileSync(MACHINE_ID_FILE, "utf8").trim() || null;
  } catch {
    return null;
  }
}

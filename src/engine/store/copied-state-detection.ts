import { randomBytes } from "node:crypto";
import { readFileSync, realpathSync, statSync } from "node:fs";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";
import { beginSequenceEpoch } from "./damage-quarantine.ts";
import type { createDocumentStore } from "./documents.ts";
import type { Database } from "./sqlite.ts";
import { stateFilePath } from "./state-folder.ts";
import type { KnownStateCopy, StateCopy } from "./store.ts";

interface StateLocation {
  /** Inode and birth time of the state file, which a copy does not share. */
  readonly file: string;
  readonly folder: string;
  readonly machine: string | null;
  readonly host: string;
}

const STATE_FILE_DOCUMENTS = "state-file";
const STATE_LOCATION_KEY = "plenum.db";
const STATE_COPY_DOCUMENT_KEY = "copy";
/** systemd's id of the machine: https://www.freedesktop.org/software/systemd/man/latest/machine-id.html */
const MACHINE_ID_PATH = "/etc/machine-id";

type StoredCopy = StateCopy & { readonly file: string };
type StateDocumentAccess = Pick<ReturnType<typeof createDocumentStore>, "document" | "change">;

/** Detects a copied or restored state file and starts new epochs: the original may have used the next numbers. */
export function detectCopy(
  database: Database,
  documents: StateDocumentAccess,
  nowMs: number,
  machine: () => string | null = readMachineId,
): void {
  const { ino, birthtimeNs } = statSync(database.path, { bigint: true });
  const folder = realpathSync(dirname(database.path));
  const stateLocation: StateLocation = { file: `${ino} ${birthtimeNs}`, folder, machine: machine(), host: hostname() };
  const lastStateLocation = documents.document<StateLocation>(STATE_FILE_DOCUMENTS, STATE_LOCATION_KEY);
  if (lastStateLocation !== undefined && JSON.stringify(lastStateLocation) === JSON.stringify(stateLocation)) return;
  documents.change({ set: STATE_FILE_DOCUMENTS, put: [[STATE_LOCATION_KEY, stateLocation]] });
  if (lastStateLocation === undefined || lastStateLocation.file === stateLocation.file) return;
  beginSequenceEpoch(database, "true");
  const isHere = lastStateLocation.machine === stateLocation.machine;
  if (isHere && !isOriginalStateAt(lastStateLocation)) return;
  const identity = randomBytes(4).toString("hex");
  const { file, folder: originalFolder, host } = lastStateLocation;
  const stateCopy: StoredCopy = { identity, at: isoUtc(nowMs), from: { folder: originalFolder, host }, isHere, file };
  documents.change({ set: STATE_FILE_DOCUMENTS, put: [[STATE_COPY_DOCUMENT_KEY, stateCopy]] });
}

const STORE_SESSION_KEY = "session";

export const LOST_WAL_MESSAGE =
  "The state was in use when its worker ended, and its write-ahead log (plenum.db-wal) is missing or cannot be read: commits since the log was last copied into plenum.db, up to 4 MiB, may be lost. What happened since is sent again with the same ids, and every sink restarts its sequence numbers. Back up plenum.db together with plenum.db-wal, or with SQLite's .backup, after which nothing is missing.";

/** Starts new epochs and returns the current time if a killed worker's write-ahead log is lost. Needs a transaction. */
export function detectLostWal(database: Database, documents: StateDocumentAccess, nowMs: number, hasWal: boolean) {
  const isWalLost = !hasWal && documents.document<string>(STATE_FILE_DOCUMENTS, STORE_SESSION_KEY) === "open";
  documents.change({ set: STATE_FILE_DOCUMENTS, put: [[STORE_SESSION_KEY, "open"]] });
  if (!isWalLost) return undefined;
  beginSequenceEpoch(database, "true");
  return isoUtc(nowMs);
}

export function recordRegularClose(database: Database, documents: StateDocumentAccess): void {
  try {
    database.transaction(() => documents.change({ set: STATE_FILE_DOCUMENTS, put: [[STORE_SESSION_KEY, "closed"]] }));
  } catch {
    // Without this record, the next start checks whether the write-ahead log is lost.
  }
}

export function readCopy(documents: Pick<StateDocumentAccess, "document">): KnownStateCopy | undefined {
  const stateCopy = documents.document<StoredCopy>(STATE_FILE_DOCUMENTS, STATE_COPY_DOCUMENT_KEY);
  if (stateCopy === undefined) return undefined;
  const { file, ...original } = stateCopy;
  return { ...original, isOriginalThere: original.isHere && isOriginalStateAt({ file, folder: original.from.folder }) };
}

function isOriginalStateAt({ file, folder }: Pick<StateLocation, "file" | "folder">): boolean {
  const path = stateFilePath(folder);
  const stats = valueOr(() => statSync(path, { bigint: true }), null);
  return stats !== null && `${stats.ino} ${stats.birthtimeNs}` === file && stats.size > 0n;
}

const readMachineId = (): string | null => valueOr(() => readFileSync(MACHINE_ID_PATH, "utf8").trim() || null, null);

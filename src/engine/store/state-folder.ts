import {
  accessSync,
  closeSync,
  constants,
  copyFileSync,
  existsSync,
  fchmodSync,
  fstatSync,
  fsyncSync,
  lstatSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  truncateSync,
  writeFileSync,
} from "node:fs";
import { dirname, join, resolve } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";
import { findBrokenLink } from "../../core/errors/folder-access.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";

export type ReadFileSystemType = (folder: string) => number;

export const readFileSystemType: ReadFileSystemType = (folder) => statfsSync(folder).type;

/** Type numbers from Linux's statfs(2) and include/uapi/linux/magic.h. Locks over a network cannot be trusted. */
const NETWORK_FILE_SYSTEMS: ReadonlyMap<number, string> = new Map([
  [0x6969, "NFS"],
  [0x517b, "SMB"],
  [0xff534d42, "CIFS"],
  [0xfe534d42, "SMB 2"],
  [0x564c, "NCP"],
  [0x5346414f, "AFS"],
  [0x73757245, "Coda"],
  [0x00c36400, "Ceph"],
  [0x0bd00bd0, "Lustre"],
  [0x47504653, "GPFS"],
  [0x7461636f, "OCFS2"],
  [0x01021997, "9P"],
]);

/** Creates the folder for its owner only; an existing one keeps its rights, because it may hold other things. */
export function prepareStateFolder(folder: string, readType: ReadFileSystemType): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
  } catch (error) {
    refuseDanglingLink(folder);
    throw new ConfigError(`The state folder ${folder} cannot be created (${errorCodeOrMessage(error)}).`, {
      cause: error,
      hint: "Set state.folder to a folder that the worker may write.",
    });
  }
  refuseUnfitFolder(folder, readType);
}

export function checkStateFolder(folder: string, readType: ReadFileSystemType = readFileSystemType): void {
  refuseDanglingLink(folder);
  const existingPath = nearestExistingPath(resolve(folder));
  const folderExists = existingPath === resolve(folder);
  const hint = "Set state.folder to a folder that the worker may write.";
  if (!statSync(existingPath).isDirectory()) {
    const folderProblem = folderExists ? "is a file" : `cannot be created: ${existingPath} is a file`;
    throw new ConfigError(`The state folder ${folder} ${folderProblem}.`, { hint });
  }
  try {
    accessSync(existingPath, constants.W_OK | constants.X_OK);
  } catch (error) {
    const what = folderExists ? "cannot be written" : `cannot be created in ${existingPath}`;
    throw new ConfigError(`The state folder ${folder} ${what} (${errorCodeOrMessage(error)}).`, { hint, cause: error });
  }
  if (folderExists) refuseUnfitFolder(folder, readType);
}

function refuseDanglingLink(folder: string): void {
  const link = findBrokenLink(folder);
  if (link === null) return;
  throw new ConfigError(`The state folder ${folder} cannot be used: ${link} is a link that leads nowhere.`, {
    hint: "Make the folder that it leads to, or set state.folder to another.",
  });
}

export function freeDiskBytes(folder: string): number {
  const { bavail, bsize } = statfsSync(nearestExistingPath(resolve(folder)));
  return bavail * bsize;
}

function nearestExistingPath(path: string): string {
  const parentFolder = dirname(path);
  try {
    if (parentFolder === path || lstatSync(path, { throwIfNoEntry: false }) !== undefined) return path;
  } catch {
    // The path lies below a file (ENOTDIR) or in an unreadable folder.
  }
  return nearestExistingPath(parentFolder);
}

function refuseUnfitFolder(folder: string, readType: ReadFileSystemType): void {
  refuseSharedFolder(folder);
  if (process.platform !== "linux") return;
  const networkFileSystem = NETWORK_FILE_SYSTEMS.get(readType(folder) >>> 0);
  if (networkFileSystem !== undefined) {
    throw new ConfigError(`The state folder ${folder} is on a network file system (${networkFileSystem}).`, {
      hint: "Set state.folder to a folder on a local disk: locks over a network do not protect the state.",
    });
  }
}

/** Throws ConfigError when another user owns the folder or may write it: they could replace the state. */
function refuseSharedFolder(folder: string): void {
  refuseWritableByOthers(folder);
  const { uid } = statSync(folder);
  const workerUid = process.geteuid?.() ?? uid;
  if (uid === workerUid) return;
  throw new ConfigError(`The state folder ${folder} belongs to another user (${uid}; the worker is ${workerUid}).`, {
    hint: `Run: chown ${workerUid} ${folder}, or set state.folder to one that does not exist yet; it is then made for its owner only.`,
  });
}

/** Throws ConfigError if others may write the folder, also for commands that only read it. A missing folder is fine. */
export function refuseWritableByOthers(folder: string): void {
  // Windows has no permission bits.
  if (process.platform === "win32") return;
  // If the folder cannot be read, opening a file in it reports the reason.
  const mode = valueOr(() => statSync(folder, { throwIfNoEntry: false }), undefined)?.mode ?? 0;
  if ((mode & 0o022) === 0) return;
  const fileModeText = (mode & 0o7777).toString(8).padStart(3, "0");
  throw new ConfigError(`Others than its owner can write to the state folder ${folder} (mode ${fileModeText}).`, {
    hint: `Run: chmod go-w ${folder}, or set state.folder to one that does not exist yet; it is then made for its owner only.`,
  });
}

const NO_SYMLINK_FOLLOW_FLAG = constants.O_NOFOLLOW ?? 0;

/** Creates a file that only its owner can read. Throws ConfigError for a symbolic link or a folder. */
export function preparePrivateFile(path: string): void {
  try {
    const fileDescriptor = openSync(
      path,
      constants.O_WRONLY | constants.O_APPEND | constants.O_CREAT | constants.O_NONBLOCK | NO_SYMLINK_FOLLOW_FLAG,
      0o600,
    );
    try {
      const fileStats = fstatSync(fileDescriptor);
      if (!fileStats.isFile()) throw new Error("it is no file");
      // Change the mode only if necessary: the permission model of Node.js forbids it (docs/operations.md).
      if ((fileStats.mode & 0o777) !== 0o600) fchmodSync(fileDescriptor, 0o600);
    } finally {
      closeSync(fileDescriptor);
    }
  } catch (error) {
    throw new ConfigError(`${path} cannot be written (${errorCodeOrMessage(error)}).`, {
      cause: error,
      hint: "Run the worker as the owner of the state folder, and check that the disk has space.",
    });
  }
}

/** Suffixes of files that must move with a state file: SQLite may apply an old write-ahead log to a fresh file. */
const SQLITE_SIDE_FILE_SUFFIXES = ["-wal", "-shm", "-journal"];

/** Renames a damaged file and its side files, so that nothing is deleted; returns the new name. */
export function quarantineState(path: string, nowMs: number): string {
  const quarantinedFile = chooseQuarantineName(path, nowMs);
  // If only side files exist, the reported name must be that of an existing file.
  if (!existsSync(path)) preparePrivateFile(quarantinedFile);
  for (const suffix of ["", ...SQLITE_SIDE_FILE_SUFFIXES]) {
    if (existsSync(path + suffix)) renameSync(path + suffix, quarantinedFile + suffix);
  }
  if (existsSync(path + WAL_COPY_SUFFIX)) renameSync(path + WAL_COPY_SUFFIX, `${quarantinedFile}-wal`);
  return quarantinedFile;
}

export function removeStateFiles(path: string): void {
  for (const suffix of ["", ...SQLITE_SIDE_FILE_SUFFIXES, WAL_COPY_SUFFIX]) rmSync(path + suffix, { force: true });
}

const WAL_COPY_SUFFIX = "-wal-spare";

/** Makes a spare copy of the write-ahead log before the file is checked: SQLite deletes the log of a damaged file. */
export function copyWriteAheadLog(path: string): void {
  if (fileSize(`${path}-wal`) === 0) return;
  try {
    copyFileSync(`${path}-wal`, path + WAL_COPY_SUFFIX);
  } catch {
    // A full disk must not keep a sound state from being opened.
    removeWalCopy(path);
  }
}

export function removeWalCopy(path: string): void {
  rmSync(path + WAL_COPY_SUFFIX, { force: true });
}

export function copyAndEmptyFile(path: string, nowMs: number): string {
  const quarantinedFile = chooseQuarantineName(path, nowMs);
  copyFileSync(path, quarantinedFile);
  truncateSync(path, 0);
  return quarantinedFile;
}

function chooseQuarantineName(path: string, nowMs: number): string {
  const quarantinedFile = `${path}.damaged-${isoUtc(nowMs).replaceAll(/[:.]/g, "-")}`;
  const isFileNameTaken = (name: string) => ["", ...SQLITE_SIDE_FILE_SUFFIXES].some((side) => existsSync(name + side));
  let unusedName = quarantinedFile;
  for (let n = 2; isFileNameTaken(unusedName); n += 1) unusedName = `${quarantinedFile}-${n}`;
  return unusedName;
}

export function isQuarantinedStateFile(name: string): boolean {
  return name.startsWith("plenum.db.damaged-") && !SQLITE_SIDE_FILE_SUFFIXES.some((suffix) => name.endsWith(suffix));
}

export function fileSize(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

export function stateFilePath(folder: string): string {
  return join(folder, "plenum.db");
}

export function lockFilePath(folder: string): string {
  return join(folder, "worker.lock");
}

function errorCodeOrMessage(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return "code" in error ? String(error.code) : error.message;
}

export const STATE_MOVE_MARK_FILE = "MOVED.json";

const MoveMarkSchema = z.strictObject({
  /** The id has 16 hexadecimal digits and is also stored in the database. */
  id: z.string().regex(/^[0-9a-f]{16}$/),
  /** Describes the database for people: `db.example:5432/plenum, schema plenum_state`. */
  to: z.string(),
  begunAt: z.iso.datetime(),
  /** Time of the move; null until the database is known to have the state. */
  movedAt: z.iso.datetime().nullable(),
});

/** Marks a folder whose state was moved into a database. This file also blocks an older backup restored here. */
export type MoveMark = z.infer<typeof MoveMarkSchema>;

/** Returns null if the state was not moved to a database. Throws `ConfigError` when the mark cannot be read. */
export function readMoveMark(folder: string): MoveMark | null {
  const file = join(folder, STATE_MOVE_MARK_FILE);
  try {
    return MoveMarkSchema.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    // Code that needs the folder reports that the folder is missing.
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new ConfigError(`${file} cannot be read, or is damaged.`, {
      cause: error,
      hint: "It says that the state was moved into a database; take it away only if you know that it was not.",
    });
  }
}

/** Writes the mark of the move atomically; it is on the disk when the function returns. */
export function writeMoveMark(folder: string, mark: MoveMark): void {
  const file = join(folder, STATE_MOVE_MARK_FILE);
  const temporaryFile = `${file}.new`;
  rmSync(temporaryFile, { force: true });
  // `wx`: do not follow a link of that name.
  writeFileSync(temporaryFile, `${JSON.stringify(mark, null, 2)}\n`, { flag: "wx", mode: 0o600, flush: true });
  renameSync(temporaryFile, file);
  const folderDescriptor = openSync(folder, "r");
  try {
    fsyncSync(folderDescriptor);
  } finally {
    closeSync(folderDescriptor);
  }
}

export function removeMoveMark(folder: string): void {
  rmSync(join(folder, STATE_MOVE_MARK_FILE), { force: true });
}

/** Throws `ConfigError` for a folder whose state was moved to a fleet's database, or may have been. */
export function refuseMovedFolder(folder: string): void {
  const moveMark = readMoveMark(folder);
  if (moveMark === null) return;
  if (moveMark.movedAt === null) {
    throw new ConfigError(
      `The state in the folder ${folder} is being moved to ${moveMark.to} since ${moveMark.begunAt}, and it is not known yet whether the move was committed.`,
      { hint: `Run plenum state move again: it finds out, and goes on where it has to.` },
    );
  }
  throw new ConfigError(`The state in the folder ${folder} was moved to ${moveMark.to} at ${moveMark.movedAt}.`, {
    hint: "Set state.postgres in the configuration and start the members of the fleet (plenum run).",
  });
}

import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { realFolder } from "../../core/errors/folder-problem.ts";

/**
 * A worker's pointer from its configuration file to its state folder: `plenum writes stop` finds the worker while the file
 * is wrong or gone. It stays after the worker ends. It is next to the file (`.plenum.yaml.worker`), or, where that folder
 * is read-only, in a runtime folder of the user.
 */
export interface WorkerPointer {
  /** Absolute; in a fleet, the members have folders below. */
  readonly stateFolder: string;
  readonly isFleet: boolean;
}

/** A health check loads this, so it needs no library. */
function isPointer(read: unknown): read is WorkerPointer {
  if (typeof read !== "object" || read === null) return false;
  const { stateFolder, isFleet, ...rest } = read as Partial<Record<string, unknown>>;
  const isFolder = typeof stateFolder === "string" && stateFolder !== "";
  return isFolder && typeof isFleet === "boolean" && Object.keys(rest).length === 0;
}

/** Without access next to the file, writes into every runtime folder: a later command's shell may know another one. */
export function writePointer(configFile: string, pointer: WorkerPointer): boolean {
  const [nextToFile, ...others] = pointerLocations(configFile);
  const text = JSON.stringify(pointer);
  if (nextToFile !== undefined && writeFile(nextToFile, text)) return true;
  return others.map((place) => writeFile(place, text)).includes(true);
}

function writeFile({ file, isRuntime }: PointerLocation, text: string): boolean {
  const written = `${file}.${process.pid}.new`;
  const folder = dirname(file);
  try {
    if (isRuntime && folder !== SERVICE_FOLDER) mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (isRuntime && !isPrivateFolder(folder)) return false;
    writeFileSync(written, text, { mode: 0o600, flag: "wx" });
    renameSync(written, file);
    return true;
  } catch {
    removeIfPresent(written);
    return false;
  }
}

export const readPointers = (configFile: string): readonly WorkerPointer[] => [...trustedPointers(configFile)];

/** Lazy, for a caller that needs only the first pointer. */
export function* trustedPointers(configFile: string): Generator<WorkerPointer> {
  for (const { file, isRuntime } of pointerLocations(configFile)) {
    try {
      if (!isRuntime || isPrivateFolder(dirname(file))) yield* readTrusted(file, configFile);
    } catch {
      // The pointer is missing or unreadable.
    }
  }
}

interface PointerLocation {
  readonly file: string;
  readonly isRuntime: boolean;
}

function* pointerLocations(configFile: string): Generator<PointerLocation> {
  // Follow links of the folder but not of the file: a ConfigMap changes its link with each version.
  const folder = realFolder(dirname(configFile));
  const name = basename(configFile);
  yield { file: join(folder, `.${name}.worker`), isRuntime: false };
  // Loading crypto takes a tenth of a health check.
  const { hash } = process.getBuiltinModule("node:crypto");
  const digest = hash("sha256", join(folder, name)).slice(0, 32);
  for (const each of runtimeFolders()) yield { file: join(each, `worker-${digest}.json`), isRuntime: true };
}

/** The pointer's owner has to own the state folder, and be this user, root, or the owner of the file or its folder. */
function readTrusted(file: string, configFile: string): readonly WorkerPointer[] {
  const found = lstatSync(file);
  if (!found.isFile()) return [];
  const pointer: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (!isPointer(pointer)) return [];
  const { uid } = statSync(pointer.stateFolder);
  if (process.geteuid === undefined) return [pointer];
  const owners = [configFile, dirname(configFile)].map((path) => lstatSync(path, { throwIfNoEntry: false })?.uid);
  const isTrusted = [process.geteuid(), 0, ...owners].includes(found.uid) && (found.mode & 0o022) === 0;
  return isTrusted && found.uid === uid ? [pointer] : [];
}

function removeIfPresent(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // The folder is read-only, so nothing is there.
  }
}

export function runtimeFolder(): string {
  const given = process.env.XDG_RUNTIME_DIR;
  return given ? join(given, "plenum") : temporaryFolder();
}

function temporaryFolder(): string {
  return join(tmpdir(), `plenum-${process.getuid?.() ?? "user"}`);
}

/** systemd creates this folder for the packaged service (`RuntimeDirectory`). */
const SERVICE_FOLDER = "/run/plenum";

/** A service and a login session have different runtime folders. */
function runtimeFolders(): readonly string[] {
  return [...new Set([runtimeFolder(), temporaryFolder(), SERVICE_FOLDER])];
}

/** True if only this user may open the folder. */
export function isPrivateFolder(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return false;
  return process.getuid === undefined || (found.uid === process.getuid() && (found.mode & 0o077) === 0);
}

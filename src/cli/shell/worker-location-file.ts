import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { resolveFolderLinks } from "../../core/errors/folder-access.ts";

/**
 * File from which commands find the state folder of a worker whose configuration file is wrong or gone. The pointer is
 * next to the configuration file (`.plenum.yaml.worker`), or, if that folder is read-only, in a runtime folder.
 */
export interface WorkerPointer {
  /** Absolute path of the state folder; members of a fleet have subfolders of it. */
  readonly stateFolder: string;
  readonly isFleet: boolean;
}

/** Checks the parsed file without a schema library, because every health check loads this module. */
function isWorkerPointer(parsedFile: unknown): parsedFile is WorkerPointer {
  if (typeof parsedFile !== "object" || parsedFile === null) return false;
  const { stateFolder, isFleet, ...otherFields } = parsedFile as Partial<Record<string, unknown>>;
  const hasStateFolder = typeof stateFolder === "string" && stateFolder !== "";
  return hasStateFolder && typeof isFleet === "boolean" && Object.keys(otherFields).length === 0;
}

/** Writes the pointer next to the configuration file, or, if that fails, into every runtime folder. */
export function writePointerFile(configFile: string, pointer: WorkerPointer): boolean {
  const [preferredLocation, ...otherLocations] = pointerLocations(configFile);
  const pointerJson = JSON.stringify(pointer);
  if (preferredLocation !== undefined && tryWritePointer(preferredLocation, pointerJson)) return true;
  return otherLocations.map((pointerLocation) => tryWritePointer(pointerLocation, pointerJson)).includes(true);
}

function tryWritePointer({ file, isRuntime }: PointerFileLocation, text: string): boolean {
  const temporaryFile = `${file}.${process.pid}.new`;
  const folder = dirname(file);
  try {
    if (isRuntime && folder !== SERVICE_RUNTIME_FOLDER) mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (isRuntime && !isPrivateFolder(folder)) return false;
    writeFileSync(temporaryFile, text, { mode: 0o600, flag: "wx" });
    renameSync(temporaryFile, file);
    return true;
  } catch {
    removeFileIfPresent(temporaryFile);
    return false;
  }
}

export const readWorkerPointers = (configFile: string): readonly WorkerPointer[] => [...trustedPointers(configFile)];

export function* trustedPointers(configFile: string): Generator<WorkerPointer> {
  for (const { file, isRuntime } of pointerLocations(configFile)) {
    try {
      if (!isRuntime || isPrivateFolder(dirname(file))) yield* readTrustedPointer(file, configFile);
    } catch {
      // Ignore a pointer that is missing or unreadable.
    }
  }
}

interface PointerFileLocation {
  readonly file: string;
  readonly isRuntime: boolean;
}

function* pointerLocations(configFile: string): Generator<PointerFileLocation> {
  // Follow links of the folder but not of the file: a ConfigMap changes its link with each version.
  const folder = resolveFolderLinks(dirname(configFile));
  const name = basename(configFile);
  yield { file: join(folder, `.${name}.worker`), isRuntime: false };
  // Loading crypto takes a tenth of a health check.
  const { hash } = process.getBuiltinModule("node:crypto");
  const digest = hash("sha256", join(folder, name)).slice(0, 32);
  for (const folderPath of runtimeFolders()) yield { file: join(folderPath, `worker-${digest}.json`), isRuntime: true };
}

/** Trusts a pointer file only if this user, root, or the owner of the configuration file or its folder owns it. */
function readTrustedPointer(file: string, configFile: string): readonly WorkerPointer[] {
  const fileStats = lstatSync(file);
  if (!fileStats.isFile()) return [];
  const pointer: unknown = JSON.parse(readFileSync(file, "utf8"));
  if (!isWorkerPointer(pointer)) return [];
  const { uid } = statSync(pointer.stateFolder);
  if (process.geteuid === undefined) return [pointer];
  const ownerIds = [configFile, dirname(configFile)].map((path) => lstatSync(path, { throwIfNoEntry: false })?.uid);
  const isOwnerTrusted = [process.geteuid(), 0, ...ownerIds].includes(fileStats.uid) && (fileStats.mode & 0o022) === 0;
  return isOwnerTrusted && fileStats.uid === uid ? [pointer] : [];
}

function removeFileIfPresent(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // Ignore the error: in a read-only folder, Plenum has written no pointer.
  }
}

export function userRuntimeFolder(): string {
  const runtimeDirectory = process.env.XDG_RUNTIME_DIR;
  return runtimeDirectory ? join(runtimeDirectory, "plenum") : userTemporaryFolder();
}

const userTemporaryFolder = (): string => join(tmpdir(), `plenum-${process.getuid?.() ?? "user"}`);

/** systemd creates this folder for the packaged service (`RuntimeDirectory`). */
const SERVICE_RUNTIME_FOLDER = "/run/plenum";

/** Lists the runtime folders of a service and of a login session. */
function runtimeFolders(): readonly string[] {
  return [...new Set([userRuntimeFolder(), userTemporaryFolder(), SERVICE_RUNTIME_FOLDER])];
}

export function isPrivateFolder(folder: string): boolean {
  const folderStats = lstatSync(folder, { throwIfNoEntry: false });
  if (folderStats?.isDirectory() !== true) return false;
  return process.getuid === undefined || (folderStats.uid === process.getuid() && (folderStats.mode & 0o077) === 0);
}

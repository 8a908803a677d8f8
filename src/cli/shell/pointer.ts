import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { realFolder } from "../../core/errors/folder-problem.ts";

/**
 * A worker's pointer from its configuration file to its state folder. Controls such as `plenum writes stop` find the
 * worker by it while the file is wrong, empty or gone. A worker that ends leaves it, so that the next start stays
 * stopped too; the next worker of the same file replaces it.
 *
 * It is next to the file (`.plenum.yaml.worker`), or, where that folder is read-only, in a runtime folder of the user.
 */
export interface Pointer {
  /** Absolute; of a fleet the folder in which each member has its own. */
  readonly stateFolder: string;
  readonly isFleet: boolean;
}

/** Validates without a library, so that a health check loads none. */
function isPointer(read: unknown): read is Pointer {
  if (typeof read !== "object" || read === null) return false;
  const { stateFolder, isFleet, ...rest } = read as Partial<Record<string, unknown>>;
  const isFolder = typeof stateFolder === "string" && stateFolder !== "";
  return isFolder && typeof isFleet === "boolean" && Object.keys(rest).length === 0;
}

/**
 * Writes the pointer next to the file. If that fails, writes it into every runtime folder of this user, because the shell
 * of a later command may know another one. False if no folder can be written.
 */
export function leavePointer(configFile: string, pointer: Pointer): boolean {
  const [nextToFile, ...others] = pointerLocations(configFile);
  const text = JSON.stringify(pointer);
  if (nextToFile !== undefined && write(nextToFile, text)) return true;
  return others.map((place) => write(place, text)).includes(true);
}

function write({ file, isRuntime }: Place, text: string): boolean {
  const written = `${file}.${process.pid}.new`;
  const folder = dirname(file);
  try {
    if (isRuntime && folder !== SERVICE_FOLDER) mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (isRuntime && !isPrivateFolder(folder)) return false;
    writeFileSync(written, text, { mode: 0o600, flag: "wx" });
    renameSync(written, file);
    return true;
  } catch {
    removeIfThere(written);
    return false;
  }
}

/** Returns the trusted pointers of a configuration file. */
export function pointersOf(configFile: string): readonly Pointer[] {
  return [...trustedPointers(configFile)];
}

/** Yields the trusted pointers one by one, for a caller that needs only the first. */
export function* trustedPointers(configFile: string): Generator<Pointer> {
  for (const { file, isRuntime } of pointerLocations(configFile)) {
    try {
      if (!isRuntime || isPrivateFolder(dirname(file))) yield* trusted(file, configFile);
    } catch {
      // The pointer is missing or unreadable.
    }
  }
}

interface Place {
  readonly file: string;
  readonly isRuntime: boolean;
}

function* pointerLocations(configFile: string): Generator<Place> {
  // Follow links of the folder but not of the file: a ConfigMap changes its link with each version.
  const folder = realFolder(dirname(configFile));
  const name = basename(configFile);
  yield { file: join(folder, `.${name}.worker`), isRuntime: false };
  // Load crypto lazily: it takes a tenth of a health check.
  const { hash } = process.getBuiltinModule("node:crypto");
  const digest = hash("sha256", join(folder, name)).slice(0, 32);
  for (const each of runtimeFolders()) yield { file: join(each, `worker-${digest}.json`), isRuntime: true };
}

/**
 * Returns a pointer only if its owner could write the configuration anyway: this user, root, or the owner of the file or
 * its folder. The same user has to own the state folder, because a worker uses no folder of another user.
 */
function trusted(file: string, configFile: string): readonly Pointer[] {
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

function removeIfThere(file: string): void {
  try {
    rmSync(file, { force: true });
  } catch {
    // The folder is read-only, so nothing is there.
  }
}

/** Returns the runtime folder of this user. The health check loads this file, so it imports no library. */
export function runtimeFolder(): string {
  const given = process.env.XDG_RUNTIME_DIR;
  return given ? join(given, "plenum") : temporaryFolder();
}

function temporaryFolder(): string {
  return join(tmpdir(), `plenum-${process.getuid?.() ?? "user"}`);
}

/** systemd creates this folder for the packaged service (`RuntimeDirectory`), which has its own temporary folder. */
const SERVICE_FOLDER = "/run/plenum";

/** Returns all runtime folders of this user: a service and a login session have different ones. */
function runtimeFolders(): readonly string[] {
  return [...new Set([runtimeFolder(), temporaryFolder(), SERVICE_FOLDER])];
}

/** Checks that the folder belongs to this user and that no other user may open it. */
export function isPrivateFolder(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return false;
  return process.getuid === undefined || (found.uid === process.getuid() && (found.mode & 0o077) === 0);
}

import { createHash } from "node:crypto";
import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { isOurs, runtimeFolders, SERVICE_FOLDER } from "../../demo/whereabouts.ts";
import { realFolder } from "../../folder-trouble.ts";

/**
 * A worker's pointer from its configuration file to its state folder. Controls such as `plenum writes stop` find the
 * worker by it while the file is wrong, empty or gone. A worker that ends leaves it, so that the next start stays
 * stopped too; the next worker of the same file replaces it.
 *
 * It is next to the file (`.plenum.yaml.worker`), or, where that folder is read-only, in a runtime folder of the user.
 */
const Pointer = z.strictObject({
  /** Absolute; of a fleet the folder in which each member has its own. */
  stateFolder: z.string().min(1),
  isFleet: z.boolean(),
});
export type Pointer = z.infer<typeof Pointer>;

/**
 * Leaves the pointer next to the file. Where that cannot be, leaves it in every runtime folder of this user: the shell
 * that looks for it may know another one than the worker. False where no place can be written.
 */
export function leavePointer(configFile: string, pointer: Pointer): boolean {
  const [nextToFile, ...others] = placesOf(configFile);
  const text = JSON.stringify(pointer);
  if (nextToFile !== undefined && write(nextToFile, text)) return true;
  return others.map((place) => write(place, text)).includes(true);
}

function write({ file, isRuntime }: Place, text: string): boolean {
  const written = `${file}.${process.pid}.new`;
  const folder = dirname(file);
  try {
    if (isRuntime && folder !== SERVICE_FOLDER) mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (isRuntime && !isOurs(folder)) return false;
    writeFileSync(written, text, { mode: 0o600, flag: "wx" });
    renameSync(written, file);
    return true;
  } catch {
    removeIfThere(written);
    return false;
  }
}

/** The pointers of this file that may be trusted. */
export function pointersOf(configFile: string): readonly Pointer[] {
  return placesOf(configFile).flatMap(({ file, isRuntime }) => {
    try {
      if (isRuntime && !isOurs(dirname(file))) return [];
      return trusted(file, configFile);
    } catch {
      return [];
    }
  });
}

interface Place {
  readonly file: string;
  readonly isRuntime: boolean;
}

function placesOf(configFile: string): readonly Place[] {
  // The folder's links are followed and the file's is not: a ConfigMap turns its link with each version.
  const folder = realFolder(dirname(configFile));
  const name = basename(configFile);
  const digest = createHash("sha256").update(join(folder, name)).digest("hex").slice(0, 32);
  return [
    { file: join(folder, `.${name}.worker`), isRuntime: false },
    ...runtimeFolders().map((each) => ({ file: join(each, `worker-${digest}.json`), isRuntime: true })),
  ];
}

/**
 * Trusts only those who could write a configuration here anyway: this user, root, and the owner of the file or of its
 * folder. The state folder has to be the owner's too, because a worker uses no folder of another user.
 */
function trusted(file: string, configFile: string): readonly Pointer[] {
  const found = lstatSync(file);
  if (!found.isFile()) return [];
  const pointer = Pointer.parse(JSON.parse(readFileSync(file, "utf8")));
  const { uid } = statSync(pointer.stateFolder);
  if (process.geteuid === undefined) return [pointer];
  const owners = [configFile, dirname(configFile)].map(
    (path) => lstatSync(path, { throwIfNoEntry: false })?.uid,
  );
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

import { lstatSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Folders in which a process leaves word for others of the same user: where a demo or a worker is. */

export function runtimeFolder(): string {
  const given = process.env.XDG_RUNTIME_DIR;
  if (given !== undefined && given !== "") return join(given, "plenum");
  return temporaryFolder();
}

function temporaryFolder(): string {
  return join(tmpdir(), `plenum-${process.getuid?.() ?? "user"}`);
}

/** systemd makes this folder for the unit of the package (`RuntimeDirectory`), whose temporary folder is its own. */
export const SERVICE_FOLDER = "/run/plenum";

/** Every folder in which a process of this user may have left word: a service and a login session have different ones. */
export function runtimeFolders(): readonly string[] {
  return [...new Set([runtimeFolder(), temporaryFolder(), SERVICE_FOLDER])];
}

/** Whether only this user can have put something there: a folder that is ours, and open to us only. */
export function isOurs(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return false;
  return process.getuid === undefined || (found.uid === process.getuid() && (found.mode & 0o077) === 0);
}

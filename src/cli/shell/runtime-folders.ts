import { lstatSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Folder for the files of running demos and the control socket. No library: the health check loads this file. */
export function runtimeFolder(): string {
  const given = process.env.XDG_RUNTIME_DIR;
  return given ? join(given, "plenum") : temporaryFolder();
}

function temporaryFolder(): string {
  return join(tmpdir(), `plenum-${process.getuid?.() ?? "user"}`);
}

/** systemd creates this folder for the packaged service (`RuntimeDirectory`), which has its own temporary folder. */
export const SERVICE_FOLDER = "/run/plenum";

/** Returns all runtime folders of this user: a service and a login session have different ones. */
export function runtimeFolders(): readonly string[] {
  return [...new Set([runtimeFolder(), temporaryFolder(), SERVICE_FOLDER])];
}

/** Checks that the folder belongs to this user and that no other user may open it. */
export function isPrivateFolder(folder: string): boolean {
  const found = lstatSync(folder, { throwIfNoEntry: false });
  if (found?.isDirectory() !== true) return false;
  return process.getuid === undefined || (found.uid === process.getuid() && (found.mode & 0o077) === 0);
}

import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";

const MEMORY_FOLDER = "/dev/shm";
const NEEDED_BYTES = 2e9;

/** Folder in memory if there is room, otherwise on disk. */
export function chooseTemporaryRoot(): string {
  const usual = tmpdir();
  if (usual.startsWith(`${MEMORY_FOLDER}/`)) return usual;
  return hasFreeBytes(MEMORY_FOLDER) ? MEMORY_FOLDER : usual;
}

function hasFreeBytes(folder: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize > NEEDED_BYTES;
  } catch {
    return false;
  }
}

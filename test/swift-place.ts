import { statfsSync } from "node:fs";
import { tmpdir } from "node:os";

const MEMORY = "/dev/shm";
/** What is there at once in all tests stays far below it, in bytes. */
const ROOM = 2e9;

/**
 * Where a disk need not be waited for, when there is such a place and room in it: tests commit a hundred thousand times,
 * and nothing of it has to last.
 */
export function swiftPlace(): string {
  const usual = tmpdir();
  // The folder of the test run, removed at its end.
  if (usual.startsWith(`${MEMORY}/`)) return usual;
  return isRoomy(MEMORY) ? MEMORY : usual;
}

function isRoomy(folder: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(folder);
    return bavail * bsize > ROOM;
  } catch {
    return false;
  }
}

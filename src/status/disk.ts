import { statfsSync } from "node:fs";

/** Bytes that our user may still write on the disk of a file; null where the system does not say. */
export function freeBytes(file: string): number | null {
  try {
    const { bavail, bsize } = statfsSync(file);
    return bavail * bsize;
  } catch {
    return null;
  }
}

/** Below this the disk counts as full: the write-ahead log alone can take a quarter of it. */
const LITTLE_SPACE = 64 * 1024 ** 2;

/** False where nobody can say. */
export function hasLittleSpace(free: number | null): free is number {
  return free !== null && free < LITTLE_SPACE;
}

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

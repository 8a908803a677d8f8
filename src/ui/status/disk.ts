import { statfsSync } from "node:fs";

/** Bytes of the disk of a file, and of those what our user may still write. */
export interface DiskSpace {
  readonly free: number;
  readonly size: number;
}

/** Null where the system does not say. */
export function diskSpace(file: string): DiskSpace | null {
  try {
    const { bavail, blocks, bsize } = statfsSync(file);
    return { free: bavail * bsize, size: blocks * bsize };
  } catch {
    return null;
  }
}

/** Below this the disk counts as full: the write-ahead log alone can take a quarter of it. */
const LITTLE_SPACE = 64 * 1024 ** 2;

/** False when the free space is unknown. */
export function hasLittleSpace(free: number | null): free is number {
  return free !== null && free < LITTLE_SPACE;
}

const GIBIBYTE = 1024 ** 3;
/** Free bytes below which a warning is shown. */
const SCARCE_BYTES = GIBIBYTE;
const SCARCE_SHARE = 0.1;
/** A tenth of a large disk is more than a worker can use up in weeks. */
const AMPLE_BYTES = 10 * GIBIBYTE;

/** Less than 1 GiB, or less than a tenth of the disk, but for 10 GiB: time to act, and nothing is lost yet. */
export function becomesFull({ free, size }: DiskSpace): boolean {
  return free < Math.max(SCARCE_BYTES, Math.min(SCARCE_SHARE * size, AMPLE_BYTES));
}

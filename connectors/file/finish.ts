import { constants, createReadStream } from "node:fs";
import { open, rename, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";

/** What a file is called while it is being made of another one. Whatever a crash leaves of it is worth nothing. */
export const UNDONE = ".tmp";

/**
 * Gives a file that is whole its last name, compressed where that ends in `.gz`. Nobody sees it under that name before
 * all of it is on the disk; a crash leaves the file as it was, or both, of which the one with the last name is whole.
 */
export async function finish(from: string, to: string, mode: number, signal: AbortSignal): Promise<void> {
  if (!to.endsWith(".gz")) {
    await rename(from, to);
    await syncFolder(dirname(to));
    return;
  }
  const undone = `${to}${UNDONE}`;
  const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
  const handle = await open(undone, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
  // The stream syncs and closes the file, also when it fails.
  const written = handle.createWriteStream({ flush: true });
  await pipeline(createReadStream(from), createGzip(), written, { signal });
  await rename(undone, to);
  await syncFolder(dirname(to));
  await unlink(from);
}

/** Makes the names in a folder survive a power cut, not only the content of the files. */
export async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, constants.O_RDONLY);
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

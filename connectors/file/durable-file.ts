import { constants, createReadStream } from "node:fs";
import { type FileHandle, open, rename, stat, unlink } from "node:fs/promises";
import { dirname } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";
import { syncFolder } from "../../src/core/errors/folder-access.ts";

export type FileAppender = Awaited<ReturnType<typeof openFileAppender>>;

/** Maximum number of lines in one write. After a crash, at most this many lines at the end of a file are damaged. */
export const MAX_BATCH_LINES = 1_000;

const FILE_OPEN_FLAGS = constants.O_RDWR | constants.O_CREAT | constants.O_APPEND | constants.O_NOFOLLOW;

/** Opens or creates a file and removes an incomplete last write. Follows no symbolic links. */
export async function openFileAppender(path: string, fileMode: number, maxLines: number) {
  const fileHandle = await open(path, FILE_OPEN_FLAGS, fileMode);
  try {
    const { ino, dev } = await fileHandle.stat();
    let fileBytes = await truncateTornWrite(fileHandle, maxLines);
    return {
      get sizeBytes() {
        return fileBytes;
      },
      /** Appends text. Resolves when the text is on disk; on an error, truncates the file to its earlier length. */
      async append(data: Buffer): Promise<void> {
        try {
          for (let offset = 0; offset < data.length; ) offset += (await fileHandle.write(data, offset)).bytesWritten;
          await fileHandle.datasync();
          fileBytes += data.length;
        } catch (error) {
          // If the truncation fails too, the next open removes the incomplete line.
          await fileHandle.truncate(fileBytes).catch((truncateError: unknown) => truncateError);
          throw error;
        }
      },
      async stillExists(): Promise<boolean> {
        const currentFileStat = await stat(path).catch(() => null);
        return currentFileStat !== null && currentFileStat.ino === ino && currentFileStat.dev === dev;
      },
      close: () => fileHandle.close(),
    };
  } catch (error) {
    await fileHandle.close();
    throw error;
  }
}

const NEWLINE_BYTE = 10;
const READ_CHUNK_BYTES = 64 * 1024;

/** Removes an incomplete last write: bytes after the last newline, or from a zero byte (a disk sector not written). */
async function truncateTornWrite(handle: FileHandle, maxLines: number): Promise<number> {
  const { size } = await handle.stat();
  const firstZeroByteOffset = await findFirstZeroByte(handle, await findStartOfLastLines(maxLines, handle, size), size);
  const lastLineEnd = await findStartOfLastLines(0, handle, firstZeroByteOffset ?? size);
  if (lastLineEnd < size) {
    await handle.truncate(lastLineEnd);
    await handle.datasync();
  }
  return lastLineEnd;
}

async function findFirstZeroByte(handle: FileHandle, startOffset: number, size: number): Promise<number | null> {
  for (let start = startOffset; start < size; start += READ_CHUNK_BYTES) {
    const zeroByteIndex = (await readFileBytes(handle, start, Math.min(size, start + READ_CHUNK_BYTES))).indexOf(0);
    if (zeroByteIndex >= 0) return start + zeroByteIndex;
  }
  return null;
}

async function findStartOfLastLines(lineCount: number, handle: FileHandle, endOffset: number): Promise<number> {
  let remainingLines = lineCount;
  for (let chunkEnd = endOffset; chunkEnd > 0; ) {
    const chunkStart = Math.max(0, chunkEnd - READ_CHUNK_BYTES);
    const chunkBytes = await readFileBytes(handle, chunkStart, chunkEnd);
    for (let byteIndex = chunkBytes.length - 1; byteIndex >= 0; byteIndex -= 1) {
      if (chunkBytes[byteIndex] !== NEWLINE_BYTE) continue;
      if (remainingLines === 0) return chunkStart + byteIndex + 1;
      remainingLines -= 1;
    }
    chunkEnd = chunkStart;
  }
  return 0;
}

async function readFileBytes(handle: FileHandle, start: number, end: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(end - start), 0, end - start, start);
  return buffer.subarray(0, bytesRead);
}

export const TEMPORARY_FILE_SUFFIX = ".tmp";

/** Renames a complete file, or compresses it if the new name ends in `.gz`. A crash leaves one complete file. */
export async function finalizeFile(from: string, to: string, mode: number, signal: AbortSignal): Promise<void> {
  const isCompressed = to.endsWith(".gz");
  const completeFilePath = isCompressed ? `${to}${TEMPORARY_FILE_SUFFIX}` : from;
  if (isCompressed) {
    const { O_WRONLY, O_CREAT, O_TRUNC, O_NOFOLLOW } = constants;
    const compressedFile = await open(completeFilePath, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode);
    // The stream syncs and closes the file, also after an error.
    await pipeline(createReadStream(from), createGzip(), compressedFile.createWriteStream({ flush: true }), { signal });
  }
  await rename(completeFilePath, to);
  await syncFolder(dirname(to));
  if (isCompressed) await unlink(from);
}

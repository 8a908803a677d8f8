import { mkdir, readdir, stat, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { cloudEventParts } from "../../src/core/codec/history-event.ts";
import type { BatchInfo, ConnectorContext } from "../../src/core/connector.ts";
import { syncFolder } from "../../src/core/errors/folder-access.ts";
import { sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import type { Event } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type FileConfig, mebibytesToBytes } from "./config.ts";
import { type FileAppender, finalizeFile, MAX_BATCH_LINES, openFileAppender } from "./durable-file.ts";

const WRITE_BUFFER_BYTES = 2 * 1024 ** 2;

export function createDailyFileWriter(config: FileConfig, { clock, log }: ConnectorContext) {
  const folder = resolve(config.folder);
  const maxFileBytes = mebibytesToBytes(config.max_file_mb);
  const fileMode = Number.parseInt(config.mode, 8);
  let lineBuffer = Buffer.allocUnsafeSlow(0);
  let currentFile: { readonly file: DailyEventFile; readonly appender: FileAppender } | null = null;

  const getTodayUtc = () => isoUtc(clock.now()).slice(0, 10);

  async function listDailyFiles(): Promise<readonly DailyEventFile[]> {
    const fileNames = await readdir(folder);
    return fileNames
      .flatMap((fileName) => parseDailyFileName(config.name, fileName, config.gzip) ?? [])
      .sort(compareFilesByAge);
  }

  async function switchToDailyFile(file: DailyEventFile): Promise<FileAppender> {
    await closeCurrentFile();
    const fileAppender = await openFileAppender(join(folder, file.fileName), fileMode, MAX_BATCH_LINES);
    currentFile = { file, appender: fileAppender };
    await syncFolder(folder);
    return fileAppender;
  }

  /** Opens the newest file. Only the newest file can have an unfinished line after a crash. */
  async function openNewestFile(signal: AbortSignal): Promise<void> {
    if (currentFile !== null && (await currentFile.appender.stillExists())) return;
    await mkdir(folder, { recursive: true, mode: 0o750 });
    await compressClosedFiles(signal);
    const newestFile = (await listDailyFiles()).at(-1);
    const isNewestReusable = newestFile !== undefined && !newestFile.isCompressed;
    await switchToDailyFile(isNewestReusable ? newestFile : nameNextDailyFile(config.name, getTodayUtc(), newestFile));
    await removeOldFiles();
  }

  async function compressClosedFiles(signal: AbortSignal): Promise<void> {
    if (!config.gzip) return;
    const files = await listDailyFiles();
    for (const { fileName, isCompressed } of files.slice(0, -1)) {
      if (isCompressed) continue;
      const path = join(folder, fileName);
      // After a crash, both the file and its complete compressed copy may exist.
      if (files.some((listedFile) => listedFile.fileName === `${fileName}.gz`)) await unlink(path);
      else await finalizeFile(path, `${path}.gz`, fileMode, signal);
    }
  }

  async function prepareFileAppender(bytesToAppend: number, signal: AbortSignal): Promise<FileAppender> {
    if (currentFile === null) throw new Error("the file is not open");
    const { appender, file } = currentFile;
    const isFileFull = appender.sizeBytes > 0 && appender.sizeBytes + bytesToAppend > maxFileBytes;
    if (file.day >= getTodayUtc() && !isFileFull) return appender;
    const newFileAppender = await switchToDailyFile(nameNextDailyFile(config.name, getTodayUtc(), file));
    await compressClosedFiles(signal);
    await removeOldFiles();
    return newFileAppender;
  }

  async function removeOldFiles(): Promise<void> {
    const closedFiles = (await listDailyFiles()).filter(({ fileName }) => fileName !== currentFile?.file.fileName);
    const readFileSize = async (fileName: string) => (await stat(join(folder, fileName))).size;
    const filesWithSize = closedFiles.map(async (file) => ({ ...file, bytes: await readFileSize(file.fileName) }));
    const maxTotalBytes = mebibytesToBytes(config.max_total_mb);
    const retentionLimits = { keepFiles: config.keep_files, maxTotalBytes, reserveBytes: maxFileBytes };
    for (const { fileName } of chooseFilesToRemove(await Promise.all(filesWithSize), retentionLimits)) {
      await unlink(join(folder, fileName));
      log.info({ file: fileName }, "removed an old file");
    }
  }

  async function closeCurrentFile(): Promise<void> {
    const closingFile = currentFile;
    currentFile = null;
    await closingFile?.appender.close();
  }

  /** Encodes events into a buffer that every write reuses, because earlier lines are already on disk. */
  function encodeEventBatch(batch: readonly Event[], sequences: BatchInfo["sequences"]): Buffer {
    const texts = batch.flatMap((event, n) => [...cloudEventParts(event, sequenceAttributes(sequences?.[n])), "\n"]);
    const byteCount = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (byteCount > WRITE_BUFFER_BYTES) return Buffer.from(texts.join(""));
    if (byteCount > lineBuffer.length) lineBuffer = Buffer.allocUnsafeSlow(Math.min(WRITE_BUFFER_BYTES, 2 * byteCount));
    let writePosition = 0;
    for (const text of texts) writePosition += lineBuffer.write(text, writePosition);
    return lineBuffer.subarray(0, writePosition);
  }

  return {
    open: openNewestFile,
    close: closeCurrentFile,
    async write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void> {
      const encodedBatch = encodeEventBatch(batch, sequences);
      await (await prepareFileAppender(encodedBatch.length, signal)).append(encodedBatch);
    },
  };
}

/** File of events with its UTC day and number, e.g. `events-2026-11-21-001.jsonl`. */
interface DailyEventFile {
  readonly fileName: string;
  readonly day: string;
  readonly number: number;
  readonly isCompressed: boolean;
}

export function parseDailyFileName(name: string, fileName: string, includesCompressed = false): DailyEventFile | null {
  const fileNameParts = /^([a-z0-9_]+)-(\d{4}-\d{2}-\d{2})-(\d{3,9})\.jsonl(\.gz)?$/.exec(fileName) ?? [];
  const [, prefix, day, number, gzipSuffix] = fileNameParts;
  if (prefix !== name || day === undefined || (gzipSuffix !== undefined && !includesCompressed)) return null;
  return { fileName, day, number: Number(number), isCompressed: gzipSuffix !== undefined };
}

const compareFilesByAge = (a: DailyEventFile, b: DailyEventFile): number =>
  a.day === b.day ? a.number - b.number : a.day < b.day ? -1 : 1;

export function nameNextDailyFile(name: string, today: string, latestFile: DailyEventFile | undefined): DailyEventFile {
  // If the clock was set back, keep the day of the latest file: a new file must not sort before an old one.
  const day = latestFile !== undefined && latestFile.day > today ? latestFile.day : today;
  const number = latestFile?.day === day ? latestFile.number + 1 : 1;
  return { fileName: `${name}-${day}-${String(number).padStart(3, "0")}.jsonl`, day, number, isCompressed: false };
}

export function chooseFilesToRemove<T extends DailyEventFile & { readonly bytes: number }>(
  closedFiles: readonly T[],
  limits: { readonly keepFiles: number; readonly maxTotalBytes: number; readonly reserveBytes: number },
): readonly T[] {
  const files = closedFiles.toSorted(compareFilesByAge);
  let totalBytes = files.reduce((sum, { bytes }) => sum + bytes, limits.reserveBytes);
  let fileCount = files.length + 1;
  return files.filter((file) => {
    if (fileCount <= limits.keepFiles && totalBytes <= limits.maxTotalBytes) return false;
    fileCount -= 1;
    totalBytes -= file.bytes;
    return true;
  });
}

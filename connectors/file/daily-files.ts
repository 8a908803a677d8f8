import { mkdir, readdir, stat, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { cloudEventTexts } from "../../src/core/codec/history-event.ts";
import type { BatchInfo, ConnectorContext } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { sequenceAttributes } from "../../src/core/model/sequence.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type FileConfig, mebibytesToBytes } from "./config.ts";
import { type FileAppender, finalizeFile, MAX_BATCH_LINES, openAppender, syncFolder } from "./durable-file.ts";

const WRITE_BUFFER_BYTES = 2 * 1024 ** 2;

export function createDailyFiles(config: FileConfig, { clock, log }: ConnectorContext) {
  const folder = resolve(config.folder);
  const maxFileBytes = mebibytesToBytes(config.max_file_mb);
  const mode = Number.parseInt(config.mode, 8);
  let lines = Buffer.allocUnsafeSlow(0);
  let current: { readonly file: DailyFile; readonly appender: FileAppender } | null = null;

  const today = () => isoUtc(clock.now()).slice(0, 10);

  async function listDailyFiles(): Promise<readonly DailyFile[]> {
    const names = await readdir(folder);
    return names
      .flatMap((fileName) => parseDailyFileName(config.name, fileName, config.gzip) ?? [])
      .sort(compareFilesByAge);
  }

  async function useFile(file: DailyFile): Promise<FileAppender> {
    await close();
    const appender = await openAppender(join(folder, file.fileName), mode, MAX_BATCH_LINES);
    current = { file, appender };
    await syncFolder(folder);
    return appender;
  }

  /** Opens the newest file. Only the newest file can have an unfinished line after a crash. */
  async function open(signal: AbortSignal): Promise<void> {
    if (current !== null && (await current.appender.isThere())) return;
    await mkdir(folder, { recursive: true, mode: 0o750 });
    await compressClosed(signal);
    const newest = (await listDailyFiles()).at(-1);
    await useFile(newest === undefined || newest.isCompressed ? nameNextFile(config.name, today(), newest) : newest);
    await prune();
  }

  async function compressClosed(signal: AbortSignal): Promise<void> {
    if (!config.gzip) return;
    const files = await listDailyFiles();
    for (const { fileName, isCompressed } of files.slice(0, -1)) {
      if (isCompressed) continue;
      const path = join(folder, fileName);
      // The compressed file exists; only the removal of this one is missing.
      if (files.some((other) => other.fileName === `${fileName}.gz`)) await unlink(path);
      else await finalizeFile(path, `${path}.gz`, mode, signal);
    }
  }

  async function appenderFor(bytes: number, signal: AbortSignal): Promise<FileAppender> {
    if (current === null) throw new Error("the file is not open");
    const { appender, file } = current;
    const isFull = appender.bytes > 0 && appender.bytes + bytes > maxFileBytes;
    if (file.day >= today() && !isFull) return appender;
    const next = await useFile(nameNextFile(config.name, today(), file));
    await compressClosed(signal);
    await prune();
    return next;
  }

  async function prune(): Promise<void> {
    const closed = (await listDailyFiles()).filter(({ fileName }) => fileName !== current?.file.fileName);
    const sized = closed.map(async (file) => ({ ...file, bytes: (await stat(join(folder, file.fileName))).size }));
    const retention = {
      keepFiles: config.keep_files,
      maxTotalBytes: mebibytesToBytes(config.max_total_mb),
      reserveBytes: maxFileBytes,
    };
    for (const { fileName } of chooseFilesToRemove(await Promise.all(sized), retention)) {
      await unlink(join(folder, fileName));
      log.info({ file: fileName }, "removed an old file");
    }
  }

  async function close(): Promise<void> {
    const closing = current;
    current = null;
    await closing?.appender.close();
  }

  /** Encodes a batch into a reused buffer, whose earlier lines are on disk. */
  function encodeBatch(batch: readonly Event[], sequences: BatchInfo["sequences"]): Buffer {
    const texts = batch.flatMap((event, index) => [
      ...cloudEventTexts(event, sequenceAttributes(sequences?.[index])),
      "\n",
    ]);
    const length = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (length > WRITE_BUFFER_BYTES) return Buffer.from(texts.join(""));
    if (length > lines.length) lines = Buffer.allocUnsafeSlow(Math.min(WRITE_BUFFER_BYTES, 2 * length));
    let at = 0;
    for (const text of texts) at += lines.write(text, at);
    return lines.subarray(0, at);
  }

  return {
    open,
    close,
    async write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void> {
      const text = encodeBatch(batch, sequences);
      await (await appenderFor(text.length, signal)).append(text);
    },
  };
}

/** E.g. `events-2026-11-21-001.jsonl`: UTC day of writing and number. Files with other names are never touched. */
interface DailyFile {
  readonly fileName: string;
  readonly day: string;
  readonly number: number;
  readonly isCompressed: boolean;
}

export function parseDailyFileName(name: string, fileName: string, withCompressed = false): DailyFile | null {
  const match = /^([a-z0-9_]+)-(\d{4}-\d{2}-\d{2})-(\d{3,9})\.jsonl(\.gz)?$/.exec(fileName);
  if (match === null || match[1] !== name || match[2] === undefined) return null;
  const isCompressed = match[4] !== undefined;
  return isCompressed && !withCompressed ? null : { fileName, day: match[2], number: Number(match[3]), isCompressed };
}

const compareFilesByAge = (a: DailyFile, b: DailyFile): number =>
  a.day === b.day ? a.number - b.number : a.day < b.day ? -1 : 1;

export function nameNextFile(name: string, today: string, latest: DailyFile | undefined): DailyFile {
  // A clock set back must not make a new file sort before an old one.
  const day = latest !== undefined && latest.day > today ? latest.day : today;
  const number = latest?.day === day ? latest.number + 1 : 1;
  return { fileName: `${name}-${day}-${String(number).padStart(3, "0")}.jsonl`, day, number, isCompressed: false };
}

interface RetentionLimits {
  readonly keepFiles: number;
  readonly maxTotalBytes: number;
  readonly reserveBytes: number;
}

export function chooseFilesToRemove<T extends DailyFile & { readonly bytes: number }>(
  closed: readonly T[],
  { keepFiles, maxTotalBytes, reserveBytes }: RetentionLimits,
): readonly T[] {
  const files = closed.toSorted(compareFilesByAge);
  let total = files.reduce((sum, { bytes }) => sum + bytes, reserveBytes);
  let count = files.length + 1;
  return files.filter((file) => {
    if (count <= keepFiles && total <= maxTotalBytes) return false;
    count -= 1;
    total -= file.bytes;
    return true;
  });
}

import { access, mkdir, readdir, truncate, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { BatchInfo, ConnectorContext } from "../../src/core/connector.ts";
import { syncFolder } from "../../src/core/errors/folder-access.ts";
import type { Event } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type FileConfig, mebibytesToBytes } from "./config.ts";
import {
  type FileAppender,
  finalizeFile,
  MAX_BATCH_LINES,
  openFileAppender,
  TEMPORARY_FILE_SUFFIX,
} from "./durable-file.ts";
import { buildEventFolderPath, splitEventIntoDayLines } from "./folder-layout.ts";

/** Maximum files that one call of the sink's `tick` finishes. Finishing hundreds would delay new events. */
const MAX_FILES_FINISHED_PER_TICK = 20;

const UNFINISHED_SUFFIX = ".part";

/** Maximum open files. A backfill of a month writes more than 100 files, which are reopened in turn. */
const MAX_OPEN_FILES = 16;

interface UnfinishedFile {
  /** Path without `.part` or `.gz`, e.g. `<root>/tag-value/1/2026-11-02/events-20261102T062000000Z.jsonl`. */
  readonly stem: string;
  readonly path: string;
  readonly beganMs: number;
  bytes: number;
}

/**
 * Writes lines into folders by kind, site and day of the event. Each folder has at most one unfinished file.
 *   events-….jsonl.part ──► events-….jsonl, or events-….jsonl.gz by compression to ….tmp
 */
export function createPartitionedFileWriter(config: FileConfig, template: string, { clock }: ConnectorContext) {
  const { gzip, name } = config;
  const rootFolder = resolve(config.folder);
  const fileMode = Number.parseInt(config.mode, 8);
  const maxFileBytes = mebibytesToBytes(config.max_file_mb);
  const unfinishedFileByFolder = new Map<string, UnfinishedFile>();
  const appenderByFilePath = new Map<string, FileAppender>();
  let isWriterOpen = false;

  async function closeFile(path: string): Promise<void> {
    const fileAppender = appenderByFilePath.get(path);
    appenderByFilePath.delete(path);
    await fileAppender?.close();
  }

  async function openCachedAppender(path: string): Promise<FileAppender> {
    const cachedFileAppender = appenderByFilePath.get(path);
    if (cachedFileAppender !== undefined && (await cachedFileAppender.stillExists())) {
      appenderByFilePath.delete(path);
      appenderByFilePath.set(path, cachedFileAppender);
      return cachedFileAppender;
    }
    await closeFile(path);
    const [oldestPath] = appenderByFilePath.keys();
    if (oldestPath !== undefined && appenderByFilePath.size >= MAX_OPEN_FILES) await closeFile(oldestPath);
    const fileAppender = await openFileAppender(path, fileMode, 0);
    appenderByFilePath.set(path, fileAppender);
    return fileAppender;
  }

  async function beginUnfinishedFile(folder: string): Promise<UnfinishedFile> {
    const eventFolder = join(rootFolder, folder);
    await mkdir(eventFolder, { recursive: true, mode: 0o750 });
    const buildPathStem = (ms: number) => join(eventFolder, `${name}-${isoUtc(ms).replaceAll(/[-:.]/g, "")}.jsonl`);
    let ms = clock.now();
    // Two files may start in one millisecond, or a clock was set back: never overwrite an existing file.
    while (await isFileNameTaken(buildPathStem(ms))) ms += 1;
    const pathStem = buildPathStem(ms);
    const newFile = { stem: pathStem, path: `${pathStem}${UNFINISHED_SUFFIX}`, beganMs: clock.monotonic(), bytes: 0 };
    await openCachedAppender(newFile.path);
    for (let folderToSync = eventFolder; ; folderToSync = dirname(folderToSync)) {
      await syncFolder(folderToSync);
      if (folderToSync === rootFolder) break;
    }
    unfinishedFileByFolder.set(folder, newFile);
    return newFile;
  }

  async function finishEventFile(folder: string, unfinishedFile: UnfinishedFile, signal: AbortSignal): Promise<void> {
    await closeFile(unfinishedFile.path);
    await finalizeFile(unfinishedFile.path, gzip ? `${unfinishedFile.stem}.gz` : unfinishedFile.stem, fileMode, signal);
    unfinishedFileByFolder.delete(folder);
  }

  async function chooseUnfinishedFile(folder: string, bytes: number, signal: AbortSignal): Promise<UnfinishedFile> {
    const openedFile = unfinishedFileByFolder.get(folder);
    if (openedFile === undefined || (!appenderByFilePath.has(openedFile.path) && !(await fileExists(openedFile.path))))
      return beginUnfinishedFile(folder);
    if (openedFile.bytes === 0 || openedFile.bytes + bytes <= maxFileBytes) return openedFile;
    await finishEventFile(folder, openedFile, signal);
    return beginUnfinishedFile(folder);
  }

  async function appendTextToFolder(folder: string, data: Buffer, signal: AbortSignal): Promise<UnfinishedFile> {
    let targetFile = await chooseUnfinishedFile(folder, data.length, signal);
    let fileAppender = await openCachedAppender(targetFile.path);
    if (fileAppender.sizeBytes !== targetFile.bytes) {
      targetFile = await beginUnfinishedFile(folder);
      fileAppender = await openCachedAppender(targetFile.path);
    }
    await fileAppender.append(data);
    targetFile.bytes = fileAppender.sizeBytes;
    return targetFile;
  }

  function groupTextsByFolder(batch: readonly Event[], sequences: BatchInfo["sequences"]): ReadonlyMap<string, Buffer> {
    const dayLines = batch.flatMap((event, index) =>
      splitEventIntoDayLines(event, sequences?.[index]).map(({ date, texts }) => ({
        folder: buildEventFolderPath(template, { kind: event.type, site: event.siteid ?? null, date }),
        texts: [...texts, "\n"],
      })),
    );
    const linesByFolder = Map.groupBy(dayLines, ({ folder }) => folder);
    const toBuffer = (lines: typeof dayLines) => Buffer.from(lines.flatMap(({ texts }) => texts).join(""));
    return new Map([...linesByFolder].map(([folder, lines]) => [folder, toBuffer(lines)]));
  }

  async function closeAllFiles(): Promise<void> {
    isWriterOpen = false;
    unfinishedFileByFolder.clear();
    for (const path of [...appenderByFilePath.keys()]) await closeFile(path);
  }

  return {
    /** Finishes files that a stop or crash left unfinished, after removing an incomplete last write. */
    async open(signal: AbortSignal): Promise<void> {
      if (isWriterOpen) return;
      await mkdir(rootFolder, { recursive: true, mode: 0o750 });
      await closeAllFiles();
      const folderEntries = await readdir(rootFolder, { recursive: true, withFileTypes: true });
      const unfinishedFilePattern = new RegExp(
        `^(${name}-\\d{8}T\\d{9}Z\\.jsonl)(\\.gz)?(${TEMPORARY_FILE_SUFFIX}|${UNFINISHED_SUFFIX})$`,
      );
      for (const entry of folderEntries) {
        const [, stem, , suffix] = unfinishedFilePattern.exec(entry.name) ?? [];
        if (stem === undefined || !entry.isFile()) continue;
        signal.throwIfAborted();
        const path = join(entry.parentPath, entry.name);
        if (suffix === TEMPORARY_FILE_SUFFIX) await unlink(path);
        else await recoverUnfinishedFile(path, join(entry.parentPath, stem), signal);
      }
      isWriterOpen = true;
    },

    async write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void> {
      const writtenFiles: { readonly file: UnfinishedFile; readonly bytes: number }[] = [];
      try {
        for (const [folder, data] of groupTextsByFolder(batch, sequences)) {
          signal.throwIfAborted();
          const writtenFile = await appendTextToFolder(folder, data, signal);
          writtenFiles.push({ file: writtenFile, bytes: writtenFile.bytes - data.length });
        }
      } catch (error) {
        for (const { file, bytes } of writtenFiles) {
          await closeFile(file.path).catch((closeError: unknown) => closeError);
          await truncate(file.path, bytes).catch((truncateError: unknown) => truncateError);
        }
        throw error;
      }
    },

    async finishOldFiles(signal: AbortSignal): Promise<number> {
      let remainingFiles = MAX_FILES_FINISHED_PER_TICK;
      for (const [folder, file] of [...unfinishedFileByFolder].toSorted(([, a], [, b]) => a.beganMs - b.beganMs)) {
        const timeUntilFinishMs = file.beganMs + config.finish_after - clock.monotonic();
        if (timeUntilFinishMs > 0) return timeUntilFinishMs;
        if (remainingFiles === 0) return 0;
        signal.throwIfAborted();
        if (file.bytes > 0 && (await fileExists(file.path))) await finishEventFile(folder, file, signal);
        else unfinishedFileByFolder.delete(folder);
        remainingFiles -= 1;
      }
      return config.finish_after;
    },

    close: closeAllFiles,
  };

  async function recoverUnfinishedFile(path: string, pathStem: string, signal: AbortSignal): Promise<void> {
    // The last write had at most MAX_BATCH_LINES events, and each added at most one line to a file.
    const fileAppender = await openFileAppender(path, fileMode, MAX_BATCH_LINES);
    await fileAppender.close();
    // After a crash, both the file and its complete compressed copy may exist.
    if (fileAppender.sizeBytes === 0 || (await fileExists(`${pathStem}.gz`))) await unlink(path);
    else await finalizeFile(path, gzip ? `${pathStem}.gz` : pathStem, fileMode, signal);
  }
}

function fileExists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function isFileNameTaken(stem: string): Promise<boolean> {
  return (await Promise.all(["", ".gz", UNFINISHED_SUFFIX].map((suffix) => fileExists(`${stem}${suffix}`)))).includes(
    true,
  );
}

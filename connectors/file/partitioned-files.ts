import { access, mkdir, readdir, truncate, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { BatchInfo, ConnectorContext } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type FileConfig, mebibytesToBytes } from "./config.ts";
import {
  type FileAppender,
  finalizeFile,
  MAX_BATCH_LINES,
  openAppender,
  syncFolder,
  TEMPORARY_SUFFIX,
} from "./durable-file.ts";
import { buildFolderPath, splitIntoDayLines } from "./folder-layout.ts";

/** Maximum files finished in one tick. After a backfill, hundreds of files would delay new events. */
const MAX_FINISHED_PER_TICK = 20;

const PART_SUFFIX = ".part";

/** Maximum open files. A backfill of a month writes more than 100 files, which are reopened in turn. */
const MAX_OPEN_FILES = 16;

interface FilePart {
  /** Path without `.part` or `.gz`, e.g. `<root>/tag-value/1/2026-11-02/events-20261102T062000000Z.jsonl`. */
  readonly stem: string;
  readonly path: string;
  readonly beganMs: number;
  bytes: number;
}

/**
 * Writes lines into folders by kind, site and day of the event, each with at most one unfinished file.
 *
 *   events-….jsonl.part ──► events-….jsonl, or events-….jsonl.gz by compression to ….tmp
 */
export function createPartitionedFiles(config: FileConfig, template: string, { clock }: ConnectorContext) {
  const { gzip, name } = config;
  const rootFolder = resolve(config.folder);
  const fileMode = Number.parseInt(config.mode, 8);
  const maxBytes = mebibytesToBytes(config.max_file_mb);
  const partByFolder = new Map<string, FilePart>();
  const appenderByPath = new Map<string, FileAppender>();
  let isOpen = false;

  async function closeFile(path: string): Promise<void> {
    const appender = appenderByPath.get(path);
    appenderByPath.delete(path);
    await appender?.close();
  }

  async function openCachedAppender(path: string): Promise<FileAppender> {
    const cachedAppender = appenderByPath.get(path);
    if (cachedAppender !== undefined && (await cachedAppender.stillExists())) {
      appenderByPath.delete(path);
      appenderByPath.set(path, cachedAppender);
      return cachedAppender;
    }
    await closeFile(path);
    const [oldestPath] = appenderByPath.keys();
    if (oldestPath !== undefined && appenderByPath.size >= MAX_OPEN_FILES) await closeFile(oldestPath);
    const appender = await openAppender(path, fileMode, 0);
    appenderByPath.set(path, appender);
    return appender;
  }

  async function beginPart(folder: string): Promise<FilePart> {
    const partFolder = join(rootFolder, folder);
    await mkdir(partFolder, { recursive: true, mode: 0o750 });
    const buildStem = (ms: number) => join(partFolder, `${name}-${isoUtc(ms).replaceAll(/[-:.]/g, "")}.jsonl`);
    let ms = clock.now();
    // Two files may start in one millisecond, or a clock was set back: never overwrite an existing file.
    while (await isNameTaken(buildStem(ms))) ms += 1;
    const stem = buildStem(ms);
    const newFile = { stem, path: `${stem}${PART_SUFFIX}`, beganMs: clock.monotonic(), bytes: 0 };
    await openCachedAppender(newFile.path);
    for (let at = partFolder; ; at = dirname(at)) {
      await syncFolder(at);
      if (at === rootFolder) break;
    }
    partByFolder.set(folder, newFile);
    return newFile;
  }

  async function finishPart(folder: string, part: FilePart, signal: AbortSignal): Promise<void> {
    await closeFile(part.path);
    await finalizeFile(part.path, gzip ? `${part.stem}.gz` : part.stem, fileMode, signal);
    partByFolder.delete(folder);
  }

  async function choosePart(folder: string, bytes: number, signal: AbortSignal): Promise<FilePart> {
    const openPart = partByFolder.get(folder);
    if (openPart === undefined || (!appenderByPath.has(openPart.path) && !(await fileExists(openPart.path))))
      return beginPart(folder);
    if (openPart.bytes === 0 || openPart.bytes + bytes <= maxBytes) return openPart;
    await finishPart(folder, openPart, signal);
    return beginPart(folder);
  }

  async function append(folder: string, text: Buffer, signal: AbortSignal): Promise<FilePart> {
    let targetPart = await choosePart(folder, text.length, signal);
    let appender = await openCachedAppender(targetPart.path);
    if (appender.bytes !== targetPart.bytes) {
      targetPart = await beginPart(folder);
      appender = await openCachedAppender(targetPart.path);
    }
    await appender.append(text);
    targetPart.bytes = appender.bytes;
    return targetPart;
  }

  function groupTextsByFolder(batch: readonly Event[], sequences: BatchInfo["sequences"]): ReadonlyMap<string, Buffer> {
    const texts = new Map<string, string[]>();
    for (const [index, event] of batch.entries()) {
      for (const { date, texts: line } of splitIntoDayLines(event, sequences?.[index])) {
        const folder = buildFolderPath(template, { kind: event.type, site: event.siteid ?? null, date });
        const folderTexts = texts.get(folder) ?? [];
        folderTexts.push(...line, "\n");
        texts.set(folder, folderTexts);
      }
    }
    return new Map([...texts].map(([folder, lines]) => [folder, Buffer.from(lines.join(""))]));
  }

  async function close(): Promise<void> {
    isOpen = false;
    partByFolder.clear();
    for (const path of [...appenderByPath.keys()]) await closeFile(path);
  }

  return {
    /** Finishes files left by a stop or crash, after removing unacknowledged lines. */
    async open(signal: AbortSignal): Promise<void> {
      if (isOpen) return;
      await mkdir(rootFolder, { recursive: true, mode: 0o750 });
      await close();
      const folderEntries = await readdir(rootFolder, { recursive: true, withFileTypes: true });
      const ownFilePattern = new RegExp(
        `^(${name}-\\d{8}T\\d{9}Z\\.jsonl)(\\.gz)?(${TEMPORARY_SUFFIX}|${PART_SUFFIX})$`,
      );
      for (const entry of folderEntries) {
        const [, stem, , kind] = ownFilePattern.exec(entry.name) ?? [];
        if (stem === undefined || !entry.isFile()) continue;
        signal.throwIfAborted();
        const path = join(entry.parentPath, entry.name);
        if (kind === TEMPORARY_SUFFIX) await unlink(path);
        else await recoverPart(path, join(entry.parentPath, stem), signal);
      }
      isOpen = true;
    },

    async write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void> {
      const writtenParts: { readonly part: FilePart; readonly bytes: number }[] = [];
      try {
        for (const [folder, text] of groupTextsByFolder(batch, sequences)) {
          signal.throwIfAborted();
          const writtenPart = await append(folder, text, signal);
          writtenParts.push({ part: writtenPart, bytes: writtenPart.bytes - text.length });
        }
      } catch (error) {
        for (const { part, bytes } of writtenParts) {
          await closeFile(part.path).catch((second: unknown) => second);
          await truncate(part.path, bytes).catch((second: unknown) => second);
        }
        throw error;
      }
    },

    async finishOldFiles(signal: AbortSignal): Promise<number> {
      let remainingFiles = MAX_FINISHED_PER_TICK;
      for (const [folder, part] of [...partByFolder].toSorted(([, a], [, b]) => a.beganMs - b.beganMs)) {
        const inMs = part.beganMs + config.finish_after - clock.monotonic();
        if (inMs > 0) return inMs;
        if (remainingFiles === 0) return 0;
        signal.throwIfAborted();
        if (part.bytes > 0 && (await fileExists(part.path))) await finishPart(folder, part, signal);
        else partByFolder.delete(folder);
        remainingFiles -= 1;
      }
      return config.finish_after;
    },

    close,
  };

  async function recoverPart(path: string, stem: string, signal: AbortSignal): Promise<void> {
    // Each event of the last write added at most one line to a file.
    const appender = await openAppender(path, fileMode, MAX_BATCH_LINES);
    await appender.close();
    // The compressed file exists; only the removal of this one is missing.
    if (appender.bytes === 0 || (await fileExists(`${stem}.gz`))) await unlink(path);
    else await finalizeFile(path, gzip ? `${stem}.gz` : stem, fileMode, signal);
  }
}

function fileExists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function isNameTaken(stem: string): Promise<boolean> {
  return (await Promise.all(["", ".gz", PART_SUFFIX].map((end) => fileExists(`${stem}${end}`)))).includes(true);
}

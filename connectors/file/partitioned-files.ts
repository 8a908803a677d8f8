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
import { buildFolderPath, splitIntoDayLines } from "./layout.ts";

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
  const root = resolve(config.folder);
  const mode = Number.parseInt(config.mode, 8);
  const maxBytes = mebibytesToBytes(config.max_file_mb);
  const parts = new Map<string, FilePart>();
  const appenders = new Map<string, FileAppender>();
  let isOpen = false;

  async function closeFile(path: string): Promise<void> {
    const appender = appenders.get(path);
    appenders.delete(path);
    await appender?.close();
  }

  async function openCachedAppender(path: string): Promise<FileAppender> {
    const cached = appenders.get(path);
    if (cached !== undefined && (await cached.isThere())) {
      appenders.delete(path);
      appenders.set(path, cached);
      return cached;
    }
    await closeFile(path);
    const [oldest] = appenders.keys();
    if (oldest !== undefined && appenders.size >= MAX_OPEN_FILES) await closeFile(oldest);
    const appender = await openAppender(path, mode, 0);
    appenders.set(path, appender);
    return appender;
  }

  async function beginPart(folder: string): Promise<FilePart> {
    const inside = join(root, folder);
    await mkdir(inside, { recursive: true, mode: 0o750 });
    const stemAt = (ms: number) => join(inside, `${name}-${isoUtc(ms).replaceAll(/[-:.]/g, "")}.jsonl`);
    let ms = clock.now();
    // Two files may start in one millisecond, or a clock was set back: never overwrite an existing file.
    while (await isNameTaken(stemAt(ms))) ms += 1;
    const part = { stem: stemAt(ms), path: `${stemAt(ms)}${PART_SUFFIX}`, beganMs: clock.monotonic(), bytes: 0 };
    await openCachedAppender(part.path);
    for (let at = inside; ; at = dirname(at)) {
      await syncFolder(at);
      if (at === root) break;
    }
    parts.set(folder, part);
    return part;
  }

  async function finishPart(folder: string, part: FilePart, signal: AbortSignal): Promise<void> {
    await closeFile(part.path);
    await finalizeFile(part.path, gzip ? `${part.stem}.gz` : part.stem, mode, signal);
    parts.delete(folder);
  }

  async function partFor(folder: string, bytes: number, signal: AbortSignal): Promise<FilePart> {
    const part = parts.get(folder);
    if (part === undefined || (!appenders.has(part.path) && !(await fileExists(part.path)))) return beginPart(folder);
    if (part.bytes === 0 || part.bytes + bytes <= maxBytes) return part;
    await finishPart(folder, part, signal);
    return beginPart(folder);
  }

  async function append(folder: string, text: Buffer, signal: AbortSignal): Promise<FilePart> {
    let part = await partFor(folder, text.length, signal);
    let appender = await openCachedAppender(part.path);
    if (appender.bytes !== part.bytes) {
      part = await beginPart(folder);
      appender = await openCachedAppender(part.path);
    }
    await appender.append(text);
    part.bytes = appender.bytes;
    return part;
  }

  function groupTextsByFolder(batch: readonly Event[], sequences: BatchInfo["sequences"]): ReadonlyMap<string, Buffer> {
    const texts = new Map<string, string[]>();
    for (const [index, event] of batch.entries()) {
      for (const { date, texts: line } of splitIntoDayLines(event, sequences?.[index])) {
        const folder = buildFolderPath(template, { kind: event.type, site: event.siteid ?? null, date });
        const lines = texts.get(folder) ?? [];
        lines.push(...line, "\n");
        texts.set(folder, lines);
      }
    }
    return new Map([...texts].map(([folder, lines]) => [folder, Buffer.from(lines.join(""))]));
  }

  async function close(): Promise<void> {
    isOpen = false;
    parts.clear();
    for (const path of [...appenders.keys()]) await closeFile(path);
  }

  return {
    /** Finishes files left by a stop or crash, after removing unacknowledged lines. */
    async open(signal: AbortSignal): Promise<void> {
      if (isOpen) return;
      await mkdir(root, { recursive: true, mode: 0o750 });
      await close();
      const found = await readdir(root, { recursive: true, withFileTypes: true });
      const ownFilePattern = new RegExp(
        `^(${name}-\\d{8}T\\d{9}Z\\.jsonl)(\\.gz)?(${TEMPORARY_SUFFIX}|${PART_SUFFIX})$`,
      );
      for (const entry of found) {
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
      const written: { readonly part: FilePart; readonly bytes: number }[] = [];
      try {
        for (const [folder, text] of groupTextsByFolder(batch, sequences)) {
          signal.throwIfAborted();
          const part = await append(folder, text, signal);
          written.push({ part, bytes: part.bytes - text.length });
        }
      } catch (error) {
        for (const { part, bytes } of written) {
          await closeFile(part.path).catch((second: unknown) => second);
          await truncate(part.path, bytes).catch((second: unknown) => second);
        }
        throw error;
      }
    },

    async finishOld(signal: AbortSignal): Promise<number> {
      let left = MAX_FINISHED_PER_TICK;
      for (const [folder, part] of [...parts].toSorted(([, a], [, b]) => a.beganMs - b.beganMs)) {
        const inMs = part.beganMs + config.finish_after - clock.monotonic();
        if (inMs > 0) return inMs;
        if (left === 0) return 0;
        signal.throwIfAborted();
        if (part.bytes > 0 && (await fileExists(part.path))) await finishPart(folder, part, signal);
        else parts.delete(folder);
        left -= 1;
      }
      return config.finish_after;
    },

    close,
  };

  async function recoverPart(path: string, stem: string, signal: AbortSignal): Promise<void> {
    // Each event of the last write added at most one line to a file.
    const appender = await openAppender(path, mode, MAX_BATCH_LINES);
    await appender.close();
    // The compressed file exists; only the removal of this one is missing.
    if (appender.bytes === 0 || (await fileExists(`${stem}.gz`))) await unlink(path);
    else await finalizeFile(path, gzip ? `${stem}.gz` : stem, mode, signal);
  }
}

function fileExists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function isNameTaken(stem: string): Promise<boolean> {
  const found = await Promise.all(["", ".gz", PART_SUFFIX].map((end) => fileExists(`${stem}${end}`)));
  return found.includes(true);
}

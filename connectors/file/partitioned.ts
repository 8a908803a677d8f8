import { access, mkdir, readdir, truncate, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import type { BatchInfo, ConnectorContext } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { bytesOf, type FileConfig } from "./config.ts";
import { type Appender, finish, MAX_BATCH, openAppender, syncFolder, TEMPORARY } from "./durable-file.ts";
import { dayLines, folderOf } from "./layout.ts";

/** More would let events wait for the hundreds of files of a backfill. */
const FINISHED_AT_ONCE = 20;

const PART = ".part";

/** A backfill of a month writes more than a hundred files, which are reopened in turn. */
const MOST_OPEN = 16;

interface Part {
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
  const maxBytes = bytesOf(config.max_file_mb);
  const parts = new Map<string, Part>();
  const appenders = new Map<string, Appender>();
  let isOpen = false;

  async function closeFile(path: string): Promise<void> {
    const appender = appenders.get(path);
    appenders.delete(path);
    await appender?.close();
  }

  async function appenderOf(path: string): Promise<Appender> {
    const known = appenders.get(path);
    if (known !== undefined && (await known.isThere())) {
      appenders.delete(path);
      appenders.set(path, known);
      return known;
    }
    await closeFile(path);
    const [oldest] = appenders.keys();
    if (oldest !== undefined && appenders.size >= MOST_OPEN) await closeFile(oldest);
    const appender = await openAppender(path, mode, 0);
    appenders.set(path, appender);
    return appender;
  }

  async function beginPart(folder: string): Promise<Part> {
    const inside = join(root, folder);
    await mkdir(inside, { recursive: true, mode: 0o750 });
    const stemAt = (ms: number) => join(inside, `${name}-${isoUtc(ms).replaceAll(/[-:.]/g, "")}.jsonl`);
    let ms = clock.now();
    // Two files may start in one millisecond, or a clock was set back: never overwrite an existing file.
    while (await isTaken(stemAt(ms))) ms += 1;
    const part = { stem: stemAt(ms), path: `${stemAt(ms)}${PART}`, beganMs: clock.monotonic(), bytes: 0 };
    await appenderOf(part.path);
    for (let at = inside; ; at = dirname(at)) {
      await syncFolder(at);
      if (at === root) break;
    }
    parts.set(folder, part);
    return part;
  }

  async function finishPart(folder: string, part: Part, signal: AbortSignal): Promise<void> {
    await closeFile(part.path);
    await finish(part.path, gzip ? `${part.stem}.gz` : part.stem, mode, signal);
    parts.delete(folder);
  }

  async function partFor(folder: string, bytes: number, signal: AbortSignal): Promise<Part> {
    const part = parts.get(folder);
    if (part === undefined || (!appenders.has(part.path) && !(await exists(part.path)))) return beginPart(folder);
    if (part.bytes === 0 || part.bytes + bytes <= maxBytes) return part;
    await finishPart(folder, part, signal);
    return beginPart(folder);
  }

  async function append(folder: string, text: Buffer, signal: AbortSignal): Promise<Part> {
    let part = await partFor(folder, text.length, signal);
    let appender = await appenderOf(part.path);
    if (appender.bytes !== part.bytes) {
      part = await beginPart(folder);
      appender = await appenderOf(part.path);
    }
    await appender.append(text);
    part.bytes = appender.bytes;
    return part;
  }

  function textsOf(batch: readonly Event[], sequences: BatchInfo["sequences"]): ReadonlyMap<string, Buffer> {
    const texts = new Map<string, string[]>();
    for (const [index, event] of batch.entries()) {
      for (const { date, texts: line } of dayLines(event, sequences?.[index])) {
        const folder = folderOf(template, { kind: event.type, site: event.siteid ?? null, date });
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
    /** Finishes files that a stop or a crash left, without unacknowledged lines. */
    async open(signal: AbortSignal): Promise<void> {
      if (isOpen) return;
      await mkdir(root, { recursive: true, mode: 0o750 });
      await close();
      const found = await readdir(root, { recursive: true, withFileTypes: true });
      const own = new RegExp(`^(${name}-\\d{8}T\\d{9}Z\\.jsonl)(\\.gz)?(${TEMPORARY}|${PART})$`);
      for (const entry of found) {
        const [, stem, , kind] = own.exec(entry.name) ?? [];
        if (stem === undefined || !entry.isFile()) continue;
        signal.throwIfAborted();
        const path = join(entry.parentPath, entry.name);
        if (kind === TEMPORARY) await unlink(path);
        else await recoverPart(path, join(entry.parentPath, stem), signal);
      }
      isOpen = true;
    },

    async write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void> {
      const written: { readonly part: Part; readonly bytes: number }[] = [];
      try {
        for (const [folder, text] of textsOf(batch, sequences)) {
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
      let left = FINISHED_AT_ONCE;
      for (const [folder, part] of [...parts].toSorted(([, a], [, b]) => a.beganMs - b.beganMs)) {
        const inMs = part.beganMs + config.finish_after - clock.monotonic();
        if (inMs > 0) return inMs;
        if (left === 0) return 0;
        signal.throwIfAborted();
        if (part.bytes > 0 && (await exists(part.path))) await finishPart(folder, part, signal);
        else parts.delete(folder);
        left -= 1;
      }
      return config.finish_after;
    },

    close,
  };

  async function recoverPart(path: string, stem: string, signal: AbortSignal): Promise<void> {
    // Each event of the last write added at most one line to a file.
    const appender = await openAppender(path, mode, MAX_BATCH);
    await appender.close();
    // The compressed file exists; only the removal of this one is missing.
    if (appender.bytes === 0 || (await exists(`${stem}.gz`))) await unlink(path);
    else await finish(path, gzip ? `${stem}.gz` : stem, mode, signal);
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

async function isTaken(stem: string): Promise<boolean> {
  const found = await Promise.all(["", ".gz", PART].map((end) => exists(`${stem}${end}`)));
  return found.includes(true);
}

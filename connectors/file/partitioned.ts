import { access, mkdir, readdir, truncate, unlink } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ACCEPTED, type ConnectorContext, type Offered, type Sink } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { bytesOf, type FileConfig } from "./config.ts";
import {
  type Appender,
  checkWritable,
  fileFailure,
  finish,
  openAppender,
  syncFolder,
  TEMPORARY,
} from "./durable-file.ts";
import { dayLines, folderOf } from "./layout.ts";

/**
 * Largest number of events in a write; each adds at most one line to a file, so a crash leaves at most this many
 * unverified lines.
 */
const MAX_BATCH = 1_000;

/** Files finished in one tick, so that events do not wait for the hundreds that a backfill leaves. */
const FINISHED_AT_ONCE = 20;

/** Writes lines into folders by kind, site and day of the event. Accepted means: the line is on disk. */
export function createPartitionedSink(config: FileConfig, path: string, context: ConnectorContext): Sink {
  const { clock } = context;
  const root = resolve(config.folder);
  const parts = createParts({
    root,
    name: config.name,
    gzip: config.gzip,
    mode: Number.parseInt(config.mode, 8),
    maxBytes: bytesOf(config.max_file_mb),
    maxLines: MAX_BATCH,
  });
  let isReady = false;

  async function ready(signal: AbortSignal): Promise<void> {
    if (isReady) return;
    await mkdir(root, { recursive: true, mode: 0o750 });
    await parts.recover(signal);
    isReady = true;
  }

  /** Runs an operation. After a failure, the files are recovered and new ones started. */
  async function attempt<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      isReady = false;
      throw signal.aborted ? signal.reason : fileFailure(error, root);
    }
  }

  function textsOf(batch: readonly Event[], sequences: Offered["sequences"]): ReadonlyMap<string, Buffer> {
    const texts = new Map<string, string[]>();
    for (const [index, event] of batch.entries()) {
      for (const { date, texts: line } of dayLines(event, sequences?.[index])) {
        const folder = folderOf(path, { kind: event.type, site: event.siteid ?? null, date });
        const lines = texts.get(folder) ?? [];
        lines.push(...line, "\n");
        texts.set(folder, lines);
      }
    }
    return new Map([...texts].map(([folder, lines]) => [folder, Buffer.from(lines.join(""))]));
  }

  return {
    maxBatch: MAX_BATCH,
    oneOrder: true,

    open: (signal) => attempt(signal, () => ready(signal)),

    write: (batch, signal, _accepted, offer) =>
      attempt(signal, async () => {
        await ready(signal);
        const now = { wallMs: clock.now(), monotonicMs: clock.monotonic() };
        await parts.write(textsOf(batch, offer?.sequences), now, signal);
        return ACCEPTED;
      }),

    tick: (signal) =>
      attempt(signal, async () => {
        await ready(signal);
        return {
          inMs: await parts.finishOlder(config.finish_after, clock.monotonic(), FINISHED_AT_ONCE, signal),
        };
      }),

    close: () => parts.close(),

    async probe() {
      try {
        await checkWritable(root);
      } catch (error) {
        throw fileFailure(error, root);
      }
    },
  };
}

/** Ending of an unfinished file; readers of `*.jsonl` or `*.jsonl.gz` ignore it. */
const PART = ".part";

/**
 * Largest number of open files. A backfill of a month writes more than a hundred, which are reopened in turn.
 */
const MOST_OPEN = 16;

interface PartOptions {
  readonly root: string;
  readonly name: string;
  readonly gzip: boolean;
  readonly mode: number;
  readonly maxBytes: number;
  readonly maxLines: number;
}

interface Part {
  /** `<root>/tag-value/1/2026-11-02/events-20261102T062000000Z.jsonl`, without `.part` or `.gz`. */
  readonly stem: string;
  readonly path: string;
  readonly beganMs: number;
  bytes: number;
}

/**
 * Unfinished files, one for each folder below the root.
 *
 *   events-….jsonl.part ──► events-….jsonl       by a rename
 *                       └─► events-….jsonl.gz    by compression to ….tmp, and a rename
 */
function createParts({ root, name, gzip, mode, maxBytes, maxLines }: PartOptions) {
  const parts = new Map<string, Part>();
  /** Open files, the most recently used last. */
  const handles = new Map<string, Appender>();

  async function drop(path: string): Promise<void> {
    const appender = handles.get(path);
    handles.delete(path);
    await appender?.close();
  }

  async function handleOf(path: string, lines: number): Promise<Appender> {
    const known = handles.get(path);
    if (known !== undefined && (await known.isThere())) {
      handles.delete(path);
      handles.set(path, known);
      return known;
    }
    await drop(path);
    const [oldest] = handles.keys();
    if (oldest !== undefined && handles.size >= MOST_OPEN) await drop(oldest);
    const appender = await openAppender(path, mode, lines);
    handles.set(path, appender);
    return appender;
  }

  async function begin(folder: string, nowMs: number, beganMs: number): Promise<Part> {
    const inside = join(root, folder);
    await mkdir(inside, { recursive: true, mode: 0o750 });
    let ms = nowMs;
    // Two files may start in one millisecond, or a clock was set back: never overwrite an existing file.
    while (await isTaken(stemAt(inside, ms))) ms += 1;
    const stem = stemAt(inside, ms);
    const part = { stem, path: `${stem}${PART}`, beganMs, bytes: 0 };
    await handleOf(part.path, 0);
    for (let at = inside; ; at = dirname(at)) {
      await syncFolder(at);
      if (at === root) break;
    }
    parts.set(folder, part);
    return part;
  }

  const stemAt = (folder: string, ms: number) => join(folder, `${name}-${isoUtc(ms).replaceAll(/[-:.]/g, "")}.jsonl`);

  async function isTaken(stem: string): Promise<boolean> {
    const found = ["", ".gz", PART].map((end) =>
      access(`${stem}${end}`).then(
        () => true,
        () => false,
      ),
    );
    return (await Promise.all(found)).includes(true);
  }

  async function end(folder: string, part: Part, signal: AbortSignal): Promise<void> {
    await drop(part.path);
    await finish(part.path, gzip ? `${part.stem}.gz` : part.stem, mode, signal);
    parts.delete(folder);
  }

  /** Returns the file of a folder with room for the bytes. */
  async function partFor(folder: string, bytes: number, now: Now, signal: AbortSignal): Promise<Part> {
    const part = parts.get(folder);
    if (part === undefined) return begin(folder, now.wallMs, now.monotonicMs);
    const isGone = !handles.has(part.path) && !(await isThere(part.path));
    if (!isGone && (part.bytes === 0 || part.bytes + bytes <= maxBytes)) return part;
    if (isGone) parts.delete(folder);
    else await end(folder, part, signal);
    return begin(folder, now.wallMs, now.monotonicMs);
  }

  const isThere = (path: string) =>
    access(path).then(
      () => true,
      () => false,
    );

  async function append(folder: string, text: Buffer, now: Now, signal: AbortSignal): Promise<Part> {
    let part = await partFor(folder, text.length, now, signal);
    let appender = await handleOf(part.path, 0);
    if (appender.bytes !== part.bytes) {
      // The file was replaced by another one; do not continue in it.
      parts.delete(folder);
      part = await begin(folder, now.wallMs, now.monotonicMs);
      appender = await handleOf(part.path, 0);
    }
    await appender.append(text);
    part.bytes = appender.bytes;
    return part;
  }

  return {
    /**
     * Appends to all files; on disk when it resolves. Where it throws, it truncates all of them to their earlier
     * length if it can.
     */
    async write(texts: ReadonlyMap<string, Buffer>, now: Now, signal: AbortSignal): Promise<void> {
      const done: { readonly part: Part; readonly bytes: number }[] = [];
      try {
        for (const [folder, text] of texts) {
          signal.throwIfAborted();
          const part = await append(folder, text, now, signal);
          done.push({ part, bytes: part.bytes - text.length });
        }
      } catch (error) {
        for (const { part, bytes } of done) {
          await drop(part.path).catch((second: unknown) => second);
          await truncate(part.path, bytes).catch((second: unknown) => second);
        }
        throw error;
      }
    },

    /** Finishes up to `most` files older than `ms`; returns the time until the next is due. */
    async finishOlder(ms: number, nowMs: number, most: number, signal: AbortSignal): Promise<number> {
      let left = most;
      for (const [folder, part] of [...parts].toSorted(([, a], [, b]) => a.beganMs - b.beganMs)) {
        const inMs = part.beganMs + ms - nowMs;
        if (inMs > 0) return inMs;
        if (left === 0) return 0;
        signal.throwIfAborted();
        if (part.bytes > 0 && (await isThere(part.path))) await end(folder, part, signal);
        else parts.delete(folder);
        left -= 1;
      }
      return ms;
    },

    /** Finishes files that a stop or a crash left, without unacknowledged lines. */
    async recover(signal: AbortSignal): Promise<void> {
      await this.close();
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
    },

    async close(): Promise<void> {
      parts.clear();
      for (const path of [...handles.keys()]) await drop(path);
    },
  };

  async function recoverPart(path: string, stem: string, signal: AbortSignal): Promise<void> {
    const appender = await openAppender(path, mode, maxLines);
    await appender.close();
    // The compressed file exists; only the removal of this one is missing.
    const isDone = await isThere(`${stem}.gz`);
    if (isDone || appender.bytes === 0) await unlink(path);
    else await finish(path, gzip ? `${stem}.gz` : stem, mode, signal);
  }
}

interface Now {
  /** Milliseconds since 1970. */
  readonly wallMs: number;
  readonly monotonicMs: number;
}

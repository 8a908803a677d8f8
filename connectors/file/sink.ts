import { mkdir, readdir, stat, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { cloudEventTexts } from "../../src/core/codec/history-event.ts";
import { ACCEPTED, type ConnectorContext, type Offered, type Sink } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { sequenceAttributes } from "../../src/core/model/sequence.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { type Appender, openAppender } from "./appender.ts";
import { bytesOf, type FileConfig } from "./config.ts";
import { finish, syncFolder } from "./finish.ts";
import { byAge, nextFile, type OwnFile, parseOwnFile, type StoredFile, tooMany } from "./own-files.ts";
import { createPartitionedSink } from "./partitioned.ts";
import { meaning } from "./trouble.ts";
import { writable } from "./writable.ts";

/** Lines of one write at most: a crash leaves no more of them in doubt. */
const MAX_BATCH = 1_000;

/** Memory that is kept for lines, in bytes; an offer has a megabyte of events at most, unless one is larger. */
const KEPT_BYTES = 2 * 1024 ** 2;

/** Accepted means: the line is on disk (fdatasync has returned). */
export function createFileSink(config: FileConfig, context: ConnectorContext): Sink {
  return config.path === undefined
    ? createDailySink(config, context)
    : createPartitionedSink(config, config.path, context);
}

/** All lines in one folder, in files by the day of writing. */
function createDailySink(config: FileConfig, context: ConnectorContext): Sink {
  const folder = resolve(config.folder);
  const maxFileBytes = bytesOf(config.max_file_mb);
  const mode = Number.parseInt(config.mode, 8);
  let lines = Buffer.allocUnsafeSlow(0);
  let current: { readonly file: OwnFile; readonly appender: Appender } | null = null;

  async function stored(): Promise<readonly OwnFile[]> {
    const names = await readdir(folder);
    return names
      .map((name) => parseOwnFile(config.name, name, config.gzip))
      .filter((file) => file !== null)
      .sort(byAge);
  }

  async function use(file: OwnFile): Promise<Appender> {
    await close();
    const appender = await openAppender(join(folder, file.fileName), mode, MAX_BATCH);
    current = { file, appender };
    await syncFolder(folder);
    return appender;
  }

  /** Opens the newest file, which is the one that a crash can have left with an unfinished line. */
  async function ensureOpen(signal: AbortSignal): Promise<Appender> {
    if (current !== null && (await current.appender.isThere())) return current.appender;
    await mkdir(folder, { recursive: true, mode: 0o750 });
    await compressClosed(signal);
    const newest = (await stored()).at(-1);
    // One that is compressed is closed for good.
    return use(newest === undefined || newest.isCompressed ? nextFile(config.name, today(), newest) : newest);
  }

  /** All but the newest, where they are to be compressed; also those that an earlier end left as they were. */
  async function compressClosed(signal: AbortSignal): Promise<void> {
    if (!config.gzip) return;
    const files = await stored();
    for (const { fileName, isCompressed } of files.slice(0, -1)) {
      if (isCompressed) continue;
      const path = join(folder, fileName);
      // Compressed and named already: only its removal was left.
      if (files.some((other) => other.fileName === `${fileName}.gz`)) await unlink(path);
      else await finish(path, `${path}.gz`, mode, signal);
    }
  }

  /** The file that takes `bytes` more: the open one, or a new one when the day or the size says so. */
  async function appenderFor(bytes: number, signal: AbortSignal): Promise<Appender> {
    const appender = await ensureOpen(signal);
    if (current === null) return appender;
    const full = appender.bytes > 0 && appender.bytes + bytes > maxFileBytes;
    if (current.file.day >= today() && !full) return appender;
    const next = await use(nextFile(config.name, today(), current.file));
    await compressClosed(signal);
    await prune();
    return next;
  }

  async function prune(): Promise<void> {
    const closed: StoredFile[] = [];
    for (const file of await stored()) {
      if (file.fileName === current?.file.fileName) continue;
      closed.push({ ...file, bytes: (await stat(join(folder, file.fileName))).size });
    }
    const retention = {
      keepFiles: config.keep_files,
      maxTotalBytes: bytesOf(config.max_total_mb),
      reserveBytes: maxFileBytes,
    };
    for (const file of tooMany(closed, retention)) {
      await unlink(join(folder, file.fileName));
      context.log.info({ file: file.fileName }, "removed an old file");
    }
  }

  async function close(): Promise<void> {
    const open = current;
    current = null;
    await open?.appender.close();
  }

  /** The lines, where the ones before them were: those are on disk when the next are made. */
  function textOf(batch: readonly Event[], sequences: Offered["sequences"]): Buffer {
    const texts = batch.flatMap((event, index) => [
      ...cloudEventTexts(event, sequenceAttributes(sequences?.[index])),
      "\n",
    ]);
    const length = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
    if (length > KEPT_BYTES) return Buffer.from(texts.join(""));
    if (length > lines.length) lines = Buffer.allocUnsafeSlow(Math.min(KEPT_BYTES, 2 * length));
    let at = 0;
    for (const text of texts) at += lines.write(text, at);
    return lines.subarray(0, at);
  }

  const today = () => isoUtc(context.clock.now()).slice(0, 10);

  return {
    maxBatch: MAX_BATCH,
    oneOrder: true,

    async open(signal) {
      signal.throwIfAborted();
      try {
        await ensureOpen(signal);
        await prune();
      } catch (error) {
        throw meaning(error, folder);
      }
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const text = textOf(batch, offer?.sequences);
      try {
        const appender = await appenderFor(text.length, signal);
        await appender.append(text);
      } catch (error) {
        // After a failed write nothing is assumed about the file: the next one opens and repairs it anew.
        await close().catch((cause: unknown) =>
          context.log.debug({ err: cause }, "close after a failed write"),
        );
        throw meaning(error, folder);
      }
      return ACCEPTED;
    },

    close,

    async probe() {
      try {
        await writable(folder);
      } catch (error) {
        throw meaning(error, folder);
      }
    },
  };
}

import { mkdir, readdir, stat, unlink } from "node:fs/promises";
import { join, resolve } from "node:path";
import { cloudEventTexts } from "../../src/core/codec/history-event.ts";
import { ACCEPTED, type ConnectorContext, type Offered, type Sink } from "../../src/core/connector.ts";
import type { Event } from "../../src/core/model/event.ts";
import { sequenceAttributes } from "../../src/core/model/sequence.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { bytesOf, type FileConfig } from "./config.ts";
import { type Appender, checkWritable, fileFailure, finish, openAppender, syncFolder } from "./durable-file.ts";
import { createPartitionedSink } from "./partitioned.ts";

/** Largest number of lines in a write; a crash leaves at most this many unverified lines. */
const MAX_BATCH = 1_000;

/**
 * Size of the reused line buffer, in bytes; an offer has at most a megabyte of events, unless one is larger.
 */
const KEPT_BYTES = 2 * 1024 ** 2;

/** Accepted means: the line is on disk (fdatasync has returned). */
export function createFileSink(config: FileConfig, context: ConnectorContext): Sink {
  return config.path === undefined
    ? createDailySink(config, context)
    : createPartitionedSink(config, config.path, context);
}

/** Writes all lines into one folder, in files by the day of writing. */
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

  /** Opens the newest file, the only one that a crash can leave with an unfinished line. */
  async function ensureOpen(signal: AbortSignal): Promise<Appender> {
    if (current !== null && (await current.appender.isThere())) return current.appender;
    await mkdir(folder, { recursive: true, mode: 0o750 });
    await compressClosed(signal);
    const newest = (await stored()).at(-1);
    // A compressed file is complete.
    return use(newest === undefined || newest.isCompressed ? nextFile(config.name, today(), newest) : newest);
  }

  /** Compresses all files except the newest, also those of an earlier run. */
  async function compressClosed(signal: AbortSignal): Promise<void> {
    if (!config.gzip) return;
    const files = await stored();
    for (const { fileName, isCompressed } of files.slice(0, -1)) {
      if (isCompressed) continue;
      const path = join(folder, fileName);
      // The compressed file exists; only the removal of this one is missing.
      if (files.some((other) => other.fileName === `${fileName}.gz`)) await unlink(path);
      else await finish(path, `${path}.gz`, mode, signal);
    }
  }

  /** Returns the open file, or a new one where the day or the size requires it. */
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
    for (const file of filesToRemove(closed, retention)) {
      await unlink(join(folder, file.fileName));
      context.log.info({ file: file.fileName }, "removed an old file");
    }
  }

  async function close(): Promise<void> {
    const open = current;
    current = null;
    await open?.appender.close();
  }

  /** Encodes the lines into the reused buffer: the earlier lines are on disk by then. */
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
        throw fileFailure(error, folder);
      }
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const text = textOf(batch, offer?.sequences);
      try {
        const appender = await appenderFor(text.length, signal);
        await appender.append(text);
      } catch (error) {
        // After a failed write the next one reopens and repairs the file.
        await close().catch((cause: unknown) => context.log.debug({ err: cause }, "close after a failed write"));
        throw fileFailure(error, folder);
      }
      return ACCEPTED;
    },

    close,

    async probe() {
      try {
        await checkWritable(folder);
      } catch (error) {
        throw fileFailure(error, folder);
      }
    },
  };
}

/**
 * File names such as `events-2026-11-21-001.jsonl`: the UTC day of writing and a number within it. Only files with
 * names of this form, or with `.gz` where compression is on, are opened, counted or removed.
 */
interface OwnFile {
  readonly fileName: string;
  readonly day: string;
  readonly number: number;
  readonly isCompressed: boolean;
}

interface StoredFile extends OwnFile {
  readonly bytes: number;
}

export function ownFile(name: string, day: string, number: number): OwnFile {
  const fileName = `${name}-${day}-${String(number).padStart(3, "0")}.jsonl`;
  return { fileName, day, number, isCompressed: false };
}

/** Returns null for a file with another name. */
export function parseOwnFile(name: string, fileName: string, withCompressed = false): OwnFile | null {
  const match = /^([a-z0-9_]+)-(\d{4}-\d{2}-\d{2})-(\d{3,9})\.jsonl(\.gz)?$/.exec(fileName);
  if (match === null || match[1] !== name || match[2] === undefined) return null;
  const isCompressed = match[4] !== undefined;
  if (isCompressed && !withCompressed) return null;
  return { fileName, day: match[2], number: Number(match[3]), isCompressed };
}

function byAge(a: OwnFile, b: OwnFile): number {
  return a.day === b.day ? a.number - b.number : a.day < b.day ? -1 : 1;
}

/** Returns the file after `latest`: the next number of its day, or the first of a new day. */
export function nextFile(name: string, day: string, latest: OwnFile | undefined): OwnFile {
  // A clock set back must not make a new file sort before an old one.
  const onDay = latest !== undefined && latest.day > day ? latest.day : day;
  return ownFile(name, onDay, latest?.day === onDay ? latest.number + 1 : 1);
}

interface Retention {
  readonly keepFiles: number;
  readonly maxTotalBytes: number;
  /** Space reserved for the open file. */
  readonly reserveBytes: number;
}

/** Returns the closed files to remove, oldest first, while one more is open. */
export function filesToRemove(closed: readonly StoredFile[], retention: Retention): readonly StoredFile[] {
  const files = closed.toSorted(byAge);
  let total = files.reduce((sum, { bytes }) => sum + bytes, retention.reserveBytes);
  let count = files.length + 1;
  return files.filter((file) => {
    if (count <= retention.keepFiles && total <= retention.maxTotalBytes) return false;
    count -= 1;
    total -= file.bytes;
    return true;
  });
}

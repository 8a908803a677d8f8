import { resolve } from "node:path";
import { type BatchInfo, type ConnectorContext, EVENTS_ACCEPTED, type Sink } from "../../src/core/connector.ts";
import { checkFolderWritable, fileErrorToFailure } from "../../src/core/errors/folder-access.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { FileConfig } from "./config.ts";
import { createDailyFileWriter } from "./daily-files.ts";
import { MAX_BATCH_LINES } from "./durable-file.ts";
import { createPartitionedFileWriter } from "./partitioned-files.ts";

export const FULL_DISK_ADVICE = "Free some space, or lower max_total_mb";

/** Writes the files of a sink. After a failed write, the sink calls `close`, and its next `open` repairs the files. */
export interface EventFileWriter {
  open(signal: AbortSignal): Promise<void>;
  write(batch: readonly Event[], sequences: BatchInfo["sequences"], signal: AbortSignal): Promise<void>;
  /** Finishes files older than `finish_after`. Returns the milliseconds until the next file reaches this age. */
  finishOldFiles?(signal: AbortSignal): Promise<number>;
  close(): Promise<void>;
}

/** Creates the file sink. Accepts an event when its line is on disk (fdatasync has returned). */
export function createFileSink(config: FileConfig, context: ConnectorContext): Sink {
  const folder = resolve(config.folder);
  const writer: EventFileWriter =
    config.path === undefined
      ? createDailyFileWriter(config, context)
      : createPartitionedFileWriter(config, config.path, context);
  async function runWithOpenFiles<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      await writer.open(signal);
      return await work();
    } catch (error) {
      await writer.close().catch((cause: unknown) => context.log.debug({ err: cause }, "close after a failed write"));
      throw signal.aborted ? signal.reason : fileErrorToFailure(error, folder, FULL_DISK_ADVICE);
    }
  }

  const finishOldFiles = async (signal: AbortSignal) => ({ tickInMs: (await writer.finishOldFiles?.(signal)) ?? 0 });

  return {
    maxBatch: MAX_BATCH_LINES,
    strictOrder: true,

    open: (signal) => runWithOpenFiles(signal, async () => undefined),

    write: (batch, signal, _accepted, batchInfo) =>
      runWithOpenFiles(signal, async () => {
        await writer.write(batch, batchInfo?.sequences, signal);
        return EVENTS_ACCEPTED;
      }),

    ...(writer.finishOldFiles === undefined
      ? {}
      : { tick: (signal) => runWithOpenFiles(signal, () => finishOldFiles(signal)) }),

    close: () => writer.close(),

    probe: () => checkFolderWritable(folder, FULL_DISK_ADVICE),
  };
}

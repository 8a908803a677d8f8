import type { Writable } from "node:stream";
import { z } from "zod";
import { EVENTS_ACCEPTED, type Sink } from "../../src/core/connector.ts";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import { sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import { toCloudEvent } from "../../src/core/model/event.ts";
import { rejectOnAbort } from "../../src/core/runtime/waiting.ts";

export const StdoutConfig = z.strictObject({}).meta({ description: "Events as JSON lines on standard output." });

/** Creates the stdout sink. Accepts events when the operating system has taken the lines. */
export function createStdoutSink(stream: Writable): Sink {
  let hasErrorListener = false;

  return {
    maxBatch: 500,
    strictOrder: true,

    async open() {
      // Never remove this listener: a pipe may report its end after `close`, and an unhandled error ends the process.
      if (!hasErrorListener) stream.on("error", () => undefined);
      hasErrorListener = true;
    },

    async write(batch, signal, _acceptEvents, batchInfo) {
      signal.throwIfAborted();
      const jsonLines = batch.map(
        (event, index) => `${JSON.stringify(toCloudEvent(event, sequenceAttributes(batchInfo?.sequences?.[index])))}\n`,
      );
      await writeToStream(stream, jsonLines.join(""), signal);
      return EVENTS_ACCEPTED;
    },

    async close() {},

    async probe() {
      if (!stream.writable) throw createClosedPipeError();
    },
  };
}

function writeToStream(stream: Writable, text: string, signal: AbortSignal): Promise<void> {
  const writing = new Promise<void>((resolve, reject) => {
    stream.write(text, (error) => {
      if (error) reject(mapStreamError(error));
      else resolve();
    });
  });
  return rejectOnAbort(writing, signal);
}

const CLOSED_PIPE_ERROR_CODES = new Set(["EPIPE", "ECONNRESET", "ERR_STREAM_DESTROYED", "ERR_STREAM_WRITE_AFTER_END"]);

function mapStreamError(error: NodeJS.ErrnoException): Error {
  if (CLOSED_PIPE_ERROR_CODES.has(error.code ?? "")) return createClosedPipeError(error);
  return new Retryable(`Standard output could not be written: ${error.message}`, { cause: error });
}

function createClosedPipeError(cause?: Error): ConfigError {
  const hint = "Start Plenum again with a reader behind the pipe, or use the file sink.";
  return new ConfigError("The reader of standard output is gone.", { hint, cause });
}

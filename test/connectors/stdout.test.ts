import { spawn } from "node:child_process";
import { join } from "node:path";
import { PassThrough, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { describe, expect, test } from "vitest";
import { createStdoutSink } from "#connectors/stdout/sink.ts";
import { valueEvent } from "../sample-events.ts";
import { describeSink } from "../suites/sink-suite.ts";
import { never, offerWith } from "./context.ts";

describeSink("stdout", {
  without: ["breakServer"],
  async make() {
    let writtenText = "";
    let stalled = false;
    const stream = new Writable({
      write(chunk: Buffer, _encoding, done) {
        if (stalled) return;
        writtenText += chunk.toString();
        done();
      },
    });
    return {
      sink: createStdoutSink(stream),
      received: async () =>
        writtenText
          .split("\n")
          .slice(0, -1)
          .map((line) => {
            const event = JSON.parse(line) as { id: string };
            return { identity: event.id, event };
          }),
      async stall() {
        stalled = true;
      },
      async dispose() {
        stream.destroy();
      },
    };
  },
});

test("the stdout sink writes the sequence number of the event into its line", async () => {
  const stream = new PassThrough();
  const sequences = [{ epoch: "0123456789abcdef", number: 4_711 }];
  await createStdoutSink(stream).write([valueEvent(1)], never(), undefined, offerWith(sequences));
  expect(JSON.parse(String(stream.read()))).toMatchObject({
    sequence: "0000000000004711",
    sequenceepoch: "0123456789abcdef",
  });
});

describe("the stdout sink", () => {
  test("waits for a slow reader instead of buffering", async () => {
    const stream = new PassThrough({ highWaterMark: 16 });
    const sink = createStdoutSink(stream);
    await sink.open(never());
    let isSettled = false;
    const write = sink.write([valueEvent(1)], never());
    const secondWrite = write.then(() => sink.write([valueEvent(2)], never()));
    void secondWrite.then(() => {
      isSettled = true;
    });
    await new Promise((resolve) => setImmediate(resolve));
    expect(isSettled).toBe(false);
    stream.resume();
    await secondWrite;
    expect(isSettled).toBe(true);
  });

  test("stops with a ConfigError when the reader has closed the pipe, and the process continues", async () => {
    const program = `
      import { createStdoutSink } from "./connectors/stdout/sink.ts";
      import { valueEvent } from "./test/sample-events.ts";
      const sink = createStdoutSink(process.stdout);
      const signal = new AbortController().signal;
      await sink.open(signal);
      for (let n = 0; ; n += 1) {
        try {
          await sink.write([valueEvent(n)], signal);
        } catch (error) {
          await sink.close();
          await new Promise((resolve) => setTimeout(resolve, 50));
          console.error(error.kind + ": " + error.message);
          break;
        }
      }`;
    const sinkProcess = spawn(process.execPath, ["--input-type=module-typescript", "--eval", program], {
      cwd: join(import.meta.dirname, "../.."),
      stdio: ["ignore", "pipe", "pipe"],
    });
    const errorOutput = text(sinkProcess.stderr);
    sinkProcess.stdout.once("data", () => sinkProcess.stdout.destroy());
    const code = await new Promise((resolve) => sinkProcess.once("close", resolve));
    expect((await errorOutput).trim()).toBe("config: The reader of standard output is gone.");
    expect(code).toBe(0);
  });
});

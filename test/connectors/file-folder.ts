import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { createInterface } from "node:readline";
import { gunzipSync } from "node:zlib";
import { FileConfig } from "#connectors/file/config.ts";
import { createFileSink } from "#connectors/file/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { temporaryFolder } from "../real-servers.ts";
import { describeSink, type SinkServer } from "../suites/sink-suite.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { contextFor, never } from "./context.ts";

export function describeFileSink(title: string, options: Record<string, unknown>) {
  const createSink = (folder: string) => createFileSink(FileConfig.parse({ folder, ...options }), contextFor("lake"));
  describeFolderSink(title, createSink, async (folder) =>
    (existsSync(folder) ? linesBelow(folder) : []).map(({ event }) => ({ identity: event.id, event })),
  );
}

/** Tests a sink that writes into a folder. A file in place of the folder breaks the sink. */
export function describeFolderSink(
  title: string,
  createSink: (folder: string) => Sink,
  readReceived: (folder: string) => ReturnType<SinkServer["received"]>,
) {
  describeSink(title, {
    without: ["stall"],
    async make() {
      const parent = temporaryFolder();
      const [folder, away] = [join(parent, "lake"), join(parent, "away")];
      return {
        sink: createSink(folder),
        received: () => readReceived(folder),
        async breakServer() {
          if (existsSync(folder)) renameSync(folder, away);
          writeFileSync(folder, "in the way");
        },
        async repairServer() {
          rmSync(folder);
          renameSync(away, folder);
        },
        dispose: async () => rmSync(parent, { recursive: true }),
      };
    },
  });
}

export function setUpFolder(options: Record<string, unknown> = {}, clock = systemClock) {
  const parent = testFolder();
  const folder = join(parent, "lake");
  const config = FileConfig.parse({ folder, ...options });
  const make = () => createFileSink(config, contextFor("lake", clock));
  const open = () => openSink(closeAfterTest(make()));
  return {
    folder,
    make,
    open,
    /** Opens a sink, writes a batch if there is one, and closes the sink. */
    async writeAndClose(...batch: readonly Event[]): Promise<void> {
      const sink = await open();
      if (batch.length > 0) await sink.write(batch, never());
      await sink.close();
    },
  };
}

export async function openSink(sink: Sink): Promise<Sink> {
  await sink.open(never());
  return sink;
}

export function filesBelow(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .toSorted();
}

export interface WrittenLine {
  readonly file: string;
  readonly event: { readonly id: string; readonly [attribute: string]: unknown };
}

export function linesBelow(folder: string, files = filesBelow(folder)): readonly WrittenLine[] {
  return files.flatMap((file) => {
    const bytes = readFileSync(join(folder, file));
    const lines = (file.endsWith(".gz") ? gunzipSync(bytes) : bytes).toString().split("\n").slice(0, -1);
    return lines.map((line) => ({ file, event: JSON.parse(line) as WrittenLine["event"] }));
  });
}

export const idsBelow = (folder: string, files?: readonly string[]): readonly string[] =>
  linesBelow(folder, files).map(({ event }) => event.id);

/** Runs a process that writes values without end, kills it after a number of ids, and returns the acknowledged ids. */
export async function killWriter(folder: string, options: object, afterIds: number, run = 0) {
  const program = `
    import { createFileSink } from "./connectors/file/sink.ts";
    import { FileConfig } from "./connectors/file/config.ts";
    import { contextFor, never } from "./test/connectors/context.ts";
    import { valueEvent } from "./test/sample-events.ts";
    const sink = createFileSink(FileConfig.parse(${JSON.stringify({ folder, ...options })}), contextFor("lake"));
    await sink.open(never());
    for (let n = 0; ; n += 3) {
      const batch = [n, n + 1, n + 2].map((at) => {
        const event = valueEvent(${run} * 1_000_000 + at);
        return { ...event, time: new Date(Date.UTC(2026, 0, 1 + (at % 40))).toISOString() };
      });
      await sink.write(batch, never());
      process.stdout.write(batch.map((event) => event.id + "\\n").join(""));
    }`;
  const writerProcess = spawn(process.execPath, ["--input-type=module-typescript", "--eval", program], {
    cwd: join(import.meta.dirname, "../.."),
    stdio: ["ignore", "pipe", "inherit"],
  });
  const acknowledgedIds: string[] = [];
  for await (const id of createInterface({ input: writerProcess.stdout })) {
    acknowledgedIds.push(id);
    if (acknowledgedIds.length === afterIds) writerProcess.kill("SIGKILL");
  }
  return acknowledgedIds;
}

import { spawn } from "node:child_process";
import { existsSync, readdirSync, readFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs";
import { appendFile, type FileHandle, open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { FileConfig } from "#connectors/file/config.ts";
import { filesToRemove, nextFile, parseOwnFile } from "#connectors/file/daily.ts";
import { fileFailure, openAppender } from "#connectors/file/durable-file.ts";
import { createFileSink } from "#connectors/file/sink.ts";
import { sentence } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { temporaryFolder } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";
import { describeSink } from "../suites/sink-suite.ts";
import { clockAt, contextFor, never } from "./context.ts";

describeSink("file", {
  without: ["stall"],
  async make() {
    const parent = temporaryFolder();
    const folder = join(parent, "events");
    const away = join(parent, "away");
    return {
      sink: createFileSink(FileConfig.parse({ folder }), contextFor("archive")),
      received: async () =>
        (existsSync(folder) ? linesOf(folder) : []).map((line) => {
          const event = JSON.parse(line) as { id: string };
          return { identity: event.id, event };
        }),
      async breakServer() {
        if (existsSync(folder)) renameSync(folder, away);
        await writeFile(folder, "in the way");
      },
      async heal() {
        rmSync(folder);
        renameSync(away, folder);
      },
      dispose: async () => rmSync(parent, { recursive: true }),
    };
  },
});

describe("the file sink", () => {
  test("accepts a line only after fdatasync, and truncates the line when fdatasync fails", async () => {
    const { folder, make } = setUp();
    const sink = make();
    onTestFinished(() => sink.close());
    await sink.open(never());
    const handle = await open(join(folder, names(folder)[0] ?? ""));
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const synced = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const datasync = vi.spyOn(prototype, "datasync").mockImplementation(() => {
      begun.resolve();
      return synced.promise;
    });
    onTestFinished(() => datasync.mockRestore());

    let isAccepted = false;
    const accepted = sink.write([valueEvent(1)], never()).then((receipt) => {
      isAccepted = true;
      return receipt;
    });
    await begun.promise;
    await new Promise((resolve) => setImmediate(resolve));
    expect([isAccepted, idsIn(folder)]).toEqual([false, [valueEvent(1).id]]);
    synced.resolve();
    expect(await accepted).toEqual({ rejected: [] });

    datasync.mockRejectedValueOnce(Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" }));
    await expect(sink.write([valueEvent(2)], never())).rejects.toMatchObject({ kind: "retryable" });
    expect(idsIn(folder)).toEqual([valueEvent(1).id]);
    datasync.mockRestore();
    await sink.write([valueEvent(2)], never());
    expect(idsIn(folder)).toEqual([1, 2].map((n) => valueEvent(n).id));
  });

  test("removes the incomplete last line after a crash and keeps all complete lines", async () => {
    const { folder, make } = setUp();
    const first = make();
    await first.open(never());
    await first.write([valueEvent(1), valueEvent(2)], never());
    await first.close();
    const path = join(folder, names(folder)[0] ?? "");
    await appendFile(path, `${"x".repeat(200_000)}`);
    const second = make();
    await second.open(never());
    await second.write([valueEvent(3)], never());
    await second.close();
    expect(idsIn(folder)).toEqual([1, 2, 3].map((n) => valueEvent(n).id));
  });

  test("truncates the file at zero bytes in the last write, and leaves zero bytes of earlier writes", async () => {
    const path = join(temporaryFolder(), "events.jsonl");
    onTestFinished(() => rmSync(join(path, ".."), { recursive: true }));
    const holed = `{"n":0}\n${"\0".repeat(512)}\n`;
    await writeFile(path, `${holed}{"n":1}\n{"n":2}\n{"n":`);
    await (await openAppender(path, 0o600, 2)).close();
    expect(readFileSync(path, "utf8")).toBe(`${holed}{"n":1}\n{"n":2}\n`);
    await (await openAppender(path, 0o600, 3)).close();
    expect(readFileSync(path, "utf8")).toBe('{"n":0}\n');
  });

  test("empties a file that has only an incomplete line", async () => {
    const { folder, make } = setUp();
    await make().open(never());
    await appendFile(join(folder, names(folder)[0] ?? ""), '{"id":');
    const sink = make();
    await sink.open(never());
    await sink.write([valueEvent(1)], never());
    await sink.close();
    expect(idsIn(folder)).toEqual([valueEvent(1).id]);
  });

  test("starts a new file when the size limit is reached and at midnight UTC, and continues the current file after a restart", async () => {
    const clock = clockAt("2026-11-20T23:59:59Z");
    const { folder, make } = setUp({ max_file_mb: 0.001 }, clock);
    let sink = make();
    await sink.open(never());
    for (const n of [1, 2, 3]) await sink.write([valueEvent(n), valueEvent(n + 10)], never());
    clock.set("2026-11-21T00:00:00Z");
    await sink.write([valueEvent(4)], never());
    await sink.close();
    sink = make();
    await sink.open(never());
    await sink.write([valueEvent(5)], never());
    await sink.close();
    expect(names(folder)).toEqual([
      "events-2026-11-20-001.jsonl",
      "events-2026-11-20-002.jsonl",
      "events-2026-11-20-003.jsonl",
      "events-2026-11-21-001.jsonl",
    ]);
    expect(idsIn(folder)).toEqual([1, 11, 2, 12, 3, 13, 4, 5].map((n) => valueEvent(n).id));
  });

  test("removes its oldest files, and no files of other programs", async () => {
    const { folder, make } = setUp({ max_file_mb: 0.0005, max_total_mb: 1, keep_files: 2 });
    const sink = make();
    await sink.open(never());
    const strangers = ["events-2020-01-01.jsonl", "other-2020-01-01-001.jsonl", "events-2020-01-01-001.jsonl.gz"];
    for (const stranger of strangers) await writeFile(join(folder, stranger), "mine\n");
    for (let n = 1; n <= 6; n += 1) await sink.write([valueEvent(n)], never());
    await sink.close();
    const own = names(folder).filter((name) => !strangers.includes(name));
    expect(own).toHaveLength(2);
    expect(own.flatMap((name) => idsOf(join(folder, name)))).toEqual([valueEvent(5).id, valueEvent(6).id]);
    for (const stranger of strangers) expect(existsSync(join(folder, stranger))).toBe(true);
  });

  test("creates a new file when the current one was moved away", async () => {
    const { folder, make } = setUp();
    const sink = make();
    await sink.open(never());
    await sink.write([valueEvent(1)], never());
    renameSync(join(folder, names(folder)[0] ?? ""), join(folder, "moved"));
    await sink.write([valueEvent(2)], never());
    await sink.close();
    expect(idsIn(folder)).toEqual([valueEvent(2).id]);
  });

  test("refuses a symbolic link that leads out of its folder", async () => {
    const { folder, make } = setUp({}, clockAt("2026-11-21T12:00:00Z"));
    const target = join(temporaryFolder(), "target");
    await writeFile(target, "");
    await make().open(never());
    rmSync(join(folder, "events-2026-11-21-001.jsonl"));
    symlinkSync(target, join(folder, "events-2026-11-21-001.jsonl"));
    const sink = make();
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "config" });
    await sink.close();
    expect(readFileSync(target, "utf8")).toBe("");
  });

  test.each(["0600", "0640"])("creates files with mode %s", async (mode) => {
    const { folder, make } = setUp({ mode });
    const sink = make();
    await sink.open(never());
    await sink.close();
    const bits = statSync(join(folder, names(folder)[0] ?? "")).mode & 0o777;
    expect(bits & ~Number.parseInt(mode, 8)).toBe(0);
  });

  test.each(["../x", "a/b", "..", "A", "a-b", ""])("refuses the file name %j", (name) => {
    expect(FileConfig.safeParse({ folder: "/tmp/x", name }).success).toBe(false);
  });

  test("keeps the events when the disk is full, and the error says what to do", async () => {
    const appender = await openAppender("/dev/full", 0o600, 1_000);
    const error: unknown = await appender.append(Buffer.from("x\n")).catch((error: unknown) => error);
    await appender.close();
    expect(fileFailure(error, "/data")).toMatchObject({ kind: "retryable" });
    expect(sentence(fileFailure(error, "/data"))).toBe(
      "The disk below /data is full (ENOSPC). Free some space, or lower max_total_mb; the events wait.",
    );
  });

  test("the probe creates no folder, and reports a file in place of the folder", async () => {
    const { folder, make } = setUp();
    await make().probe?.(never());
    expect(existsSync(folder)).toBe(false);
    await writeFile(folder, "");
    await expect(make().probe?.(never())).rejects.toThrow("is not a folder");
  });

  test("has every acknowledged line on disk after kill -9", async () => {
    const { folder } = setUp();
    const child = spawn(process.execPath, ["--input-type=module-typescript", "--eval", writerProgram(folder)], {
      cwd: join(import.meta.dirname, "../.."),
      stdio: ["ignore", "pipe", "inherit"],
    });
    const acknowledged: string[] = [];
    for await (const id of createInterface({ input: child.stdout })) {
      acknowledged.push(id);
      if (acknowledged.length === 200) child.kill("SIGKILL");
    }
    expect(acknowledged.length).toBeGreaterThanOrEqual(200);
    const sink = createFileSink(FileConfig.parse({ folder }), contextFor("archive"));
    await sink.open(never());
    await sink.close();
    const written = new Set(idsIn(folder));
    expect(acknowledged.filter((id) => !written.has(id))).toEqual([]);
  });
});

describe("file names and clean-up of the file sink", () => {
  test("a new file sorts after all older files, also when the clock is set back", () => {
    expect(
      nextFile("events", "2026-11-20", parseOwnFile("events", "events-2026-11-21-007.jsonl") ?? undefined).fileName,
    ).toBe("events-2026-11-21-008.jsonl");
  });

  test("file numbers above 999 are accepted", () => {
    const file = parseOwnFile("events", "events-2026-11-21-1000.jsonl");
    expect(file).toMatchObject({ fileName: "events-2026-11-21-1000.jsonl", day: "2026-11-21", number: 1000 });
  });

  test("old files are removed so that the total stays below the limit even when the open file is full", () => {
    const closed = [1, 2, 3].map((number) => ({
      ...{ fileName: `events-2026-11-21-00${number}.jsonl`, day: "2026-11-21", number },
      isCompressed: false,
      bytes: 40,
    }));
    const gone = filesToRemove(closed, { keepFiles: 100, maxTotalBytes: 150, reserveBytes: 60 });
    expect(gone.map(({ number }) => number)).toEqual([1]);
  });
});

function setUp(options: Record<string, unknown> = {}, clock = systemClock) {
  const parent = temporaryFolder();
  onTestFinished(() => rmSync(parent, { recursive: true }));
  const folder = join(parent, "events");
  const config = FileConfig.parse({ folder, ...options });
  return { folder, make: () => createFileSink(config, contextFor("archive", clock)) };
}

const names = (folder: string): readonly string[] => readdirSync(folder).sort();

function linesOf(folder: string): readonly string[] {
  return names(folder)
    .filter((name) => parseOwnFile("events", name) !== null)
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").slice(0, -1));
}

function idsIn(folder: string): readonly string[] {
  return linesOf(folder).map((line) => (JSON.parse(line) as { id: string }).id);
}

function idsOf(path: string): readonly string[] {
  return readFileSync(path, "utf8")
    .split("\n")
    .slice(0, -1)
    .map((line) => (JSON.parse(line) as { id: string }).id);
}

function writerProgram(folder: string): string {
  return `
    import { createFileSink } from "./connectors/file/sink.ts";
    import { FileConfig } from "./connectors/file/config.ts";
    import { contextFor, never } from "./test/connectors/context.ts";
    import { valueEvent } from "./test/sample-events.ts";
    const config = FileConfig.parse({ folder: ${JSON.stringify(folder)}, max_file_mb: 0.01 });
    const sink = createFileSink(config, contextFor("archive"));
    await sink.open(never());
    for (let n = 0; ; n += 3) {
      const batch = [valueEvent(n), valueEvent(n + 1), valueEvent(n + 2)];
      await sink.write(batch, never());
      process.stdout.write(batch.map((event) => event.id + "\\n").join(""));
    }`;
}

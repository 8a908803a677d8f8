import { existsSync, readFileSync, renameSync, rmSync, statSync, symlinkSync } from "node:fs";
import { appendFile, type FileHandle, open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { FileConfig } from "#connectors/file/config.ts";
import { chooseFilesToRemove, nameNextDailyFile, parseDailyFileName } from "#connectors/file/daily-files.ts";
import { openFileAppender } from "#connectors/file/durable-file.ts";
import { FULL_DISK_ADVICE } from "#connectors/file/sink.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { fileErrorToFailure } from "#src/core/errors/folder-access.ts";
import { valueEvent } from "../sample-events.ts";
import { testFolder } from "../test-resources.ts";
import { clockAt, never } from "./context.ts";
import { describeFileSink, filesBelow, idsBelow, killWriter, setUpFolder } from "./file-folder.ts";

describeFileSink("file", {});

describe("the file sink", () => {
  test("accepts a line only after fdatasync, and truncates the line when fdatasync fails", async () => {
    const { folder, open: openSink } = setUpFolder();
    const sink = await openSink();
    const fileHandle = await open(join(folder, filesBelow(folder)[0] ?? ""));
    const prototype = Object.getPrototypeOf(fileHandle) as FileHandle;
    await fileHandle.close();
    const synced = Promise.withResolvers<void>();
    const syncBegun = Promise.withResolvers<void>();
    const datasync = vi.spyOn(prototype, "datasync").mockImplementation(() => {
      syncBegun.resolve();
      return synced.promise;
    });
    onTestFinished(() => datasync.mockRestore());
    let isAccepted = false;
    const accepted = sink.write([valueEvent(1)], never()).then((receipt) => {
      isAccepted = true;
      return receipt;
    });
    await syncBegun.promise;
    await new Promise((resolve) => setImmediate(resolve));
    expect([isAccepted, idsBelow(folder)]).toEqual([false, [valueEvent(1).id]]);
    synced.resolve();
    expect(await accepted).toEqual({ rejected: [] });
    datasync.mockRejectedValueOnce(Object.assign(new Error("EIO: i/o error, fdatasync"), { code: "EIO" }));
    await expect(sink.write([valueEvent(2)], never())).rejects.toMatchObject({ kind: "retryable" });
    expect(idsBelow(folder)).toEqual([valueEvent(1).id]);
    datasync.mockRestore();
    await sink.write([valueEvent(2)], never());
    expect(idsBelow(folder)).toEqual([1, 2].map((n) => valueEvent(n).id));
  });

  test("removes the incomplete last line after a crash and keeps all complete lines", async () => {
    const { folder, writeAndClose } = setUpFolder();
    await writeAndClose(valueEvent(1), valueEvent(2));
    await appendFile(join(folder, filesBelow(folder)[0] ?? ""), "x".repeat(200_000));
    await writeAndClose(valueEvent(3));
    expect(idsBelow(folder)).toEqual([1, 2, 3].map((n) => valueEvent(n).id));
  });

  test("removes zero bytes that a crash left in the last write, and keeps zero bytes of earlier writes", async () => {
    const path = join(testFolder(), "events.jsonl");
    const holed = `{"n":0}\n${"\0".repeat(512)}\n`;
    await writeFile(path, `${holed}{"n":1}\n{"n":2}\n{"n":`);
    await (await openFileAppender(path, 0o600, 2)).close();
    expect(readFileSync(path, "utf8")).toBe(`${holed}{"n":1}\n{"n":2}\n`);
    await (await openFileAppender(path, 0o600, 3)).close();
    expect(readFileSync(path, "utf8")).toBe('{"n":0}\n');
  });

  test("starts a new file at the size limit and at midnight UTC, and continues the file after a restart", async () => {
    const clock = clockAt("2026-11-20T23:59:59Z");
    const { folder, open: openSink, writeAndClose } = setUpFolder({ max_file_mb: 0.001 }, clock);
    const sink = await openSink();
    for (const n of [1, 2, 3]) await sink.write([valueEvent(n), valueEvent(n + 10)], never());
    clock.set("2026-11-21T00:00:00Z");
    await sink.write([valueEvent(4)], never());
    await sink.close();
    await writeAndClose(valueEvent(5));
    expect(filesBelow(folder)).toEqual([
      "events-2026-11-20-001.jsonl",
      "events-2026-11-20-002.jsonl",
      "events-2026-11-20-003.jsonl",
      "events-2026-11-21-001.jsonl",
    ]);
    expect(idsBelow(folder)).toEqual([1, 11, 2, 12, 3, 13, 4, 5].map((n) => valueEvent(n).id));
  });

  test("removes its oldest files when there are more than keep_files, and no files of other programs", async () => {
    const { folder, open: openSink } = setUpFolder({ max_file_mb: 0.0005, max_total_mb: 1, keep_files: 2 });
    const sink = await openSink();
    const strangers = ["events-2020-01-01.jsonl", "other-2020-01-01-001.jsonl", "events-2020-01-01-001.jsonl.gz"];
    for (const stranger of strangers) await writeFile(join(folder, stranger), "mine\n");
    for (let n = 1; n <= 6; n += 1) await sink.write([valueEvent(n)], never());
    const ownFiles = filesBelow(folder).filter((name) => !strangers.includes(name));
    expect(ownFiles).toHaveLength(2);
    expect(idsBelow(folder, ownFiles)).toEqual([valueEvent(5).id, valueEvent(6).id]);
    for (const stranger of strangers) expect(existsSync(join(folder, stranger))).toBe(true);
  });

  test("creates a new file when the current one was moved away", async () => {
    const { folder, open: openSink } = setUpFolder();
    const sink = await openSink();
    await sink.write([valueEvent(1)], never());
    renameSync(join(folder, filesBelow(folder)[0] ?? ""), join(folder, "..", "moved"));
    await sink.write([valueEvent(2)], never());
    expect(idsBelow(folder)).toEqual([valueEvent(2).id]);
  });

  test("refuses a symbolic link that leads out of its folder", async () => {
    const { folder, make } = setUpFolder({}, clockAt("2026-11-21T12:00:00Z"));
    const linkTarget = join(testFolder(), "target");
    await writeFile(linkTarget, "");
    await make().open(never());
    rmSync(join(folder, "events-2026-11-21-001.jsonl"));
    symlinkSync(linkTarget, join(folder, "events-2026-11-21-001.jsonl"));
    const sink = make();
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "config" });
    expect(readFileSync(linkTarget, "utf8")).toBe("");
  });

  test.each(["0600", "0640"])("creates files with the permission %s", async (mode) => {
    const { folder, writeAndClose } = setUpFolder({ mode });
    await writeAndClose();
    const modeBits = statSync(join(folder, filesBelow(folder)[0] ?? "")).mode & 0o777;
    expect(modeBits & ~Number.parseInt(mode, 8)).toBe(0);
  });

  test.each(["../x", "a/b", "..", "A", "a-b", ""])("refuses the file name %j", (name) => {
    expect(FileConfig.safeParse({ folder: "/tmp/x", name }).success).toBe(false);
  });

  test("settles no event when the disk is full, and the error says what to do", async () => {
    const appender = await openFileAppender("/dev/full", 0o600, 1_000);
    const error: unknown = await appender.append(Buffer.from("x\n")).catch((error: unknown) => error);
    await appender.close();
    const failure = fileErrorToFailure(error, "/data", FULL_DISK_ADVICE);
    expect(failure).toMatchObject({ kind: "retryable" });
    expect(errorText(failure)).toBe(
      "The disk below /data is full (ENOSPC). Free some space, or lower max_total_mb; the events wait.",
    );
  });

  test("the probe creates no folder, and fails when the path of the folder is a file", async () => {
    const { folder, make } = setUpFolder();
    await make().probe?.(never());
    expect(existsSync(folder)).toBe(false);
    await writeFile(folder, "");
    await expect(make().probe?.(never())).rejects.toThrow("is not a folder");
  });

  test("has every acknowledged line on disk after kill -9", async () => {
    const { folder, writeAndClose } = setUpFolder();
    const acknowledgedIds = await killWriter(folder, { max_file_mb: 0.01 }, 200);
    expect(acknowledgedIds.length).toBeGreaterThanOrEqual(200);
    await writeAndClose();
    const written = new Set(idsBelow(folder));
    expect(acknowledgedIds.filter((id) => !written.has(id))).toEqual([]);
  });
});

describe("file names and clean-up of the file sink", () => {
  test("a new file sorts after all older files, also when the clock is set back", () => {
    const latestFile = parseDailyFileName("events", "events-2026-11-21-007.jsonl") ?? undefined;
    expect(nameNextDailyFile("events", "2026-11-20", latestFile).fileName).toBe("events-2026-11-21-008.jsonl");
  });

  test("file numbers above 999 are accepted", () => {
    const file = parseDailyFileName("events", "events-2026-11-21-1000.jsonl");
    expect(file).toMatchObject({ fileName: "events-2026-11-21-1000.jsonl", day: "2026-11-21", number: 1000 });
  });

  test("old files are removed so that the total stays below the limit even when the open file is full", () => {
    const closed = [1, 2, 3].map((number) => ({
      ...{ fileName: `events-2026-11-21-00${number}.jsonl`, day: "2026-11-21", number },
      isCompressed: false,
      bytes: 40,
    }));
    const removedFiles = chooseFilesToRemove(closed, { keepFiles: 100, maxTotalBytes: 150, reserveBytes: 60 });
    expect(removedFiles.map(({ number }) => number)).toEqual([1]);
  });
});

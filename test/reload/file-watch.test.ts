import { spawnSync } from "node:child_process";
import { mkdirSync, renameSync, rmSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { afterEach, beforeEach, expect, test } from "vitest";
import { watchFile } from "#src/app/reload/file-watch.ts";
import { testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";

let folder: string;
let file: string;
let readCount: number;
let isRight: boolean;
let clock: ReturnType<typeof createVirtualClock>;
let watch: ReturnType<typeof watchFile>;

beforeEach(() => {
  folder = testFolder("file-watch");
  file = at("plenum.yaml");
  writeFileSync(file, "a");
  readCount = 0;
  isRight = true;
  clock = createVirtualClock(Date.UTC(2026, 0, 1));
});

afterEach(() => watch.stop(1_000));

const OLD = new Date("2025-01-01T00:00:00Z");
const at = (name: string) => join(folder, name);

function write(name: string, text: string): void {
  writeFileSync(at(name), text);
  utimesSync(at(name), OLD, OLD);
}

async function startWatch(): Promise<void> {
  const onStable = async () => {
    readCount += 1;
    return isRight;
  };
  watch = watchFile({ name: "file", file, clock, log: pino({ level: "silent" }), onStable });
  await watch.start(new AbortController().signal);
  await clock.advance(5_000);
  expect(readCount).toBe(1);
}

test("the file watch reads an unchanged file once, and again 2 s after a change was noticed", async () => {
  await startWatch();
  await clock.advance(600_500);
  expect(readCount).toBe(1);
  writeFileSync(file, "ab");
  await clock.advance(2_400);
  expect(readCount).toBe(1);
  await clock.advance(200);
  expect(readCount).toBe(2);
});

test("the stop of the file watch waits for the current reading", async () => {
  const slowReading = Promise.withResolvers<boolean>();
  const log = pino({ level: "silent" });
  watch = watchFile({ name: "file", file, clock, log, onStable: () => slowReading.promise });
  await watch.start(new AbortController().signal);
  await clock.advance(5_000);
  let isStopped = false;
  const stopEnd = watch.stop(60_000).then(() => {
    isStopped = true;
  });
  await clock.advance(1_000);
  expect(isStopped).toBe(false);
  slowReading.resolve(true);
  await stopEnd;
});

test.each<[string, () => void]>([
  ["a change to other text of the same length", () => writeFileSync(file, "b")],
  ["a change with the same length and modification time", () => write("plenum.yaml", "b")],
  ["a change of the modification time only", () => utimesSync(file, new Date(), new Date("2027-01-01T00:00:00Z"))],
  ["a replacement by an older file with its old times", () => renameSync(at("older"), file)],
])("the file watch reads the file again after %s", async (_, change) => {
  write("older", "c");
  write("plenum.yaml", "a");
  await startWatch();
  change();
  await clock.advance(5_000);
  expect(readCount).toBe(2);
});

test.skipIf(process.platform === "win32")(
  "the file watch does not read a file again that was replaced by a named pipe",
  async () => {
    await startWatch();
    rmSync(file);
    spawnSync("mkfifo", [file]);
    await clock.advance(60_000);
    expect(readCount).toBe(1);
  },
);

test("the file watch reads a file only when the file is no longer being written", async () => {
  await startWatch();
  for (let writeCount = 0; writeCount < 20; writeCount += 1) {
    writeFileSync(file, "a".repeat(writeCount + 2));
    await clock.advance(1_000);
  }
  expect(readCount).toBe(1);
  await clock.advance(3_000);
  expect(readCount).toBe(2);
});

test("the file watch reads a replaced file, and a file below a changed link", async () => {
  for (const version of ["..one", "..two"]) {
    mkdirSync(at(version));
    writeFileSync(at(`${version}/plenum.yaml`), "same");
  }
  rmSync(file);
  symlinkSync("..one", at("..data"));
  symlinkSync("..data/plenum.yaml", file);
  await startWatch();
  symlinkSync("..two", at("..tmp"));
  renameSync(at("..tmp"), at("..data"));
  await clock.advance(5_000);
  expect(readCount).toBe(2);
  writeFileSync(at("swap"), "other");
  renameSync(at("swap"), at("..data/plenum.yaml"));
  await clock.advance(5_000);
  expect(readCount).toBe(3);
});

test("the file watch ignores a missing file, and reads the file when it exists again with other text", async () => {
  await startWatch();
  renameSync(file, at("away"));
  await clock.advance(60_000);
  expect(readCount).toBe(1);
  writeFileSync(file, "other");
  await clock.advance(5_000);
  expect(readCount).toBe(2);
});

test("the file watch retries an invalid file, because the cause may be another file", async () => {
  isRight = false;
  await startWatch();
  await clock.advance(95_000);
  expect(readCount).toBe(4);
  isRight = true;
  await clock.advance(600_000);
  expect(readCount).toBe(5);
});

import { readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { gunzipSync } from "node:zlib";
import { DuckDBInstance } from "@duckdb/node-api";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { FileConfig } from "#connectors/file/config.ts";
import { buildEventFolderPath, findPathTemplateError } from "#connectors/file/folder-layout.ts";
import { makeHistoryEvent } from "#src/core/codec/history-event.ts";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Event } from "#src/core/model/event.ts";
import type { TagHistoryFact } from "#src/core/model/history-event-data.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { sampleEvent, TAG, valueEvent } from "../sample-events.ts";
import { never, offerWith } from "./context.ts";
import {
  describeFileSink,
  filesBelow,
  idsBelow,
  killWriter,
  linesBelow,
  setUpFolder,
  type WrittenLine,
} from "./file-folder.ts";

const BY_DAY = "{kind}/{site}/{date}";

for (const gzip of [false, true]) {
  const options = { path: "{site}/{date}", gzip, max_file_mb: 0.002 };
  describeFileSink(`file by site and day${gzip ? ", compressed" : ""}`, options);
}

const setUp = (options: Record<string, unknown> = {}, clock: Clock = systemClock) =>
  setUpFolder({ path: BY_DAY, ...options }, clock);

describe("the path template of the file sink", () => {
  test("the folder path of an event consists of kind, site and day of the event", async () => {
    const { folder, writeAndClose } = setUp();
    const kinds = ["token-expiring", "alarm-raised", "tag-total"] as const;
    await writeAndClose(valueEvent(0), ...kinds.map((kind) => sampleEvent(kind)));
    expect(filesBelow(folder).map((file) => file.replace(/\/events-\d{8}T\d{9}Z/, ""))).toEqual([
      "alarm-raised/1/2026-11-02.jsonl.part",
      `tag-total/1/${sampleEvent("tag-total").data.from.slice(0, 10)}.jsonl.part`,
      "tag-value/1/2026-11-02.jsonl.part",
      "token-expiring/_/2026-11-02.jsonl.part",
    ]);
  });

  test.each([
    ["..", "%2E%2E"],
    ["_", "%5F"],
    ["a/b", "a%2Fb"],
    ["", "~"],
    ["Hus 7 – å", "Hus%207%20%E2%80%93%20%C3%A5"],
    ["\ud800", "%EF%BF%BD"],
  ])("the folder path of the site %j stays inside the configured folder", (site, part) => {
    expect(buildEventFolderPath("{site}/{date}", { kind: "tag-value", site, date: "2026-11-02" })).toBe(
      `${part}/2026-11-02`,
    );
  });

  test.each([
    ["{kind}/{site}", "Put {date} into it"],
    ["{date}/{tag}", "There is no {tag}"],
    ["../{date}", "Write folders"],
    ["/{date}", "Write folders"],
    ["{date}/", "Write folders"],
    ["{date", "Write folders"],
  ])("refuses the template %j with an explanation", (template, sentence) => {
    expect(findPathTemplateError(template)).toContain(sentence);
    expect(FileConfig.safeParse({ folder: "/tmp/x", path: template }).success).toBe(false);
  });

  test.each(["{date}", BY_DAY, "kind={kind}/site={site}/date={date}"])("accepts the template %j", (template) => {
    expect(findPathTemplateError(template)).toBeNull();
  });
});

describe("a history event with readings of several days in the file sink", () => {
  const pointTimes = ["2026-10-31T23:55", "2026-11-01T00:00", "2026-11-01T12:00", "2026-11-02T00:00"];
  const points = pointTimes.map((time, n) => ({ time: `${time}:00.000Z`, value: [21.5, null, true, -3][n] ?? null }));
  const asText = makeHistoryEvent({
    source: "/sources/main",
    subject: "site/1/tag/10042",
    time: "2026-11-02T00:00:00.000Z",
    siteId: 1,
    tag: { ...TAG, displayName: '"points":[ ] \\ å' },
    resolution: "5m",
    timeZone: "Europe/Oslo",
    points: TagPoints.fromMeasurements(points),
    origin: "backfill",
    revisedAt: null,
  });
  const asObject = JSON.parse(JSON.stringify(asText)) as Event<"tag-history">;

  test.each([
    ["points as text", asText],
    ["points as objects", asObject],
  ])("is written as one line per day, and the lines together equal the event: %s", async (_, event) => {
    const { folder, open: openSink } = setUp();
    const sink = await openSink();
    await sink.write([event], never(), undefined, offerWith([{ epoch: "e", number: 7 }]));
    const fileLines = linesBelow(folder).map(
      ({ file, event: line }) => ({ file, ...line }) as WrittenLine["event"] & { file: string },
    );
    expect(fileLines.map(({ file }) => file.split("/")[2])).toEqual(["2026-10-31", "2026-11-01", "2026-11-02"]);
    expect(fileLines.map(({ part, parts, sequence }) => [part, parts, Number(sequence)])).toEqual([
      [1, 3, 7],
      [2, 3, 7],
      [3, 3, 7],
    ]);
    const lineFacts = fileLines.map(({ data }) => data as TagHistoryFact);
    expect(lineFacts.flatMap((fact) => [...fact.points])).toEqual(points);
    for (const [index, { file: _, part, parts, sequence, sequenceepoch, data, ...attributes }] of fileLines.entries()) {
      const { data: whole, ...expected } = asObject;
      expect(attributes).toEqual({ specversion: "1.0", ...expected, datacontenttype: "application/json" });
      expect({ ...(data as object), points: [] }).toEqual({ ...whole, points: [] });
      expect([part, parts, sequence, sequenceepoch]).toEqual([index + 1, 3, "0000000000000007", "e"]);
    }
  });

  test("history of a single day is written as one line without the field `part`", async () => {
    const { folder, writeAndClose } = setUp();
    await writeAndClose(sampleEvent("tag-history"));
    expect(linesBelow(folder)).toHaveLength(1);
    expect(linesBelow(folder)[0]?.event).not.toHaveProperty("part");
  });
});

describe("files of the file sink with a path template", () => {
  test.each([false, true])(
    "a file is closed and gets its final name once it is finish_after old (gzip: %s)",
    async (gzip) => {
      const clock = monotonic();
      const { folder, open: openSink } = setUp({ gzip, finish_after: "10m" }, clock);
      const sink = await openSink();
      await sink.write([valueEvent(1)], never());
      clock.passMs(9 * 60_000);
      await sink.write([valueEvent(2)], never());
      expect(await sink.tick?.(never())).toEqual({ tickInMs: 60_000 });
      expect(listFileSuffixes(folder)).toEqual([".jsonl.part"]);
      clock.passMs(60_000);
      await sink.tick?.(never());
      expect(listFileSuffixes(folder)).toEqual([gzip ? ".jsonl.gz" : ".jsonl"]);
      await sink.write([valueEvent(3)], never());
      expect(listFileSuffixes(folder).toSorted()).toEqual([gzip ? ".jsonl.gz" : ".jsonl", ".jsonl.part"]);
      expect(idsBelow(folder).toSorted()).toEqual([1, 2, 3].map((n) => valueEvent(n).id).toSorted());
    },
  );

  test("a file is closed before it exceeds max_file_mb", async () => {
    const { folder, open: openSink } = setUp({ gzip: true, max_file_mb: 0.001 });
    const sink = await openSink();
    for (let n = 0; n < 4; n += 1) await sink.write([valueEvent(n)], never());
    expect(listFileSuffixes(folder).filter((end) => end === ".jsonl.gz").length).toBeGreaterThan(0);
    expect(listFileSuffixes(folder).filter((end) => end === ".jsonl.part")).toHaveLength(1);
    expect(idsBelow(folder)).toHaveLength(4);
  });

  test("a file left open by a crash is completed at the next start, without its incomplete last line", async () => {
    const { folder, writeAndClose } = setUp({ gzip: true });
    await writeAndClose(valueEvent(1), valueEvent(2));
    const [part = ""] = filesBelow(folder);
    const completeText = readFileSync(join(folder, part));
    writeFileSync(join(folder, part), Buffer.concat([completeText, Buffer.from('{"id":"half')]));
    writeFileSync(join(folder, part.replace(".part", ".gz.tmp")), "what a crash left of a compression");
    const strangers = ["tag-value/1/mine.part", "tag-value/1/2026-11-02/events-x.jsonl.part"];
    for (const stranger of strangers) writeFileSync(join(folder, stranger), "{}");
    await writeAndClose();
    expect(filesBelow(folder)).toEqual([part.replace(".part", ".gz"), ...strangers].toSorted());
    expect(gunzipSync(readFileSync(join(folder, part.replace(".part", ".gz"))))).toEqual(completeText);
  });

  test("the uncompressed copy that a crash left next to a compressed file is removed at the next start", async () => {
    const { folder, writeAndClose } = setUp({ gzip: true });
    await writeAndClose(valueEvent(1));
    const [part = ""] = filesBelow(folder);
    const partText = readFileSync(join(folder, part));
    await writeAndClose();
    writeFileSync(join(folder, part), partText);
    await writeAndClose();
    expect(idsBelow(folder)).toEqual([valueEvent(1).id]);
  });

  test("a removed file is replaced by a new one", async () => {
    const { folder, open: openSink } = setUp();
    const sink = await openSink();
    await sink.write([valueEvent(1)], never());
    rmSync(join(folder, filesBelow(folder)[0] ?? ""));
    await sink.write([valueEvent(2)], never());
    expect(idsBelow(folder)).toEqual([valueEvent(2).id]);
  });

  test("at most 16 files are open, for any number of days in a batch", async () => {
    const { folder, open: openSink } = setUp();
    const sink = await openSink();
    const days = Array.from({ length: 60 }, (_, n) => valueOn(n));
    await sink.write(days, never());
    await sink.write(
      days.map((event) => ({ ...event, id: `${event.id}-2` })),
      never(),
    );
    if (process.platform === "linux") expect(openBelow(folder)).toBe(16);
    expect(filesBelow(folder)).toHaveLength(60);
    expect(idsBelow(folder)).toHaveLength(120);
  });

  test("a file is truncated to its old length when another file of the same write fails", async () => {
    const { folder, open: openSink } = setUp();
    const sink = await openSink();
    await sink.write([valueOn(0)], never());
    const fileHandle = await open(join(folder, filesBelow(folder)[0] ?? ""));
    const prototype = Object.getPrototypeOf(fileHandle) as FileHandle;
    await fileHandle.close();
    const error = Object.assign(new Error("ENOSPC"), { code: "ENOSPC" });
    const genuine = prototype.datasync;
    let syncCalls = 0;
    const datasync = vi.spyOn(prototype, "datasync").mockImplementation(function (this: FileHandle) {
      syncCalls += 1;
      return syncCalls === 2 ? Promise.reject(error) : genuine.call(this);
    });
    onTestFinished(() => datasync.mockRestore());
    const batch = [{ ...valueOn(0), id: "again" }, valueOn(1)];
    await expect(sink.write(batch, never())).rejects.toMatchObject({ kind: "retryable" });
    expect(idsBelow(folder)).toEqual([valueOn(0).id]);
    datasync.mockRestore();
    await sink.write(batch, never());
    expect(idsBelow(folder).toSorted()).toEqual([valueOn(0).id, "again", valueOn(1).id].toSorted());
  });
});

test("kill -9 at any moment loses no acknowledged line and leaves no incomplete line", async () => {
  const { folder, writeAndClose } = setUp({ gzip: true });
  const acknowledgedIds: string[] = [];
  for (let run = 0; run < 5; run += 1) {
    const options = { path: BY_DAY, gzip: true, max_file_mb: 0.005 };
    acknowledgedIds.push(...(await killWriter(folder, options, 40 + 17 * run, run)));
  }
  await writeAndClose();
  expect(new Set(listFileSuffixes(folder))).toEqual(new Set([".jsonl.gz"]));
  const written = new Set(idsBelow(folder));
  expect(acknowledgedIds.filter((id) => !written.has(id))).toEqual([]);
  expect(acknowledgedIds.length).toBeGreaterThan(300);
});

test("the SQL views of the README read each value with its type, whatever the type in the first line", async () => {
  const { folder, writeAndClose } = setUp({ gzip: true });
  const values = [null, true, 21.5, 3, false, -1e300];
  const points = values.map((value, n) => ({ time: `2026-11-0${1 + (n % 2)}T00:0${n}:00.000Z`, value }));
  const history = sampleEvent("tag-history", { data: { ...sampleEvent("tag-history").data, points } });
  await writeAndClose(...values.map((value, n) => valueEvent(n, "7", value)), history);
  await writeAndClose();
  const readme = readFileSync(join(import.meta.dirname, "../../connectors/file/README.md"), "utf8");
  const [, views = ""] = /```sql\n([^`]+)```/.exec(readme) ?? [];
  const connection = await (await DuckDBInstance.create(":memory:")).connect();
  await connection.run(`set file_search_path = '${dirname(folder)}'`);
  await connection.run(views);
  for (const view of ["tag_value", "tag_history"]) {
    const result = await connection.runAndReadAll(`select value_number, value_boolean from ${view} order by time`);
    expect(result.columnTypes().map(String)).toEqual(["DOUBLE", "BOOLEAN"]);
    const rows = result.getRows();
    const expected = values.map((value) => [
      typeof value === "number" ? value : null,
      typeof value === "boolean" ? value : null,
    ]);
    expect(rows.map((row) => JSON.stringify(row)).sort(), view).toEqual(
      expected.map((row) => JSON.stringify(row)).sort(),
    );
  }
  const partRows = await connection.runAndReadAll("select distinct part from tag_history order by part");
  expect(partRows.getRows()).toEqual([[1], [2]]);
  connection.closeSync();
});

test("the file sink compresses a file when the next file begins", async () => {
  const { folder, open } = setUpFolder({ gzip: true, max_file_mb: 0.001, max_total_mb: 1, keep_files: 3 });
  const sink = await open();
  for (let n = 0; n < 3; n += 1) await sink.write([valueEvent(2 * n), valueEvent(2 * n + 1)], never());
  await sink.close();
  expect(listFileSuffixes(folder)).toEqual([".jsonl.gz", ".jsonl.gz", ".jsonl"]);
  expect(idsBelow(folder)).toEqual([0, 1, 2, 3, 4, 5].map((n) => valueEvent(n).id));
  const reopenedSink = await open();
  for (const n of [6, 8]) await reopenedSink.write([valueEvent(n), valueEvent(n + 1)], never());
  await reopenedSink.close();
  expect(idsBelow(folder)).toEqual([4, 5, 6, 7, 8, 9].map((n) => valueEvent(n).id));
});

function monotonic(): Clock & { passMs(ms: number): void } {
  let passedMs = 0;
  return { ...systemClock, monotonic: () => passedMs, passMs: (ms) => (passedMs += ms) };
}

function valueOn(n: number): Event<"tag-value"> {
  const time = new Date(Date.UTC(2026, 0, 1 + n)).toISOString();
  return { ...valueEvent(n), time };
}

function listFileSuffixes(folder: string): readonly string[] {
  return filesBelow(folder).map((file) => /\.jsonl.*$/.exec(file)?.[0] ?? "");
}

function openBelow(folder: string): number {
  const openPaths = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(join("/proc/self/fd", fd));
    } catch {
      return "";
    }
  });
  return openPaths.filter((target) => target.startsWith(folder)).length;
}

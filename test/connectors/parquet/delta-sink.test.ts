import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createDeltaTableFormat, createVacuumSchedule } from "#connectors/parquet/delta-table-format.ts";
import { createFolderStore } from "#connectors/parquet/folder-store.ts";
import { buildWholeTablePartition, dayPartition } from "#connectors/parquet/lake-paths.ts";
import { createRowBuffer } from "#connectors/parquet/row-buffer.ts";
import type { StoredCompaction } from "#connectors/parquet/sink-state.ts";
import type { LakeTableFormat } from "#connectors/parquet/table-format.ts";
import { LAKE_TABLES, TAG_TABLE, TAG_VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { testFolder } from "../../test-resources.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { contextFor, never } from "../context.ts";
import { createMemoryStore, type Fault } from "./delta/memory-store.ts";
import { checkDeltaTable } from "./delta/strict-checker.ts";
import { filesIn, rowsIn } from "./duckdb-query.ts";
import {
  committedAt,
  copyOf,
  createEngine,
  createFolderEngine,
  daySealed,
  openS3,
  renamedTag,
  values,
} from "./engine.ts";
import { readObjects } from "./read-objects.ts";
import { inS3 } from "./s3-server.ts";

const HOUR_MS = 3_600_000;

describe("the Parquet sink with Delta tables", () => {
  test("the Parquet sink with Delta tables creates every table with all columns once, before the first event", async () => {
    const { engine, folder } = createDeltaEngine();
    await engine.sink.open(never());
    rmSync(join(folder, "_schemas.json"));
    engine.kill();
    await engine.sink.open(never());
    for (const { columns, rowPolicy, name } of LAKE_TABLES) {
      const verdict = checkDeltaTable(readObjects(join(folder, name)));
      const partitions = rowPolicy === "versions" ? [] : ["date", "site"];
      expect(verdict, name).toMatchObject({ faults: [], version: 0, files: new Map() });
      expect(verdict.columns).toEqual([...columns.map((column) => column.name), ...partitions]);
    }
  });

  test("the Parquet sink with Delta tables writes its writer id and the last event position into each commit", async () => {
    const { engine, folder } = createDeltaEngine({ max_rows: 2 });
    engine.log.push(valueEvent(1), valueEvent(2), sampleEvent("tag-added"), valueEvent(4));
    await engine.offer(2);
    await engine.offer(2);
    const [life] = [...(await engine.copy())].flatMap(([key, value]) =>
      key === "life" ? [(value as { id: string }).id] : [],
    );
    expect(judgedIn(folder, "value").txns).toEqual([`${life} 2`, `${life} 4`]);
    expect(judgedIn(folder, "tag").txns).toEqual([`${life} 4`]);
  });

  test("the Parquet sink with Delta tables replaces the file of a changed row in one commit", async () => {
    const { engine, folder } = createDeltaEngine();
    await engine.deliver(sampleEvent("tag-added"), sampleEvent("alarm-raised"));
    await engine.deliver(renamedTag("VS1-GT12"), sampleEvent("alarm-resolved"));
    for (const table of ["tag", "alarm_episode"]) {
      expect(judgedIn(folder, table)).toMatchObject({ version: 2, files: { size: 1 }, removed: { size: 1 } });
    }
    expect(await rowsIn(folder, "tag", "name", "ORDER BY valid_from")).toEqual([
      { name: "VS1-GT11" },
      { name: "VS1-GT12" },
    ]);
    await engine.redeliver();
    expect(judgedIn(folder, "tag").version).toBe(2);
  });

  test("the Parquet sink with Delta tables has each row of a finalized day exactly once in every version of the table", async () => {
    const { engine, folder } = createDeltaEngine({ max_rows: 5 });
    engine.log.push(...values(20));
    await engine.finish(5);
    await engine.deliver(daySealed());
    const verdict = judgedIn(folder, "value");
    expect([...verdict.files.values()]).toEqual([20]);
    expect(commitOf(folder, "value", verdict.version)).toEqual({ operation: "OPTIMIZE", dataChange: [false] });
    const manifest = JSON.parse(readFileSync(join(folder, "_manifests/site=1/date=2026-11-02.json"), "utf8"));
    expect(manifest.tables.value.files[0]).toMatchObject({ rows: 20, name: filesIn(folder, "value")[0] });
  });

  test("the Parquet sink with Delta tables removes duplicates of a finalized day after an older state was restored", async () => {
    const { engine, folder } = createDeltaEngine();
    engine.log.push(...values(3));
    await engine.offer(10);
    const copy = await engine.copy();
    await engine.finish();
    const restored = createEngine({ folder, table_format: "delta" }, copy);
    // The restored state is older than the lake.
    await restored.finish();
    const verdict = judgedIn(folder, "value");
    expect([...verdict.files.values()]).toEqual([3]);
    expect(commitOf(folder, "value", verdict.version).dataChange).toEqual([true]);
  });
});

describe("a commit of the Parquet sink to several Delta tables", () => {
  test("a commit to several Delta tables is completed after a crash between two tables, without duplicate rows or unreferenced files", async () => {
    const s3 = await openS3();
    const engine = createEngine(inS3(s3, { table_format: "delta", max_rows: 3 }));
    const events = [valueEvent(1), sampleEvent("audit-head"), sampleEvent("tag-added")];
    engine.log.push(...events);
    s3.fault = ({ method, key }) => (method === "PUT" && key.startsWith("worker_event/date=") ? "cut" : null);
    await expect(engine.offer(10)).rejects.toThrow();
    const puts = () => s3.requests.filter((asked) => /^PUT value\/date=/.test(asked)).length;
    expect(puts()).toBe(1);
    s3.fault = () => null;
    engine.kill();
    await engine.finish();
    expect(puts()).toBe(1);
    const folder = copyOf(s3);
    for (const table of ["value", "worker_event", "tag"]) expect(await rowsIn(folder, table)).toHaveLength(1);
  });

  test("a commit to several Delta tables never overwrites a file of an interrupted commit whose events have changed", async () => {
    const s3 = await openS3();
    const engine = createEngine(inS3(s3, { table_format: "delta", max_rows: 2 }));
    engine.log.push(valueEvent(1), valueEvent(2));
    s3.fault = ({ method, key }) => (method === "PUT" && key.endsWith("1.json") ? "cut" : null);
    await expect(engine.offer(10)).rejects.toThrow();
    const [before = ""] = [...s3.objects.keys()].filter((key) => key.startsWith("value/date="));
    s3.fault = () => null;
    s3.requests.length = 0;
    engine.dropped.add(1);
    await engine.deliver(valueEvent(3));
    expect(s3.requests.filter((asked) => asked === `PUT ${before}`)).toEqual([]);
    expect(s3.objects.has(before)).toBe(false);
  });
});

describe("an existing lake that the Parquet sink cannot continue", () => {
  test.each([
    ["plain", "delta"],
    ["delta", "plain"],
  ])("a lake with %s tables is refused by a sink for %s tables", async (there, wanted) => {
    const { engine, folder } = createDeltaEngine({ table_format: there });
    await engine.deliver(valueEvent(1));
    engine.kill({ folder, table_format: wanted });
    await expect(engine.sink.open(never())).rejects.toMatchObject({
      kind: "config",
      message: `The lake in ${folder} has table_format ${there}; the sink is to write ${wanted}.`,
      hint: expect.stringContaining(`table_format: ${there}`),
    });
  });

  test("a lake with Parquet files and without a Delta log is refused by a sink for Delta tables", async () => {
    const { engine, folder } = createDeltaEngine();
    mkdirSync(join(folder, "value"), { recursive: true });
    writeFileSync(join(folder, "value/of-somebody.parquet"), "PAR1");
    await expect(engine.sink.open(never())).rejects.toMatchObject({
      kind: "config",
      message: expect.stringMatching(/of-somebody\.parquet is there, and no Delta log that it belongs to/),
    });
  });

  test("a missing file that the Delta log lists stops the sink until the file is back", async () => {
    const { engine, folder } = createDeltaEngine();
    await engine.deliver(sampleEvent("tag-added"));
    const [file = ""] = filesIn(folder, "tag");
    const bytes = readFileSync(join(folder, file));
    rmSync(join(folder, file));
    engine.log.push(renamedTag("VS1-GT12"));
    await engine.offer(10);
    engine.pass(24 * HOUR_MS);
    await expect(engine.tick()).rejects.toMatchObject({
      kind: "config",
      message: `${join(folder, file)} is a file of its Delta table and is not there.`,
    });
    writeFileSync(join(folder, file), bytes);
    await engine.finish();
    expect(await rowsIn(folder, "tag")).toHaveLength(2);
  });
});

describe("the vacuum of Delta tables", () => {
  test("the vacuum of Delta tables removes replaced files after a week, and no active file", async () => {
    const folder = testFolder();
    const clock = createVirtualClock(NOON_MS);
    const store = createFolderStore(folder, 0o640);
    const format = createDeltaTableFormat(store, contextFor("lake", clock));
    const partition = dayPartition(TAG_VALUE_TABLE, "2026-11-02", "1");
    for (const n of [1, 2]) await commitEvent(format, n);
    await format.mergeFiles(partition, never());
    const lying = () => readObjects(folder).size;
    const before = lying();
    await look(HOUR_MS);
    await look(6 * 24 * HOUR_MS);
    expect(lying()).toBe(before);
    await look(25 * HOUR_MS);
    expect(lying()).toBe(before - 2);
    expect(await format.listFiles(partition, never())).toHaveLength(1);

    async function look(afterMs: number) {
      clock.suspend(afterMs);
      for (const _ of LAKE_TABLES) await format.vacuum?.(never());
    }
  });

  test("the vacuum of Delta tables runs 1 h after the start and then daily, but not within 1 h of a clock step", () => {
    const clock = createVirtualClock(NOON_MS);
    const time = createVacuumSchedule(clock);
    const dueAfter = (ms: number) => {
      clock.suspend(ms);
      return time.isVacuumDue();
    };
    expect([dueAfter(0), dueAfter(HOUR_MS - 1), dueAfter(1), dueAfter(1)]).toEqual([false, false, true, false]);
    expect([dueAfter(24 * HOUR_MS - 2), dueAfter(1)]).toEqual([false, true]);
    clock.stepWall(365 * 24 * HOUR_MS);
    expect([time.isTrusted(), dueAfter(HOUR_MS - 1), time.isTrusted()]).toEqual([false, false, false]);
    expect([dueAfter(1), time.isTrusted(), dueAfter(23 * HOUR_MS)]).toEqual([false, true, true]);
  });
});

describe("the commits of the Delta format", () => {
  function setUp(beforeCall: (call: string, key: string) => Fault | undefined) {
    const store = createMemoryStore((call, key) => beforeCall(call, key) ?? "none");
    const { sinkState, ...context } = contextFor("lake");
    const openFormat = () => createDeltaTableFormat(store, { ...context, sinkState });
    return {
      store,
      sinkState,
      openFormat,
      files: () => [...store.objects.keys()].filter((key) => key.endsWith(".parquet")),
    };
  }

  test("the file of a compaction that crashed before its commit is removed", async () => {
    let isCrashing = true;
    const { files, openFormat, sinkState } = setUp((call, key) =>
      isCrashing && call === "putIfAbsent" && key.endsWith("2.json") ? "refused" : undefined,
    );
    const partition = dayPartition(TAG_VALUE_TABLE, "2026-11-02", "1");
    const format = openFormat();
    for (const n of [1, 2]) await commitEvent(format, n);
    await expect(format.mergeFiles(partition, never())).rejects.toThrow(Retryable);
    const [compaction] = (await sinkState.get<readonly StoredCompaction[]>("compaction")) ?? [];
    expect(files()).toHaveLength(3);
    expect(files()).toContain(compaction?.result);
    isCrashing = false;
    const restarted = openFormat();
    await restarted.finishCompaction([{ result: compaction?.result ?? "", sources: [] }], never());
    expect(files()).toHaveLength(2);
    expect((await sinkState.all()).get("compaction")).toBeUndefined();
    await restarted.mergeFiles(partition, never());
    expect(await restarted.listFiles(partition, never())).toHaveLength(1);
  });

  test("a replacement is repeated when another writer changed the same rows before the commit", async () => {
    const otherCommit = "tag/_delta_log/00000000000000000001.json";
    const { files, openFormat, store } = setUp((call, key) => {
      if (call !== "put" || key !== "tag/n-2.parquet" || store.objects.has(otherCommit)) return undefined;
      const path = firstFile.slice("tag/".length);
      store.write(otherCommit, JSON.stringify({ remove: { path, deletionTimestamp: 1, dataChange: true } }));
      return undefined;
    });
    const format = openFormat();
    await commitEvent(format, 1, sampleEvent("tag-added"));
    const [firstFile = ""] = files();
    await commitEvent(format, 2, renamedTag("VS1-GT12"));
    const activeKeys = (await format.listFiles(buildWholeTablePartition(TAG_TABLE), never())).map(({ key }) => key);
    expect(activeKeys).toHaveLength(1);
    expect(files().filter((key) => key !== firstFile)).toEqual(activeKeys);
  });
});

async function commitEvent(format: LakeTableFormat, n: number, event: Event = valueEvent(n)): Promise<void> {
  const buffer = createRowBuffer();
  buffer.addEvent(event, n, committedAt(n));
  const rows = { batches: buffer.batches(), updatedPartitions: buffer.updatedPartitions() };
  await format.commit({ ...rows, name: `n-${n}`, writerPosition: null, uploaded: new Map() }, never());
}

const createDeltaEngine = (config: Record<string, unknown> = {}) =>
  createFolderEngine({ table_format: "delta", ...config });

function judgedIn(folder: string, table: string) {
  const verdict = checkDeltaTable(readObjects(join(folder, table)));
  expect(verdict.faults).toEqual([]);
  return verdict;
}

function commitFile(folder: string, table: string, version: number): string {
  return join(folder, table, "_delta_log", `${String(version).padStart(20, "0")}.json`);
}

function commitOf(folder: string, table: string, version: number) {
  const actions = readFileSync(commitFile(folder, table, version), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  return {
    operation: actions.find(({ commitInfo }) => commitInfo)?.commitInfo.operation as string,
    dataChange: [...new Set(actions.flatMap(({ add, remove }) => (add ?? remove)?.dataChange ?? []))],
  };
}

const NOON_MS = Date.parse("2026-11-21T12:00:00.000Z");

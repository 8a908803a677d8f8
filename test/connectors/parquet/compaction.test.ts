import { expect, onTestFinished, test } from "vitest";
import { S3Config } from "#connectors/parquet/config.ts";
import { dayPartition } from "#connectors/parquet/lake-paths.ts";
import { createPlainTableFormat } from "#connectors/parquet/plain-table-format.ts";
import { createS3Store } from "#connectors/parquet/s3-store.ts";
import { loadSinkState } from "#connectors/parquet/sink-state.ts";
import { TAG_VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { valueEvent } from "../../sample-events.ts";
import { contextFor, never } from "../context.ts";
import { filesIn, rowsIn } from "./duckdb-query.ts";
import { copyOf, createEngine, openS3 } from "./engine.ts";
import { inS3 } from "./s3-server.ts";

test("compaction merges a large day into several files, and completes after an interruption", async () => {
  const s3 = await openS3();
  const engine = createEngine(inS3(s3, { max_rows: 6 }));
  engine.log.push(...Array.from({ length: 24 }, (_, n) => valueEvent(n, `1004${n % 3}`)));
  while ((await engine.offer(6)) > 0);
  const partition = dayPartition(TAG_VALUE_TABLE, "2026-11-02", "1");
  const { folder } = partition;
  expect(keysIn(folder)).toHaveLength(4);
  const context = contextFor("other");
  const store = createS3Store(S3Config.parse(inS3(s3).s3), systemClock);
  onTestFinished(() => store.close());
  const format = createPlainTableFormat(store, { sinkState: context.sinkState, clock: systemClock }, 12);
  s3.fault = ({ method, key }) => (method === "PUT" && key.startsWith(`${folder}day-`) ? "cut afterwards" : null);
  await expect(format.mergeFiles(partition, never())).rejects.toThrow();
  s3.fault = () => null;
  // Readers see the rows of the new file twice.
  expect((await seen()).map(({ rows, ids }) => [rows, ids])).toEqual([[36, 24]]);
  const { compactions } = await loadSinkState(context, store, never());
  expect(compactions.map(({ sources }) => sources.length)).toEqual([2]);
  await format.finishCompaction(compactions, never());
  expect(await seen()).toEqual([{ rows: 24, ids: 24 }]);
  expect((await loadSinkState(context, store, never())).compactions).toEqual([]);
  await format.mergeFiles(partition, never());
  expect(await seen()).toEqual([{ rows: 24, ids: 24 }]);
  expect(keysIn(folder)).toEqual([expect.stringContaining("/day-"), expect.stringContaining("/day-")]);

  function keysIn(start: string) {
    return [...s3.objects.keys()].filter((key) => key.startsWith(start));
  }

  async function seen() {
    const path = copyOf(s3);
    expect(filesIn(path, "value").length).toBeGreaterThan(0);
    return rowsIn(path, "value", "count(*)::INTEGER AS rows, count(DISTINCT event_id)::INTEGER AS ids");
  }
});

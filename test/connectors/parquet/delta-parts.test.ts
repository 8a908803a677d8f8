import { expect, test } from "vitest";
import { createDeltaFormat } from "#connectors/parquet/delta-format.ts";
import { toPartition, undividedPartition } from "#connectors/parquet/paths.ts";
import { createRowBuffer } from "#connectors/parquet/row-buffer.ts";
import type { StoredCompaction } from "#connectors/parquet/sink-state.ts";
import { TAG_TABLE, VALUE_TABLE } from "#connectors/shared/lake/tables.ts";
import { Retryable } from "#src/core/errors/errors.ts";
import type { Event } from "#src/core/model/event.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { contextFor, never } from "../context.ts";
import { createMemoryStore, type Fault } from "./delta/memory-store.ts";
import { committedAt } from "./engine.ts";

const PARTITION = toPartition(VALUE_TABLE, "2026-11-02", "1");

function setUp() {
  const faults = new Map<string, Fault>();
  let before: (call: string, key: string) => void = () => undefined;
  const store = createMemoryStore((call, key) => {
    before(call, key);
    return faults.get(`${call} ${key}`) ?? "none";
  });
  const context = contextFor("lake");
  const format = createDeltaFormat(store, context);
  return {
    ...{ faults, store, format, memory: context.sinkState },
    beforeEach(action: (call: string, key: string) => void) {
      before = action;
    },
    async land(n: number, event: Event = valueEvent(n)): Promise<void> {
      const buffer = createRowBuffer();
      buffer.add(event, n, committedAt(n));
      const rows = { batches: buffer.batches(), changes: buffer.changes() };
      await format.commit({ ...rows, name: `n-${n}`, positions: null, uploaded: new Map() }, never());
    },
    files: () => [...store.objects.keys()].filter((key) => key.endsWith(".parquet")),
  };
}

test("the file of a compaction that crashed before its commit is removed", async () => {
  const { faults, files, format, land, memory, store } = setUp();
  await land(1);
  await land(2);
  faults.set("putIfAbsent value/_delta_log/00000000000000000002.json", "refused");
  await expect(format.compact(PARTITION, never())).rejects.toThrow(Retryable);
  const [compaction] = (await memory.get<readonly StoredCompaction[]>("compaction")) ?? [];
  expect(files()).toHaveLength(3);
  expect(files()).toContain(compaction?.result);
  faults.clear();
  const next = createDeltaFormat(store, { ...contextFor("lake"), sinkState: memory });
  await next.finishCompaction([{ result: compaction?.result ?? "", sources: [] }], never());
  expect(files()).toHaveLength(2);
  expect((await memory.all()).get("compaction")).toBeUndefined();
  await next.compact(PARTITION, never());
  expect(await next.filesOf(PARTITION, never())).toHaveLength(1);
});

test("a replacement is repeated when another writer changed the same rows before the commit", async () => {
  const { beforeEach, files, format, land, store } = setUp();
  await land(1, sampleEvent("tag-added"));
  const [first = ""] = files();
  const commit = "tag/_delta_log/00000000000000000001.json";
  beforeEach((call, key) => {
    if (call !== "put" || key !== "tag/n-2.parquet" || store.objects.has(commit)) return;
    const path = first.slice("tag/".length);
    store.write(commit, JSON.stringify({ remove: { path, deletionTimestamp: 1, dataChange: true } }));
  });
  const { data, ...changed } = sampleEvent("tag-changed", { time: "2026-11-03T00:00:00.000Z" });
  await land(2, { ...changed, data: { ...data, tag: { ...data.tag, displayName: "VS1-GT12" } } } as Event);
  const there = (await format.filesOf(undividedPartition(TAG_TABLE), never())).map(({ key }) => key);
  expect(there).toHaveLength(1);
  expect(files().filter((key) => key !== first)).toEqual(there);
});

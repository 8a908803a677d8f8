import { expect, test } from "vitest";
import type { DeltaLogAction } from "#connectors/parquet/delta/log-format.ts";
import { buildDeltaMetaData, WRITTEN_DELTA_PROTOCOL } from "#connectors/parquet/delta/schema.ts";
import {
  applyDeltaActions,
  createEmptySnapshot,
  encodeDeltaCheckpoint,
  parseCheckpoint,
} from "#connectors/parquet/delta/snapshot.ts";
import { countLoopTicks } from "../engine.ts";
import { METER } from "./meter-table.ts";

const FILES = 3_000;

function manyFiles() {
  const snapshot = createEmptySnapshot();
  const partitionValues = { date: "2026-11-21", site: null };
  const path = (n: number) => `date=2026-11-21/site=none/${n}.parquet`;
  const added = Array.from({ length: FILES }, (_, n): DeltaLogAction => {
    const stats = JSON.stringify({ numRecords: n, nullCount: { value: n } });
    const add = { path: path(n), partitionValues, size: n + 1, modificationTime: n, dataChange: true, stats };
    return { add: n % 2 === 0 ? add : { ...add, tags: { by: "somebody" } } };
  });
  const removed = added.flatMap((_, n): readonly DeltaLogAction[] =>
    n % 3 === 0 ? [{ remove: { path: path(n), deletionTimestamp: n, dataChange: true } }] : [],
  );
  const metaData = buildDeltaMetaData(METER, "5b0f9a2e-4f0f-4b5e-8d4e-0c7d3c8d7c11", 7);
  applyDeltaActions(snapshot, 0, [{ protocol: WRITTEN_DELTA_PROTOCOL }, { metaData }, ...added], true);
  applyDeltaActions(snapshot, 1, [...removed, { txn: { appId: "app", version: 2 ** 40, lastUpdated: 9 } }], true);
  return snapshot;
}

test("a checkpoint of a Delta table with many files restores the same snapshot", async () => {
  const snapshot = manyFiles();
  const { bytes, size } = await encodeDeltaCheckpoint(snapshot);
  const actions = await parseCheckpoint(bytes, "checkpoint");
  expect(actions).toHaveLength(size);
  expect(size).toBe(2 + 1 + FILES);
  expect(actions.flatMap(({ add, remove }) => add ?? remove ?? []).every(({ dataChange }) => !dataChange)).toBe(true);
  const again = createEmptySnapshot();
  applyDeltaActions(again, 1, actions, true);
  const stripped = (value: unknown) =>
    JSON.parse(JSON.stringify(value, (key, of) => (of === null && key !== "site" ? undefined : of)));
  for (const [path, add] of snapshot.files) {
    expect(stripped(again.files.get(path))).toEqual({ ...add, dataChange: false });
  }
  expect([...again.tombstones.keys()]).toEqual([...snapshot.tombstones.keys()]);
  expect(again.txns).toEqual(snapshot.txns);
  expect(stripped(again.metaData)).toEqual(stripped(snapshot.metaData));
  expect(again.protocol).toEqual(WRITTEN_DELTA_PROTOCOL);
});

test("writing and reading a Delta checkpoint yields to the event loop", async () => {
  const { bytes } = await encodeDeltaCheckpoint(manyFiles());
  expect(await countLoopTicks(() => encodeDeltaCheckpoint(manyFiles()))).toBeGreaterThan(FILES / 1_000);
  expect(await countLoopTicks(() => parseCheckpoint(bytes, "checkpoint"))).toBeGreaterThan(FILES / 1_000);
});

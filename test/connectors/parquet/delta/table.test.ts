import { describe, expect, test } from "vitest";
import { checkpointFileName, commitFileName } from "#connectors/parquet/delta/log-format.ts";
import { createMemoryStore, type Fault, type MemoryStore } from "./memory-store.ts";
import {
  ADDED,
  actionsOf,
  createMeter,
  LOG,
  METER_WITH_UNIT,
  openMeter,
  REARRANGED,
  reading,
  START_MS,
  writtenFile,
} from "./meter-table.ts";
import { checkDeltaTable, type Verdict } from "./strict-checker.ts";

const signal = new AbortController().signal;
const DAY_MS = 86_400_000;

function verdictOf(store: MemoryStore): Verdict {
  const objects = [...store.objects].map(([key, bytes]) => [key.slice("meter/".length), bytes] as const);
  const verdict = checkDeltaTable(new Map(objects));
  expect(verdict.faults).toEqual([]);
  return verdict;
}

async function withThreeFiles() {
  const { store, table } = createMeter();
  const a = await writtenFile(store, "a", [reading(1)]);
  const b = await writtenFile(store, "b", [reading(2)]);
  const c = await writtenFile(store, "c", [reading(3)], { site: "2" });
  await table.commit({ ...ADDED, add: [a, b, c] }, signal);
  const both = await writtenFile(store, "ab", [reading(1), reading(2)]);
  return { store, table, other: openMeter(store), a, b, c, both };
}

describe("a Delta table", () => {
  test("a Delta table is created once without rows, and new columns are added later", async () => {
    const store = createMemoryStore();
    await openMeter(store).createIfMissing(signal);
    await openMeter(store).createIfMissing(signal);
    expect(verdictOf(store)).toMatchObject({ version: 0, files: new Map() });
    const later = openMeter(store, { table: METER_WITH_UNIT });
    await later.createIfMissing(signal);
    await later.createIfMissing(signal);
    expect(verdictOf(store)).toMatchObject({ version: 1, columns: expect.arrayContaining(["unit"]) });
  });

  test("a Delta table reports which of the given files its log never mentioned", async () => {
    const { store, table } = createMeter();
    const [a, b, c] = await Promise.all(["a", "b", "c"].map((name, n) => writtenFile(store, name, [reading(n)])));
    if (a === undefined || b === undefined || c === undefined) throw new Error("unreachable");
    await table.commit({ ...ADDED, add: [a, b] }, signal);
    await table.commit({ ...ADDED, remove: [b.key] }, signal);
    expect(await openMeter(store).findUnreferencedKeys([a.key, b.key, c.key], signal)).toEqual([c.key]);
  });
});

describe("a commit to a Delta table", () => {
  test("a commit to a Delta table creates the table and logs protocol, schema, transaction and statistics", async () => {
    const { store, table } = createMeter();
    expect(await table.readActiveFiles(signal)).toEqual({ version: -1, files: [] });
    const file = await writtenFile(store, "a-1-3", [reading(1), reading(2), reading(3)]);
    const txn = { appId: "worker/life", version: 3 };
    expect(await table.commit({ ...ADDED, add: [file], txn }, signal)).toBe("committed");
    const [commitInfo, protocol, metaData, told, added] = actionsOf(store, 0);
    expect(commitInfo.commitInfo).toMatchObject({ operation: "WRITE", isBlindAppend: true });
    expect(commitInfo.commitInfo).not.toHaveProperty("readVersion");
    expect(protocol).toEqual({ protocol: { minReaderVersion: 1, minWriterVersion: 2 } });
    expect(metaData.metaData).toMatchObject({ name: "meter", partitionColumns: ["date", "site"] });
    const { fields } = JSON.parse(metaData.metaData.schemaString);
    expect(fields.map(({ name, type }: Record<string, unknown>) => `${name} ${type}`)).toEqual([
      "meter_id string",
      "time timestamp",
      "value double",
      "is_open boolean",
      "position long",
      "data string",
      "date date",
      "site string",
    ]);
    expect(told).toEqual({ txn: { ...txn, lastUpdated: START_MS } });
    expect(added.add).toMatchObject({
      path: "date=2026-11-21/site=1/a-1-3.parquet",
      partitionValues: { date: "2026-11-21", site: "1" },
      size: file.bytes,
      dataChange: true,
    });
    expect(JSON.parse(added.add.stats)).toEqual({
      numRecords: 3,
      minValues: { meter_id: "meter 0", time: "2026-11-21T10:00:01.123Z", value: 0.25, position: 1 },
      maxValues: { meter_id: "meter 2", time: "2026-11-21T10:00:03.123Z", value: 0.75, position: 3 },
      nullCount: { meter_id: 0, time: 0, value: 0, is_open: 0, position: 0, data: 3 },
    });
    expect(await table.readActiveFiles(signal)).toEqual({
      version: 0,
      files: [{ key: file.key, bytes: file.bytes, rows: 3, partitionValues: file.partitionValues }],
    });
    verdictOf(store);
  });

  test("a commit to a Delta table is not repeated by the same or a restarted worker, nor with a lower transaction version", async () => {
    const store = createMemoryStore();
    const add = [await writtenFile(store, "a", [reading(1)])];
    const table = openMeter(store);
    expect(await table.readLastTxnVersion("app", signal)).toBeNull();
    await table.commit({ ...ADDED, add, txn: { appId: "app", version: 7 } }, signal);
    for (const again of [table, openMeter(store)]) {
      expect(await again.readLastTxnVersion("app", signal)).toBe(7);
      for (const version of [7, 6]) {
        const committed = await again.commit({ ...ADDED, add, txn: { appId: "app", version } }, signal);
        expect(committed).toBe("done-before");
      }
    }
    expect(await table.readLastTxnVersion("another", signal)).toBeNull();
    expect(verdictOf(store)).toMatchObject({ version: 0, txns: ["app 7"] });
  });

  test("a commit to a Delta table takes the next version when another writer has committed first", async () => {
    const store = createMemoryStore();
    const [one, two] = [openMeter(store), openMeter(store)];
    await one.commit({ ...ADDED, add: [await writtenFile(store, "a", [reading(1)])] }, signal);
    await two.readActiveFiles(signal);
    await one.commit({ ...ADDED, add: [await writtenFile(store, "b", [reading(2)])] }, signal);
    const both = await Promise.all([
      one.commit({ ...ADDED, add: [await writtenFile(store, "c", [reading(3)])] }, signal),
      two.commit({ ...ADDED, add: [await writtenFile(store, "d", [reading(4)])] }, signal),
    ]);
    expect(both).toEqual(["committed", "committed"]);
    expect(verdictOf(store)).toMatchObject({ version: 3, files: { size: 4 } });
  });

  test.each<Fault>(["answer lost", "denied"])(
    "a commit to a Delta table is recognized by its content when the response to the put is lost or wrong (%s)",
    async (fault) => {
      const faults = [fault];
      const store = createMemoryStore((call) => (call === "putIfAbsent" ? (faults.shift() ?? "none") : "none"));
      const table = openMeter(store);
      const add = [await writtenFile(store, "a", [reading(1)])];
      expect(await table.commit({ ...ADDED, add }, signal)).toBe("committed");
      expect(await table.commit({ ...REARRANGED, remove: [], add: [] }, signal)).toBe("committed");
      expect(verdictOf(store)).toMatchObject({ version: 1, files: { size: 1 } });
    },
  );

  test("a commit to a Delta table is found by its transaction at the next attempt when the put and the look-up failed", async () => {
    let isAway = true;
    const store = createMemoryStore((call, key) => {
      if (!isAway || !key.endsWith(commitFileName(0))) return "none";
      return call === "putIfAbsent" ? "answer lost" : call === "get" ? "refused" : "none";
    });
    const table = openMeter(store);
    const add = [await writtenFile(store, "a", [reading(1)])];
    const change = { ...ADDED, add, txn: { appId: "app", version: 1 } };
    await expect(table.commit(change, signal)).rejects.toThrow("The answer to putIfAbsent");
    isAway = false;
    for (const again of [table, openMeter(store), table])
      expect(await again.commit(change, signal)).toBe("done-before");
    expect(verdictOf(store)).toMatchObject({ version: 0, txns: ["app 1"] });
  });

  test("a commit to a Delta table encodes file names and site ids, and finds the files again", async () => {
    const { store, table } = createMeter();
    const odd = await writtenFile(store, "50 % blåbær #1", [reading(1)], { site: "a/b c" });
    const nowhere = await writtenFile(store, "none", [reading(2)], { site: null });
    await table.commit({ ...ADDED, add: [odd, nowhere] }, signal);
    const added = actionsOf(store, 0).flatMap(({ add }) => add ?? []);
    expect(added[0]).toMatchObject({
      path: "date=2026-11-21/site=a%252Fb%2520c/50%20%25%20bl%C3%A5b%C3%A6r%20%231.parquet",
      partitionValues: { date: "2026-11-21", site: "a/b c" },
    });
    expect(added[1].partitionValues.site).toBeNull();
    const { files } = await openMeter(store).readActiveFiles(signal);
    expect(files.map(({ key }) => key)).toEqual([odd.key, nowhere.key]);
    await table.commit({ ...ADDED, remove: [odd.key] }, signal);
    expect((await table.readActiveFiles(signal)).files.map(({ key }) => key)).toEqual([nowhere.key]);
    verdictOf(store);
  });

  test("a commit to a Delta table throws for a file name that is already in the table", async () => {
    const { store, table } = createMeter();
    const add = [await writtenFile(store, "a", [reading(1)])];
    await table.commit({ ...ADDED, add }, signal);
    await expect(table.commit({ ...ADDED, add }, signal)).rejects.toThrow("may not be used twice");
  });
});

describe("concurrent commits of other writers to a Delta table", () => {
  test("concurrent commits of other writers are read with one list request, and each new commit is read once", async () => {
    const store = createMemoryStore();
    const [table, other] = [openMeter(store), openMeter(store)];
    for (const name of ["a", "b", "c"])
      await table.commit({ ...ADDED, add: [await writtenFile(store, name, [reading(1)])] }, signal);
    for (const name of ["d", "e"])
      await other.commit({ ...ADDED, add: [await writtenFile(store, name, [reading(1)])] }, signal);
    const { list, get } = store.calls;
    expect(await table.readActiveFiles(signal)).toMatchObject({ version: 4, files: { length: 5 } });
    expect([store.calls.list - list, store.calls.get - get]).toEqual([1, 2]);
  });

  test("concurrent commits that only add files do not stop a compaction, which is logged as no data change", async () => {
    const { store, table, other, a, b, both } = await withThreeFiles();
    await other.commit({ ...ADDED, add: [await writtenFile(store, "d", [reading(4)])] }, signal);
    const compacted = { ...REARRANGED, add: [both], remove: [a.key, b.key] };
    expect(await table.commit(compacted, signal)).toBe("committed");
    const [{ commitInfo }, ...actions] = actionsOf(store, 2);
    expect(commitInfo).toMatchObject({ operation: "OPTIMIZE", readVersion: 1, isBlindAppend: false });
    expect(actions.map(({ add, remove }) => (add ?? remove).dataChange)).toEqual([false, false, false]);
    expect(actions[0].remove).toMatchObject({ deletionTimestamp: START_MS, size: a.bytes });
    expect([...verdictOf(store).files.values()].toSorted()).toEqual([1, 1, 2]);
  });

  test("concurrent commits of other writers are a conflict when they removed a file that should be replaced", async () => {
    const { store, table, other, a, b, both } = await withThreeFiles();
    await table.readActiveFiles(signal);
    await other.commit({ ...ADDED, remove: [b.key] }, signal);
    expect(await table.commit({ ...REARRANGED, add: [both], remove: [a.key, b.key] }, signal)).toBe("conflict");
    expect(verdictOf(store)).toMatchObject({ version: 1 });
  });

  test("concurrent commits of other writers are a conflict after changes to rows of the same day and site", async () => {
    const { store, table, other, c } = await withThreeFiles();
    const small = await writtenFile(store, "d", [reading(4)], { site: "2" });
    await table.commit({ ...ADDED, add: [small] }, signal);
    const { version: basedOn } = await table.readActiveFiles(signal);
    const merge = { ...ADDED, operation: "MERGE", basedOn } as const;
    const elsewhere = await writtenFile(store, "e", [reading(5)], { site: "3" });
    await other.commit({ ...ADDED, add: [elsewhere] }, signal);
    const same = await writtenFile(store, "d2", [reading(4)], { site: "2" });
    await other.commit({ ...REARRANGED, add: [same], remove: [small.key] }, signal);
    const next = await writtenFile(store, "c2", [reading(6)], { site: "2" });
    expect(await table.commit({ ...merge, add: [next], remove: [c.key] }, signal)).toBe("committed");
    expect(verdictOf(store).version).toBe(4);
    const again = { ...merge, add: [await writtenFile(store, "c3", [reading(7)], { site: "2" })] };
    expect(await other.commit(again, signal)).toBe("conflict");
    expect(await other.commit({ ...again, basedOn: 4 }, signal)).toBe("committed");
    const late = { ...merge, add: [await writtenFile(store, "f", [reading(8)], { site: "9" })] };
    await openMeter(store, { checkpointEvery: 1 }).commit({ ...ADDED, add: [] }, signal);
    expect(await openMeter(store).commit(late, signal)).toBe("conflict");
    verdictOf(store);
  });
});

test.each([
  ["a removal with partition values", { partitionValues: { date: "2026-11-21", site: "1" } }, true],
  ["a removal without partition values, as the protocol allows", {}, true],
  ["a removal in another site", { partitionValues: { date: "2026-11-21", site: "2" } }, false],
  ["a removal by a compaction", { dataChange: false }, false],
])("a merge conflicts only with a data removal in its day and site: %s", async (_, more, isConflict) => {
  const { store, table, b } = await withThreeFiles();
  const { version: basedOn } = await table.readActiveFiles(signal);
  const [gone, elsewhere] = ["date=2026-11-21/site=1/a.parquet", "date=2026-11-21/site=2/c.parquet"];
  const path = "partitionValues" in more && more.partitionValues.site === "2" ? elsewhere : gone;
  const remove = { path, deletionTimestamp: 1, dataChange: true, ...more };
  store.write(`${LOG}${commitFileName(1)}`, `${JSON.stringify({ remove })}\n`);
  const add = [await writtenFile(store, "b2", [reading(2)])];
  const merge = { ...ADDED, operation: "MERGE", add, remove: [b.key], basedOn } as const;
  expect(await table.commit(merge, signal)).toBe(isConflict ? "conflict" : "committed");
});

describe("checkpoints of a Delta table", () => {
  async function filled(versions: number, checkpointEvery: number) {
    const store = createMemoryStore();
    const table = openMeter(store, { checkpointEvery });
    for (let n = 0; n < versions; n += 1) {
      const add = [await writtenFile(store, `f${n}`, [reading(n)], { site: n % 2 === 0 ? "1" : null })];
      const remove = n === 2 ? ["meter/date=2026-11-21/site=1/f0.parquet"] : [];
      await table.commit({ ...ADDED, add, remove, txn: { appId: `app ${n % 2}`, version: n } }, signal);
    }
    return { store, table };
  }

  test("checkpoints of a Delta table are written every checkpointEvery versions, with the same content as the log", async () => {
    const { store, table } = await filled(8, 3);
    const checkpoints = [...store.objects.keys()].filter((key) => key.includes("checkpoint.parquet"));
    expect(checkpoints).toEqual([`${LOG}${checkpointFileName(3)}`, `${LOG}${checkpointFileName(6)}`]);
    expect(JSON.parse(store.text(`${LOG}_last_checkpoint`))).toEqual({
      version: 6,
      size: 11,
      sizeInBytes: store.objects.get(`${LOG}${checkpointFileName(6)}`)?.length,
      numOfAddFiles: 6,
    });
    const wanted = await table.readActiveFiles(signal);
    expect(wanted.files).toHaveLength(7);
    for (let version = 0; version < 6; version += 1) await store.remove(`${LOG}${commitFileName(version)}`, signal);
    for (const key of [`${LOG}${checkpointFileName(3)}`, "none"]) await store.remove(key, signal);
    for (const hint of [null, "no JSON", JSON.stringify({ version: 3 }), JSON.stringify({ version: 99 })]) {
      if (hint !== null) store.write(`${LOG}_last_checkpoint`, hint);
      const reader = openMeter(store);
      expect(await reader.readActiveFiles(signal)).toEqual(wanted);
      expect(await reader.readLastTxnVersion("app 0", signal)).toBe(6);
      expect(await reader.readLastTxnVersion("app 1", signal)).toBe(7);
    }
    expect(await table.readActiveFiles(signal)).toEqual(wanted);
  });

  test("a checkpoint that cannot be written is logged, and the commit remains valid", async () => {
    const store = createMemoryStore((call) => (call === "put" ? "refused" : "none"));
    const table = openMeter(store, { checkpointEvery: 1 });
    for (const _ of [0, 1, 2]) expect(await table.commit(ADDED, signal)).toBe("committed");
    expect(verdictOf(store).version).toBe(2);
    expect(table.warnings).toHaveLength(2);
    expect(table.warnings[0]).toContain("the table is whole");
  });

  test("a checkpoint in several parts is read when all parts exist", async () => {
    const { store } = await filled(5, 4);
    const whole = store.objects.get(`${LOG}${checkpointFileName(4)}`) ?? new Uint8Array();
    const part = (n: number) => `${LOG}00000000000000000004.checkpoint.000000000${n}.0000000002.parquet`;
    await store.remove(`${LOG}${checkpointFileName(4)}`, signal);
    store.write(part(1), whole);
    for (const version of [0, 1, 2, 3]) await store.remove(`${LOG}${commitFileName(version)}`, signal);
    await expect(openMeter(store).readActiveFiles(signal)).rejects.toThrow("has a hole");
    store.write(part(2), whole);
    expect((await openMeter(store).readActiveFiles(signal)).files).toHaveLength(4);
  });
});

describe("the vacuum of a Delta table", () => {
  test("the vacuum of a Delta table deletes only files that were removed from the table before the retention period", async () => {
    const store = createMemoryStore();
    let nowMs = START_MS;
    const table = openMeter(store, { now: () => nowMs, checkpointEvery: 3 });
    const a = await writtenFile(store, "a", [reading(1)]);
    const b = await writtenFile(store, "b", [reading(2)]);
    const c = await writtenFile(store, "c", [reading(3)]);
    await table.commit({ ...ADDED, add: [a, b, c] }, signal);
    await table.commit({ ...ADDED, remove: [a.key] }, signal);
    nowMs += 7 * DAY_MS;
    await table.commit({ ...ADDED, remove: [b.key] }, signal);
    expect(await table.vacuum(signal)).toBe(0);
    nowMs += 1;
    expect(await table.vacuum(signal)).toBe(1);
    expect([a, b, c].map(({ key }) => store.objects.has(key))).toEqual([false, true, true]);
    expect(await table.vacuum(signal)).toBe(0);
    nowMs += 7 * DAY_MS;
    await table.commit(ADDED, signal);
    expect(store.objects.has(`${LOG}${checkpointFileName(3)}`)).toBe(true);
    expect([a, b, c].map(({ key }) => store.objects.has(key))).toEqual([false, false, true]);
    expect(JSON.parse(store.text(`${LOG}_last_checkpoint`))).toMatchObject({ size: 3, numOfAddFiles: 1 });
    expect(await openMeter(store, { now: () => nowMs }).vacuum(signal)).toBe(0);
  });

  test.each([
    ["interval 30 days", 30],
    ["interval 2 weeks", 14],
    ["INTERVAL 691200 SECONDS", 8],
    ["9 days", 9],
    ["interval 1 hour", 7],
    ["for ever", 7],
  ])(
    "the vacuum of a Delta table respects the retention that the table's owner configured: %s",
    async (interval, days) => {
      const store = createMemoryStore();
      let nowMs = START_MS;
      const a = await writtenFile(store, "a", [reading(1)]);
      await openMeter(store).commit({ ...ADDED, add: [a] }, signal);
      const [commit] = actionsOf(store, 0).flatMap(({ metaData }) => metaData ?? []);
      const metaData = { ...commit, configuration: { "delta.deletedFileRetentionDuration": interval } };
      store.write(`${LOG}${commitFileName(1)}`, `${JSON.stringify({ metaData })}\n`);
      const table = openMeter(store, { now: () => nowMs });
      await table.commit({ ...ADDED, remove: [a.key] }, signal);
      nowMs += days * DAY_MS;
      expect(await table.vacuum(signal)).toBe(0);
      nowMs += 1;
      expect(await table.vacuum(signal)).toBe(1);
    },
  );

  test("the vacuum of a Delta table deletes at most the given number of files", async () => {
    const store = createMemoryStore();
    const files = await Promise.all([1, 2, 3].map((n) => writtenFile(store, `a-${n}`, [reading(n)])));
    await openMeter(store).commit({ ...ADDED, add: files }, signal);
    await openMeter(store).commit({ ...ADDED, remove: files.map(({ key }) => key) }, signal);
    const table = openMeter(store, { now: () => START_MS + 8 * DAY_MS });
    expect(await table.vacuum(signal, 2)).toBe(2);
    expect(await table.vacuum(signal, 2)).toBe(1);
    expect(files.filter(({ key }) => store.objects.has(key))).toEqual([]);
  });

  test("the vacuum of a Delta table keeps files outside the table's folder", async () => {
    const store = createMemoryStore();
    store.write("other/file.parquet", "of somebody else");
    await openMeter(store).commit(ADDED, signal);
    const paths = ["../other/file.parquet", "s3://bucket/other/file.parquet", "/other/file.parquet"];
    const removed = paths.map((path) => JSON.stringify({ remove: { path, deletionTimestamp: 1, dataChange: true } }));
    store.write(`${LOG}${commitFileName(1)}`, removed.join("\n"));
    const before = store.calls.remove;
    expect(await openMeter(store).vacuum(signal)).toBe(0);
    expect(store.calls.remove).toBe(before);
  });
});

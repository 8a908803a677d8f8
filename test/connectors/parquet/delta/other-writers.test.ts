import { describe, expect, test } from "vitest";
import { commitFileName } from "#connectors/parquet/delta/log-format.ts";
import { ConfigError, errorText } from "#src/core/errors/errors.ts";
import { createMemoryStore, type MemoryStore } from "./memory-store.ts";
import { ADDED, actionsOf, LOG, METER_WITH_UNIT, openMeter, reading, writtenFile } from "./meter-table.ts";

const signal = new AbortController().signal;

interface Field {
  readonly name: string;
  readonly type: unknown;
  readonly nullable: boolean;
  readonly metadata: object;
}

const metaDataIn = (store: MemoryStore, version: number) =>
  actionsOf(store, version).find(({ metaData }) => metaData !== undefined).metaData;

async function made() {
  const store = createMemoryStore();
  const file = await writtenFile(store, "a", [reading(1)]);
  await openMeter(store).commit({ ...ADDED, add: [file] }, signal);
  const metaData = metaDataIn(store, 0);
  const { fields } = JSON.parse(metaData.schemaString) as { readonly fields: readonly Field[] };
  return { store, file, metaData, fields };
}

function append(store: MemoryStore, ...actions: readonly object[]): void {
  const versions = [...store.objects.keys()].filter((key) => key.endsWith(".json")).length;
  const lines = actions.map((action) => JSON.stringify(action));
  store.write(`${LOG}${commitFileName(versions)}`, `${lines.join("\n")}\n`);
}

const withFields = (metaData: object, fields: readonly unknown[]) => ({
  metaData: { ...metaData, schemaString: JSON.stringify({ type: "struct", fields }) },
});

async function refusalOf(store: MemoryStore, change = ADDED): Promise<string> {
  const before = [...store.objects.keys()];
  const error = await openMeter(store)
    .commit(change, signal)
    .catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ConfigError);
  expect([...store.objects.keys()]).toEqual(before);
  return errorText(error);
}

describe("a Delta table whose schema another writer changed", () => {
  test("a Delta table with a changed schema keeps that schema and gets the columns that the worker needs", async () => {
    const { store, metaData, fields } = await made();
    const table = openMeter(store, { table: METER_WITH_UNIT });
    await table.commit(ADDED, signal);
    await table.commit(ADDED, signal);
    const changed = metaDataIn(store, 1);
    expect(changed).toMatchObject({ id: metaData.id, createdTime: metaData.createdTime });
    expect(JSON.parse(changed.schemaString).fields).toEqual([
      ...fields,
      { name: "unit", type: "string", nullable: true, metadata: { comment: "The unit." } },
    ]);
    expect(store.text(`${LOG}${commitFileName(2)}`)).not.toContain("metaData");
    expect(await openMeter(store).commit(ADDED, signal)).toBe("committed");
    expect(store.text(`${LOG}${commitFileName(3)}`)).not.toContain("metaData");
  });

  test("a Delta table with a changed schema keeps columns and properties of other writers", async () => {
    const { store, metaData, fields } = await made();
    const own = { name: "note", type: { type: "array", elementType: "string" }, nullable: true, metadata: {} };
    const theirs = withFields({ ...metaData, configuration: { "our.team": "7" }, theirs: 1 }, [own, ...fields]);
    append(store, theirs);
    await openMeter(store, { table: METER_WITH_UNIT }).commit(ADDED, signal);
    const changed = metaDataIn(store, 2);
    expect(changed).toMatchObject({ configuration: { "our.team": "7" }, theirs: 1 });
    expect(JSON.parse(changed.schemaString).fields[0]).toEqual(own);
  });

  const note = { name: "note", type: "string", nullable: true, metadata: {} };
  const changeOf = (column: string, change: object) => (fields: readonly Field[]) =>
    fields.map((field) => (field.name === column ? { ...field, ...change } : field));
  test.each<[string, (fields: readonly Field[]) => readonly unknown[], string]>([
    [
      "a column of another type",
      changeOf("value", { type: "float" }),
      "The Delta table memory:/meter/ has float in its column value, where we write double: somebody else changed or made it.",
    ],
    [
      "a column name with different capitals",
      changeOf("value", { name: "Value" }),
      "has a column Value, and ours is written value",
    ],
    [
      "a column of the worker that must not be null",
      changeOf("data", { nullable: false }),
      "has a column data that must not be null",
    ],
    [
      "a column of another writer that must not be null",
      (fields) => [...fields, { ...note, nullable: false }],
      "has a column note that must not be null",
    ],
    [
      "an invariant on a column",
      (fields) => [...fields, { ...note, metadata: { "delta.invariants": "{}" } }],
      "has a condition on its column note (delta.invariants)",
    ],
  ])("a Delta table with a changed schema is refused when it has %s", async (_, change, words) => {
    const { store, metaData, fields } = await made();
    append(store, withFields(metaData, change(fields)));
    expect(await refusalOf(store)).toContain(words);
  });

  test.each([
    [{ partitionColumns: ["date"] }, "is divided by date, and we write it divided by date and site"],
    [{ partitionColumns: [] }, "is divided by nothing"],
    [{ format: { provider: "csv", options: {} } }, "keeps its files as csv, not as parquet"],
    [{ schemaString: "nothing" }, "The schema of the Delta table memory:/meter/ is not what a Delta log has there."],
  ])("a Delta table with a changed schema is refused with the metadata %j", async (change, words) => {
    const { store, metaData } = await made();
    append(store, { metaData: { ...metaData, ...change } });
    expect(await refusalOf(store)).toContain(words);
  });
});

test.each([
  [{ minReaderVersion: 1, minWriterVersion: 3 }, "reader version 1 and writer version 3;"],
  [
    {
      minReaderVersion: 3,
      minWriterVersion: 7,
      readerFeatures: ["deletionVectors"],
      writerFeatures: ["deletionVectors", "appendOnly"],
    },
    "reader version 3 and writer version 7 (deletionVectors, appendOnly); we write reader version 1 and writer version 2.",
  ],
])(
  "a Delta table with a raised protocol is refused with its protocol version and features in the error: %j",
  async (protocol, words) => {
    const { store } = await made();
    append(store, { protocol });
    expect(await refusalOf(store)).toContain(words);
    await expect(openMeter(store).readActiveFiles(signal)).rejects.toThrow(ConfigError);
    await expect(openMeter(store).vacuum(signal)).rejects.toThrow(ConfigError);
  },
);

test("an append-only Delta table accepts new rows and compaction, and refuses replacements", async () => {
  const { store, file, metaData } = await made();
  append(store, { metaData: { ...metaData, configuration: { "delta.appendOnly": "true" } } });
  expect(await refusalOf(store, { ...ADDED, remove: [file.key] })).toContain("only grows (delta.appendOnly)");
  expect(await openMeter(store).commit(ADDED, signal)).toBe("committed");
  const same = await writtenFile(store, "b", [reading(1)]);
  const compact = { ...ADDED, add: [same], remove: [file.key], dataChange: false };
  expect(await openMeter(store).commit(compact, signal)).toBe("committed");
});

describe("an incomplete log of a Delta table", () => {
  test.each([1, 2, 3])(
    "a log without version %i is refused, also by a worker that has already read version 0",
    async (missing) => {
      const { store } = await made();
      const earlierReader = openMeter(store);
      await earlierReader.readActiveFiles(signal);
      for (const _ of [1, 2, 3, 4]) await openMeter(store).commit(ADDED, signal);
      await store.remove(`${LOG}${commitFileName(missing)}`, signal);
      const problem = "The log memory:/meter/_delta_log/ has a hole: a version is missing in it.";
      expect(await refusalOf(store)).toContain(problem);
      await expect(earlierReader.commit(ADDED, signal)).rejects.toThrow(problem);
    },
  );

  test("a log that starts with a V2 checkpoint is refused", async () => {
    const store = createMemoryStore();
    store.write(`${LOG}00000000000000000004.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet`, "x");
    append(store, {});
    await store.remove(`${LOG}${commitFileName(0)}`, signal);
    store.write(`${LOG}${commitFileName(5)}`, "{}\n");
    expect(await refusalOf(store)).toContain("a checkpoint of the second form");
  });

  test.each([
    ["an incomplete line", '{"add":{"path":"x"'],
    ["a line that is not JSON", "hello\n"],
    ["an action without its required fields", '{"add":{"path":"x"}}\n'],
  ])("a log with %s in a commit is refused with the file name of the commit", async (_, text) => {
    const { store } = await made();
    store.write(`${LOG}${commitFileName(1)}`, text);
    expect(await refusalOf(store)).toContain(`memory:/${LOG}${commitFileName(1)} is not what a Delta log has there.`);
  });

  test("a log with a broken checkpoint is refused with the file name of the checkpoint", async () => {
    const { store } = await made();
    store.write(`${LOG}00000000000000000000.checkpoint.parquet`, "PAR1 broken");
    expect(await refusalOf(store)).toContain("00000000000000000000.checkpoint.parquet is not what");
  });

  test("a log is started again by a running worker when the folder of the table was emptied", async () => {
    const { store } = await made();
    const table = openMeter(store);
    await table.commit(ADDED, signal);
    for (const key of store.objects.keys()) await store.remove(key, signal);
    expect(await table.commit(ADDED, signal)).toBe("committed");
    expect(store.text(`${LOG}${commitFileName(0)}`)).toContain("schemaString");
  });
});

test("unknown actions and fields of a Delta log are ignored and kept for other writers", async () => {
  const { store } = await made();
  const partitionValues = { date: "2026-11-21", site: "" };
  const add = { path: "x.parquet", partitionValues, size: 1, modificationTime: 1, dataChange: true };
  append(
    store,
    { cdc: { path: "_change_data/x" } },
    { add: { ...add, stats: null, tags: { a: "b" }, deletionVector: null, baseRowId: null } },
    { somethingNew: { x: 1 } },
  );
  const { files, version } = await openMeter(store).readActiveFiles(signal);
  expect(version).toBe(1);
  const values = { date: "2026-11-21", site: null };
  expect(files[1]).toEqual({ key: "meter/x.parquet", bytes: 1, rows: null, partitionValues: values });
});

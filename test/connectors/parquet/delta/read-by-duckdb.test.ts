import { renameSync, rmSync } from "node:fs";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { createFolderStore } from "#connectors/parquet/folder-store.ts";
import { openLake } from "../../../lake/duckdb.ts";
import { temporaryFolder } from "../../../real-servers.ts";
import { readObjects } from "../read-objects.ts";
import { fillTable } from "./filled-table.ts";
import { openMeter, reading } from "./meter-table.ts";
import { checkDeltaTable } from "./strict-checker.ts";

async function filled() {
  const folder = temporaryFolder();
  const lake = await openLake();
  onTestFinished(() => {
    lake.close();
    rmSync(folder, { recursive: true });
  });
  await lake.run("SET TimeZone = 'UTC'");
  const numbers = await fillTable(createFolderStore(folder, 0o640));
  return { folder: join(folder, "meter"), store: createFolderStore(folder, 0o640), lake, numbers };
}

test("DuckDB finds every row exactly once in the active files of a Delta table", async () => {
  const { folder, store, lake, numbers } = await filled();
  const { faults, files, removed, columns, version } = checkDeltaTable(readObjects(folder));
  expect(faults).toEqual([]);
  expect(version).toBe(12);
  expect(columns).toContain("unit");
  const { files: ours } = await openMeter(store).readActiveFiles(new AbortController().signal);
  expect(ours).toHaveLength(files.size);
  for (const path of removed) expect(readObjects(folder).has(decodeURIComponent(path))).toBe(false);
  const paths = [...files.keys()].map((path) => `'${join(folder, decodeURIComponent(path))}'`);
  const rows = await lake.query(
    `SELECT position, meter_id, epoch_ms(time) AS ms, value, is_open, data
     FROM read_parquet([${paths.join(", ")}], union_by_name = true) ORDER BY position`,
  );
  expect(rows).toEqual(
    numbers.map((n) => {
      const [meter_id, time, value, is_open, , data] = reading(n);
      return { position: String(n), meter_id, ms: String(time), value, is_open, data };
    }),
  );
});

test("each Delta checkpoint has the same content as the commits up to its version", async () => {
  const { folder, lake } = await filled();
  const objects = readObjects(folder);
  const checkpoints = [...objects.keys()].filter((name) => name.endsWith(".checkpoint.parquet"));
  expect(checkpoints.map((name) => Number(name.slice(11, 31)))).toEqual([4, 8, 12]);
  const hint = JSON.parse(Buffer.from(objects.get("_delta_log/_last_checkpoint") ?? "").toString());
  expect(hint.version).toBe(12);
  for (const name of checkpoints) {
    const version = Number(name.slice(11, 31));
    const { faults, files } = checkDeltaTable(objects, version);
    expect(faults).toEqual([]);
    const from = `FROM read_parquet('${join(folder, name)}')`;
    const added = await lake.query(
      `SELECT add.path AS path, add.stats->>'numRecords' AS rows, add.stats->'$.maxValues.meter_id' AS last, add.partitionValues['date'] AS date,
         add.size AS size, add.dataChange AS changes ${from} WHERE add.path IS NOT NULL`,
    );
    expect(new Map(added.map(({ path, rows }) => [path, Number(rows)]))).toEqual(files);
    for (const { path, date, size, changes, last } of added) {
      expect(last).toMatch(/^"meter [012]"$/);
      expect(String(path)).toContain(`date=${String(date)}/`);
      expect(Number(size)).toBe(objects.get(decodeURIComponent(String(path)))?.length ?? Number(size));
      expect(changes).toBe(false);
    }
    expect(
      await lake.query(`SELECT txn.appId AS app, txn.version AS version ${from} WHERE txn.appId IS NOT NULL`),
    ).toEqual([{ app: "worker", version: String(version === 4 ? 4 : version - 1) }]);
    const [metaData] = await lake.query(
      `SELECT metaData.partitionColumns AS columns, metaData.schemaString AS schema ${from} WHERE metaData.id IS NOT NULL`,
    );
    expect(metaData).toMatchObject({ columns: ["date", "site"] });
    expect(String(metaData?.schema).includes('"unit"')).toBe(version > 6);
  }
});

test.each(["zstd", "gzip", "uncompressed"])(
  "Plenum reads a Delta checkpoint that another writer compressed with %s",
  async (codec) => {
    const { folder, store, lake } = await filled();
    const signal = new AbortController().signal;
    const wanted = await openMeter(store).readActiveFiles(signal);
    const name = join(folder, "_delta_log", "00000000000000000012.checkpoint.parquet");
    await lake.run(`COPY (FROM read_parquet('${name}')) TO '${name}.other' (FORMAT parquet, COMPRESSION ${codec})`);
    renameSync(`${name}.other`, name);
    for (let version = 0; version <= 12; version += 1) {
      await store.remove(`meter/_delta_log/${String(version).padStart(20, "0")}.json`, signal);
    }
    expect(await openMeter(store).readActiveFiles(signal)).toEqual(wanted);
  },
);

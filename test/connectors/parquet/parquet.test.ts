import { createHash } from "node:crypto";
import { chmodSync, existsSync, globSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { LAKE_TABLES } from "#connectors/shared/lake/tables.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryKind, valueEvent } from "../../sample-events.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { contextFor, never } from "../context.ts";
import { describeFolderSink } from "../file-folder.ts";
import { filesIn, query, rowsIn, tableIn } from "./duckdb-query.ts";
import { committedAt, createFolderEngine, DAY_MS, daySealed, offered, values } from "./engine.ts";
import { inS3, startS3 } from "./s3-server.ts";

const FORMATS = ["plain", "delta"] as const;

for (const table_format of FORMATS) {
  const createSink = (folder: string) =>
    createParquetSink(ParquetConfig.parse({ folder, table_format }), contextFor("lake"));
  describeFolderSink(`parquet in a folder, ${table_format}`, createSink, arrivedIn);

  describeSink(`parquet in S3, ${table_format}`, {
    async make() {
      const s3 = await startS3();
      const folder = temporaryFolder();
      return {
        sink: createParquetSink(ParquetConfig.parse(inS3(s3, { table_format })), contextFor("lake")),
        async received() {
          s3.dump(folder);
          return arrivedIn(folder);
        },
        breakServer: () => s3.down(),
        repairServer: () => s3.up(),
        async stall() {
          s3.fault = () => "stall";
        },
        async dispose() {
          await s3.close();
          rmSync(folder, { recursive: true });
        },
      };
    },
  });
}

describe.each(FORMATS)("the files that the Parquet sink writes with table_format %s", (table_format) => {
  test("Parquet files have the column types of their tables, also where all values are null", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    await engine.deliver(...sampleOfEveryKind(), valueEvent(1, "10042", null), valueEvent(2, "10043", true));
    const duckTypes = {
      text: "VARCHAR",
      json: "VARCHAR",
      time: "TIMESTAMP WITH TIME ZONE",
      number: "DOUBLE",
      integer: "BIGINT",
      boolean: "BOOLEAN",
    };
    let seen = 0;
    for (const table of LAKE_TABLES) {
      for (const file of filesIn(folder, table.name)) {
        const described = await query(
          `DESCRIBE SELECT * FROM read_parquet('${join(folder, file)}', hive_partitioning=false)`,
        );
        const expected = table.columns.map(({ name, type }) => [name, duckTypes[type]]);
        expect(described.map((row) => [row.column_name, row.column_type])).toEqual(expected);
        seen += 1;
      }
    }
    expect(seen).toBeGreaterThan(10);
  });

  test("Parquet files contain the events by table, day and site, with times in UTC microseconds", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    await engine.deliver(
      valueEvent(0, "10042", 21.5),
      valueEvent(1, "10042", null),
      valueEvent(2, "10043", true),
      sampleEvent("tag-history"),
      sampleEvent("audit-head"),
    );
    const columns =
      "tag_id, epoch_us(time) AS us, value_number AS number, value_boolean AS boolean, quality, date::VARCHAR AS date, site::VARCHAR AS site, position";
    const us = Date.parse("2026-11-02T06:20:00.000Z") * 1_000;
    const rows = await rowsIn(folder, "value", columns, "ORDER BY position");
    expect(rows.map((row) => Object.values(row))).toEqual([
      ["10042", String(us), 21.5, null, "good", "2026-11-02", "1", "1"],
      ["10042", String(us + 1_000), null, null, "bad", "2026-11-02", "1", "2"],
      ["10043", String(us + 2_000), null, true, "good", "2026-11-02", "1", "3"],
    ]);
    const history = "value_number, epoch_us(observed_at) AS seen";
    expect(await rowsIn(folder, "history", history, "ORDER BY time")).toEqual(
      [20.5, null, 21].map((value_number) => ({ value_number, seen: String(Date.parse(committedAt(4)) * 1_000) })),
    );
    expect(filesIn(folder)).toContainEqual(
      expect.stringMatching(
        /^value\/date=2026-11-02\/site=1\/[0-9a-f]{12}-000000000001-000000000005(-[0-9a-f]{8})?\.parquet$/,
      ),
    );
    expect(filesIn(folder)).toContainEqual(expect.stringMatching(/^worker_event\/date=2026-11-02\/site=none\/[^/]+$/));
  });

  test("Parquet files are sorted by tag and time, in row groups with statistics", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    engine.log.push(...Array.from({ length: 25_000 }, (_, n) => valueEvent(n, `1${String(n % 50).padStart(4, "0")}`)));
    await engine.finish(5_000);
    const [file = ""] = filesIn(folder, "value");
    const groups = await query(
      `SELECT row_group_num_rows AS rows, compression, stats_min_value AS low, stats_max_value AS high
       FROM parquet_metadata('${join(folder, file)}') WHERE path_in_schema = 'tag_id' ORDER BY row_group_id`,
    );
    expect(groups.map(({ rows, compression }) => [Number(rows), compression])).toEqual([
      [10_000, "ZSTD"],
      [10_000, "ZSTD"],
      [5_000, "ZSTD"],
    ]);
    expect(groups.map(({ low, high }) => [low, high])).toEqual([
      ["10000", "10019"],
      ["10020", "10039"],
      ["10040", "10049"],
    ]);
    const jumps = await query(
      `SELECT count(*) AS n FROM (SELECT tag_id || time::VARCHAR AS here, lag(tag_id || time::VARCHAR) OVER (ORDER BY file_row_number) AS above
       FROM ${tableIn(folder, "value")}) WHERE here < above`,
    );
    expect(jumps).toEqual([{ n: "0" }]);
  });

  test("Parquet files contain texts and site ids with special characters unchanged", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    const sites = ["a/b=c %", "..", "none", "ö"];
    await engine.deliver(
      ...AWKWARD_TEXTS.map((text, n) => ({ ...valueEvent(n), data: { ...valueEvent(n).data, behindGateway: text } })),
      ...sites.map((siteid, n) => ({ ...valueEvent(100 + n), siteid })),
    );
    const rows = await rowsIn(folder, "value", "behind_gateway, site_id, site::VARCHAR AS site", "ORDER BY time");
    expect(rows.slice(0, AWKWARD_TEXTS.length).map((row) => row.behind_gateway)).toEqual(
      AWKWARD_TEXTS.map((text) => text.toWellFormed()),
    );
    const others = rows.slice(AWKWARD_TEXTS.length);
    expect(others.map(({ site_id }) => site_id)).toEqual(sites);
    expect(others.map(({ site }) => site)).toEqual(sites);
  });
});

test("every table can be queried with all columns before the first event", async () => {
  const { engine, folder } = createFolderEngine();
  await engine.sink.open(never());
  for (const table of LAKE_TABLES) {
    const names = table.columns.map(({ name }) => `"${name}"`).join(", ");
    expect(await query(`SELECT ${names} FROM ${tableIn(folder, table.name)}`), table.name).toEqual([]);
  }
});

describe.each(FORMATS)("commits of the Parquet sink with table_format %s", (table_format) => {
  test("commits of the Parquet sink are made when max_rows or max_age is reached, and not before", async () => {
    const { engine, folder } = createFolderEngine({ table_format, max_rows: 10, max_age: "15m" });
    engine.log.push(...values(9));
    await engine.offer(100);
    expect([engine.cursor, filesIn(folder, "value")]).toEqual([0, []]);
    engine.log.push(...values(1, 9));
    await engine.offer(100);
    expect(engine.cursor).toBe(10);
    expect(filesIn(folder, "value")).toHaveLength(1);
    engine.log.push(...values(3, 10));
    await engine.offer(100);
    engine.pass(14 * 60_000);
    expect((await engine.tick()).settled).toBeUndefined();
    engine.pass(60_000);
    expect((await engine.tick()).settled).toBe(true);
    expect(engine.cursor).toBe(13);
    expect(await rowsIn(folder, "value")).toHaveLength(13);
  });

  test("commits of the Parquet sink write redelivered events at once, and only the rows that are missing", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    await engine.deliver(...values(5), sampleEvent("tag-history"));
    expect((await engine.redeliver()).buffered).toBeUndefined();
    expect([...filesIn(folder, "value"), ...filesIn(folder, "history")]).toHaveLength(2);
    engine.kill();
    await engine.redeliver();
    expect(await rowsIn(folder, "value")).toHaveLength(5);
    expect(await rowsIn(folder, "history")).toHaveLength(3);
  });

  test("an event with an invalid time is rejected, and the other events are stored", async () => {
    const { engine, folder } = createFolderEngine({ table_format, max_rows: 3 });
    const receipt = await engine.sink.write(
      [valueEvent(1), { ...valueEvent(2), time: "yesterday" }, valueEvent(3), valueEvent(4)],
      never(),
      undefined,
      offered([1, 2, 3, 4]),
    );
    expect(receipt.rejected).toEqual([{ index: 1, reason: expect.stringContaining("yesterday") }]);
    expect(await rowsIn(folder, "value")).toHaveLength(3);
  });
});

describe.each(FORMATS)("a finalized day with table_format %s", (table_format) => {
  test("a finalized day has one sorted file per table, and a manifest that lists these files", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    for (let n = 0; n < 4; n++) await engine.deliver(...values(10, 10 * n), sampleEvent("alarm-changed", {}, n));
    engine.log.push(valueEvent(99), daySealed(1), valueEvent(100));
    await engine.offer(100);
    expect(engine.cursor).toBe(engine.log.length);
    await engine.tick();
    const files = filesIn(folder, "value");
    expect(files).toEqual([expect.stringMatching(/^value\/date=2026-11-02\/site=1\/day-[0-9a-f]{16}\.parquet$/)]);
    expect(await rowsIn(folder, "value", "DISTINCT event_id")).toHaveLength(42);
    expect(await rowsIn(folder, "value")).toHaveLength(42);
    const manifest = manifestIn(folder);
    expect(manifest).toMatchObject({
      site: "1",
      date: "2026-11-02",
      revision: 1,
      before: [],
      account: { expected: 42 },
    });
    const listed = manifest.tables.value?.files ?? [];
    expect(listed.map(({ name }) => name)).toEqual(files);
    const sum = createHash("sha256")
      .update(readFileSync(join(folder, files[0] ?? "")))
      .digest("hex");
    expect(listed).toMatchObject([{ rows: 42, sha256: sum }]);
    expect(manifest.tables.alarm_episode?.rows).toBe(1);
  });

  test("a finalized day is finalized again with late rows, and the manifest lists the earlier revision", async () => {
    const { engine, folder } = createFolderEngine({ table_format });
    await engine.deliver(...values(10), daySealed(1));
    await engine.deliver(...values(5, 50), daySealed(2));
    expect(manifestIn(folder)).toMatchObject({
      revision: 2,
      tables: { value: { rows: 15 } },
      before: [{ revision: 1, rows: { value: 10 } }],
    });
    expect(filesIn(folder, "value")).toHaveLength(1);
    engine.kill();
    await engine.sink.write([daySealed(2)], never(), undefined, { ...offered([99]), isRedelivery: true });
    await engine.tick();
    expect(manifestIn(folder)).toMatchObject({ revision: 2, before: [{ revision: 1 }] });
    expect(await rowsIn(folder, "value")).toHaveLength(15);
  });
});

test("redelivered events restore a file that was deleted", async () => {
  const { engine, folder } = createFolderEngine();
  await engine.deliver(...values(5));
  const [file = ""] = filesIn(folder, "value");
  rmSync(join(folder, file));
  engine.kill();
  await engine.redeliver();
  expect(await rowsIn(folder, "value")).toHaveLength(5);
});

describe("an existing lake that the Parquet sink opens", () => {
  test("old files with fewer columns are read together with new files", async () => {
    const { engine, folder } = createFolderEngine();
    const old = join(folder, "value/date=2026-11-02/site=1");
    mkdirSync(old, { recursive: true });
    await query(`COPY (SELECT 'main' AS source, '10042' AS tag_id, TIMESTAMPTZ '2026-11-02 00:00:00Z' AS time, 'old' AS event_id)
      TO '${old}/old.parquet' (FORMAT parquet)`);
    await engine.deliver(valueEvent(1), daySealed(1));
    expect(await rowsIn(folder, "value", "event_id, value_number", "ORDER BY time")).toEqual([
      { event_id: "old", value_number: null },
      { event_id: valueEvent(1).id, value_number: 1 },
    ]);
  });

  test("a damaged file stops the sink with a configuration error, and no event is lost", async () => {
    const { engine, folder } = createFolderEngine();
    await engine.deliver(sampleEvent("tag-added"));
    const path = join(folder, "tag/tag.parquet");
    writeFileSync(path, "no parquet");
    const renamed = sampleEvent("tag-changed");
    engine.log.push(renamed);
    await engine.offer(10);
    engine.pass(DAY_MS);
    await expect(engine.tick()).rejects.toMatchObject({
      kind: "config",
      message: expect.stringMatching(/tag\.parquet cannot be read as a Parquet file/),
    });
    expect(engine.cursor).toBe(1);
    rmSync(path);
    engine.kill();
    await engine.finish();
    expect([engine.cursor, (await rowsIn(folder, "tag")).length]).toEqual([2, 1]);
  });
});

test("a folder without write permission stops the sink with a configuration error, and all rows are written after the repair", async () => {
  const { engine, folder } = createFolderEngine();
  await engine.sink.probe?.(never());
  expect(existsSync(folder)).toBe(false);
  await engine.deliver(...values(3));
  const partition = join(folder, "value/date=2026-11-02/site=1");
  renameSync(partition, `${partition}.away`);
  writeFileSync(partition, "in the way");
  engine.log.push(...values(3, 3));
  await engine.offer(10);
  engine.pass(DAY_MS);
  await expect(engine.tick()).rejects.toMatchObject({
    kind: "config",
    hint: expect.stringContaining("another folder"),
  });
  rmSync(partition);
  renameSync(`${partition}.away`, partition);
  await engine.finish();
  expect(await rowsIn(folder, "value")).toHaveLength(6);
  expect(globSync("**/*.tmp", { cwd: folder })).toEqual([]);
  if (process.getuid?.() === 0) return;
  chmodSync(folder, 0o500);
  onTestFinished(() => chmodSync(folder, 0o700));
  await expect(engine.sink.probe?.(never())).rejects.toMatchObject({ kind: "config" });
});

interface SeenManifest {
  readonly tables: Readonly<Record<string, { rows: number; files: { name: string; sha256: string }[] }>>;
}

function manifestIn(folder: string): SeenManifest {
  return JSON.parse(readFileSync(join(folder, "_manifests/site=1/date=2026-11-02.json"), "utf8")) as SeenManifest;
}

async function arrivedIn(folder: string) {
  const found: { id: string; at: string; file: string; row: number }[] = [];
  for (const table of ["value", "alarm"]) {
    const select =
      "event_id AS id, strftime(observed_at, '%c') || epoch_us(observed_at) AS at, filename AS file, file_row_number::INTEGER AS row";
    for (const row of await rowsIn(folder, table, select)) found.push(row as (typeof found)[number]);
  }
  const ordered = found.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : a.row - b.row));
  return ordered.map(({ id }) => ({ identity: id }));
}

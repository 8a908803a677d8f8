import { execFileSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { DuckDBInstance } from "@duckdb/node-api";
import { expect, test } from "vitest";
import { CONNECTORS } from "#connectors/catalog.ts";
import { buildParquetQuery, ParquetConfig } from "#connectors/parquet/config.ts";
import { buildTagValueQuery, PostgresConfig } from "#connectors/postgres/config.ts";
import { sampleEvent } from "../sample-events.ts";
import { testFolder } from "../test-resources.ts";

const { file, influxdb, kafka } = CONNECTORS;
const VALUE = sampleEvent("tag-value");
const ALARM = sampleEvent("alarm-raised");

test("for Kafka, locateEvent returns the topic of the event", () => {
  const kafkaConfig = kafka.Config.parse({ brokers: ["kafka.example:9093"], topic: "plenum.{noun}" });
  expect(kafka.locateEvent(kafkaConfig, VALUE)).toBe("plenum.tag");
});

test("for InfluxDB, locateEvent returns a query in Flux or InfluxQL", () => {
  const v2 = { url: "https://influx.example", api: "v2", org: "o", bucket: 'a "b"', token: { env: "T" } };
  expect(influxdb.locateEvent(influxdb.Config.parse(v2), VALUE)).toBe(
    'from(bucket: "a \\"b\\"") |> range(start: -24h) |> filter(fn: (r) => r._measurement == "tag_value" and r.source == "main" and r.tag_id == "10042")',
  );
  const v1 = { url: "https://influx.example", api: "v1", database: "d", measurement_prefix: "p_" };
  expect(influxdb.locateEvent(influxdb.Config.parse(v1), VALUE)).toBe(
    `SELECT * FROM "p_tag_value" WHERE "source" = 'main' AND "tag_id" = '10042' AND time > now() - 24h`,
  );
  expect(influxdb.locateEvent(influxdb.Config.parse(v1), ALARM)).toBeNull();
});

test("for PostgreSQL, locateEvent returns an SQL query with quoted texts", () => {
  const config = PostgresConfig.parse({ url: "postgresql://plenum@db.example/b", password: { env: "P" } });
  const odd = { ...VALUE, data: { ...VALUE.data, tag: { ...VALUE.data.tag, id: "1'; drop" } } };
  expect(buildTagValueQuery(config, odd)).toBe(
    "select * from plenum.value where tag_id = '1''; drop' order by time desc limit 100;",
  );
  expect(buildTagValueQuery(config, ALARM)).toBeNull();
});

test("for files, locateEvent returns a shell command that also finds the event in compressed files", () => {
  const folder = join(testFolder(), "it's here");
  mkdirSync(join(folder, "tag-value/1/2026-11-02"), { recursive: true });
  const line = JSON.stringify(VALUE);
  const otherLine = JSON.stringify(ALARM);
  writeFileSync(join(folder, "events-2026-11-02-001.jsonl.gz"), gzipSync(`${otherLine}\n${line}\n`));
  writeFileSync(join(folder, "events-2026-11-02-002.jsonl"), `${line}\n`);
  writeFileSync(join(folder, "tag-value/1/2026-11-02/events-20261102T062000000Z.jsonl"), `${line}\n`);
  const searchFiles = (config: object) =>
    execFileSync("sh", ["-c", file.locateEvent(file.Config.parse({ folder, ...config }), VALUE)], { encoding: "utf8" });
  expect(searchFiles({})).toBe(`${line}\n${line}\n`);
  expect(searchFiles({ path: "{kind}/{site}/{date}" })).toBe(`${line}\n`);
  expect(file.locateEvent(file.Config.parse({ folder: "/srv/events" }), VALUE)).toBe(
    `zgrep -hF '"subject":"site/1/tag/10042"' '/srv/events'/events-*`,
  );
});

test("for Parquet, locateEvent returns an SQL query that DuckDB executes", async () => {
  const folder = testFolder();
  const day = join(folder, "value/date=2026-11-02/site=1");
  mkdirSync(day, { recursive: true });
  const connection = await (await DuckDBInstance.create()).connect();
  const rows = "(values ('10042', 1), ('10042', 2), ('10043', 3)) as rows(tag_id, time)";
  await connection.run(`copy (select * from ${rows}) to '${join(day, "a.parquet")}' (format parquet)`);
  const question = buildParquetQuery(ParquetConfig.parse({ folder }), VALUE) ?? "";
  expect((await connection.runAndReadAll(question)).getRows()).toHaveLength(2);
  connection.closeSync();
  const keys = { access_key_id: { env: "A" }, secret_access_key: { env: "B" } };
  const s3 = (prefix: string) =>
    ParquetConfig.parse({ s3: { bucket: "lake", prefix, ...keys }, table_format: "delta" });
  for (const prefix of ["plenum/lake", "plenum/lake/"])
    expect(buildParquetQuery(s3(prefix), VALUE)).toBe(
      "select * from delta_scan('s3://lake/plenum/lake/value') where tag_id = '10042' order by time desc limit 100;",
    );
  expect(buildParquetQuery(s3(""), VALUE)).toContain("'s3://lake/value'");
  expect(buildParquetQuery(s3(""), ALARM)).toBeNull();
});

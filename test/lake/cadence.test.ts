import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { testFolder } from "../test-folder.ts";
import { START_MS, startVirtualWorker } from "../virtual-worker.ts";
import { openLake } from "./duckdb.ts";

const HOURS = 24;
const CLASSES = [
  { name: "first", every: "5m", select: { units: ["°C"] } },
  { name: "rest", every: "15m" },
];

test("a day of Parquet contains 3600 / every rows of values per tag and hour", { timeout: 300_000 }, async () => {
  const folder = testFolder();
  const virtual = await startVirtualWorker({
    simulator: { sites: [4], alarms: { recorded: false } },
    source: { read: CLASSES, schedules: { alarms: "0 * * * *", gateways: false, hosts: false, systems: false } },
    sinks: {
      lake: {
        delivery: { filter: { kinds: ["tag-value"] } },
        sink: (context) => createParquetSink(ParquetConfig.parse({ folder, max_age: "30m" }), context),
      },
    },
  });
  let isCleared = false;
  onTestFinished(async () => {
    if (!isCleared) await virtual.clear();
  });
  for (let hour = 0; hour < HOURS + 1; hour += 1) await virtual.clock.advance(3_600_000);
  await virtual.clear();
  isCleared = true;
  const lake = await openLake();
  onTestFinished(() => lake.close());
  const files = join(folder, "value", "**", "*.parquet");
  // The first hour has first values in addition, the last hour is not in a file yet, and tags without a value rest.
  const readings = `
    SELECT tag_id, unit IS NOT DISTINCT FROM '°C' AS is_first, (epoch_ms(time) - ${START_MS}) // 3600000 AS hour_number
    FROM read_parquet('${files}', hive_partitioning = true)
    WHERE tag_id NOT IN (SELECT tag_id FROM read_parquet('${files}') WHERE quality <> 'good')`;
  const rowsPerHour = `
    SELECT tag_id, is_first, hour_number, count(*) AS rows FROM (${readings})
    WHERE hour_number BETWEEN 1 AND ${HOURS - 2} GROUP BY tag_id, is_first, hour_number`;
  const counts = await lake.ask(
    `SELECT is_first, count(*) > 40 AND min(rows) >= if(is_first, 11, 3) AND max(rows) <= if(is_first, 13, 5) AS is_as_asked
     FROM (${rowsPerHour}) GROUP BY is_first ORDER BY is_first`,
  );
  expect(counts).toEqual([
    { is_first: false, is_as_asked: true },
    { is_first: true, is_as_asked: true },
  ]);
});

import { join } from "node:path";
import { expect, test } from "vitest";
import { createEngine } from "../connectors/parquet/engine.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";
import { START_MS, startVirtualWorker } from "../virtual-worker.ts";
import { openLake } from "./duckdb.ts";

const HOURS = 24;
const BATCH = 250;
const CLASSES = [
  { name: "first", every: "5m", select: { units: ["°C"] } },
  { name: "rest", every: "15m" },
];

test("a tag that is read every N seconds has 3600 / N rows an hour in the Parquet files of a day", async () => {
  const virtual = await startVirtualWorker({
    simulator: { sites: [4], alarms: { recorded: false } },
    source: { read: CLASSES, schedules: { alarms: "0 * * * *", gateways: false, hosts: false, systems: false } },
    eventsFolder: null,
  });
  for (let hour = 0; hour < HOURS; hour += 1) await virtual.clock.advance(3_600_000);
  const values = (await virtual.events()).filter(({ type }) => type === "tag-value");
  await virtual.clear();
  const folder = testFolder();
  const engine = createEngine({ folder, max_age: "14m" });
  for (let n = 0; n < values.length; n += BATCH) {
    engine.log.push(...values.slice(n, n + BATCH));
    await engine.offer(BATCH);
    engine.pass(900_000);
    await engine.settleDown();
  }
  const lake = closeAfterTest(await openLake());
  const files = join(folder, "value", "**", "*.parquet");
  // The first hour has first values in addition; tags without a value are read less often.
  const readings = `
    SELECT tag_id, unit IS NOT DISTINCT FROM '°C' AS is_first, (epoch_ms(time) - ${START_MS}) // 3600000 AS hour_number
    FROM read_parquet('${files}', hive_partitioning = true)
    WHERE tag_id NOT IN (SELECT tag_id FROM read_parquet('${files}') WHERE quality <> 'good')`;
  const rowsPerHour = `
    SELECT tag_id, is_first, hour_number, count(*) AS rows FROM (${readings})
    WHERE hour_number BETWEEN 1 AND ${HOURS - 1} GROUP BY tag_id, is_first, hour_number`;
  const counts = await lake.query(
    `SELECT is_first, count(*) > 40 AND min(rows) >= if(is_first, 11, 3) AND max(rows) <= if(is_first, 13, 5) AS is_as_asked
     FROM (${rowsPerHour}) GROUP BY is_first ORDER BY is_first`,
  );
  expect(counts).toEqual([
    { is_first: false, is_as_asked: true },
    { is_first: true, is_as_asked: true },
  ]);
});

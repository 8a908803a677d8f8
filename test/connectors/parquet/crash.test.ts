import { rmSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { Event } from "#src/core/model/event.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { replay, seed } from "../../seed.ts";
import { sized } from "../../sizes.ts";
import { never } from "../context.ts";
import { rowsIn } from "./duckdb-query.ts";
import { createEngine, DAY_MS, daySealed, type Engine, offered, openS3 } from "./engine.ts";
import { inS3, type S3Server } from "./s3-server.ts";

const STRIDE = sized(20, 40);

function story(): readonly Event[] {
  return Array.from({ length: 60 }, (_, n) => {
    if (n === 20) return sampleEvent("tag-added");
    if (n === 21) return sampleEvent("alarm-raised");
    if (n === 35) return sampleEvent("tag-history");
    if (n === 40) return sampleEvent("alarm-resolved");
    if (n === 45) return daySealed();
    const event = valueEvent(n + (n % 2) * DAY_MS, `1004${n % 3}`);
    return n % 5 === 0 ? { ...event, siteid: "2" } : event;
  });
}

async function deliver(engine: Engine, batch: () => number): Promise<void> {
  while ((await engine.offer(batch())) > 0);
  engine.pass(DAY_MS);
  await engine.tick();
  await engine.tick();
}

describe.each(["plain", "delta"] as const)("an interrupted Parquet sink with table_format %s", (table_format) => {
  test("an interrupted Parquet sink writes each row once when connections are cut before or after any request", async () => {
    const s3 = await openS3();
    const config = inS3(s3, { max_rows: 14, table_format });
    const stride = seededRandom(seed);
    let requests = 0;
    for (let at = 1; at < 1_000; at += 1 + Math.floor(STRIDE * stride())) {
      s3.objects.clear();
      s3.requests.length = 0;
      const random = seededRandom(seed + at);
      const batch = () => 1 + Math.floor(random() * 9);
      const engine = createEngine(config);
      engine.log.push(...story());
      let isCut = false;
      s3.fault = () => {
        if (s3.requests.length !== at) return null;
        isCut = true;
        return random() < 0.5 ? "cut" : "cut afterwards";
      };
      await deliver(engine, batch).catch(() => undefined);
      if (!isCut) break;
      requests = at;
      s3.requests.length = 0;
      const again = 1 + Math.floor(random() * 30);
      s3.fault = () => (s3.requests.length === again ? (random() < 0.5 ? "cut" : "cut afterwards") : null);
      engine.kill();
      await deliver(engine, batch).catch(() => engine.kill());
      s3.fault = () => null;
      await deliver(engine, batch);
      await expectAllOnce(s3, engine, `${replay}, request ${at}`);
      if (table_format === "delta") expectNoOrphanedFile(s3, `${replay}, request ${at}`);
    }
    expect(requests).toBeGreaterThan(30);
  });

  test("an interrupted Parquet sink removes the files of an interrupted commit whose events have left the outbox", async () => {
    const s3 = await openS3();
    const engine = createEngine(inS3(s3, { max_rows: 4, table_format }));
    const other = (n: number) => ({ ...valueEvent(n), siteid: "2" });
    engine.log.push(valueEvent(1), valueEvent(2), other(3), other(4));
    s3.fault = ({ key, method }) => (method === "PUT" && key.includes("site=2") ? "cut" : null);
    await expect(engine.offer(10)).rejects.toThrow();
    expect([...s3.objects.keys()].filter((key) => key.includes("site=1/"))).toHaveLength(1);
    s3.fault = () => null;
    engine.kill();
    for (const position of [1, 2]) engine.dropped.add(position);
    engine.log.push(valueEvent(5));
    await deliver(engine, () => 10);
    const rows = (await lakeOf(s3, "value")).map((row) => row.event_id);
    expect(rows.toSorted()).toEqual([other(3), other(4), valueEvent(5)].map(({ id }) => id).toSorted());
  });

  test("an interrupted Parquet sink stops a commit on abort, and its next commit writes the same rows once", async () => {
    const s3 = await openS3();
    const engine = createEngine(inS3(s3, { max_rows: 2, table_format }));
    const stop = new AbortController();
    s3.fault = ({ method, key }) => {
      if (method !== "PUT" || !key.startsWith("value/")) return null;
      stop.abort(new Error("stop"));
      return "stall";
    };
    const offer = offered([1, 2]);
    const write = engine.sink.write([valueEvent(1), valueEvent(2)], stop.signal, undefined, offer);
    await expect(write).rejects.toThrow("stop");
    s3.fault = () => null;
    await engine.sink.write([valueEvent(1), valueEvent(2)], never(), undefined, offer);
    expect(await lakeOf(s3, "value")).toHaveLength(2);
  });
});

async function expectAllOnce(s3: S3Server, engine: Engine, message: string): Promise<void> {
  const expected = engine.log.filter(({ type }) => type === "tag-value").map(({ id }) => id);
  const rows = (await lakeOf(s3, "value")).map((row) => String(row.event_id));
  expect(rows.toSorted(), message).toEqual(expected.toSorted());
  expect(await lakeOf(s3, "history"), message).toHaveLength(3);
  expect(await lakeOf(s3, "alarm"), message).toHaveLength(2);
  expect(await lakeOf(s3, "tag"), message).toHaveLength(1);
  expect(await lakeOf(s3, "alarm_episode"), message).toMatchObject([{ state: "resolved" }]);
  const dayFiles = [...s3.objects.keys()].filter((key) => key.startsWith("value/date=2026-11-02/site=1/day-"));
  expect(dayFiles, message).not.toEqual([]);
  expect(s3.objects.has("_manifests/site=1/date=2026-11-02.json"), message).toBe(true);
}

function expectNoOrphanedFile({ objects }: S3Server, message: string): void {
  const files = [...objects.keys()].filter((key) => key.endsWith(".parquet") && !key.includes("/_delta_log/"));
  const named = new Set(
    [...objects]
      .filter(([key]) => /\/_delta_log\/\d{20}\.json$/.test(key))
      .flatMap(([key, commit]) =>
        [...commit.toString().matchAll(/"path":"([^"]*)"/g)].map(
          ([, path = ""]) => `${key.split("/")[0]}/${decodeURIComponent(path)}`,
        ),
      ),
  );
  const orphanedFiles = files.filter((key) => !named.has(key));
  expect(orphanedFiles, message).toEqual([]);
}

async function lakeOf(s3: S3Server, table: string) {
  const folder = temporaryFolder();
  try {
    s3.dump(folder);
    return await rowsIn(folder, table);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { type ConnectorContext, EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { openStore } from "#src/engine/store/open.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { contextFor } from "../connectors/context.ts";
import { query, rowsIn, tableIn } from "../connectors/parquet/duckdb-query.ts";
import { values } from "../connectors/parquet/engine.ts";
import { inS3, KEYS, startS3 } from "../connectors/parquet/s3-server.ts";
import { createDatabase, type Database } from "../connectors/postgres/test-database.ts";
import { absent, type RealServer, startPostgres, temporaryFolder } from "../real-servers.ts";
import { sampleEvent } from "../sample-events.ts";
import { smallDisk } from "../small-disk.ts";
import { closeAfterTest, testFolder } from "../test-resources.ts";

/** A stopped sink is tried again after 3 s instead of 5 minutes. */
const SPEED = 100;
const fast: Clock = {
  ...systemClock,
  monotonic: () => SPEED * systemClock.monotonic(),
  sleep: (ms, signal) => systemClock.sleep(ms / SPEED, signal),
};
const DELIVERY = DeliveryConfig.parse({ from: "beginning", deadline: "50m", batch: 40 });

interface Delivery {
  commit(events: readonly Event[]): Promise<void>;
  readonly otherIds: string[];
  says(words: RegExp): Promise<void>;
  settled(): Promise<void>;
  /** Waits until all events are settled, then stops: a compaction in progress shows rows twice for a moment. */
  finish(): Promise<void>;
  depth(): Promise<number>;
}

async function deliver(make: (context: ConnectorContext) => Sink): Promise<Delivery> {
  const folder = temporaryFolder();
  const store = await openStore({ folder, clock: fast });
  const lines: string[] = [];
  const log = pino({ base: null }, { write: (line: string) => void lines.push(line) });
  const otherIds: string[] = [];
  const other: Sink = {
    open: async () => {},
    async write(batch) {
      otherIds.push(...batch.map(({ id }) => id));
      return EVENTS_ACCEPTED;
    },
    close: async () => {},
  };
  const dispatcher = createEventDispatcher({
    sinks: [
      {
        name: "lake",
        connector: "parquet",
        sink: make({ ...contextFor("lake", fast, store), log }),
        delivery: DELIVERY,
      },
      { name: "other", connector: "scripted", sink: other, delivery: DELIVERY },
    ],
    outbox: store.outbox,
    store,
    building: createBuildingView(store, new Map()),
    clock: fast,
    log,
    metrics: createMetrics(),
  });
  await dispatcher.start(new AbortController().signal);
  const stop = () => dispatcher.stop(500_000);
  onTestFinished(async () => {
    await stop();
    await store.close();
    rmSync(folder, { recursive: true });
  });
  const depth = async () => (await store.outbox.lag()).find(({ sink }) => sink === "lake")?.depth ?? 0;
  const settled = () => expect.poll(depth).toBe(0);
  return {
    otherIds,
    depth,
    settled,
    async finish() {
      await settled();
      await stop();
    },
    commit: async (events) => void (await store.commit({ events })),
    says: (words) => expect.poll(() => lines.filter((line) => line.includes(`"sink":"lake"`)).join("")).toMatch(words),
  };
}

const parquet = (config: object) => (context: ConnectorContext) =>
  createParquetSink(ParquetConfig.parse({ max_rows: 100, max_age: "1s", ...config }), context);

const ids = (events: readonly Event[]) => events.map(({ id }) => id);

async function expectStored(delivery: Delivery, events: readonly Event[], words: RegExp): Promise<void> {
  await delivery.commit(events);
  await delivery.says(words);
  await expect.poll(() => delivery.otherIds).toEqual(expect.arrayContaining(ids(events)));
}

async function expectOnce(lake: string, events: readonly Event[]): Promise<void> {
  const rows = await rowsIn(lake, "value", "event_id");
  expect(rows.map(({ event_id }) => event_id).sort()).toEqual(ids(events).toSorted());
}

const setSecret = (secret: string) => {
  process.env.PLENUM_TEST_S3_SECRET = secret;
};

test("a wrong S3 key loses no event and delays no other sink; the right key continues delivery", async () => {
  const s3 = closeAfterTest(await startS3());
  onTestFinished(() => setSecret(KEYS.secret));
  const config = inS3(s3);
  setSecret("not-the-key");
  const delivery = await deliver(parquet(config));
  const events = values(150);
  await expectStored(delivery, events, /does not accept the keys\. Check s3\.access_key_id/);
  expect(await delivery.depth()).toBe(events.length);
  setSecret(KEYS.secret);
  await delivery.finish();
  const lake = testFolder();
  s3.dump(lake);
  await expectOnce(lake, events);
});

test("a full disk loses no event and delays no other sink, and delivery continues once there is space", async (context) => {
  const disk = smallDisk(2);
  if (disk === null) return context.skip();
  const lake = join(disk, "lake");
  mkdirSync(lake);
  const delivery = await deliver(parquet({ folder: lake }));
  const before = values(150);
  await delivery.commit(before);
  await delivery.settled();
  writeUntilFull(join(disk, "ballast"));
  const events = values(150, 1_000);
  // The number of waiting events is not checked: the lake may delete replaced files and then store the events.
  await expectStored(delivery, events, /is full \(ENOSPC\)\. Free some space; the events wait\./);
  rmSync(join(disk, "ballast"));
  await delivery.finish();
  await expectOnce(lake, [...before, ...events]);
});

function writeUntilFull(path: string): void {
  for (const piece of [65_536, 4_096, 1]) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(piece), { flag: "a" });
    } catch {}
  }
}

test("the Parquet sink stores 25 hourly rows for the day on which summer time ends", async () => {
  const lake = testFolder();
  const delivery = await deliver(parquet({ folder: lake }));
  await delivery.commit([LONG_DAY]);
  await delivery.finish();
  const rows = await query(
    `SELECT count(*)::INTEGER AS hours, count(DISTINCT time)::INTEGER AS moments,
       count(*) FILTER (time IN ('2026-10-25T00:00:00Z', '2026-10-25T01:00:00Z'))::INTEGER AS twice,
       count(*) FILTER (date = '2026-10-24')::INTEGER AS before, sum(value_number)::INTEGER AS sum
     FROM ${tableIn(lake, "history")}`,
  );
  expect(rows).toEqual([{ hours: 25, moments: 25, twice: 2, before: 2, sum: 300 }]);
});

const LONG_DAY_START = Date.parse("2026-10-24T22:00:00.000Z");
const LONG_DAY: Event = (() => {
  const sample = sampleEvent("tag-history");
  const points = Array.from({ length: 25 }, (_, hour) => ({
    time: new Date(LONG_DAY_START + hour * 3_600_000).toISOString(),
    value: hour,
  }));
  return { ...sample, data: { ...sample.data, points } };
})();

describe.skipIf(absent("postgres"))("the PostgreSQL sink", () => {
  let server: RealServer;
  let database: Database;
  beforeAll(async () => {
    server = await startPostgres();
    database = await createDatabase(server);
  });
  afterAll(() => server.stop());

  test("the PostgreSQL sink retries all events while a column is renamed, and delays no other sink", async () => {
    const delivery = await deliver((context) => database.sink({}, context));
    const before = values(20);
    await delivery.commit([...before, LONG_DAY]);
    await delivery.settled();
    await database.query("alter table plenum.value rename column quality to goodness");
    const events = values(150, 1_000);
    await expectStored(delivery, events, /The table plenum\.value .*goodness|has lost its column quality/);
    expect(await delivery.depth()).toBe(events.length);
    await database.query("alter table plenum.value rename column goodness to quality");
    await delivery.settled();
    const rows = await database.query("select event_id from plenum.value");
    expect(rows.map(([id]) => id).sort()).toEqual(ids([...before, ...events]).toSorted());
    const hours = "select count(*)::int, count(distinct time)::int from plenum.history";
    expect(await database.query(hours)).toEqual([[25, 25]]);
  });
});

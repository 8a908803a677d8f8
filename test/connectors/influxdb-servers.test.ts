import { pino } from "pino";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import type { Event } from "#src/core/model/event.ts";
import { absent, type RealServer, startInflux, startVictoriaMetrics } from "../real-servers.ts";
import { expectFailure } from "../receivers/receiver-helpers.ts";
import { AWKWARD_TEXTS, sampleOfEveryKind, TAG, valueEvent } from "../sample-events.ts";
import { closeAfterTest } from "../test-resources.ts";
import { contextFor, never } from "./context.ts";

describe.skipIf(absent("influxd"))("the InfluxDB sink with InfluxDB 1.x", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startInflux();
  });
  afterAll(() => server.stop());

  test("creates the database and stores an event of every kind so that a query returns its fields", async () => {
    const sink = await openSink("kinds");
    expect(await sink.write(sampleOfEveryKind(), never())).toEqual({ rejected: [] });
    const [value] = await rows("kinds", "SELECT * FROM tag_value");
    expect(value).toMatchObject({ value: 21.5, quality: "good", good: true, tag_id: TAG.id, unit: "°C" });
    expect(value?.time).toBe(Date.parse("2026-11-02T06:20:00Z"));
    expect(await rows("kinds", "SELECT value, good FROM tag_history")).toMatchObject([
      { value: 20.5, good: true },
      { value: null, good: false },
      { value: 21, good: true },
    ]);
    expect(await rows("kinds", "SELECT type, active FROM alarm_event")).toHaveLength(9);
    expect(await rows("kinds", "SELECT outcome, read_back FROM command_result")).toMatchObject([
      { outcome: "confirmed", read_back: 21.5 },
    ]);
    for (const measurement of ["tag_total", "gateway_status", "inventory_event", "worker_event"])
      expect((await rows("kinds", `SELECT * FROM ${measurement}`)).length, measurement).toBeGreaterThan(0);
  });

  test("stores texts with quotes, backslashes and line breaks without damaging adjacent points", async () => {
    const sink = await openSink("texts");
    const batch = AWKWARD_TEXTS.flatMap((text, n) => [valueEvent(n), awkward(text, n)]);
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(await rows("texts", "SELECT value FROM tag_value WHERE tag_id = '10042'")).toHaveLength(13);
    const storedRows = await rows("texts", "SELECT behind_gateway, unit FROM tag_value WHERE tag_id =~ /^awkward/");
    expect(storedRows).toHaveLength(13);
    expect(storedRows[1]).toMatchObject({ behind_gateway: AWKWARD_TEXTS[1], unit: AWKWARD_TEXTS[1] });
    expect(storedRows[4]).toMatchObject({ behind_gateway: "C:\\plant\\", unit: "C:/plant/" });
    expect(storedRows[2]).toMatchObject({ unit: "two lines and more lines still" });
  });

  test("stores 4,999 of 5,000 points and rejects the invalid point with the server's reason", async () => {
    const sink = await openSink("poison");
    await query("POST", "/write?db=poison", 'tag_value,tag_id=13 value="text" 1');
    const batch = Array.from({ length: 5_000 }, (_, n) => valueEvent(n));
    const conflict = { ...valueEvent(4_711), time: "1970-01-01T00:00:01.000Z" };
    batch[1_234] = conflict;
    const { rejected, retry } = await sink.write(batch, never());
    expect(retry).toBeUndefined();
    expect(rejected.map(({ index }) => index)).toEqual([1_234]);
    expect(rejected[0]?.reason).toContain("field type conflict");
    const counts = await rows("poison", "SELECT count(value) AS n FROM tag_value WHERE time > '2026-01-01'");
    expect(counts).toMatchObject([{ n: 4_999 }]);
  });

  test("the errors of probe and write say how to create a missing database", async () => {
    const sink = createSink({ url: server.url, api: "v1", database: "nowhere" });
    for (const attempt of [() => sink.probe?.(never()), () => sink.write([valueEvent(1)], never())]) {
      const hint = 'Create it with CREATE DATABASE "nowhere", or set create_database: true.';
      await expectFailure(attempt(), { kind: "config", field: "database", hint });
    }
    expect(await databases()).not.toContain("nowhere");
  });

  test("suggests api: v1 when the server has no InfluxDB 2 API", async () => {
    const sink = createSink({ url: server.url, bucket: "b" });
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "config", hint: /api: v1/ });
  });

  test("quotes a database name that contains an SQL statement", async () => {
    const databaseName = 'x"; DROP DATABASE "kinds';
    const sink = await openSink(databaseName);
    await sink.write([valueEvent(1)], never());
    expect(await databases()).toContain(databaseName);
  });

  test("the probe succeeds without creating the database when create_database would create it", async () => {
    const sink = createSink({ url: server.url, api: "v1", database: "tomorrow", create_database: true });
    await sink.probe?.(never());
    expect(await databases()).not.toContain("tomorrow");
    await sink.open(never());
    expect(await sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
  });

  test("names a missing retention policy in the error", async () => {
    await openSink("policies");
    const sink = createSink({ url: server.url, api: "v1", database: "policies", retention_policy: "decade" });
    await expectFailure(sink.write([valueEvent(1)], never()), { message: /decade/ });
  });

  test("points older than the retention are dropped by the server and logged once, without dead letters", async () => {
    const create = `/query?${new URLSearchParams({ q: "CREATE DATABASE short WITH DURATION 2h" })}`;
    await expect
      .poll(async () => {
        await query("POST", create);
        return databases();
      })
      .toContain("short");
    const logEntries: { points?: number; total?: number; msg: string }[] = [];
    const log = pino({ level: "warn" }, { write: (line: string) => void logEntries.push(JSON.parse(line)) });
    const config = InfluxConfig.parse({ url: server.url, api: "v1", database: "short" });
    const sink = closeAfterTest(createInfluxSink(config, { ...contextFor("lake"), log }));
    const now = Date.now();
    const at = (n: number, ageMs: number) => ({ ...valueEvent(n), time: new Date(now - ageMs).toISOString() });
    const old = Array.from({ length: 50 }, (_, n) => at(n, 30 * 86_400_000 + n * 1_000));
    const recentValues = Array.from({ length: 5 }, (_, n) => at(100 + n, 60_000 + n * 1_000));
    expect(await sink.write([...old, ...recentValues], never())).toEqual({ rejected: [] });
    expect(await sink.write(old, never())).toEqual({ rejected: [] });
    expect(await rows("short", "SELECT value FROM tag_value")).toHaveLength(5);
    expect(logEntries).toMatchObject([{ points: 50, total: 50, msg: expect.stringContaining("as old as these") }]);
    expect(await sink.retentionMs?.(never())).toBe(2 * 3_600_000);
  });

  test("reports unlimited retention for a database with the default retention policy", async () => {
    const sink = await openSink("eternal");
    expect(await sink.retentionMs?.(never())).toBe(Number.POSITIVE_INFINITY);
  });

  async function openSink(database: string) {
    const sink = createSink({ url: server.url, api: "v1", database, create_database: true });
    await sink.open(never());
    await sink.open(never());
    return sink;
  }

  async function query(method: "GET" | "POST", path: string, body: string | null = null): Promise<Response> {
    const response = await fetch(`${server.url}${path}`, { method, body });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response;
  }

  async function rows(db: string, q: string): Promise<readonly Record<string, unknown>[]> {
    const path = `/query?${new URLSearchParams({ db, q, epoch: "ms" }).toString()}`;
    const { results } = (await (await query("GET", path)).json()) as {
      results: { error?: string; series?: { columns: string[]; values: unknown[][] }[] }[];
    };
    expect(results[0]?.error).toBeUndefined();
    return (results[0]?.series ?? []).flatMap(({ columns, values }) =>
      values.map((row) => Object.fromEntries(columns.map((name, at) => [name, row[at]]))),
    );
  }

  const databases = async (): Promise<readonly unknown[]> => (await rows("", "SHOW DATABASES")).map(({ name }) => name);
});

describe.skipIf(absent("victoria-metrics"))("the InfluxDB sink with VictoriaMetrics", () => {
  let server: RealServer;
  beforeAll(async () => {
    server = await startVictoriaMetrics();
  });
  afterAll(() => server.stop());

  test("stores every event kind and texts with special characters without an invalid row", async () => {
    const sink = createSink({ url: server.url, bucket: "lake" });
    await sink.probe?.(never());
    expect(await sink.retentionMs?.(never()), "it does not know the question").toBeNull();
    const texts = AWKWARD_TEXTS.map((text, n) => awkward(text, n));
    const values = Array.from({ length: 100 }, (_, n) => valueEvent(n, "20001", n === 50 ? null : n / 2));
    for (const batch of [sampleOfEveryKind(), texts, values])
      expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    await expect.poll(() => exported("tag_value_value", "20001")).toHaveLength(99);
    expect(await exported("tag_value_value", "20001")).toEqual(
      values
        .filter(({ data }) => data.value !== null)
        .map(({ time, data }) => ({ time: Date.parse(time), value: data.value })),
    );
    expect(await exported("tag_value_good", "20001")).toHaveLength(100);
    expect(await exported("tag_history_value", TAG.id)).toHaveLength(2);
    expect(await labels("tag_value_value")).toContain("C:/plant/");
    const metrics = await (await fetch(`${server.url}/metrics`)).text();
    expect(metrics).toContain('vm_rows_invalid_total{type="influx"} 0');
  });

  async function exportLines(metric: string) {
    await fetch(`${server.url}/internal/force_flush`);
    const path = `/api/v1/export?${new URLSearchParams({ "match[]": metric, start: "0" }).toString()}`;
    const exportText = await (await fetch(`${server.url}${path}`)).text();
    return exportText
      .split("\n")
      .filter(Boolean)
      .map((line) => JSON.parse(line) as { metric: Record<string, string>; values: number[]; timestamps: number[] });
  }

  async function exported(metric: string, tagId: string) {
    return (await exportLines(`${metric}{tag_id="${tagId}"}`)).flatMap(({ values, timestamps }) =>
      timestamps.map((time, at) => ({ time, value: values[at] })),
    );
  }

  const labels = async (metric: string) => (await exportLines(metric)).map((line) => line.metric.unit);
});

function awkward(text: string, n: number): Event {
  const event = valueEvent(n, `awkward-${n}`, 1);
  return { ...event, data: { ...event.data, tag: { ...event.data.tag, unit: text }, behindGateway: text } };
}

function createSink(config: Record<string, unknown>) {
  return closeAfterTest(createInfluxSink(InfluxConfig.parse(config), contextFor("lake")));
}

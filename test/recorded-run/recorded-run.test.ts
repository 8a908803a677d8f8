import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { AnyEvent, Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { StoredLedger } from "#src/engine/sync/stored-documents.ts";
import { absent } from "../real-servers.ts";
import type { ArrivedEvent } from "./receivers.ts";
import { createRunHarness, type Harness } from "./run-harness.ts";

const hasMissingServers = [absent("mosquitto"), absent("victoria-metrics"), absent("influxd")].includes(true);

const BEFORE_KILL_MS = 30_000;
const AFTER_KILL_MS = 40_000;
const LAST_POLLS_MS = 25_000;
/** One request brings 12 hours of up to 20 tags: the kill comes after the first and before the last. */
const POINTS_BEFORE_KILL = 1_000;
const POINTS_AT_END = 5_000;
/** The first round of values, the log discovery and the newest interval of 145 tags take up to two minutes. */
const WAIT_MAX_S = 180;

interface Transition {
  readonly atMs: number;
  readonly alarmId: string;
  readonly kind: string;
  readonly triggeredAtMs: number;
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

describe.skipIf(hasMissingServers)("a recorded run with real servers and one kill of the worker", () => {
  let harness: Harness;
  let committed: readonly AnyEvent[];
  let histories: ReadonlyMap<string, StoredLedger>;
  let transitions: readonly Transition[];
  let everTransitions: readonly Transition[];
  let firstPollMs: number;
  let acknowledgedAlarm: string;
  const setPoint = { id: "recorded-run-set-point", value: 75 };

  beforeAll(async () => {
    harness = await createRunHarness();
    let worker = await harness.startWorker();
    await pause(BEFORE_KILL_MS);
    await waitUntil("the first history", async () => historyPoints(harness) > POINTS_BEFORE_KILL);
    await worker.end("SIGKILL");

    worker = await harness.startWorker();
    const { id } = await harness.postControl<{ id: string }>("alarms/raise", { site_id: 1, description: "by hand" });
    acknowledgedAlarm = id;
    await pause(8_000);
    await harness.postControl("alarms/acknowledge", { id, by: "Kari", message: "on my way" });
    await harness.mqtt.publish("plenum/cmd/main/10169/set", JSON.stringify(setPoint));
    await pause(AFTER_KILL_MS - 8_000);
    await harness.postControl("alarms/resolve", { id });

    const { now_ms: endMs } = await harness.query<{ now_ms: number }>("now");
    await pause(LAST_POLLS_MS);
    await waitUntil("the past", async () => historyPoints(harness) > POINTS_AT_END);
    await waitUntil("the sinks", async () => {
      const lags = JSON.parse(await harness.plenum(["outbox", "--json"]));
      return lags.every((sink: { depth: number; again: number }) => sink.depth + sink.again < 50);
    });
    expect(await worker.end("SIGTERM")).toBe(0);
    everTransitions = await harness.query<Transition[]>("truth/transitions?from_ms=0");

    const store = await openStore({ folder: harness.stateFolder, clock: systemClock, readOnly: true });
    committed = (await store.outbox.latest(1_000_000)).map(({ event }) => event as AnyEvent).reverse();
    histories = await store.documents<StoredLedger>(documentSet("history", "main"));
    await store.close();
    firstPollMs = Math.min(...committed.filter((e) => e.type === "site-added").map((e) => Date.parse(e.time))) + 2_000;
    transitions = everTransitions.filter(({ atMs }) => atMs > firstPollMs && atMs <= endMs);
  });

  afterAll(() => harness?.clear());

  test("delivers every alarm transition of the service once to MQTT, webhook and file, and no other transition", () => {
    const arrivals = {
      mqtt: harness.mqtt.arrived,
      webhook: harness.webhooks.arrived,
      file: fileEvents(harness.eventFolder),
    };
    expect(harness.webhooks.refused).toEqual([]);
    const happened = new Set(
      everTransitions.map(({ kind, alarmId, triggeredAtMs }) => episodeKey(kind, alarmId, triggeredAtMs)),
    );
    const wanted = transitions.filter(({ kind }) => kind === "raised" || kind === "resolved");
    expect(wanted.length).toBeGreaterThan(10);
    for (const [way, all] of Object.entries(arrivals)) {
      const deliveries = new Map<string, number>();
      for (const event of withoutDuplicates(all)) {
        if (event.type !== "alarm-raised" && event.type !== "alarm-resolved") continue;
        const { alarm } = event.data;
        const key = episodeKey(event.type.slice("alarm-".length), alarm.id, Date.parse(alarm.triggeredAt));
        deliveries.set(key, (deliveries.get(key) ?? 0) + 1);
        expect(happened, `${way} tells what never happened: ${key}`).toContain(key);
      }
      for (const { kind, alarmId, triggeredAtMs } of wanted) {
        const key = episodeKey(kind, alarmId, triggeredAtMs);
        expect(deliveries.get(key), `${way} should tell once: ${key}`).toBe(1);
      }
      expect([...deliveries.values()].filter((count) => count !== 1)).toEqual([]);
      const acknowledgements = withoutDuplicates(all).filter(
        (e) => e.type === "alarm-acknowledged" && e.data.alarm.id === acknowledgedAlarm,
      );
      expect(
        acknowledgements.map((e) => e.data.alarm.acknowledgedBy),
        way,
      ).toEqual(["Kari"]);
    }
  });

  test("the file and MQTT receive every committed event, in commit order for each object", () => {
    const files = withoutDuplicates(fileEvents(harness.eventFolder));
    expect(new Set(files.map((e) => e.id))).toEqual(new Set(committed.map((e) => e.id)));
    const order = new Map(committed.map((event, index) => [event.id, index]));
    const lastPosition = new Map<string, number>();
    for (const event of files) {
      const position = order.get(event.id) ?? -1;
      expect(position, event.subject).toBeGreaterThan(lastPosition.get(event.subject) ?? -1);
      lastPosition.set(event.subject, position);
    }
    const overMqtt = new Set([
      ...harness.mqtt.arrived.map((e) => e.id),
      ...harness.mqtt.messages.map(({ payload }) => String(payload.id)),
    ]);
    expect(committed.filter((e) => !overMqtt.has(e.id)).map((e) => `${e.type} ${e.subject}`)).toEqual([]);
  });

  test("events with the same id have the same content", () => {
    const contentById = new Map<string, string>();
    for (const event of [...harness.mqtt.arrived, ...harness.webhooks.arrived, ...fileEvents(harness.eventFolder)]) {
      const text = JSON.stringify(event);
      expect(contentById.get(event.id) ?? text).toBe(text);
      contentById.set(event.id, text);
    }
  });

  test("VictoriaMetrics and InfluxDB receive every committed value, and no unreadable value", async () => {
    const values = committed.filter((e): e is Event<"tag-value"> & AnyEvent => e.type === "tag-value");
    expect(values.length).toBeGreaterThan(150);
    const inVictoria = await victoriaPoints(harness, "tag_value_value");
    const inInflux = await influxPoints(harness, "SELECT value FROM tag_value GROUP BY tag_id");
    for (const { data, time } of values) {
      if (typeof data.value === "boolean") continue;
      const key = `${data.tag.id} ${Date.parse(time)}`;
      const wanted = data.value === null ? undefined : data.value;
      // VictoriaMetrics keeps about 15 decimal digits; InfluxDB keeps the number as it is.
      if (wanted === undefined) expect(inVictoria.has(key), `VictoriaMetrics ${key}`).toBe(false);
      else expect(inVictoria.get(key), `VictoriaMetrics ${key}`).toBeCloseTo(wanted, 6);
      expect(inInflux.get(key), `InfluxDB ${key}`).toBe(wanted);
    }
    const invalid = await (await fetch(`${harness.victoriaMetrics.url}/metrics`)).text();
    expect(/vm_rows_invalid_total\{type="influx"\} (\d+)/.exec(invalid)?.[1] ?? "0").toBe("0");
  });

  test("every history point up to the watermark arrives once and equals the point of the service", async () => {
    const points = new Map<string, number | boolean | null>();
    for (const event of withoutDuplicates(fileEvents(harness.eventFolder))) {
      if (event.type !== "tag-history") continue;
      for (const { time, value } of event.data.points) {
        const key = `${event.data.tag.id} ${time}`;
        expect(points.has(key) && !event.data.revised, `told twice: ${key}`).toBe(false);
        points.set(key, value);
      }
    }
    expect(points.size).toBeGreaterThan(POINTS_AT_END);
    const inInflux = await influxPoints(harness, "SELECT value FROM tag_history GROUP BY tag_id");
    let comparedCount = 0;
    for (const [key, held] of histories) {
      const tag = key.split(" ")[0] ?? "";
      const ownPoints = [...points.keys()].filter((each) => each.startsWith(`${tag} `));
      if (ownPoints.length === 0 || held.state !== "following") continue;
      const from = ownPoints.map((each) => each.split(" ")[1] ?? "").toSorted()[0] ?? "";
      const query = new URLSearchParams({ tag, from, to: held.watermark, resolution: "5m", tz: "Europe/Helsinki" });
      const truePoints = await harness.query<{ startMs: number; value: number | boolean | null }[]>(
        `truth/history?${query}`,
      );
      for (const { startMs, value } of truePoints) {
        const time = new Date(startMs).toISOString();
        expect(points.get(`${tag} ${time}`), `${tag} ${time}`).toEqual(value);
        if (typeof value === "number") expect(inInflux.get(`${tag} ${startMs}`)).toBe(value);
        comparedCount += 1;
      }
    }
    expect(comparedCount).toBeGreaterThan(POINTS_AT_END);
  });

  test("a set-point from MQTT is written once, read back and confirmed", async () => {
    const results = withoutDuplicates(harness.mqtt.arrived).filter((e) => e.type === "command-result");
    expect(results.map((e) => [e.data.commandId, e.data.outcome, e.data.readBack])).toEqual([
      [setPoint.id, "confirmed", setPoint.value],
    ]);
    const writes = await harness.query<{ tagId: string; value: number }[]>("truth/writes");
    expect(writes.map(({ tagId, value }) => [tagId, value])).toEqual([["10169", setPoint.value]]);
  });

  test("the service rejects no request because of the quota, not even after the kill", async () => {
    const { totals, busiest_minute } = await harness.query<{
      totals: Record<string, number>;
      busiest_minute: number;
    }>("truth/totals");
    expect(Object.keys(totals).filter((key) => key.endsWith(" 429"))).toEqual([]);
    expect(busiest_minute).toBeLessThanOrEqual(20);
    expect(busiest_minute).toBeGreaterThan(10);
  });
});

function withoutDuplicates(events: readonly ArrivedEvent[]): readonly ArrivedEvent[] {
  return [...new Map(events.toReversed().map((event) => [event.id, event])).values()].toReversed();
}

function episodeKey(kind: string, alarmId: string, triggeredAtMs: number): string {
  return `${kind} ${alarmId} ${Math.floor(triggeredAtMs / 1000)}`;
}

function fileEvents(folder: string): readonly ArrivedEvent[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".jsonl"))
    .toSorted()
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n").slice(0, -1))
    .map((line) => JSON.parse(line));
}

function historyPoints(harness: Harness): number {
  return fileEvents(harness.eventFolder).reduce(
    (sum, event) => sum + (event.type === "tag-history" ? event.data.points.length : 0),
    0,
  );
}

async function waitUntil(what: string, holds: () => Promise<boolean>): Promise<void> {
  for (let attempt = 0; attempt < WAIT_MAX_S; attempt += 1) {
    if (await holds()) return;
    await pause(1_000);
  }
  throw new Error(`Waited in vain for ${what}.`);
}

/** `tag id, time in ms` → value. Queries until the number of points is stable, because new points appear late. */
async function victoriaPoints(harness: Harness, name: string): Promise<Map<string, number>> {
  let points = new Map<string, number>();
  for (let attempt = 0; attempt < 20; attempt += 1) {
    await fetch(`${harness.victoriaMetrics.url}/internal/force_flush`);
    const response = await fetch(`${harness.victoriaMetrics.url}/api/v1/export?match[]=${name}`);
    const foundPoints = new Map<string, number>();
    for (const line of (await response.text()).split("\n").filter((text) => text !== "")) {
      const { metric, values, timestamps } = JSON.parse(line);
      timestamps.forEach((time: number, i: number) => {
        foundPoints.set(`${metric.tag_id} ${time}`, values[i]);
      });
    }
    if (foundPoints.size > 0 && foundPoints.size === points.size) return foundPoints;
    points = foundPoints;
    await pause(500);
  }
  return points;
}

interface InfluxResponse {
  readonly results: readonly {
    readonly series?: readonly {
      readonly tags: { readonly tag_id: string };
      readonly values: readonly [number, number | null][];
    }[];
  }[];
}

async function influxPoints(harness: Harness, query: string): Promise<Map<string, number>> {
  const parameters = new URLSearchParams({ db: "plenum", epoch: "ms", q: query });
  const body = (await (await fetch(`${harness.influx.url}/query?${parameters}`)).json()) as InfluxResponse;
  const points = new Map<string, number>();
  for (const { tags, values } of body.results[0]?.series ?? []) {
    for (const [time, value] of values) if (value !== null) points.set(`${tags.tag_id} ${time}`, value);
  }
  return points;
}

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeEventLines as bytesOf, type PointSettings } from "#connectors/influxdb/event-points.ts";
import { formatLine } from "#connectors/influxdb/line-protocol.ts";
import type { Event } from "#src/core/model/event.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryKind, TAG, valueEvent } from "../sample-events.ts";
import { seed } from "../seed.ts";
import { parseLine } from "./line-protocol.ts";

const PLAIN = { prefix: "", tags: {} };
const linesOf = (event: Event, settings: PointSettings) =>
  [...bytesOf(event, settings)].flatMap(({ text }) => text.toString().split("\n"));

const keyOf = ({ measurement, tags, timeMs, withinMs }: ReturnType<typeof pointsOf>[number]) =>
  JSON.stringify([measurement, tags, timeMs, withinMs]);

describe("the mapping of events to InfluxDB points", () => {
  test("encodes a value as a float with tag, unit, site and event time", () => {
    expect(pointsOf(valueEvent(250, "10042", 21.5))).toEqual([
      {
        measurement: "tag_value",
        tags: { source: "main", site_id: "1", tag_id: "10042", unit: "°C" },
        fields: { value: 21.5, quality: "good", good: true, latency_ms: 80 },
        timeMs: Date.parse("2026-11-02T06:20:00.250Z"),
        withinMs: 0,
      },
    ]);
  });

  test("encodes whole numbers as floats, so a later fraction causes no type conflict", () => {
    const [line] = linesOf(valueEvent(1, "10042", 20), PLAIN);
    expect(line).toMatch(/,value=20 /);
    expect(line).not.toContain("20i");
  });

  test("a tag-value event without a value is encoded without the value field", () => {
    const [point] = pointsOf(valueEvent(1, "10042", null));
    expect(point?.fields).toEqual({ quality: "bad", good: false, latency_ms: 80 });
  });

  test("encodes a boolean in a separate field", () => {
    const [point] = pointsOf(valueEvent(1, "10042", false));
    expect(point?.fields).toMatchObject({ value_bool: false });
    expect(point?.fields).not.toHaveProperty("value");
  });

  test("encodes history as one point per bucket, at the time of the bucket", () => {
    const points = pointsOf(sampleEvent("tag-history"));
    expect(points.map(({ timeMs, fields }) => [new Date(timeMs).toISOString(), fields.value, fields.good])).toEqual([
      ["2026-11-02T04:00:00.000Z", 20.5, true],
      ["2026-11-02T05:00:00.000Z", undefined, false],
      ["2026-11-02T06:00:00.000Z", 21, true],
    ]);
    expect(points[0]?.tags).toEqual({
      source: "main",
      site_id: "1",
      tag_id: "10042",
      unit: "°C",
      resolution: "1h",
      time_zone: "Europe/Stockholm",
    });
    expect(points[0]?.fields).toMatchObject({ origin: "live", revised: false });
  });

  test("encodes site, end and acknowledgement of an alarm as fields", () => {
    const sample = sampleEvent("alarm-acknowledged");
    const alarm = {
      ...sample.data.alarm,
      status: "resolved",
      resolvedAt: "2026-11-02T08:00:00.000Z",
      acknowledged: true,
      acknowledgedBy: "Ann",
      acknowledgedAt: "2026-11-02T07:00:00.000Z",
      acknowledgedMessage: "On my way",
    };
    const [point] = pointsOf({ ...sample, data: { ...sample.data, alarm } });
    expect(point?.fields).toMatchObject({
      active: false,
      state: "resolved",
      site: "Kvarnholmen 4",
      triggered_at: "2026-11-02T06:15:00.000Z",
      resolved_at: "2026-11-02T08:00:00.000Z",
      acknowledged: true,
      acknowledged_by: "Ann",
      acknowledged_at: "2026-11-02T07:00:00.000Z",
      acknowledged_message: "On my way",
    });
    expect(Object.keys(point?.tags ?? {}).toSorted()).toEqual(
      ["alarm_id", "priority", "site_id", "source", "trigger_id", "type"].toSorted(),
    );
  });

  test("treats an alarm with an unknown status as active", () => {
    const sample = sampleEvent("alarm-changed");
    const odd = { ...sample, data: { ...sample.data, alarm: { ...sample.data.alarm, status: "muted" } } };
    expect(pointsOf(odd)[0]?.fields).toMatchObject({ active: true, state: "active", status: "muted" });
  });

  test("encodes details of hosts, systems, gateways and tags", () => {
    const fields = (kind: "host-added" | "system-changed" | "gateway-added" | "tag-added") =>
      pointsOf(sampleEvent(kind))[0]?.fields;
    expect(fields("host-added")).toMatchObject({
      host_type: "modbus",
      model_name: "EX-8",
      ip_address: "192.0.2.31",
      behind_gateway: "7",
      gateway: "Basement gateway",
    });
    expect(fields("system-changed")).toMatchObject({
      code: "VS1",
      discipline: "heating",
      location: "Basement",
      manufacturer: "Example AB",
      installed_year: 2016,
      datapoints_count: 18,
    });
    expect(fields("gateway-added")).toMatchObject({
      version: "4.2.1",
      hardware: "GW-2",
      ip_address: "192.0.2.7",
      location: "Room 012",
    });
    expect(fields("tag-added")).toMatchObject({ unit: "°C" });
  });

  test("has a measurement for every event kind", () => {
    const measurements = Object.fromEntries(
      sampleOfEveryKind().map((event) => [event.type, pointsOf(event)[0]?.measurement]),
    );
    expect(measurements).toMatchObject({
      "tag-value": "tag_value",
      "tag-history": "tag_history",
      "tag-total": "tag_total",
      "alarm-raised": "alarm_event",
      "alarm-out-of-scope": "alarm_event",
      "gateway-offline": "gateway_status",
      "gateway-changed": "inventory_event",
      "tag-removed": "inventory_event",
      "command-result": "command_result",
      "delivery-gap": "worker_event",
    });
    expect(Object.values(measurements).every((name) => name !== undefined)).toBe(true);
  });

  test("returns identical lines for identical events, and different points for different events", () => {
    const keys = new Set<string>();
    let count = 0;
    for (const event of sampleOfEveryKind()) {
      expect([...linesOf(event, PLAIN)]).toEqual([...linesOf(structuredClone(event), PLAIN)]);
      for (const point of pointsOf(event)) {
        keys.add(keyOf(point));
        count += 1;
      }
    }
    expect(keys.size).toBe(count - 1);
  });

  test("gives two events of the same millisecond and series different times", () => {
    const gap = sampleEvent("delivery-gap");
    const silence = sampleEvent("silence-started");
    const result = sampleEvent("command-result");
    const unavailable = sampleEvent("source-unavailable");
    const other = (event: Event, data: object) => ({ ...event, id: `${event.id}.other`, data }) as Event;
    for (const [one, two] of [
      [gap, other(gap, { ...gap.data, reason: "size" })],
      [silence, other(silence, { ...silence.data, silence: { ...silence.data.silence, id: "another" } })],
      [result, other(result, { ...result.data, commandId: "another" })],
      ...(["command-accepted", "command-not-restored"] as const).map((kind) => {
        const event = sampleEvent(kind);
        return [event, other(event, { ...event.data, commandId: "another" })] as const;
      }),
      [unavailable, { ...other(unavailable, unavailable.data), subject: "feature/alarms" }],
    ] as const) {
      const points = [one, two].flatMap(pointsOf);
      expect(new Set(points.map(keyOf)).size, one.type).toBe(2);
      expect(new Set(points.map(({ measurement, tags }) => JSON.stringify([measurement, tags]))).size).toBe(1);
      expect(new Set(points.map(({ timeMs }) => timeMs))).toEqual(new Set([Date.parse(one.time)]));
      expect(pointsOf(structuredClone(two)).map(keyOf)).toEqual(pointsOf(two).map(keyOf));
    }
  });

  test("a later event about the same object and time overwrites the earlier point", () => {
    for (const kind of ["tag-value", "tag-history", "tag-total", "day-sealed", "gateway-online"] as const) {
      const event = sampleEvent(kind);
      const again = { ...event, id: `${event.id}.other` } as Event;
      expect(pointsOf(again).map(keyOf), kind).toEqual(pointsOf(event).map(keyOf));
    }
  });

  test("encodes changes, tickets, silence authors and command expiry as fields", () => {
    const fields = (event: Event) => pointsOf(event)[0]?.fields;
    const changed = sampleEvent("tag-changed");
    expect(
      fields({ ...changed, data: { ...changed.data, before: { displayName: "VS1-GT10", unit: null } } }),
    ).toMatchObject({ changed: "displayName,unit", before: '{"displayName":"VS1-GT10","unit":null}' });
    const raised = sampleEvent("alarm-raised");
    const tickets = [
      { sink: "jira", ticket: "OPS-7", link: null },
      { sink: "chat", ticket: null, link: null },
    ];
    expect(fields({ ...raised, data: { ...raised.data, tickets } })).toMatchObject({
      tickets: "jira OPS-7, chat",
      trigger_enabled: raised.data.alarm.trigger.enabled,
      triggered_on: raised.data.alarm.lastActiveEvent?.triggeredOn,
    });
    const value = valueEvent(1, "10042", true);
    const type = { before: "number", now: "boolean" } as const;
    expect(fields({ ...value, data: { ...value.data, type } })).toMatchObject({
      type_before: "number",
      type_now: "boolean",
    });
    const silence = sampleEvent("silence-started");
    expect(fields(silence)).toMatchObject({ made_by: silence.data.silence.madeBy, by: silence.data.by });
    const accepted = sampleEvent("command-accepted");
    expect(fields(accepted)).toMatchObject({
      expires_at: accepted.data.expiresAt,
      needs_second: accepted.data.needsSecond,
    });
  });

  test("adds the configured prefix and tags to every point", () => {
    const settings = { prefix: "plenum_", tags: { environment: "test site" } };
    for (const event of sampleOfEveryKind()) {
      for (const line of linesOf(event, settings)) {
        expect(parseLine(line)).toMatchObject({
          measurement: expect.stringMatching(/^plenum_/) as string,
          tags: { environment: "test site" },
        });
      }
    }
  });

  test.each(AWKWARD_TEXTS.map((text) => [text.slice(0, 40), text]))(
    "writes a point with the text %j on one line",
    (_, text) => {
      for (const event of [awkwardValue(text), awkwardAlarm(text)]) {
        const lines = [...linesOf(event, PLAIN)];
        expect(lines).toHaveLength(1);
        expect(lines[0]).not.toMatch(/[\p{Cc}\u2028\u2029]/u);
        expect(parseLine(lines[0] ?? "").tags.site_id).toBe("1");
      }
    },
  );

  test("writes each point on one line, whatever characters its texts contain", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.constantFrom("\\", ",", "=", " ", '"', "\n"), (text, awkward) => {
        for (const whole of [text + awkward, awkward + text, text + awkward + awkward]) {
          const value = parseLine([...linesOf(awkwardValue(whole), PLAIN)][0] ?? "");
          expect(value.fields.value).toBe(1);
          expect(Object.keys(value.tags)).toEqual(expect.arrayContaining(["source", "site_id", "tag_id"]));
          const alarm = parseLine([...linesOf(awkwardAlarm(whole), PLAIN)][0] ?? "");
          expect(alarm.fields.late).toBe(false);
        }
      }),
      { seed, numRuns: 300 },
    );
  });

  test("rejects NaN", () => {
    const parts = { measurement: "m", tags: {}, timeMs: 0 };
    expect(() => formatLine({ ...parts, fields: { value: Number.NaN } })).toThrow(
      "NaN is no number for the field value.",
    );
  });

  test("reads a time without an offset as UTC, and rejects an unreadable time", () => {
    const at = (time: string) => pointsOf({ ...valueEvent(1), time })[0]?.timeMs;
    expect(at("2026-11-02T06:20:00")).toBe(Date.UTC(2026, 10, 2, 6, 20));
    expect(at("2026-11-02T07:20:00+01:00")).toBe(Date.UTC(2026, 10, 2, 6, 20));
    expect(() => at("2026-11-02T06:20:60Z")).toThrow('"2026-11-02T06:20:60Z" is not a time.');
  });
});

const pointsOf = (event: Event) => [...linesOf(event, PLAIN)].map(parseLine);

function awkwardValue(text: string): Event {
  const event = valueEvent(1, "10042", 1);
  return { ...event, data: { ...event.data, tag: { ...TAG, unit: text }, behindGateway: text } };
}

function awkwardAlarm(text: string): Event {
  const event = sampleEvent("alarm-raised");
  const { alarm } = event.data;
  const trigger = { ...alarm.trigger, displayName: text, priority: text };
  return {
    ...event,
    data: { ...event.data, alarm: { ...alarm, description: text, source: text, acknowledgedBy: text, trigger } },
  };
}

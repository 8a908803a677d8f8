import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeEventLines as bytesOf, type InfluxPointSettings } from "#connectors/influxdb/event-points.ts";
import { formatInfluxLine } from "#connectors/influxdb/line-protocol.ts";
import type { Event } from "#src/core/model/event.ts";
import { sampleEvent, sampleOfEveryKind, staleEvent, TAG, valueEvent } from "../sample-events.ts";
import { seed } from "../seed.ts";
import { parseLine } from "./line-protocol.ts";

const PLAIN_SETTINGS = { prefix: "", tags: {} };
const encodeLines = (event: Event, settings: InfluxPointSettings) =>
  [...bytesOf(event, settings)].flatMap(({ text }) => text.toString().split("\n"));

const pointKey = ({ measurement, tags, timeMs, withinMs }: ReturnType<typeof parsePoints>[number]) =>
  JSON.stringify([measurement, tags, timeMs, withinMs]);

describe("the mapping of events to InfluxDB points", () => {
  test("encodes a value as a float with tag, unit, site and event time", () => {
    expect(parsePoints(valueEvent(250, "10042", 21.5))).toEqual([
      {
        measurement: "tag_value",
        tags: { source: "main", site_id: "1", tag_id: "10042", unit: "°C" },
        fields: { value: 21.5, quality: "good", good: true, latency_ms: 80 },
        timeMs: Date.parse("2026-11-02T06:20:00.250Z"),
        withinMs: 0,
      },
    ]);
  });

  test("encodes a tag's alias as an InfluxDB tag of values and history, and its names as inventory fields", () => {
    const named = { ...TAG, alias: "Supply air", path: "b1/supply", unitCode: "Cel" };
    for (const kind of ["tag-value", "tag-history", "tag-total", "tag-changed"] as const) {
      const sample = kind === "tag-value" ? valueEvent(1, "10042", 21.5) : sampleEvent(kind);
      const [point] = parsePoints({ ...sample, data: { ...sample.data, tag: named } } as Event);
      const inventoryFields = { alias: "Supply air", path: "b1/supply", unit_code: "Cel" };
      if (kind === "tag-changed") expect(point?.fields).toMatchObject(inventoryFields);
      else expect(point?.tags, kind).toMatchObject({ tag_id: "10042", alias: "Supply air" });
    }
  });

  test.each([
    [null, { quality: "bad", good: false }],
    [false, { quality: "good", good: true, value_bool: false }],
  ])("encodes the value %j as a point without the field `value`", (value, fields) => {
    expect(parsePoints(valueEvent(1, "10042", value))[0]?.fields).toEqual({ ...fields, latency_ms: 80 });
  });

  test("encodes a stale value with its quality and reason, and without a value", () => {
    expect(parsePoints(staleEvent())[0]?.fields).toEqual({
      ...{ quality: "stale", good: false, latency_ms: 0, stale_reason: "out-of-scope" },
    });
  });

  test("encodes history as one point per bucket, at the time of the bucket", () => {
    const points = parsePoints(sampleEvent("tag-history"));
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

  test("encodes the site and the end of an alarm as fields, and the alarm id as an InfluxDB tag", () => {
    const sample = sampleEvent("alarm-acknowledged");
    const alarm = { ...sample.data.alarm, status: "resolved", resolvedAt: "2026-11-02T08:00:00.000Z" };
    const [point] = parsePoints({ ...sample, data: { ...sample.data, alarm } });
    expect(point?.fields).toMatchObject({ site: "Kvarnholmen 4", resolved_at: "2026-11-02T08:00:00.000Z" });
    expect(Object.keys(point?.tags ?? {}).toSorted()).toEqual(
      ["alarm_id", "priority", "site_id", "source", "trigger_id", "type"].toSorted(),
    );
  });

  test.each([
    ["alarm-vanished", "vanished", "unknown"],
    ["alarm-out-of-scope", "out-of-scope", "unknown"],
    ["alarm-resolved", "resolved", "resolved"],
  ] as const)("encodes the event %s as the end of the alarm with the state %s", (kind, state, status) => {
    expect(parsePoints(sampleEvent(kind))[0]?.fields).toMatchObject({ active: false, state, status });
  });

  test("treats an alarm with an unknown status as active", () => {
    const sample = sampleEvent("alarm-changed");
    const odd = { ...sample, data: { ...sample.data, alarm: { ...sample.data.alarm, status: "muted" } } };
    expect(parsePoints(odd)[0]?.fields).toMatchObject({ active: true, state: "active", status: "muted" });
  });

  test("returns identical lines for identical events, and different points for different events", () => {
    const keys = new Set<string>();
    let count = 0;
    for (const event of sampleOfEveryKind()) {
      expect([...encodeLines(event, PLAIN_SETTINGS)]).toEqual([...encodeLines(structuredClone(event), PLAIN_SETTINGS)]);
      for (const point of parsePoints(event)) {
        keys.add(pointKey(point));
        count += 1;
      }
    }
    expect(keys.size).toBe(count - 1);
  });

  test("gives two events of the same InfluxDB series and millisecond points with different nanoseconds", () => {
    const gap = sampleEvent("delivery-gap");
    const silence = sampleEvent("silence-started");
    const result = sampleEvent("command-result");
    const unavailable = sampleEvent("source-unavailable");
    const changeEvent = (event: Event, data: object) => ({ ...event, id: `${event.id}.other`, data }) as Event;
    for (const [one, two] of [
      [gap, changeEvent(gap, { ...gap.data, reason: "size" })],
      [silence, changeEvent(silence, { ...silence.data, silence: { ...silence.data.silence, id: "another" } })],
      [result, changeEvent(result, { ...result.data, commandId: "another" })],
      ...(["command-accepted", "command-not-restored"] as const).map((kind) => {
        const event = sampleEvent(kind);
        return [event, changeEvent(event, { ...event.data, commandId: "another" })] as const;
      }),
      [unavailable, { ...changeEvent(unavailable, unavailable.data), subject: "feature/alarms" }],
    ] as const) {
      const points = [one, two].flatMap(parsePoints);
      expect(new Set(points.map(pointKey)).size, one.type).toBe(2);
      expect(new Set(points.map(({ measurement, tags }) => JSON.stringify([measurement, tags]))).size).toBe(1);
      expect(new Set(points.map(({ timeMs }) => timeMs))).toEqual(new Set([Date.parse(one.time)]));
      expect(parsePoints(structuredClone(two)).map(pointKey)).toEqual(parsePoints(two).map(pointKey));
    }
  });

  test("a later event about the same object and time overwrites the earlier point", () => {
    for (const kind of ["tag-value", "tag-history", "tag-total", "day-sealed", "gateway-online"] as const) {
      const event = sampleEvent(kind);
      const repeatedEvent = { ...event, id: `${event.id}.other` } as Event;
      expect(parsePoints(repeatedEvent).map(pointKey), kind).toEqual(parsePoints(event).map(pointKey));
    }
  });

  test("encodes the changes of a tag and the tickets of an alarm as fields", () => {
    const fields = (event: Event) => parsePoints(event)[0]?.fields;
    const tagChanged = sampleEvent("tag-changed");
    expect(
      fields({ ...tagChanged, data: { ...tagChanged.data, before: { displayName: "VS1-GT10", unit: null } } }),
    ).toMatchObject({ changed: "displayName,unit", before: '{"displayName":"VS1-GT10","unit":null}' });
    const alarmRaised = sampleEvent("alarm-raised");
    const tickets = [
      { sink: "jira", ticket: "OPS-7", link: null },
      { sink: "chat", ticket: null, link: null },
    ];
    const withTickets = { ...alarmRaised, data: { ...alarmRaised.data, tickets } };
    expect(fields(withTickets)).toMatchObject({ tickets: "jira OPS-7, chat" });
  });

  test("adds the configured prefix and tags to every point", () => {
    const settings = { prefix: "plenum_", tags: { environment: "test site" } };
    for (const event of sampleOfEveryKind()) {
      for (const line of encodeLines(event, settings)) {
        expect(parseLine(line)).toMatchObject({
          measurement: expect.stringMatching(/^plenum_/) as string,
          tags: { environment: "test site" },
        });
      }
    }
  });

  test("writes each point on one line, whatever characters its texts contain", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary" }), fc.constantFrom("\\", ",", "=", " ", '"', "\n"), (text, awkward) => {
        for (const tagText of [text + awkward, awkward + text, text + awkward + awkward]) {
          const value = parseLine([...encodeLines(awkwardValue(tagText), PLAIN_SETTINGS)][0] ?? "");
          expect(value.fields.value).toBe(1);
          expect(Object.keys(value.tags)).toEqual(expect.arrayContaining(["source", "site_id", "tag_id"]));
          const alarm = parseLine([...encodeLines(awkwardAlarm(tagText), PLAIN_SETTINGS)][0] ?? "");
          expect(alarm.fields.late).toBe(false);
        }
      }),
      { seed, numRuns: 300 },
    );
  });

  test("rejects a field whose value is NaN", () => {
    const pointParts = { measurement: "m", tags: {}, timeMs: 0 };
    expect(() => formatInfluxLine({ ...pointParts, fields: { value: Number.NaN } })).toThrow(
      "NaN is no number for the field value.",
    );
  });

  test("reads a time without an offset as UTC, and rejects an unreadable time", () => {
    const at = (time: string) => parsePoints({ ...valueEvent(1), time })[0]?.timeMs;
    expect(at("2026-11-02T06:20:00")).toBe(Date.UTC(2026, 10, 2, 6, 20));
    expect(at("2026-11-02T07:20:00+01:00")).toBe(Date.UTC(2026, 10, 2, 6, 20));
    expect(() => at("2026-11-02T06:20:60Z")).toThrow('"2026-11-02T06:20:60Z" is not a time.');
  });
});

const parsePoints = (event: Event) => [...encodeLines(event, PLAIN_SETTINGS)].map(parseLine);

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

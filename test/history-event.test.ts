import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  cloudEventParts,
  eventDataJson,
  makeHistoryEvent,
  pointsToJson,
  splitHistoryEvent,
  splitPackedPointsByDay,
} from "#src/core/codec/history-event.ts";
import { PointReader } from "#src/core/codec/history-point-reader.ts";
import { TagPoints } from "#src/core/codec/points.ts";
import { encodeEvent, parseEvent } from "#src/core/codec/stored-event.ts";
import type { Measurement, TagValue } from "#src/core/model/building.ts";
import { type Event, makeEvent, toCloudEvent } from "#src/core/model/event.ts";
import { AWKWARD_TEXTS } from "./sample-events.ts";
import { seed } from "./seed.ts";

/** The same event of history, built from objects. */
function plainEvent(fields: Parameters<typeof makeHistoryEvent>[0]): Event<"tag-history"> {
  const { tag, resolution, timeZone, origin, revisedAt, points, source, subject, time, siteId } = fields;
  const pointList = [...points];
  return makeEvent({
    ...{ type: "tag-history", source, subject, time, siteId },
    data: { tag, resolution, timeZone, points: pointList, origin, revised: revisedAt !== null },
    facts: [resolution, timeZone, JSON.stringify(pointList), revisedAt],
  });
}

const value: fc.Arbitrary<TagValue> = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }),
  fc.integer(),
  fc
    .tuple(fc.integer({ min: -2_100_000_000, max: 2_100_000_000 }), fc.integer({ min: 0, max: 9 }))
    .map(([n, d]) => n / 10 ** d),
  fc.float({ noNaN: true, noDefaultInfinity: true }),
  fc.constantFrom(null, true, false, 0, -0, 0.001, -0.001, 0.0005, 1999999.999, 2000000, 1e21, 5e-324, 4.35, 1.005),
);
const isoTime = (ms: number) => new Date(ms).toISOString();
const ODD_TIMES = ["2026-06-01T00:00:00", "2026-W23-1", `"},{"`, "+012026-06-01T00:00:00.000Z", "\u00a02026-06-01"];
const time = fc.oneof(
  { weight: 9, arbitrary: fc.integer({ min: -62167219200000, max: 253402300799999 }).map(isoTime) },
  { weight: 9, arbitrary: fc.integer({ min: 0, max: 700_000 }).map((n) => isoTime(n * 300_000)) },
  { weight: 1, arbitrary: fc.constantFrom(...ODD_TIMES) },
);
const text = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(...AWKWARD_TEXTS, `,"data":{"tag":`, `,"points":[`, `"type":"tag-history"`, `]}`),
);
const anyFields = fc
  .record({
    list: fc.array(fc.record({ time, value }), { maxLength: 40 }),
    name: text,
    unit: fc.option(text),
    zone: fc.constantFrom("UTC", "Europe/Stockholm"),
    siteId: fc.option(fc.integer({ min: 1, max: 99 })),
    origin: fc.constantFrom("live" as const, "backfill" as const),
    revisedAt: fc.option(fc.constant("2026-06-01T00:00:00.000Z")),
  })
  .map(({ list, name, unit, zone, ...rest }) => ({
    source: "/sources/main",
    subject: `site/1/tag/${name}/history/5m`,
    time: "2026-06-01T00:00:00.000Z",
    tag: { id: name, displayName: name, description: null, unit },
    resolution: "5m" as const,
    timeZone: zone,
    points: TagPoints.fromMeasurements(list).sortedByTime(),
    ...rest,
  }));

describe("the stored text of a history event", () => {
  test("restores the JSON and the id of the event", () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const plain = plainEvent(fields);
        const event = makeHistoryEvent(fields);
        expect({ ...parseEvent(encodeEvent(event)) }).toEqual({ ...parseEvent(JSON.stringify(plain)) });
        expect(JSON.stringify(parseEvent(encodeEvent(event)))).toBe(JSON.stringify(plain));
        expect(JSON.stringify(event)).toBe(JSON.stringify(plain));
        expect(event.id).toBe(plain.id);
        expect({ ...event }).toEqual({ ...(JSON.parse(JSON.stringify(plain)) as Event) });
        expect(cloudEventParts(event).join("")).toBe(JSON.stringify(toCloudEvent(plain)));
        expect(cloudEventParts(plain).join("")).toBe(JSON.stringify(toCloudEvent(plain)));
        expect(eventDataJson(event)).toBe(JSON.stringify(plain.data));
        expect(eventDataJson(plain)).toBe(JSON.stringify(plain.data));
      }),
      { seed, numRuns: 500 },
    );
  });

  function fieldsWith(list: readonly Measurement[]): Parameters<typeof makeHistoryEvent>[0] {
    const [fields] = fc.sample(anyFields, { numRuns: 1, seed });
    return { ...(fields as Parameters<typeof makeHistoryEvent>[0]), points: TagPoints.fromMeasurements(list) };
  }

  test.each([
    ["-000001-12-31T23:59:59.999Z", false],
    ["0000-01-01T00:00:00.000Z", true],
    ["9999-12-31T23:59:59.999Z", true],
    ["+010000-01-01T00:00:00.000Z", false],
  ])("stores points in the compact format only if their years have four digits (%s)", (end, isPacked) => {
    const fields = fieldsWith([{ time: end, value: 1 }]);
    const event = makeHistoryEvent(fields);
    expect(JSON.stringify(parseEvent(encodeEvent(event)))).toBe(JSON.stringify(plainEvent(fields)));
    expect(event.id).toBe(plainEvent(fields).id);
    expect(encodeEvent(event).includes(`,"points":"`)).toBe(isPacked);
  });

  test("stores 20,000 points of maximum length unchanged", () => {
    const list = Array.from({ length: 20_000 }, (_, n) => ({
      time: new Date(n * n).toISOString(),
      value: -1.2345678901234568e-300 / (n + 1),
    }));
    const fields = fieldsWith(list);
    const event = makeHistoryEvent(fields);
    expect(event.id).toBe(plainEvent(fields).id);
    expect(encodeEvent(event).length).toBeGreaterThan(500_000);
    expect(parseEvent(encodeEvent(event)).data).toMatchObject({ points: list });
  });

  test("can be split into its points and its other fields, whether the event was parsed from text or built in memory", () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const plain = plainEvent(fields);
        const { points, ...fact } = JSON.parse(JSON.stringify(plain.data)) as Event<"tag-history">["data"];
        const parsedEvent = parseEvent(JSON.stringify(plain)) as Event<"tag-history">;
        for (const event of [plain, makeHistoryEvent(fields), parsedEvent]) {
          const splitEvent = splitHistoryEvent(event);
          expect(JSON.parse(JSON.stringify(splitEvent.fact))).toEqual(fact);
          expect(pointsToJson(splitEvent.points)).toBe(JSON.stringify(points));
          expect(read(splitEvent.points)).toEqual(points.map(({ time, value }) => ({ time, value })));
          const days = [...splitPackedPointsByDay(splitEvent.points)];
          expect(`[${days.map((day) => day.pointsJson).join(",")}]`).toBe(JSON.stringify(points));
          for (const { time: first, pointsJson: list } of days)
            for (const { time } of JSON.parse(`[${list}]`) as Measurement[])
              expect(time.slice(0, 10)).toBe(first.slice(0, 10));
        }
      }),
      { seed, numRuns: 300 },
    );
  });

  test("stores each point as the difference from the previous point", () => {
    const points = [
      { time: "2026-01-01T00:00:00.000Z", value: 21.5 },
      { time: "2026-01-01T00:05:00.000Z", value: 21.6 },
      { time: "2026-01-01T00:10:00.000Z", value: true },
      { time: "2026-01-01T00:15:00.000Z", value: null },
      { time: "2026-01-01T02:15:00.000Z", value: -20 },
    ];
    const event = makeHistoryEvent(fieldsWith(points));
    const packed = "1767225600000+300000:21.5,21.6,t,n;7200000:-20";
    expect(splitHistoryEvent(event).points).toBe(packed);
    expect(encodeEvent(event)).toContain(`,"points":"${packed}",`);
    expect(event.data.points).toEqual(points);
  });
});

function read(list: string): readonly Measurement[] {
  const points: Measurement[] = [];
  for (const reader = new PointReader(list); reader.next(); ) {
    if (!Number.isNaN(reader.timeMs)) expect(reader.timeMs).toBe(Date.parse(reader.time));
    if (!reader.isNotNumber) {
      const bytes = Buffer.alloc(64);
      expect(bytes.toString("latin1", 0, reader.writeNumber(bytes, 0))).toBe(reader.value);
    }
    points.push({ time: reader.time, value: JSON.parse(reader.value) as TagValue });
  }
  return points;
}

import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { linesOf, type PointSettings } from "#connectors/influxdb/points.ts";
import { createValueLines } from "#connectors/influxdb/value-line.ts";
import type { Event } from "#src/core/model/event.ts";
import { AWKWARD_TEXTS, valueEvent } from "../sample-events.ts";
import { seed } from "../seed.ts";

const slowly = (event: Event, settings: PointSettings) =>
  [...linesOf(event, settings)].map(({ text }) => text.toString()).join("\n");

/** Changed as an event may be that is read from the disk, from another version or after a change of the building. */
const text = fc.oneof(fc.constantFrom(...AWKWARD_TEXTS), fc.string({ unit: "grapheme", maxLength: 20 }));
const event = fc
  .record({
    id: fc.constantFrom("7", "8", "a b", "x,y=z"),
    value: fc.oneof(fc.double(), fc.boolean(), fc.constant(null)),
    at: fc.nat(100_000),
    unit: fc.option(text),
    siteid: fc.constantFrom("1", "2", undefined),
    source: fc.constantFrom("/sources/main", "/sources/north", "/sources/süd"),
    quality: fc.constantFrom("good" as const, "uncertain" as const, "bad" as const),
    latencyMs: fc.oneof(fc.nat(10_000), fc.constant(Number.NaN)),
    behindGateway: fc.option(text, { freq: 4 }),
    type: fc.option(fc.constant({ before: "number", now: "boolean" } as const), { freq: 4, nil: undefined }),
  })
  .map(({ id, value, at, unit, siteid, source, type, ...told }): Event => {
    const { siteid: _siteid, ...made } = valueEvent(at, id, value);
    const data = { ...made.data, ...told, tag: { ...made.data.tag, unit } };
    const placed = siteid === undefined ? made : { ...made, siteid };
    return { ...placed, source, data: type === undefined ? data : { ...data, type } };
  });

describe("influxdb: the line of a value", () => {
  test("is the one that its point has, however tags change between two of them", () => {
    const settings = fc.record({
      prefix: fc.constantFrom("", "b_"),
      tags: fc.constantFrom({}, { building: "north wing" }),
    });
    fc.assert(
      fc.property(settings, fc.array(event, { minLength: 1, maxLength: 30 }), (chosen, events) => {
        const line = createValueLines(chosen);
        for (const each of events) {
          const quick = line(each);
          if (quick !== null) expect(quick).toBe(slowly(each, chosen));
        }
      }),
      { seed, numRuns: 500 },
    );
  });

  test("is made quickly for what is usual, and left to others for what is not", () => {
    const line = createValueLines({ prefix: "", tags: {} });
    const usual = valueEvent(250, "10042", 21.5);
    expect(line(usual)).toBe(slowly(usual, { prefix: "", tags: {} }));
    expect(line({ ...usual, data: { ...usual.data, behindGateway: "7" } } as Event)).toBeNull();
    expect(createValueLines({ prefix: "", tags: {}, namesOf: () => ({}) })(usual)).toBeNull();
    expect(() => line({ ...usual, time: "never" })).toThrow('"never" is not a time.');
  });
});

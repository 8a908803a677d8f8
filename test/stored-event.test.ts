import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { parseHistoryEvent } from "#src/core/codec/history-event.ts";
import { encodeEvent, parseEvent } from "#src/core/codec/stored-event.ts";
import { type Event, makeEvent } from "#src/core/model/event.ts";
import { AWKWARD_TEXTS, sampleOfEveryKind, TAG, valueEvent } from "./sample-events.ts";
import { replay, seed } from "./seed.ts";

const TIME = "2026-01-01T00:00:00.000Z";
const text = fc.oneof(
  fc.string({ unit: "grapheme" }),
  fc.constantFrom(...AWKWARD_TEXTS, "/tag/", "site/", `","good":[`, `,"data":{`, `"type":"tag-history"`),
);
const value = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.constantFrom(true, false, 0, -0, 21.5));
const almostGood = fc
  .record({
    source: text.map((name) => `/sources/${name}`),
    siteId: fc.integer({ min: 0, max: 99 }),
    tag: fc.record(
      { id: text, displayName: text, description: fc.option(text), unit: fc.option(text), alias: text, path: text },
      { requiredKeys: ["id", "displayName", "description", "unit"] },
    ),
    value,
    latencyMs: fc.nat(9_999),
    time: fc.integer({ min: 0, max: 2 ** 42 }).map((ms) => new Date(ms).toISOString()),
  })
  .map(({ source, siteId, tag, value: read, latencyMs, time }) =>
    makeEvent({
      ...{ type: "tag-value", source, time, siteId, subject: `site/${siteId}/tag/${tag.id}` },
      data: {
        ...{ tag, value: read, quality: "good", time, latencyMs },
        ...{ lastGood: { value: read, time }, behindGateway: null },
      },
      facts: [],
    }),
  );
type Value = Event<"tag-value">;
const otherData: Readonly<Record<string, (data: Value["data"]) => object>> = {
  "at another time than its event": () => ({ time: TIME }),
  "that is uncertain": () => ({ quality: "uncertain" }),
  "that is bad": () => ({ quality: "bad", value: null }),
  "that is null and good": ({ lastGood }) => ({ value: null, lastGood: { ...lastGood, value: null } }),
  "behind a gateway": () => ({ behindGateway: "7" }),
  "without an earlier good value": () => ({ lastGood: null }),
  "after another good value": ({ lastGood }) => ({ lastGood: { ...lastGood, value: "other" } }),
  "after a good value of another time": ({ lastGood }) => ({ lastGood: { ...lastGood, time: TIME } }),
  "after a good value with another field": ({ lastGood }) => ({ lastGood: { ...lastGood, quality: "good" } }),
  "of another type": () => ({ type: { before: "number", now: "boolean" } }),
  "of a tag with another field": ({ tag }) => ({ tag: { ...tag, building: "A" } }),
};
const otherEvents: Readonly<Record<string, (event: Value) => object>> = {
  "without a site": ({ siteid: _, ...event }) => event,
  "of another site": (event) => ({ ...event, siteid: `${event.siteid}1` }),
  "of another subject": (event) => ({ ...event, subject: `${event.subject}/more` }),
  "from a snapshot": ({ data, ...event }) => ({ ...event, snapshot: true, data }),
  "of another kind": (event) => ({ ...event, type: "tag-total" }),
  ...Object.fromEntries(
    Object.entries(otherData).map(([name, change]) => [
      name,
      ({ data, ...event }: Value) => ({ ...event, data: { ...data, ...change(data) } }),
    ]),
  ),
};

function expectSame(event: Event): void {
  const storedText = encodeEvent(event);
  const json = JSON.stringify(event);
  expect(JSON.stringify(parseEvent(storedText)), replay).toBe(json);
  expect(JSON.stringify(parseEvent(json)), replay).toBe(json);
  expect(encodeEvent(parseEvent(storedText)), replay).toBe(storedText);
  for (const field of ["id", "source", "type", "subject"] as const)
    expect(storedText, replay).toContain(JSON.stringify({ [field]: event[field] }).slice(1, -1));
}

describe("the stored text of an event", () => {
  test("contains each field of a good value once", () => {
    const event = valueEvent(3, "7", 21.5);
    const head = `{"id":"${event.id}","source":"${event.source}","type":"tag-value","subject":"site/1/tag/7"`;
    const { displayName, description, unit } = TAG;
    expect(encodeEvent(event)).toBe(
      `${head},"time":"${event.time}","good":["7","${displayName}","${description}","${unit}",21.5,80]}`,
    );
    expect(parseEvent(encodeEvent(event))).toEqual(event);
    const { data } = event;
    const named = { ...event, data: { ...data, tag: { ...data.tag, alias: "Supply", unitCode: "Cel" } } };
    expect(encodeEvent(named)).toContain(`,21.5,80,{"alias":"Supply","unitCode":"Cel"}]}`);
    expect(parseEvent(encodeEvent(named))).toEqual(named);
  });

  test("restores any good value exactly", () => {
    fc.assert(
      fc.property(almostGood, (event) => {
        expect(encodeEvent(event), replay).toContain(`,"good":[`);
        expectSame(event);
      }),
      { seed, numRuns: 500 },
    );
  });

  test.each(Object.entries(otherEvents))("is plain JSON, without the compact format, for a value %s", (_, other) => {
    fc.assert(
      fc.property(almostGood, (event) => {
        const changedEvent = other(event) as Event;
        expectSame(changedEvent);
        expect(encodeEvent(changedEvent), replay).toBe(JSON.stringify(changedEvent));
      }),
      { seed, numRuns: 50 },
    );
  });

  test("is plain JSON for every kind of event except tag values", () => {
    for (const event of sampleOfEveryKind()) {
      const json = JSON.stringify(event);
      expect({ ...parseEvent(json) }).toEqual(JSON.parse(json));
      if (event.type !== "tag-value") expect(encodeEvent(parseEvent(json))).toBe(json);
      expect(parseHistoryEvent(json) !== null).toBe(event.type === "tag-history");
    }
  });
});

import { describe, expect, test } from "vitest";
import type { EventKind } from "#src/core/model/event.ts";
import { sampleOfEveryForm } from "../../sample-events.ts";
import { EVENT_FIELDS, type FieldPlace, type NotCarried } from "./event-fields.ts";
import { findFieldDestinations } from "./field-destinations.ts";

const EMPTY = new Set(["day-sealed.seriesWithoutLog", "day-sealed.seriesRefused", "configuration-changed.pending"]);

const TAG_NAME_FIELDS = ["tag.alias", "tag.path", "tag.unitCode"];

describe("EVENT_FIELDS names the InfluxDB field, lake column and MQTT key of each event field", () => {
  const cases = sampleOfEveryForm().flatMap((event) =>
    [...Object.keys(event.data), ...("tag" in event.data ? TAG_NAME_FIELDS : [])]
      .filter((field) => !EMPTY.has(`${event.type}.${field}`))
      // A stale value is no row of the table of values, so only its reason is looked up.
      .filter((field) => !("staleReason" in event.data) || field === "staleReason")
      .map((field) => ({ event, field, title: `the field ${field} of ${event.type} ${event.subject ?? ""}` })),
  );

  test.each(cases)("$title", ({ event, field }) => {
    const placeByField: Readonly<Record<string, FieldPlace>> = EVENT_FIELDS[event.type as EventKind];
    const fieldPlace = placeByField[field];
    const carried = findFieldDestinations(event, field);
    expect(problems(fieldPlace?.influxdb, carried.influxdb)).toEqual([]);
    expect(problems(fieldPlace?.lake, carried.lake)).toEqual([]);
    expect(problems(fieldPlace?.mqtt ?? `data.${field.replace(/\..*/, "")}`, carried.mqtt)).toEqual([]);
  });
});

function problems(named: string | NotCarried | undefined, actual: readonly string[]): readonly string[] {
  if (named === undefined) return ["The field has no line in event-fields.ts."];
  if (typeof named !== "string") return actual;
  return named.split(" ").filter((name) => !actual.includes(name));
}

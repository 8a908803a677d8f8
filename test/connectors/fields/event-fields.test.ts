import { describe, expect, test } from "vitest";
import type { EventKind } from "#src/core/model/event.ts";
import { sampleOfEveryForm } from "../../sample-events.ts";
import { startVirtualWorker } from "../../virtual-worker.ts";
import { EVENT_FIELDS, type FieldPlace, type NotCarried } from "./event-fields.ts";
import { findFieldDestinations } from "./field-destinations.ts";

const MINUTE = 60_000;

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

test("the events of a running worker have all fields of their types", async () => {
  const virtual = await startVirtualWorker({
    simulator: { sites: [3, 4] },
    source: {
      schedules: { gateways: "0 * * * * *", tags: "30 * * * * *" },
      read: [{ name: "all", every: "1m" }],
      history: [{ name: "all", resolution: "5m", backfill: "1h" }],
    },
  });
  const { clock, simulator } = virtual;
  await clock.advance(10 * MINUTE);
  const [gateway = 0] = simulator.world.gateways.keys();
  simulator.control.setGateway(gateway, false);
  const alarmId = simulator.control.raiseAlarm({ siteId: 3 });
  simulator.control.changeInventory("tags", [...simulator.world.tags.keys()][0] ?? "", { attributes: { unit: "kW" } });
  await clock.advance(10 * MINUTE);
  simulator.control.setGateway(gateway, true);
  simulator.control.resolveAlarm(alarmId);
  await clock.advance(10 * MINUTE);
  const events = await virtual.events();
  await virtual.clear();
  const kinds = ["alarm-raised", "alarm-resolved", "gateway-offline", "tag-changed", "tag-value", "tag-history"];
  expect([...new Set(events.map(({ type }) => type))]).toEqual(expect.arrayContaining(kinds));
  const requiredFields = Object.groupBy(sampleOfEveryForm(), ({ type }) => type);
  const missing = events.flatMap(({ type, data }) => {
    const forms = requiredFields[type] ?? [];
    const [first, ...others] = forms.map((form) => new Set(Object.keys(form.data)));
    const required = others.reduce((fields, other) => fields.intersection(other), first ?? new Set());
    return [...required].filter((field) => !(field in data)).map((field) => `${type}.${field}`);
  });
  expect([...new Set(missing)]).toEqual([]);
});

function problems(named: string | NotCarried | undefined, actual: readonly string[]): readonly string[] {
  if (named === undefined) return ["The field has no line in event-fields.ts."];
  if (typeof named !== "string") return actual;
  return named.split(" ").filter((name) => !actual.includes(name));
}

import { describe, expect, test } from "vitest";
import { emitRows } from "#connectors/shared/lake/rows.ts";
import type { Cell } from "#connectors/shared/lake/table.ts";
import type { Event, Kind } from "#src/core/model/event.ts";
import { ALARM, sampleEvent, valueEvent } from "../sample-events.ts";

/** Cells by the names of columns, of every row of an event, with the name of its table. */
function rowsOf(event: Event, committedAt = "2026-11-21T10:00:00.250Z"): readonly Record<string, Cell>[] {
  const rows: Record<string, Cell>[] = [];
  emitRows({ event, position: 7, committedAt }, (table, row) => {
    const cells = table.columns.map(({ name }, place) => [name, row[place] ?? null]);
    rows.push({ table: table.name, ...Object.fromEntries(cells) });
  });
  return rows;
}

const sampled = <K extends Kind>(type: K, data: Partial<Event<K>["data"]>) => {
  const sample = sampleEvent(type);
  return { ...sample, data: { ...sample.data, ...data } } as Event;
};

const noOffset = "2026-11-01T00:00:00";
const seenMs = Date.parse(sampleEvent("tag-total").time);

describe("a moment without an offset", () => {
  test("in a total becomes the time of the event", () => {
    expect(rowsOf(sampled("tag-total", { from: noOffset }))[0]).toMatchObject({
      from_time: seenMs,
      to_time: Date.parse("2026-11-01T23:00:00Z"),
    });
    expect(rowsOf(sampled("tag-total", { to: noOffset }))[0]).toMatchObject({
      from_time: Date.parse("2026-10-31T23:00:00Z"),
      to_time: seenMs,
    });
  });

  test("in a delivery gap becomes the time of the event", () => {
    const gap = (data: Partial<Event<"delivery-gap">["data"]>) => rowsOf(sampled("delivery-gap", data))[0];
    const firstTime = "2026-11-01T00:00:00Z";
    const lastTime = "2026-11-01T09:00:00+01:00";
    const [first, last] = [Date.parse(firstTime), Date.parse(lastTime)];
    expect(gap({ firstTime, lastTime })).toMatchObject({ first_time: first, last_time: last, time: seenMs });
    expect(gap({ firstTime: noOffset, lastTime })).toMatchObject({ first_time: seenMs, last_time: last });
    expect(gap({ firstTime, lastTime: noOffset })).toMatchObject({ first_time: first, last_time: seenMs });
  });

  test("as the end of an alarm becomes the time of the event", () => {
    const resolved = (resolvedAt: string | null) =>
      rowsOf(sampled("alarm-resolved", { alarm: { ...ALARM, status: "resolved", resolvedAt } }))[1];
    for (const resolvedAt of [null, noOffset]) {
      expect(resolved(resolvedAt)).toMatchObject({
        table: "alarm_episode",
        ended_at: seenMs,
        resolved_at: null,
      });
    }
  });
});

test("an event without the time of its commit was observed at its own time", () => {
  for (const event of [valueEvent(1), sampleEvent("gateway-online")])
    expect(rowsOf(event, "")[0]).toMatchObject({ observed_at: Date.parse(event.time) });
});

test("a value has its own time, which may be earlier than that of the event", () => {
  const event = valueEvent(1);
  const time = "2026-11-01T09:00:00+01:00";
  expect(rowsOf({ ...event, data: { ...event.data, time } } as Event)[0]).toMatchObject({
    time: Date.parse(time),
  });
  expect(rowsOf(event)[0]).toMatchObject({ time: Date.parse(event.time) });
});

test("an alarm without a last active event has neither a value nor a text of it", () => {
  const [row] = rowsOf(sampled("alarm-raised", { alarm: { ...ALARM, lastActiveEvent: null } }));
  expect(row).toMatchObject({ event_value: null, event_text: null, before: null });
});

test("an alarm's row says whether it was raised at the first look, and what was before a change", () => {
  const rows = (type: Kind, data: object) => rowsOf(sampled(type, data as never))[0];
  expect(rows("alarm-raised", { initial: true })).toMatchObject({ initial: true, late: false });
  expect(rows("alarm-raised", { initial: false })).toMatchObject({ initial: false });
  expect(rows("alarm-changed", { before: { description: "x" } })).toMatchObject({
    initial: false,
    before: '{"description":"x"}',
  });
});

describe("a command", () => {
  test("has its values as numbers or as booleans", () => {
    expect(rowsOf(sampled("command-accepted", { requested: 21.5 }))[0]).toMatchObject({
      requested_number: 21.5,
      requested_boolean: null,
      before_number: null,
      read_back_number: null,
    });
    expect(rowsOf(sampled("command-result", { requested: true, before: false, readBack: null }))[0]).toMatchObject({
      requested_number: null,
      requested_boolean: true,
      before_boolean: false,
      read_back_number: null,
      read_back_boolean: null,
    });
    expect(rowsOf(sampled("command-not-restored", { wanted: 20, inForce: 22 }))[0]).toMatchObject({
      requested_number: 20,
      read_back_number: 22,
      reason: "expired",
      expires_at: null,
    });
  });
});

describe("a gateway", () => {
  test.each([
    ["gateway-online", true, true],
    ["gateway-offline", false, true],
    ["gateway-added", true, null],
  ] as const)("has a state with %s: online %s, the whole site %s", (type, online, whole_site) => {
    expect(rowsOf(sampleEvent(type))[0]).toMatchObject({ table: "gateway_state", online, whole_site });
  });
});

test.each(["gateway", "site", "system", "tag", "host"] as const)(
  "a %s that is there is current, and one that is removed ends at the time of the event",
  (thing) => {
    const rowOf = (what: "added" | "changed" | "removed") => rowsOf(sampleEvent(`${thing}-${what}`)).at(-1);
    const current = { table: thing, is_current: true, valid_from: seenMs, valid_to: null };
    expect(rowOf("added")).toMatchObject(current);
    expect(rowOf("changed")).toMatchObject(current);
    expect(rowOf("removed")).toMatchObject({ is_current: false, valid_from: seenMs, valid_to: seenMs });
  },
);

test("a host has the id of its gateway, and none without a gateway", () => {
  const { host } = sampleEvent("host-added").data;
  const gatewayId = (gateway: typeof host.gateway) =>
    rowsOf(sampled("host-added", { host: { ...host, gateway } }))[0]?.gateway_id;
  expect(gatewayId({ id: 7, displayName: "Basement gateway" })).toBe("7");
  expect(gatewayId(null)).toBeNull();
});

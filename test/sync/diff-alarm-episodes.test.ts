import { describe, expect, test } from "vitest";
import type { Alarm } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import { beginEpisode, continueEpisode, resolveEpisode, startupEvent } from "#src/engine/sync/alarms/diff-alarm.ts";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import { ALARM } from "../sample-events.ts";
import { AT, activity, CONTEXT, kindsOf } from "./diff-support.ts";

const EARLIER = "2026-11-02T07:00:00.000Z";
const ACKNOWLEDGED: Partial<Alarm> = {
  acknowledged: true,
  acknowledgedBy: "Kari",
  acknowledgedMessage: "seen",
  acknowledgedAt: "2026-11-02T06:30:00.000Z",
};

function stored(changes: Partial<StoredAlarm> = {}, alarm: Partial<Alarm> = {}): StoredAlarm {
  return { ...beginEpisode({ ...ALARM, ...alarm }, true, { ...CONTEXT, at: EARLIER }).stored, ...changes };
}

const differenceOf = (event: Event | undefined) => (event?.data as { readonly before?: unknown } | undefined)?.before;

describe("the beginning of an alarm episode", () => {
  test("is stored and emitted as one alarm-raised with the trigger time", () => {
    const { stored: now, events } = beginEpisode(ALARM, false, CONTEXT);
    expect(now).toEqual({
      alarm: ALARM,
      episode: "500001@2026-11-02T06:15:00.000Z",
      state: "active",
      since: AT,
      misses: 0,
      returns: 0,
    });
    expect(events).toMatchObject([
      {
        type: "alarm-raised",
        time: ALARM.triggeredAt,
        siteid: "1",
        priority: "A",
        data: { initial: false, late: false, behindGateway: null, episode: now.episode },
      },
    ]);
  });

  test("is followed by the acknowledgement of an acknowledged alarm, unless alarm-raised is marked initial", () => {
    const alarm = { ...ALARM, ...ACKNOWLEDGED };
    expect(kindsOf(beginEpisode(alarm, false, CONTEXT).events)).toEqual(["raised", "acknowledged"]);
    const met = beginEpisode(alarm, true, CONTEXT).events;
    expect(kindsOf(met)).toEqual(["raised"]);
    expect(met[0]?.data).toMatchObject({ initial: true });
  });

  test("is emitted with the time of the poll when the trigger time has no UTC offset", () => {
    const [raise] = beginEpisode({ ...ALARM, triggeredAt: "2026-11-02T07:15:00" }, false, CONTEXT).events;
    expect(raise?.time).toBe(AT);
  });

  test("is emitted again at a start of the worker, marked initial, with a different event id at each start", () => {
    const ids = [EARLIER, AT].map((startedAt) => startupEvent(stored(), startedAt, CONTEXT).id);
    expect(new Set([...ids, beginEpisode(ALARM, true, CONTEXT).events[0]?.id]).size).toBe(3);
    expect(startupEvent(stored(), EARLIER, CONTEXT)).toMatchObject({ id: ids[0], data: { initial: true } });
  });
});

describe("an alarm that is listed again", () => {
  test.each([
    ["active", EARLIER, 0],
    ["missing", EARLIER, 0],
    ["out-of-scope", AT, 1],
  ] as const)("emits nothing for a listed alarm with the stored state %s", (state, since, returns) => {
    expect(continueEpisode(stored({ state, misses: 3 }), ALARM, CONTEXT)).toEqual({
      stored: stored({ state: "active", misses: 0, since, returns }),
      events: [],
    });
  });

  test.each(["resolved", "vanished"] as const)(
    "emits alarm-retriggered for a listed alarm with the stored state %s",
    (state) => {
      const over = stored({ state, returns: 2 }, { status: "resolved" });
      const step = continueEpisode(over, ALARM, CONTEXT);
      const ended = { endMs: Date.parse(ALARM.triggeredAt), eventId: 9001 };
      const remembered = state === "resolved" ? { ended } : {};
      expect(step.stored).toEqual(stored({ state: "active", since: AT, returns: 3, ...remembered }));
      expect(kindsOf(step.events)).toEqual(["retriggered"]);
      expect(step.events[0]?.time).toBe(AT);
      const other = continueEpisode({ ...over, since: "2026-11-02T07:30:00.000Z" }, ALARM, CONTEXT);
      expect(other.events[0]?.id).not.toBe(step.events[0]?.id);
    },
  );

  test("emits one alarm-retriggered and the other changes when a resolved alarm has a later last_active_event", () => {
    const now = { ...ALARM, lastActiveEvent: activity(9002, { triggeredAt: EARLIER }), description: "new" };
    const { events } = continueEpisode(stored({ state: "resolved" }, { status: "resolved" }), now, CONTEXT);
    expect(kindsOf(events)).toEqual(["retriggered", "changed"]);
    expect(differenceOf(events[1])).toEqual({ description: ALARM.description });
  });

  test.each([
    ["the time of last_active_event", EARLIER, EARLIER],
    ["the time of the poll when last_active_event has no UTC offset", "2026-11-02T07:00:00", AT],
  ] as const)("emits alarm-retriggered with %s", (_what, triggeredAt, time) => {
    const record = { ...ALARM, lastActiveEvent: activity(9002, { triggeredAt }) };
    const { events } = continueEpisode(stored(), record, CONTEXT);
    expect(events).toMatchObject([{ type: "alarm-retriggered", time }]);
    expect(continueEpisode(stored({ returns: 1 }), record, CONTEXT).events[0]?.id).not.toBe(events[0]?.id);
  });

  test.each<[string, Partial<Alarm>, Partial<Alarm>, readonly string[], unknown]>([
    ["no event: unchanged alarm", {}, {}, [], undefined],
    ["alarm-recovering: first recovery time", {}, { recoveringUntil: AT }, ["recovering"], undefined],
    ["alarm-recovering: new time", { recoveringUntil: EARLIER }, { recoveringUntil: AT }, ["recovering"], undefined],
    ["no event: same recovery time", { recoveringUntil: AT }, { recoveringUntil: AT }, [], undefined],
    ["alarm-changed: recovery time gone", { recoveringUntil: AT }, {}, ["changed"], { recoveringUntil: AT }],
    ["alarm-acknowledged: first acknowledgement", {}, ACKNOWLEDGED, ["acknowledged"], undefined],
    ["no event: same acknowledgement", ACKNOWLEDGED, ACKNOWLEDGED, [], undefined],
    [
      "alarm-acknowledged: acknowledgement by another person",
      ACKNOWLEDGED,
      { ...ACKNOWLEDGED, acknowledgedBy: "Ola" },
      ["acknowledged"],
      undefined,
    ],
    ["alarm-unacknowledged", ACKNOWLEDGED, { acknowledgedBy: "Kari" }, ["unacknowledged"], undefined],
    ["no event: only the name of the acknowledger is gone", { acknowledgedBy: "Kari" }, {}, [], undefined],
    ["alarm-changed: new lastActiveEvent", { lastActiveEvent: null }, {}, ["changed"], { lastActiveEvent: null }],
    [
      "alarm-changed: lastActiveEvent gone",
      {},
      { lastActiveEvent: null },
      ["changed"],
      { lastActiveEvent: ALARM.lastActiveEvent },
    ],
    ["alarm-changed: another source", {}, { source: "VS2" }, ["changed"], { source: ALARM.source }],
  ])("emits %s", (_what, was, now, expected, difference) => {
    const { events } = continueEpisode(stored({}, was), { ...ALARM, ...now }, CONTEXT);
    expect(kindsOf(events)).toEqual(expected);
    expect(differenceOf(events[0])).toEqual(difference);
  });
});

describe("the end of an alarm episode", () => {
  const resolvedAt = "2026-11-02T07:45:00.000Z";
  const over: Alarm = { ...ALARM, status: "resolved", resolvedAt };

  test("is emitted with the end time that the service states, and resets the count of polls without the alarm", () => {
    const step = resolveEpisode(stored({ state: "missing", misses: 2 }), over, CONTEXT);
    expect(step.stored).toEqual(stored({ alarm: over, state: "resolved", since: AT, misses: 0 }));
    expect(step.events).toMatchObject([{ type: "alarm-resolved", time: resolvedAt }]);
    expect(resolveEpisode(stored(), { ...over, resolvedAt: null }, CONTEXT).events[0]?.time).toBe(AT);
    const secondEnd = resolveEpisode(stored({ returns: 1 }), over, CONTEXT);
    expect(secondEnd.events[0]?.id).not.toBe(step.events[0]?.id);
  });

  test("is emitted after an acknowledgement in the same record", () => {
    const now = { ...over, ...ACKNOWLEDGED };
    expect(kindsOf(resolveEpisode(stored(), now, CONTEXT).events)).toEqual(["acknowledged", "resolved"]);
    expect(kindsOf(resolveEpisode(stored({}, ACKNOWLEDGED), now, CONTEXT).events)).toEqual(["resolved"]);
  });
});

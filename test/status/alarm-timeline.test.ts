import { describe, expect, test } from "vitest";
import type { Alarm } from "#src/core/model/building.ts";
import type { Event, EventKind } from "#src/core/model/event.ts";
import type { LoggedEvent } from "#src/engine/store/store.ts";
import { alarmTimeline } from "#src/ui/status/alarm-api-responses.ts";
import { ALARM, sampleEvent } from "../sample-events.ts";

type AlarmEvent = LoggedEvent & { readonly event: Event<"alarm-raised"> };

const timeAt = (minute: number) => `2026-11-02T07:${String(minute).padStart(2, "0")}:00.000Z`;

/** Creates the logged events of an alarm, newest first. */
function logged(
  ...kinds: readonly (readonly [kind: EventKind, minute: number, data?: object])[]
): readonly AlarmEvent[] {
  return kinds
    .map(([kind, minute, more = {}], n) => {
      const event = sampleEvent(kind, { time: timeAt(minute) });
      const data = { ...event.data, ...more };
      return { position: n + 1, committedAt: timeAt(minute), event: { ...event, data } } as unknown as AlarmEvent;
    })
    .toReversed();
}

const lines = (alarm: Alarm, events: readonly AlarmEvent[]) =>
  alarmTimeline(alarm, events).map(({ at, what, words }) => `${at.slice(11, 16)} ${what}: ${words}`);

describe("the timeline of an alarm", () => {
  test("lists its logged events, oldest first", () => {
    const events = logged(
      ["alarm-raised", 1],
      ["alarm-acknowledged", 2, { alarm: { ...ALARM, acknowledgedBy: "Kari", acknowledgedMessage: "On my way." } }],
      ["alarm-unacknowledged", 3],
      ["alarm-recovering", 4, { alarm: { ...ALARM, recoveringUntil: timeAt(9) } }],
      ["alarm-recovering", 5, { alarm: { ...ALARM, recoveringUntil: null } }],
      ["alarm-retriggered", 6],
      ["alarm-changed", 7, { before: { description: "old", priority: "C" } }],
      ["alarm-resolved", 8, { late: true }],
    );
    expect(lines({ ...ALARM, resolvedAt: timeAt(8) }, events)).toEqual([
      "07:01 raised: Raised with priority A.",
      "07:02 acknowledged: Acknowledged by Kari: On my way.",
      "07:03 unacknowledged: The acknowledgement was withdrawn.",
      `07:04 recovering: Recovering until ${timeAt(9)}.`,
      "07:05 recovering: Recovering.",
      "07:06 retriggered: Triggered again while it was active.",
      "07:07 changed: Changed: description, priority.",
      "07:08 resolved: Resolved. Plenum found this afterwards.",
    ]);
  });

  test("is derived from the stored alarm when the event log no longer has events of the alarm", () => {
    const alarm = {
      ...ALARM,
      triggeredAt: timeAt(1),
      acknowledged: true,
      acknowledgedAt: timeAt(2),
      acknowledgedBy: null,
      acknowledgedMessage: null,
      resolvedAt: timeAt(3),
    };
    expect(lines(alarm, [])).toEqual([
      "07:01 raised: Raised with priority A.",
      "07:02 acknowledged: Acknowledged",
      "07:03 resolved: Resolved.",
    ]);
    expect(lines({ ...ALARM, triggeredAt: timeAt(1) }, [])).toEqual(["07:01 raised: Raised with priority A."]);
  });

  test("explains why the end of an alarm is unknown", () => {
    const events = logged(["alarm-raised", 1], ["alarm-vanished", 2], ["alarm-out-of-scope", 3]);
    expect(lines(ALARM, events).slice(1)).toEqual([
      "07:02 vanished: The alarm disappeared from the lists of the service, which did not report its end.",
      "07:03 out-of-scope: The token can no longer see the site, so Plenum cannot see the end of the alarm.",
    ]);
  });
});

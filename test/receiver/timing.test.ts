import { describe, expect, test } from "vitest";
import { createNotificationTiming } from "#connectors/shared/receiver/incident-queue.ts";
import type { StoredIncident } from "#connectors/shared/receiver/stored-incident.ts";

const OSLO = "Europe/Oslo";
const NIGHT = { priorities: ["C"], from: "22:00", to: "06:00" };
const toMs = (time: string) => Date.parse(time);
const toIso = (ms: number) => new Date(ms).toISOString();

type Quiet = Parameters<typeof createNotificationTiming>[0]["quiet"];
const createTiming = (quiet: Quiet, hold: number, now: () => number) =>
  createNotificationTiming({ quiet, hold }, { now }, now, () => OSLO);

function from(quiet: Quiet, hold: number, time: string, priority = "C") {
  return toIso(createTiming(quiet, hold, () => 0).notifyFromMs(priority, toMs(time), OSLO));
}

describe("the notification time of an alarm with quiet hours from 22:00 to 06:00", () => {
  test.each([
    ["is immediate during the day", "2026-11-02T12:00:00Z", "2026-11-02T12:00:00.000Z"],
    ["is 06:00 before midnight", "2026-11-02T21:30:00Z", "2026-11-03T05:00:00.000Z"],
    ["is 06:00 at the first moment of the night", "2026-11-02T21:00:00Z", "2026-11-03T05:00:00.000Z"],
    ["is immediate at the end of the night", "2026-11-03T05:00:00Z", "2026-11-03T05:00:00.000Z"],
    // The clocks go back at 03:00 on 25 October 2026, and forward at 02:00 on 28 March 2027.
    ["is 06:00 in the night that is an hour longer", "2026-10-24T21:00:00Z", "2026-10-25T05:00:00.000Z"],
    ["is 06:00 in the night that is an hour shorter", "2027-03-27T22:00:00Z", "2027-03-28T04:00:00.000Z"],
  ])("%s", (_, time, expected) => {
    expect(from([NIGHT], 0, time)).toBe(expected);
  });

  test("ignores quiet hours of other priorities, and is 06:00 if the delay of the option hold ends in the night", () => {
    expect(from([NIGHT], 120_000, "2026-11-02T23:30:00Z", "A")).toBe("2026-11-02T23:32:00.000Z");
    expect(from([NIGHT], 120_000, "2026-11-02T20:59:00Z")).toBe("2026-11-03T05:00:00.000Z");
  });

  test("is the end of the last of several adjacent quiet hours", () => {
    const sunday = { priorities: ["C"], from: "05:00", to: "10:00", days: ["sun" as const] };
    // 8 November 2026 is a Sunday.
    expect(from([NIGHT, sunday], 0, "2026-11-07T22:00:00Z")).toBe("2026-11-08T09:00:00.000Z");
    expect(from([NIGHT, sunday], 0, "2026-11-08T22:00:00Z")).toBe("2026-11-09T05:00:00.000Z");
  });

  test("treats a night as part of the day on which it begins", () => {
    const friday = { ...NIGHT, days: ["fri" as const] };
    expect(from([friday], 0, "2026-11-07T02:00:00Z")).toBe("2026-11-07T05:00:00.000Z");
    expect(from([friday], 0, "2026-11-08T02:00:00Z")).toBe("2026-11-08T02:00:00.000Z");
  });

  test("is at most three days later when quiet hours cover the complete day", () => {
    const allDay = [
      { priorities: ["C"], from: "00:00", to: "12:00" },
      { priorities: ["C"], from: "12:00", to: "00:00" },
    ];
    expect(toMs(from(allDay, 0, "2026-11-02T02:00:00Z"))).toBeLessThan(toMs("2026-11-04T12:00:00Z"));
  });
});

test.each([
  [-1, false],
  [0, true],
  [59_999, true],
  [60_000, false],
])("a silence from 0 to 60 s delays an alarm that begins at %i ms: %s", (atMs, expected) => {
  const notificationTiming = createTiming([], 0, () => atMs);
  notificationTiming.updateSilences([{ fromMs: 0, toMs: 60_000, covers: () => true }]);
  const facts = { alarm: {}, status: "active", priority: "A", source: "main", holdFromMs: atMs };
  expect(notificationTiming.computeDelayMs(facts as StoredIncident, () => []) > 0).toBe(expected);
});

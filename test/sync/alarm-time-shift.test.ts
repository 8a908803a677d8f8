import { describe, expect, test } from "vitest";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import {
  countOf,
  editRecords,
  emitted,
  harness,
  jobProblem,
  MINUTE,
  openHarness,
  shiftTime,
  storedAlarm,
  warned,
} from "./alarm-harness.ts";

const HOUR = 60 * MINUTE;

async function started(active: number): Promise<readonly string[]> {
  const { control, clock } = openHarness();
  await harness.start();
  await clock.advance(3 * MINUTE);
  const ids = Array.from({ length: active }, () => control.raiseAlarm({ siteId: 3 }));
  await clock.advance(MINUTE);
  return ids;
}

const stored = async (id: string) => (await storedAlarm(id)) as StoredAlarm;
const TIMES = ["triggered_at", "resolved_at", "acknowledged_at", "recovering_until"];
const shifted = (byMs: number, everyTime = true) =>
  editRecords((attributes) => {
    for (const name of everyTime ? TIMES : TIMES.slice(0, 2))
      if (attributes[name] !== null) attributes[name] = shiftTime(attributes[name], byMs);
    const event = attributes.last_active_event;
    if (everyTime) event.triggered_at = shiftTime(event.triggered_at, byMs);
  });

describe.each([
  ["one hour late", HOUR, true],
  ["one hour early", -HOUR, true],
  ["five hours late, except for the times of the events", 5 * HOUR, false],
  ["five hours early, except for the times of the events", -5 * HOUR, false],
])("alarm times that the service states %s", (_what, byMs, everyTime) => {
  test("12 active alarms keep their episodes, take the shifted start, and take the original start when it returns", async () => {
    const ids = await started(12);
    const [first = ""] = ids;
    for (const id of ids.slice(0, 4)) harness.control.acknowledgeAlarm(id, "Kari");
    await harness.clock.advance(MINUTE);
    const before = await stored(first);
    harness.rewriteLists(shifted(byMs, everyTime));
    await harness.clock.advance(10 * MINUTE);
    expect([countOf("raised"), countOf("acknowledged"), countOf("changed"), emitted().length]).toEqual([12, 4, 12, 28]);
    const during = await stored(first);
    expect(during.episode).toBe(before.episode);
    expect(during.alarm.triggeredAt).toBe(shiftTime(before.alarm.triggeredAt, byMs));
    expect(warned("got another start time at once")).toBe(2);
    harness.rewriteLists(null);
    await harness.clock.advance(10 * MINUTE);
    expect([countOf("raised"), countOf("acknowledged"), countOf("changed"), emitted().length]).toEqual([12, 4, 24, 40]);
    expect((await stored(first)).alarm).toEqual(before.alarm);
    expect(await jobProblem()).toBeNull();
  });

  test("an alarm with shifted times ends once, and the list of resolved alarms adds no episode", async () => {
    const [id = "", other = "", early = ""] = await started(8);
    harness.control.acknowledgeAlarm(early, "Kari");
    await harness.clock.advance(MINUTE);
    harness.control.resolveAlarm(early);
    await harness.clock.advance(40 * MINUTE);
    harness.rewriteLists(shifted(byMs, everyTime));
    harness.control.resolveAlarm(id);
    await harness.clock.advance(5 * MINUTE);
    harness.control.resolveAlarm(other);
    await harness.clock.advance(5 * MINUTE);
    harness.rewriteLists(null);
    await harness.clock.advance(20 * MINUTE);
    expect(emitted(early)).toEqual(["raised", "acknowledged", "resolved"]);
    expect(emitted(id)).toEqual(["raised", "resolved"]);
    expect(emitted(other).filter((kind) => kind !== "changed")).toEqual(["raised", "resolved"]);
    expect(countOf("raised")).toBe(8);
    expect([countOf("vanished"), countOf("resolved")]).toEqual([0, 3]);
  });

  test("an ended alarm begins a new episode when it is triggered again", async () => {
    const [id = ""] = await started(2);
    harness.control.resolveAlarm(id);
    await harness.clock.advance(5 * MINUTE);
    harness.rewriteLists(shifted(byMs, everyTime));
    harness.control.retriggerAlarm(id);
    await harness.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "raised"]);
    harness.control.resolveAlarm(id);
    await harness.clock.advance(5 * MINUTE);
    harness.rewriteLists(null);
    await harness.clock.advance(5 * MINUTE);
    harness.control.retriggerAlarm(id);
    await harness.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "raised", "resolved", "raised"]);
  });
});

test("emits nothing when two replicas of the service alternate between different start times of an alarm", async () => {
  const [id = ""] = await started(1);
  let tick = 0;
  harness.rewriteLists((list, path, query) => {
    if (!path.endsWith("/alarms")) return;
    if (query.get("status") === "active") tick += 1;
    if (tick % 2 === 0) shifted(HOUR)(list, path, query);
  });
  await harness.clock.advance(30 * MINUTE);
  expect(emitted(id)).toEqual(["raised"]);
});

test("alarms without event numbers begin new episodes when their starts get later; if many do at once, at the next poll", async () => {
  openHarness();
  const change = (byMs: number) =>
    editRecords((attributes) => {
      attributes.last_active_event = null;
      attributes.triggered_at = shiftTime(attributes.triggered_at, byMs);
    });
  for (let n = 0; n < 6; n += 1) harness.control.raiseAlarm({ siteId: 3 });
  harness.rewriteLists(change(0));
  await harness.start();
  await harness.clock.advance(MINUTE);
  harness.rewriteLists(change(HOUR));
  await harness.clock.advance(30_000);
  expect(emitted()).toEqual(Array(6).fill("raised"));
  expect(await jobProblem()).toMatch(/^6 of 6 active alarms are said to have begun again at once \(site 3\)/);
  await harness.clock.advance(30_000);
  expect([countOf("raised"), countOf("vanished")]).toEqual([12, 6]);
});

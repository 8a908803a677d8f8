import { describe, expect, test } from "vitest";
import type { StoredAlarm } from "#src/engine/sync/stored-documents.ts";
import {
  changeRecords,
  countOf,
  emitted,
  jobProblem,
  MINUTE,
  openTrial,
  shiftTime,
  storedAlarm,
  trial,
  warned,
} from "./alarm-harness.ts";

const HOUR = 60 * MINUTE;

async function started(active: number): Promise<readonly string[]> {
  const { control, clock } = openTrial();
  await trial.start();
  await clock.advance(3 * MINUTE);
  const ids = Array.from({ length: active }, () => control.raiseAlarm({ siteId: 3 }));
  await clock.advance(MINUTE);
  return ids;
}

const stored = async (id: string) => (await storedAlarm(id)) as StoredAlarm;
const TIMES = ["triggered_at", "resolved_at", "acknowledged_at", "recovering_until"];
const shifted = (byMs: number, everyTime = true) =>
  changeRecords((attributes) => {
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
    for (const id of ids.slice(0, 4)) trial.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    const before = await stored(first);
    trial.rewriteLists(shifted(byMs, everyTime));
    await trial.clock.advance(10 * MINUTE);
    expect([countOf("raised"), countOf("acknowledged"), countOf("changed"), emitted().length]).toEqual([12, 4, 12, 28]);
    const during = await stored(first);
    expect(during.episode).toBe(before.episode);
    expect(during.alarm.triggeredAt).toBe(shiftTime(before.alarm.triggeredAt, byMs));
    expect(warned("got another start time at once")).toBe(2);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect([countOf("raised"), countOf("acknowledged"), countOf("changed"), emitted().length]).toEqual([12, 4, 24, 40]);
    expect((await stored(first)).alarm).toEqual(before.alarm);
    expect(await jobProblem()).toBeNull();
  });

  test("an alarm with shifted times ends once, and the list of resolved alarms adds no episode", async () => {
    const [id = "", other = "", early = ""] = await started(8);
    trial.control.acknowledgeAlarm(early, "Kari");
    await trial.clock.advance(MINUTE);
    trial.control.resolveAlarm(early);
    await trial.clock.advance(40 * MINUTE);
    trial.rewriteLists(shifted(byMs, everyTime));
    trial.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.control.resolveAlarm(other);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(null);
    await trial.clock.advance(20 * MINUTE);
    expect(emitted(early)).toEqual(["raised", "acknowledged", "resolved"]);
    expect(emitted(id)).toEqual(["raised", "resolved"]);
    expect(emitted(other).filter((kind) => kind !== "changed")).toEqual(["raised", "resolved"]);
    expect(countOf("raised")).toBe(8);
    expect([countOf("vanished"), countOf("resolved")]).toEqual([0, 3]);
  });

  test("an ended alarm begins a new episode when it is triggered again", async () => {
    const [id = ""] = await started(2);
    trial.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(shifted(byMs, everyTime));
    trial.control.retriggerAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "raised"]);
    trial.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    trial.control.retriggerAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "raised", "resolved", "raised"]);
  });
});

test("emits nothing when two replicas of the service alternate between different start times of an alarm", async () => {
  const [id = ""] = await started(1);
  let turn = 0;
  trial.rewriteLists((list, path, query) => {
    if (!path.endsWith("/alarms")) return;
    if (query.get("status") === "active") turn += 1;
    if (turn % 2 === 0) shifted(HOUR)(list, path, query);
  });
  await trial.clock.advance(30 * MINUTE);
  expect(emitted(id)).toEqual(["raised"]);
});

test("alarms without event numbers begin new episodes when their starts get later; if many do at once, at the next poll", async () => {
  openTrial();
  const change = (byMs: number) =>
    changeRecords((attributes) => {
      attributes.last_active_event = null;
      attributes.triggered_at = shiftTime(attributes.triggered_at, byMs);
    });
  for (let n = 0; n < 6; n += 1) trial.control.raiseAlarm({ siteId: 3 });
  trial.rewriteLists(change(0));
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.rewriteLists(change(HOUR));
  await trial.clock.advance(30_000);
  expect(emitted()).toEqual(Array(6).fill("raised"));
  expect(await jobProblem()).toMatch(/^6 of 6 active alarms are said to have begun again at once \(site 3\)/);
  await trial.clock.advance(30_000);
  expect([countOf("raised"), countOf("vanished")]).toEqual([12, 6]);
});

import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import type { StoredAlarm, StoredPoll } from "#src/engine/sync/snapshot.ts";
import { createTrial, type ListChange, type TrialSync } from "./trial-sync.ts";

/** Times of alarms that the service moves: by a wrong time zone, or in the night when the clocks change. */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
let trial: TrialSync;

afterEach(async () => {
  await trial.stop();
});

async function started(active: number): Promise<readonly string[]> {
  trial = createTrial();
  await trial.start();
  await trial.clock.advance(3 * MINUTE);
  const ids = Array.from({ length: active }, () => trial.simulator.control.raiseAlarm({ siteId: 3 }));
  await trial.clock.advance(MINUTE);
  return ids;
}

const told = (id?: string) =>
  trial.store.events
    .filter(({ type, data }) => type.startsWith("alarm-") && (id === undefined || idOf(data) === id))
    .map(({ type }) => type.replace("alarm-", ""));
const idOf = (data: unknown) => (data as AlarmFact).alarm.id;
const count = (kind: string) => told().filter((one) => one === kind).length;
const held = async (id: string) => (await trial.store.document<StoredAlarm>("alarm/main", id)) as StoredAlarm;
const problem = async () => (await trial.store.documents<StoredPoll>("poll/main")).get("alarms")?.problem ?? null;

const moved = (time: string, byMs: number) => new Date(Date.parse(time) + byMs).toISOString();
const TIMES = ["triggered_at", "resolved_at", "acknowledged_at", "recovering_until"];
/** Every time of every alarm record, or the start and the end alone, moved. */
const shifted = (byMs: number, everyTime = true): ListChange => {
  return (list, path) => {
    if (!path.endsWith("/alarms")) return;
    for (const { attributes } of list.data) {
      for (const name of everyTime ? TIMES : TIMES.slice(0, 2))
        if (attributes[name] !== null) attributes[name] = moved(attributes[name], byMs);
      const event = attributes.last_active_event;
      if (everyTime) event.triggered_at = moved(event.triggered_at, byMs);
    }
  };
};

describe.each([
  ["one hour late", HOUR, true],
  ["one hour early", -HOUR, true],
  ["five hours late, but for the times of the events", 5 * HOUR, false],
  ["five hours early, but for the times of the events", -5 * HOUR, false],
])("times %s", (_what, byMs, everyTime) => {
  test("12 active alarms keep their episodes, get the listed start, and get the old one back", async () => {
    const ids = await started(12);
    const [first = ""] = ids;
    for (const id of ids.slice(0, 4)) trial.simulator.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    const before = await held(first);
    trial.rewriteLists(shifted(byMs, everyTime));
    await trial.clock.advance(10 * MINUTE);
    expect([count("raised"), count("acknowledged"), count("changed"), told().length]).toEqual([12, 4, 12, 28]);
    const during = await held(first);
    expect(during.episode).toBe(before.episode);
    expect(during.alarm.triggeredAt).toBe(moved(before.alarm.triggeredAt, byMs));
    expect(trial.warnings.filter((line) => line.includes("got another start time at once"))).toHaveLength(2);

    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect([count("raised"), count("acknowledged"), count("changed"), told().length]).toEqual([12, 4, 24, 40]);
    expect((await held(first)).alarm).toEqual(before.alarm);
    expect(await problem()).toBeNull();
  });

  test("an alarm ends once, and the resolved list adds no episode", async () => {
    const [id = "", other = "", early = ""] = await started(8);
    trial.simulator.control.acknowledgeAlarm(early, "Kari");
    await trial.clock.advance(MINUTE);
    trial.simulator.control.resolveAlarm(early);
    await trial.clock.advance(40 * MINUTE);
    trial.rewriteLists(shifted(byMs, everyTime));
    trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.simulator.control.resolveAlarm(other);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(null);
    await trial.clock.advance(20 * MINUTE);
    expect(told(early)).toEqual(["raised", "acknowledged", "resolved"]);
    expect(told(id)).toEqual(["raised", "resolved"]);
    expect(told(other).filter((kind) => kind !== "changed")).toEqual(["raised", "resolved"]);
    expect(count("raised")).toBe(8);
    expect([count("vanished"), count("resolved")]).toEqual([0, 3]);
  });

  test("an alarm that is triggered again begins another episode", async () => {
    const [id = ""] = await started(2);
    trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(shifted(byMs, everyTime));
    trial.simulator.control.retriggerAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["raised", "resolved", "raised"]);
    trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    trial.simulator.control.retriggerAlarm(id);
    await trial.clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["raised", "resolved", "raised", "resolved", "raised"]);
  });
});

test("alternating starts of two replicas are no change", async () => {
  const [id = ""] = await started(1);
  let turn = 0;
  trial.rewriteLists((list, path, query) => {
    if (!path.endsWith("/alarms")) return;
    if (query.get("status") === "active") turn += 1;
    if (turn % 2 === 0) shifted(HOUR)(list, path, query);
  });
  await trial.clock.advance(30 * MINUTE);
  expect(told(id)).toEqual(["raised"]);
});

test("without event numbers a later start begins another episode, for many alarms at the next poll", async () => {
  trial = createTrial();
  const change = (byMs: number): ListChange => {
    return (list, path, query) => {
      if (!path.endsWith("/alarms")) return;
      for (const { attributes } of list.data) attributes.last_active_event = null;
      shiftedStart(byMs)(list, path, query);
    };
  };
  for (let n = 0; n < 6; n += 1) trial.simulator.control.raiseAlarm({ siteId: 3 });
  trial.rewriteLists(change(0));
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.rewriteLists(change(HOUR));
  await trial.clock.advance(30_000);
  expect(told()).toEqual(Array(6).fill("raised"));
  expect(await problem()).toMatch(/^6 of 6 active alarms are said to have begun again at once \(site 3\)/);
  await trial.clock.advance(30_000);
  expect([count("raised"), count("vanished")]).toEqual([12, 6]);
});

const shiftedStart = (byMs: number): ListChange => {
  return (list) => {
    for (const { attributes } of list.data) attributes.triggered_at = moved(attributes.triggered_at, byMs);
  };
};

import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { createMemoryStore } from "./memory-store.ts";
import { ALARMS_ONLY, createTrial, type TrialSync } from "./trial-sync.ts";

/** The alarm feed in numbers: what holds for one must hold for a thousand. */

const MINUTE = 60_000;
let trial: TrialSync;

const factOf = (event: Event) => event.data as AlarmFact & { initial: boolean };
const idOf = (event: Event) => factOf(event).alarm.id;

afterEach(async () => {
  await trial.stop();
});

describe("large numbers of alarms", () => {
  test("trap 37: emits raise and end, marked late, of 1,000 alarms between polls", async () => {
    trial = createTrial();
    const { control } = trial.simulator;
    await trial.start();
    await trial.clock.advance(MINUTE + 5_000);
    const ids: string[] = [];
    for (let burst = 0; burst < 40; burst += 1) {
      for (let i = 0; i < 25; i += 1) ids.push(control.raiseAlarm({ siteId: 2 + (i % 3) }));
      await trial.clock.advance(10_000);
      for (const id of ids.slice(-25)) control.resolveAlarm(id);
      await trial.clock.advance(20_000);
    }
    await trial.clock.advance(5 * MINUTE);
    const told = Map.groupBy(trial.events("alarm-raised", "alarm-resolved"), idOf);
    expect(ids).toHaveLength(1_000);
    for (const id of ids) {
      expect(told.get(id)?.map((event) => event.type)).toEqual(["alarm-raised", "alarm-resolved"]);
    }
    expect(trial.events("alarm-raised", "alarm-resolved").every((event) => factOf(event).late)).toBe(true);
    expect(trial.events("alarm-vanished")).toEqual([]);
  });

  test("trap 38: emits 500 episodes for 500 uses of the same id", async () => {
    trial = createTrial();
    const { control } = trial.simulator;
    await trial.start();
    await trial.clock.advance(20_000);
    const id = control.raiseAlarm({ siteId: 3 });
    for (let i = 0; i < 500; i += 1) {
      await trial.clock.advance(MINUTE);
      control.resolveAlarm(id);
      await trial.clock.advance(MINUTE);
      if (i < 499) control.retriggerAlarm(id);
    }
    await trial.clock.advance(5 * MINUTE);
    const told = Map.groupBy(
      trial.store.events.filter((event) => event.type.startsWith("alarm-")),
      (event) => factOf(event).episode,
    );
    expect(told.size).toBe(500);
    for (const events of told.values()) {
      expect(events.map((event) => event.type)).toEqual(["alarm-raised", "alarm-resolved"]);
    }
    expect(trial.store.repeated).toEqual([]);
  });

  test("trap 40: emits the same ids, marked initial, after each of 100 losses of the state", async () => {
    const ids = new Set<string>();
    const keep = createTrial();
    const alarms = Array.from({ length: 30 }, (_, i) => keep.simulator.control.raiseAlarm({ siteId: 2 + (i % 3) }));
    for (let loss = 0; loss < 100; loss += 1) {
      trial = createTrial({ store: createMemoryStore() });
      for (let i = 0; i < 30; i += 1) trial.simulator.control.raiseAlarm({ siteId: 2 + (i % 3) });
      await trial.clock.advance(loss * 7_000);
      await trial.start();
      await trial.clock.advance(MINUTE);
      const raised = trial.events("alarm-raised");
      expect(raised.map(idOf).sort()).toEqual([...alarms].sort());
      expect(raised.every((event) => factOf(event).initial)).toBe(true);
      for (const { id } of raised) ids.add(id);
      await trial.stop();
    }
    expect(ids.size).toBe(30);
  });

  test("trap 35: emits every alarm within two polls while 2,000 change 200 times a minute", async () => {
    const { runAlarmStorm } = await import("./alarm-storm.ts");
    trial = createTrial({ sync: ALARMS_ONLY });
    const figures = await runAlarmStorm();
    expect(figures).toMatchObject({ withoutEvent: 0, laterThanTwoPolls: 0 });
    expect(figures.changes).toBeGreaterThan(700);
    expect(figures.longestBriefMs).toBeLessThan(3 * MINUTE);
  });
});

import { describe, expect, test } from "vitest";
import { activeQueries, emitted, harness, isAlarmList, MINUTE, openHarness } from "./alarm-harness.ts";
import { ALARMS_ONLY, type HarnessOptions, type SyncHarness } from "./sync-harness.ts";

async function started(options: HarnessOptions = {}): Promise<SyncHarness> {
  openHarness(options);
  await harness.start();
  await harness.clock.advance(20_000);
  return harness;
}

const emittedSince = (before: number) => {
  const kinds = harness.store.events.slice(before).map(({ type }) => type);
  return kinds.filter((kind) => kind !== "site-status-changed");
};

describe("polls for alarms", () => {
  test("every request for alarms has a status filter", async () => {
    const { control, clock, requests } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.deleteAlarm(id);
    await clock.advance(10 * MINUTE);
    const asked = requests.filter(({ path }) => isAlarmList(path));
    expect(asked.length).toBeGreaterThan(20);
    expect(asked.filter(({ query }) => query.get("status") === null)).toEqual([]);
  });
});

describe("unreliable lists of alarms", () => {
  test("a failing site does not delay the events of other sites when sites are listed singly", async () => {
    const { control, clock } = await started({
      pageSize: 5,
      simulator: { alarms: { recorded: false, order: "shuffled" } },
    });
    const ids = Array.from({ length: 12 }, (_, i) => control.raiseAlarm({ siteId: 2 + (i % 3) }));
    await clock.advance(4 * MINUTE);
    control.setFaults([{ match: { endpoints: ["alarms"], site_id: 3 }, fault: { kind: "error", status: 500 } }]);
    const [, mute = "", heard = ""] = ids;
    control.deleteAlarm(mute);
    control.deleteAlarm(heard);
    await clock.advance(4 * MINUTE);
    expect(emitted(mute)).toEqual(["raised"]);
    expect(emitted(heard)).toEqual(["raised", "vanished"]);
    control.setFaults([]);
    await clock.advance(4 * MINUTE);
    expect(emitted(mute)).toEqual(["raised", "vanished"]);
  });

  test("emits a new alarm within 30 s while the search for the end of an absent alarm takes minutes", async () => {
    const { control, clock } = await started();
    const absentId = control.raiseAlarm({ siteId: 3 });
    control.setFaults([
      { match: { endpoints: ["alarms"] }, when: { count: 1 }, fault: { kind: "throttled", retry_after_s: 1 } },
    ]);
    await clock.advance(2 * MINUTE);
    control.setFaults([{ match: { endpoints: ["alarms"], site_id: 3 }, fault: { kind: "slow", delay_ms: 25_000 } }]);
    control.deleteAlarm(absentId);
    await clock.advance(MINUTE / 2);
    const newId = control.raiseAlarm({ siteId: 2 });
    await clock.advance(MINUTE / 2);
    expect(emitted(newId)).toEqual(["raised"]);
    expect(emitted(absentId)).toEqual(["raised"]);
    await clock.advance(10 * MINUTE);
    expect(emitted(absentId)).toEqual(["raised", "vanished"]);
  });

  test("searches for the end of an alarm at every poll until the end is committed", async () => {
    const { control, clock, store } = await started({
      sync: { ...ALARMS_ONLY, schedules: { ...ALARMS_ONLY.schedules, resolved_sweep: false } },
    });
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.resolveAlarm(id);
    for (let second = 0; second < 300; second += 1) {
      store.failNext();
      await clock.advance(1_000);
    }
    expect(emitted(id)).toEqual(["raised"]);
    await clock.advance(MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved"]);
  });
});

describe("outages of the service", () => {
  test("emits begin and end of an outage once when the worker restarts during the outage", async () => {
    const { control, clock } = await started();
    control.setFaults([{ fault: { kind: "maintenance" } }]);
    await clock.advance(5 * MINUTE);
    await harness.restart();
    await clock.advance(5 * MINUTE);
    control.setFaults([]);
    await clock.advance(20 * MINUTE);
    expect(harness.events("source-unavailable", "source-available").map((event) => event.type)).toEqual([
      "source-unavailable",
      "source-available",
    ]);
  });

  /** 20 pages of alarms, which the list rate permits once a minute, and one more alarm during an outage. */
  async function awayWithManyPages() {
    await started({ pageSize: 5, simulator: { sites: [3], alarms: { recorded: false, order: "id" } } });
    const { control } = harness.simulator;
    for (let alarms = 0; alarms < 98; alarms += 1) control.raiseAlarm({ siteId: 3 });
    await harness.clock.advance(5 * MINUTE);
    control.setFaults([{ fault: { kind: "maintenance", retry_after: 60 } }]);
    await harness.clock.advance(59_000);
    return control.raiseAlarm({ siteId: 3 });
  }
  const update = () => harness.events("source-unavailable", "source-available", "alarm-raised").map(({ type }) => type);

  test("after an outage, emits a new alarm after reading the list of 20 pages once", async () => {
    const id = await awayWithManyPages();
    const before = update().length;
    harness.control.setFaults([]);
    const requests = harness.requests.length;
    while (emitted(id).length === 0 && harness.requests.length - requests < 60) await harness.clock.advance(50);
    expect(activeQueries(requests).length).toBeLessThanOrEqual(22);
    expect(update().slice(before)).toEqual(["source-available", "alarm-raised"]);
    await harness.clock.advance(10 * MINUTE);
    expect(update().slice(before)).toEqual(["source-available", "alarm-raised"]);
  });

  test.each([
    ["maintenance", ["source-available", "alarm-raised", "source-unavailable", "source-available"]],
    ["reset", ["source-available", "alarm-raised"]],
  ])("emits each outage and return once when a request right after an outage fails with %s", async (kind, events) => {
    const id = await awayWithManyPages();
    const before = update().length;
    let isMet = false;
    harness.onRequest(() => {
      if (isMet || emitted(id).length === 0) return;
      isMet = true;
      harness.control.setFaults([{ when: { count: 1 }, fault: { kind } }]);
    });
    harness.control.setFaults([]);
    await harness.clock.advance(20 * MINUTE);
    expect(isMet).toBe(true);
    expect(update().slice(before)).toEqual(events);
  });

  test("a rejected token causes at most 13 requests an hour and no alarm event; a new token is used within 10 s", async () => {
    let stamp = "old";
    const { control, clock, requests } = await started({ tokenStamp: async () => stamp });
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(2 * MINUTE);
    const before = harness.store.events.length;
    control.setFaults([{ fault: { kind: "error", status: 401 } }]);
    const asked = requests.length;
    await clock.advance(60 * MINUTE);
    expect(requests.length - asked).toBeLessThanOrEqual(13);
    expect(emittedSince(before)).toEqual(["source-unavailable"]);
    control.setFaults([]);
    stamp = "new";
    await clock.advance(10_000);
    expect(emittedSince(before)).toEqual(["source-unavailable", "source-available"]);
    expect(emitted(id)).toEqual(["raised"]);
  });
});

import { describe, expect, test } from "vitest";
import { runAlarmStorm } from "./alarm-storm.ts";
import {
  activeQueries,
  alarmEvents,
  countOf,
  createAlarmTrial,
  emitted,
  factOf,
  idOf,
  isActiveList,
  isAlarmList,
  MINUTE,
  TOKEN,
  trial,
} from "./alarm-trial.ts";
import { ALARMS_ONLY, type TrialOptions, type TrialSync } from "./trial-sync.ts";

/** The alarm feed against the simulated service: the client, the polls and the diffs as they are, time compressed. */

async function started(options: TrialOptions = {}): Promise<TrialSync> {
  createAlarmTrial(options);
  await trial.start();
  await trial.clock.advance(20_000);
  return trial;
}

/** 23 alarms of site 3 in pages of five, two minutes after they began. */
async function startedWithPages() {
  await started({ pageSize: 5, simulator: { sites: [3], alarms: { recorded: false } } });
  const ids = Array.from({ length: 23 }, () => trial.control.raiseAlarm({ siteId: 3 }));
  await trial.clock.advance(2 * MINUTE);
  return ids;
}

const emittedSince = (before: number) => trial.store.events.slice(before).map(({ type }) => type);

describe("the events of an alarm", () => {
  test("emits one event per change of an alarm, from its raise to its end", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.acknowledgeAlarm(id, "Kari", "on my way");
    await clock.advance(MINUTE);
    control.recoverAlarm(id, clock.now() + 5 * MINUTE);
    await clock.advance(MINUTE);
    control.resolveAlarm(id);
    await clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "acknowledged", "recovering", "resolved"]);
    const acknowledged = alarmEvents().find((event) => event.type === "alarm-acknowledged");
    expect(factOf(acknowledged)?.alarm).toMatchObject({ acknowledgedBy: "Kari", acknowledgedMessage: "on my way" });
    const resolved = factOf(alarmEvents().at(-1));
    expect(resolved?.alarm.resolvedAt).not.toBeNull();
    expect(resolved?.late).toBe(false);
  });

  test("a poll without changes sends one request for all sites", async () => {
    const { control, clock, requests } = await started();
    for (let i = 0; i < 20; i += 1) control.raiseAlarm({ siteId: 2 + (i % 3) });
    await clock.advance(2 * MINUTE);
    const before = requests.length;
    await clock.advance(10 * MINUTE);
    expect(activeQueries(before)).toHaveLength(20);
    expect(requests.slice(before).filter(({ path }) => path.endsWith("/me"))).toHaveLength(0);
  });

  test("trap 34: every request for alarms has a status filter", async () => {
    const { control, clock, requests } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.deleteAlarm(id);
    await clock.advance(10 * MINUTE);
    const asked = requests.filter(({ path }) => isAlarmList(path));
    expect(asked.length).toBeGreaterThan(20);
    expect(asked.filter(({ query }) => query.get("status") === null)).toEqual([]);
  });

  test("trap 36: emits one alarm-vanished and no end for a deleted alarm", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.deleteAlarm(id);
    await clock.advance(30 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "vanished"]);
  });

  test("trap 37: emits raise and end, marked late, for an alarm that begins and ends between two polls", async () => {
    const { control, clock } = await started();
    await clock.advance(60_000 - (clock.now() % 30_000) + 5_000);
    const ids: string[] = [];
    for (let i = 0; i < 50; i += 1) {
      const id = control.raiseAlarm({ siteId: 2 + (i % 3) });
      await clock.advance(1_000);
      control.resolveAlarm(id);
      ids.push(id);
      await clock.advance(30_000 - 1_000);
    }
    await clock.advance(5 * MINUTE);
    for (const id of ids) expect(emitted(id)).toEqual(["raised", "resolved"]);
    expect(alarmEvents().every((event) => factOf(event)?.late)).toBe(true);
  });

  test("trap 38: begins a new episode each time the service reuses an alarm id", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    for (let i = 0; i < 20; i += 1) {
      control.resolveAlarm(id);
      await clock.advance(MINUTE);
      control.retriggerAlarm(id);
      await clock.advance(MINUTE);
    }
    const raised = trial.events("alarm-raised");
    const resolved = trial.events("alarm-resolved");
    expect(raised).toHaveLength(21);
    expect(resolved).toHaveLength(20);
    expect(new Set(raised.map((event) => factOf(event)?.episode)).size).toBe(21);
    expect(alarmEvents()).toHaveLength(41);
  });

  test("trap 39: emits one event for each change of a frequently changing field, and no second raise", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    for (let i = 0; i < 30; i += 1) {
      await clock.advance(30_000);
      control.recoverAlarm(id, clock.now() + MINUTE);
      if (i % 2 === 0) control.acknowledgeAlarm(id, "Kari");
      else control.unacknowledgeAlarm(id);
    }
    await clock.advance(MINUTE);
    const counts = ["raised", "acknowledged", "unacknowledged", "recovering"].map(countOf);
    expect(counts).toEqual([1, 15, 15, 30]);
  });
});

describe("the first poll after a start", () => {
  test("trap 40: a first start marks active alarms as initial, and emits the same event ids after the state was lost", async () => {
    createAlarmTrial();
    const ids = [2, 3, 3, 4].map((siteId) => trial.control.raiseAlarm({ siteId }));
    await trial.start();
    await trial.clock.advance(MINUTE);
    const first = trial.events("alarm-raised");
    expect(first.map(idOf).sort()).toEqual([...ids].sort());
    expect(first.every((event) => factOf(event)?.initial)).toBe(true);
    createAlarmTrial();
    expect([2, 3, 3, 4].map((siteId) => trial.control.raiseAlarm({ siteId }))).toEqual(ids);
    await trial.clock.advance(10_000);
    await trial.start();
    await trial.clock.advance(MINUTE);
    const idsOf = (events: readonly { readonly id: string }[]) => events.map(({ id }) => id).sort();
    expect(idsOf(trial.events("alarm-raised"))).toEqual(idsOf(first));
  });

  test("with startup reconcile, a start emits only the changes since the last stop", async () => {
    const { control, clock } = await started();
    const stays = control.raiseAlarm({ siteId: 3 });
    const ends = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    await trial.stop();
    const before = trial.store.events.length;
    control.resolveAlarm(ends);
    const comes = control.raiseAlarm({ siteId: 4 });
    const short = control.raiseAlarm({ siteId: 4 });
    await clock.advance(MINUTE);
    control.resolveAlarm(short);
    await clock.advance(60 * MINUTE);
    await trial.start();
    await clock.advance(MINUTE);
    const since = alarmEvents().filter((event) => trial.store.events.indexOf(event) >= before);
    expect(since.map((event) => [idOf(event), event.type]).sort()).toEqual(
      [
        [comes, "alarm-raised"],
        [ends, "alarm-resolved"],
        [short, "alarm-raised"],
        [short, "alarm-resolved"],
      ].sort(),
    );
    expect(emitted(stays)).toEqual(["raised"]);
    expect(since.filter((event) => event.type === "alarm-raised" && factOf(event)?.initial)).toEqual([]);
  });

  test("with startup announce, each restart emits every active alarm once, marked initial", async () => {
    const sync = { ...ALARMS_ONLY, alarms: { startup: "announce" as const } };
    const { control, clock } = await started({ sync });
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    await trial.restart();
    await clock.advance(5 * MINUTE);
    await trial.restart();
    await clock.advance(5 * MINUTE);
    const raised = trial.events("alarm-raised").filter((event) => idOf(event) === id);
    expect(raised.map((event) => factOf(event)?.initial)).toEqual([false, true, true]);
    expect(new Set(raised.map((event) => factOf(event)?.episode)).size).toBe(1);
  });
});

describe("trap 23: the token loses a site", () => {
  test.each(["empty", "403"] as const)(
    "emits alarm-out-of-scope for the alarms of the lost site, and nothing when the site returns (%s)",
    async (answer) => {
      const { control, clock } = await started({
        simulator: { alarms: { recorded: false, out_of_scope_site: answer } },
      });
      const hidden = control.raiseAlarm({ siteId: 3 });
      const other = control.raiseAlarm({ siteId: 4 });
      await clock.advance(MINUTE);
      control.changeToken(TOKEN, { sites: [2, 4] });
      await clock.advance(20 * MINUTE);
      expect(emitted(hidden)).toEqual(["raised", "out-of-scope"]);
      control.changeToken(TOKEN, { sites: [2, 3, 4] });
      await clock.advance(20 * MINUTE);
      expect(emitted(hidden)).toEqual(["raised", "out-of-scope"]);
      control.resolveAlarm(hidden);
      await clock.advance(5 * MINUTE);
      expect(emitted(hidden)).toEqual(["raised", "out-of-scope", "resolved"]);
      expect(emitted(other)).toEqual(["raised"]);
    },
  );
});

describe("unreliable lists of alarms", () => {
  test("trap 35: emits every alarm within two polls while 2,000 active alarms change 200 times a minute", async () => {
    const figures = await runAlarmStorm();
    expect(figures).toMatchObject({ withoutEvent: 0, laterThanTwoPolls: 0 });
    expect(figures.changes).toBeGreaterThan(700);
    expect(figures.longestBriefMs).toBeLessThan(3 * MINUTE);
  });

  test("trap 35: misses no alarm and emits no false end when pages shift during reading", async () => {
    const ids = await startedWithPages();
    const { control, clock } = trial;
    let moves = 0;
    const gone: string[] = [];
    trial.onRequest((path, query) => {
      if (!isActiveList(path, query) || moves >= 12) return;
      moves += 1;
      const first = ids.shift();
      if (first === undefined) return;
      control.resolveAlarm(first); // Everything behind it slips one place forward.
      gone.push(first);
      ids.push(control.raiseAlarm({ siteId: 3 })); // And the total stays the same.
    });
    await clock.advance(20 * MINUTE);
    expect(gone).toHaveLength(12);
    for (const id of gone) expect(emitted(id)).toEqual(["raised", "resolved"]);
    for (const id of ids) expect(emitted(id)).toEqual(["raised"]);
  });

  test.each([1, 2, 3, 4, 5])(
    "trap 42: an error on page %i of 5 delays all alarm events until every page is readable",
    async (page) => {
      const ids = await startedWithPages();
      const { control, clock } = trial;
      const before = alarmEvents().length;
      control.setFaults([{ match: { endpoints: ["alarms"], page }, fault: { kind: "error", status: 500 } }]);
      control.resolveAlarm(ids[0] ?? "");
      control.raiseAlarm({ siteId: 3 });
      await clock.advance(50_000);
      expect(alarmEvents()).toHaveLength(before);
      control.setFaults([]);
      await clock.advance(3 * MINUTE);
      expect(alarmEvents()).toHaveLength(before + 2);
    },
  );

  test("trap 42: a failing site does not delay the events of other sites when sites are listed singly", async () => {
    const { control, clock } = await started({
      pageSize: 5,
      // Pages of a list that has another order each time are not trusted.
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
  const faults = {
    "503": { kind: "maintenance", retry_after: 120 },
    "503 in HTML": { kind: "maintenance", body: "html" },
    "a page with HTTP 200": { kind: "html", status: 200 },
    "error 500": { kind: "error", status: 500 },
  } as const;

  test.each(Object.entries(faults))(
    "%s from every endpoint: emits source-unavailable, then source-available and the missed changes",
    async (_name, fault) => {
      const { control, clock } = await started();
      const ends = control.raiseAlarm({ siteId: 3 });
      const stays = control.raiseAlarm({ siteId: 3 });
      await clock.advance(2 * MINUTE);
      const before = trial.store.events.length;
      control.setFaults([{ fault }]);
      await clock.advance(10 * MINUTE);
      control.resolveAlarm(ends);
      await clock.advance(50 * MINUTE);
      expect(emittedSince(before)).toEqual(["source-unavailable"]);
      const requests = trial.requests.length;
      control.setFaults([]);
      await clock.advance(20 * MINUTE);
      expect(emittedSince(before)).toEqual(["source-unavailable", "source-available", "alarm-resolved"]);
      const [first] = trial.requests.slice(requests);
      const firstMinute = trial.requests.slice(requests).filter(({ atMs }) => atMs < (first?.atMs ?? 0) + MINUTE);
      expect(firstMinute.length).toBeLessThanOrEqual(20);
      expect(emitted(stays)).toEqual(["raised"]);
    },
  );

  test("emits begin and end of an outage once when the worker restarts during the outage", async () => {
    const { control, clock } = await started();
    control.setFaults([{ fault: { kind: "maintenance" } }]);
    await clock.advance(5 * MINUTE);
    await trial.restart();
    await clock.advance(5 * MINUTE);
    control.setFaults([]);
    await clock.advance(20 * MINUTE);
    expect(trial.events("source-unavailable", "source-available").map((event) => event.type)).toEqual([
      "source-unavailable",
      "source-available",
    ]);
  });

  /** 20 pages of alarms, which the list rate lets nobody read twice in a minute, and one more alarm while it is away. */
  async function awayWithManyPages() {
    await started({ pageSize: 5, simulator: { sites: [3], alarms: { recorded: false, order: "id" } } });
    const { control } = trial.simulator;
    for (let alarms = 0; alarms < 98; alarms += 1) control.raiseAlarm({ siteId: 3 });
    await trial.clock.advance(5 * MINUTE);
    control.setFaults([{ fault: { kind: "maintenance", retry_after: 60 } }]);
    await trial.clock.advance(59_000);
    return control.raiseAlarm({ siteId: 3 });
  }
  const news = () => trial.events("source-unavailable", "source-available", "alarm-raised").map(({ type }) => type);

  test("after an outage, emits a new alarm after one reading of 20 pages", async () => {
    const id = await awayWithManyPages();
    const before = news().length;
    trial.control.setFaults([]);
    const asked = trial.requests.length;
    while (emitted(id).length === 0 && trial.requests.length - asked < 60) await trial.clock.advance(50);
    expect(activeQueries(asked).length).toBeLessThanOrEqual(22);
    expect(news().slice(before)).toEqual(["source-available", "alarm-raised"]);
    await trial.clock.advance(10 * MINUTE);
    expect(news().slice(before)).toEqual(["source-available", "alarm-raised"]);
  });

  test.each([
    ["maintenance", ["source-available", "alarm-raised", "source-unavailable", "source-available"]],
    ["reset", ["source-available", "alarm-raised"]],
  ])("emits each outage and return once when a request right after an outage fails by %s", async (kind, events) => {
    const id = await awayWithManyPages();
    const before = news().length;
    let isMet = false;
    trial.onRequest(() => {
      // The second reading meets it.
      if (isMet || emitted(id).length === 0) return;
      isMet = true;
      trial.control.setFaults([{ when: { count: 1 }, fault: { kind } }]);
    });
    trial.control.setFaults([]);
    await trial.clock.advance(20 * MINUTE);
    expect(isMet).toBe(true);
    expect(news().slice(before)).toEqual(events);
  });

  test("trap 21: a rejected token causes at most 13 requests an hour and no alarm event; a new token is used within 10 s", async () => {
    let stamp = "old";
    const { control, clock, requests } = await started({ tokenStamp: async () => stamp });
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(2 * MINUTE);
    const before = trial.store.events.length;
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

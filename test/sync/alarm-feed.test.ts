import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import { ALARMS_ONLY, createTrial, type TrialOptions, type TrialSync } from "./trial-sync.ts";

/** The alarm feed against the simulated service: the client, the polls and the diffs as they are, time compressed. */

const MINUTE = 60_000;
let trial: TrialSync;

async function begin(options: TrialOptions = {}): Promise<TrialSync> {
  trial = createTrial(options);
  return trial;
}

async function started(options: TrialOptions = {}): Promise<TrialSync> {
  await begin(options);
  await trial.start();
  await trial.clock.advance(20_000);
  return trial;
}

afterEach(async () => {
  await trial.stop();
});

const alarmEvents = () => trial.store.events.filter((event) => event.type.startsWith("alarm-"));
const told = (id: string) =>
  alarmEvents()
    .filter((event) => idOf(event) === id)
    .map((event) => event.type);
const idOf = (event: Event) => (event.data as AlarmFact).alarm.id;
const factOf = (event: Event | undefined) => event?.data as (AlarmFact & { initial?: boolean }) | undefined;

describe("the events of an alarm", () => {
  test("emits one event per change, from raise to end", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.acknowledgeAlarm(id, "Kari", "on my way");
    await clock.advance(MINUTE);
    control.recoverAlarm(id, clock.now() + 5 * MINUTE);
    await clock.advance(MINUTE);
    control.resolveAlarm(id);
    await clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-acknowledged", "alarm-recovering", "alarm-resolved"]);
    const acknowledged = alarmEvents().find((event) => event.type === "alarm-acknowledged");
    expect(factOf(acknowledged)?.alarm).toMatchObject({
      acknowledgedBy: "Kari",
      acknowledgedMessage: "on my way",
    });
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
    const active = requests.slice(before).filter(({ query }) => query.get("status") === "active");
    expect(active).toHaveLength(20);
    expect(requests.slice(before).filter(({ path }) => path.endsWith("/me"))).toHaveLength(0);
  });

  test("trap 34: every request for alarms states a status", async () => {
    const { control, clock, requests } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.deleteAlarm(id);
    await clock.advance(10 * MINUTE);
    const asked = requests.filter(({ path }) => path.endsWith("/alarms"));
    expect(asked.length).toBeGreaterThan(20);
    expect(asked.filter(({ query }) => query.get("status") === null)).toEqual([]);
  });

  test("trap 36: emits alarm-vanished once for a deleted alarm, and no end", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.deleteAlarm(id);
    await clock.advance(30 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-vanished"]);
  });

  test("trap 37: emits raise and end, marked late, of an alarm between two polls", async () => {
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
    for (const id of ids) expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
    expect(alarmEvents().every((event) => factOf(event)?.late)).toBe(true);
  });

  test("trap 38: begins a new episode when an id is used again", async () => {
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

  test("emits alarm-vanished for the old episode before it raises a new one with the same id", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.retriggerAlarm(id);
    await clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-vanished", "alarm-raised"]);
  });

  test("trap 39: emits changes, and no second raise, for fields that change often", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    for (let i = 0; i < 30; i += 1) {
      await clock.advance(30_000);
      control.recoverAlarm(id, clock.now() + MINUTE);
      if (i % 2 === 0) control.acknowledgeAlarm(id, "Kari");
      else control.unacknowledgeAlarm(id);
    }
    await clock.advance(MINUTE);
    const counts = Object.groupBy(told(id), (type) => type);
    expect(counts["alarm-raised"]).toHaveLength(1);
    expect(counts["alarm-acknowledged"]).toHaveLength(15);
    expect(counts["alarm-unacknowledged"]).toHaveLength(15);
    expect(counts["alarm-recovering"]).toHaveLength(30);
  });
});

describe("starting", () => {
  test("trap 40: marks active alarms as initial at a first start, with the same ids after a lost state", async () => {
    await begin();
    const ids = [2, 3, 3, 4].map((siteId) => trial.control.raiseAlarm({ siteId }));
    await trial.start();
    await trial.clock.advance(MINUTE);
    const first = trial.events("alarm-raised");
    expect(first.map(idOf).sort()).toEqual([...ids].sort());
    expect(first.every((event) => factOf(event)?.initial)).toBe(true);
    await trial.stop();

    const lost = createTrial();
    const ids2 = [2, 3, 3, 4].map((siteId) => lost.simulator.control.raiseAlarm({ siteId }));
    expect(ids2).toEqual(ids);
    await lost.clock.advance(10_000);
    await lost.start();
    await lost.clock.advance(MINUTE);
    expect(
      lost
        .events("alarm-raised")
        .map((event) => event.id)
        .sort(),
    ).toEqual(first.map((event) => event.id).sort());
    await lost.stop();
  });

  test("reconcile: emits only the changes since the stop", async () => {
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
    const since = trial.store.events.slice(before).filter((event) => event.type.startsWith("alarm-"));
    expect(since.map((event) => [idOf(event), event.type]).sort()).toEqual(
      [
        [comes, "alarm-raised"],
        [ends, "alarm-resolved"],
        [short, "alarm-raised"],
        [short, "alarm-resolved"],
      ].sort(),
    );
    expect(told(stays)).toEqual(["alarm-raised"]);
    expect(since.filter((event) => event.type === "alarm-raised" && factOf(event)?.initial)).toEqual([]);
  });

  test("announce: emits every active alarm once per start, marked initial", async () => {
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

  test("silent: stores the alarms of the first list, and emits only later changes", async () => {
    await begin({ sync: { ...ALARMS_ONLY, alarms: { startup: "silent" } } });
    const old = trial.control.raiseAlarm({ siteId: 3 });
    await trial.start();
    await trial.clock.advance(MINUTE);
    expect(alarmEvents()).toEqual([]);
    const fresh = trial.control.raiseAlarm({ siteId: 3 });
    trial.control.resolveAlarm(old);
    await trial.clock.advance(MINUTE);
    expect(told(fresh)).toEqual(["alarm-raised"]);
    expect(told(old)).toEqual(["alarm-resolved"]);
  });

  test("emits no alarm that ended before the first start", async () => {
    await begin();
    const id = trial.control.raiseAlarm({ siteId: 3 });
    await trial.clock.advance(MINUTE);
    trial.control.resolveAlarm(id);
    await trial.clock.advance(MINUTE);
    await trial.start();
    await trial.clock.advance(30 * MINUTE);
    expect(alarmEvents()).toEqual([]);
  });
});

describe("trap 23: the token loses a site", () => {
  const TOKEN = "simulator-token";

  test.each(["empty", "403"] as const)("its alarms are out of scope, and come back in silence (%s)", async (answer) => {
    const { control, clock } = await started({
      simulator: { alarms: { recorded: false, out_of_scope_site: answer } },
    });
    const hidden = control.raiseAlarm({ siteId: 3 });
    const other = control.raiseAlarm({ siteId: 4 });
    await clock.advance(MINUTE);
    control.changeToken(TOKEN, { sites: [2, 4] });
    await clock.advance(20 * MINUTE);
    expect(told(hidden)).toEqual(["alarm-raised", "alarm-out-of-scope"]);
    control.changeToken(TOKEN, { sites: [2, 3, 4] });
    await clock.advance(20 * MINUTE);
    expect(told(hidden)).toEqual(["alarm-raised", "alarm-out-of-scope"]);
    control.resolveAlarm(hidden);
    await clock.advance(5 * MINUTE);
    expect(told(hidden)).toEqual(["alarm-raised", "alarm-out-of-scope", "alarm-resolved"]);
    expect(told(other)).toEqual(["alarm-raised"]);
  });

  test("emits the end of an out-of-scope alarm when its site is visible again", async () => {
    const { control, clock } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(MINUTE);
    control.changeToken(TOKEN, { sites: [2, 4] });
    await clock.advance(20 * MINUTE);
    control.resolveAlarm(id);
    await clock.advance(20 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-out-of-scope"]);
    control.changeToken(TOKEN, { sites: "all" });
    await clock.advance(20 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-out-of-scope", "alarm-resolved"]);
  });
});

describe("lists that cannot be trusted", () => {
  test("trap 35: misses and ends no alarm when pages shift while they are read", async () => {
    const { control, clock } = await started({
      pageSize: 5,
      simulator: { sites: [3], alarms: { recorded: false } },
    });
    const ids = Array.from({ length: 23 }, () => control.raiseAlarm({ siteId: 3 }));
    await clock.advance(2 * MINUTE);
    let moves = 0;
    const gone: string[] = [];
    trial.onRequest((path, query) => {
      if (!path.endsWith("/alarms") || query.get("status") !== "active" || moves >= 12) return;
      moves += 1;
      const first = ids.shift();
      if (first === undefined) return;
      control.resolveAlarm(first); // Everything behind it slips one place forward.
      gone.push(first);
      ids.push(control.raiseAlarm({ siteId: 3 })); // And the total stays the same.
    });
    await clock.advance(20 * MINUTE);
    expect(gone).toHaveLength(12);
    for (const id of gone) expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
    for (const id of ids) expect(told(id)).toEqual(["alarm-raised"]);
  });

  test.each([1, 2, 3, 4, 5])("trap 42: an error on page %i of 5 changes nothing", async (page) => {
    const { control, clock } = await started({
      pageSize: 5,
      simulator: { sites: [3], alarms: { recorded: false } },
    });
    const ids = Array.from({ length: 23 }, () => control.raiseAlarm({ siteId: 3 }));
    await clock.advance(2 * MINUTE);
    const before = alarmEvents().length;
    control.setFaults([{ match: { endpoints: ["alarms"], page }, fault: { kind: "error", status: 500 } }]);
    control.resolveAlarm(ids[0] ?? "");
    control.raiseAlarm({ siteId: 3 });
    await clock.advance(50_000);
    expect(alarmEvents()).toHaveLength(before);
    control.setFaults([]);
    await clock.advance(3 * MINUTE);
    expect(alarmEvents()).toHaveLength(before + 2);
  });

  test("trap 42: a failing site does not delay the others when sites are listed singly", async () => {
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
    expect(told(mute)).toEqual(["alarm-raised"]);
    expect(told(heard)).toEqual(["alarm-raised", "alarm-vanished"]);
    control.setFaults([]);
    await clock.advance(4 * MINUTE);
    expect(told(mute)).toEqual(["alarm-raised", "alarm-vanished"]);
  });

  test("emits a change with the next poll after a failed commit", async () => {
    const { control, clock, store } = await started();
    const id = control.raiseAlarm({ siteId: 3 });
    const { commit } = store;
    store.commit = () => Promise.reject(new Error("The disk is full."));
    await clock.advance(12_000);
    expect(told(id)).toEqual([]);
    store.commit = commit;
    await clock.advance(MINUTE);
    expect(told(id)).toEqual(["alarm-raised"]);
  });

  test("searches the end of an alarm with every poll until it is committed", async () => {
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
    expect(told(id)).toEqual(["alarm-raised"]);
    await clock.advance(MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });
});

describe("outages", () => {
  const faults = {
    "503": { kind: "maintenance", retry_after: 120 },
    "503 in HTML": { kind: "maintenance", body: "html" },
    "a page with HTTP 200": { kind: "html", status: 200 },
    "error 500": { kind: "error", status: 500 },
  } as const;

  test.each(Object.entries(faults))(
    "%s: one event, nothing else, then one for the return and the difference",
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
      expect(trial.store.events.slice(before).map((event) => event.type)).toEqual(["source-unavailable"]);
      const requests = trial.requests.length;
      control.setFaults([]);
      await clock.advance(20 * MINUTE);
      expect(trial.store.events.slice(before).map((event) => event.type)).toEqual([
        "source-unavailable",
        "source-available",
        "alarm-resolved",
      ]);
      const [first] = trial.requests.slice(requests);
      const firstMinute = trial.requests.slice(requests).filter(({ atMs }) => atMs < (first?.atMs ?? 0) + MINUTE);
      expect(firstMinute.length).toBeLessThanOrEqual(20);
      expect(told(stays)).toEqual(["alarm-raised"]);
    },
  );

  test("emits beginning and end of an outage once despite a restart", async () => {
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

  test("503 with 30 days: back within three minutes after the health check says healthy, each thing emitted once", async () => {
    const { control, clock, requests } = await started();
    control.setFaults([{ fault: { kind: "maintenance", retry_after: 30 * 86_400 } }]);
    await clock.advance(MINUTE);
    const from = requests.length;
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(180 * MINUTE);
    const asked = requests.slice(from).filter(({ path }) => !path.endsWith("/healthcheck"));
    expect(asked).toEqual([]);
    expect(requests.length - from).toBeLessThanOrEqual(181);
    control.setFaults([]);
    await clock.advance(3 * MINUTE);
    expect(trial.events("source-unavailable", "source-available").map((event) => event.type)).toEqual([
      "source-unavailable",
      "source-available",
    ]);
    expect(told(id)).toEqual(["alarm-raised"]);
    await clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised"]);
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

  test("many pages: a new alarm is emitted with its page, after the return, while the pages are read twice", async () => {
    const id = await awayWithManyPages();
    const before = news().length;
    trial.control.setFaults([]);
    const asked = trial.requests.length;
    while (told(id).length === 0 && trial.requests.length - asked < 60) await trial.clock.advance(50);
    const pages = trial.requests.slice(asked).filter(({ query }) => query.get("status") === "active");
    expect(pages.length).toBeLessThanOrEqual(22);
    expect(news().slice(before)).toEqual(["source-available", "alarm-raised"]);
    await trial.clock.advance(10 * MINUTE);
    expect(news().slice(before)).toEqual(["source-available", "alarm-raised"]);
  });

  test.each([
    ["maintenance", ["source-available", "alarm-raised", "source-unavailable", "source-available"]],
    ["reset", ["source-available", "alarm-raised"]],
  ])("many pages, and a later one brings %s: each return is told once", async (kind, events) => {
    const id = await awayWithManyPages();
    const before = news().length;
    let isMet = false;
    trial.onRequest(() => {
      // The second reading meets it.
      if (isMet || told(id).length === 0) return;
      isMet = true;
      trial.control.setFaults([{ when: { count: 1 }, fault: { kind } }]);
    });
    trial.control.setFaults([]);
    await trial.clock.advance(20 * MINUTE);
    expect(isMet).toBe(true);
    expect(news().slice(before)).toEqual(events);
  });

  test("trap 21: a refused token: at most 12 requests an hour, no alarm event, a new token within 10 s", async () => {
    let stamp = "old";
    const { control, clock, requests } = await started({ tokenStamp: async () => stamp });
    const id = control.raiseAlarm({ siteId: 3 });
    await clock.advance(2 * MINUTE);
    const before = trial.store.events.length;
    control.setFaults([{ fault: { kind: "error", status: 401 } }]);
    const asked = requests.length;
    await clock.advance(60 * MINUTE);
    expect(requests.length - asked).toBeLessThanOrEqual(13);
    expect(trial.store.events.slice(before).map((event) => event.type)).toEqual(["source-unavailable"]);
    control.setFaults([]);
    stamp = "new";
    await clock.advance(10_000);
    expect(trial.store.events.slice(before).map((event) => event.type)).toEqual([
      "source-unavailable",
      "source-available",
    ]);
    expect(told(id)).toEqual(["alarm-raised"]);
  });

  test("trap 24: a refused ability stops its own job alone, says so once, and is tried every 15 minutes", async () => {
    const { control, clock, requests } = await started({
      sync: { ...ALARMS_ONLY, schedules: { ...ALARMS_ONLY.schedules, gateways: "*/5 * * * *" } },
    });
    await clock.advance(MINUTE);
    control.changeToken("simulator-token", {
      abilities: ["read:alarms", "read:tags", "read:hosts", "read:systems"],
    });
    const id = control.raiseAlarm({ siteId: 3 });
    const before = requests.length;
    await clock.advance(60 * MINUTE);
    const gateways = requests.slice(before).filter(({ path }) => path.endsWith("/gateways"));
    expect(gateways.length).toBeLessThanOrEqual(3 * 6);
    const lost = trial.events("source-unavailable");
    expect(lost.map((event) => event.subject)).toEqual(["feature/gateways"]);
    expect(JSON.stringify(lost[0]?.data)).toMatch(/forbidden|lack|403/i);
    expect(told(id)).toEqual(["alarm-raised"]);
    control.changeToken("simulator-token", {
      abilities: ["read:alarms", "read:tags", "read:gateways", "read:hosts", "read:systems"],
    });
    await clock.advance(20 * MINUTE);
    expect(trial.events("source-available").map((event) => event.subject)).toEqual(["feature/gateways"]);
  });
});

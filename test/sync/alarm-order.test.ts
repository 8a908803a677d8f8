import { afterEach, expect, test } from "vitest";
import type { AlarmFact } from "#src/core/model/event.ts";
import type { StoredAlarm } from "#src/engine/sync/snapshot.ts";
import { ALARMS_ONLY, createTrial, type ListChange, type TrialSync } from "./trial-sync.ts";

/** Lists of active and resolved alarms that disagree, and clocks that are set, against the simulated service. */

const MINUTE = 60_000;
const TOKEN = "simulator-token";
let trial: TrialSync;

afterEach(async () => {
  await trial.stop();
});

const isAlarms = (path: string) => path.endsWith("/alarms");
const emitted = (id: string) =>
  trial.store.events
    .filter(({ type, data }) => type.startsWith("alarm-") && (data as AlarmFact).alarm.id === id)
    .map(({ type }) => type.replace("alarm-", ""));
/** Changes every record of every list of alarms. */
const changeRecords = (change: (attributes: Record<string, unknown>, status: string | null) => void): ListChange => {
  return (list, path, query) => {
    if (isAlarms(path)) for (const { attributes } of list.data) change(attributes, query.get("status"));
  };
};
const shiftTime = (time: string, byMs: number) => new Date(Date.parse(time) + byMs).toISOString();

async function started(): Promise<string> {
  trial = createTrial();
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  await trial.start();
  await trial.clock.advance(MINUTE);
  return id;
}

test("emits a new episode after the service's clock ran ahead and was corrected", async () => {
  trial = createTrial();
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  const ahead = changeRecords((attributes) => {
    for (const name of ["triggered_at", "resolved_at"])
      if (typeof attributes[name] === "string") attributes[name] = shiftTime(attributes[name], 60 * MINUTE);
  });
  trial.rewriteLists(ahead);
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(3 * MINUTE);
  expect(emitted(id)).toEqual(["raised", "resolved"]);
  trial.rewriteLists(null);
  await trial.clock.advance(5 * MINUTE);
  trial.simulator.control.retriggerAlarm(id);
  await trial.clock.advance(MINUTE);
  expect(emitted(id)).toEqual(["raised", "resolved", "raised"]);
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(5 * MINUTE);
  expect(emitted(id)).toEqual(["raised", "resolved", "raised", "resolved"]);
});

/** An alarm that begins and ends between two polls. */
async function shortAlarm(siteId = 3): Promise<string> {
  const id = trial.simulator.control.raiseAlarm({ siteId });
  await trial.clock.advance(2_000);
  trial.simulator.control.resolveAlarm(id);
  return id;
}

test("an end in the future hides no short alarm from the sweep", async () => {
  trial = createTrial();
  const odd = trial.simulator.control.raiseAlarm({ siteId: 3 });
  trial.rewriteLists((list, path) => {
    if (!isAlarms(path)) return;
    for (const { id, attributes } of list.data) {
      const byMs = id === odd ? 600 * MINUTE : -2 * MINUTE;
      if (attributes.resolved_at !== null) attributes.resolved_at = shiftTime(attributes.resolved_at, byMs);
      if (id !== odd) attributes.triggered_at = shiftTime(attributes.triggered_at, byMs);
    }
  });
  await trial.start();
  await trial.clock.advance(MINUTE);
  trial.simulator.control.resolveAlarm(odd);
  await trial.clock.advance(4 * MINUTE + 3_000);
  const short = await shortAlarm();
  await trial.clock.advance(10 * MINUTE);
  expect(emitted(odd)).toEqual(["raised", "resolved"]);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
});

test("emits a short alarm once when its stated end is hours before its beginning", async () => {
  trial = createTrial();
  await trial.start();
  await trial.clock.advance(5 * MINUTE + 3_000);
  const short = await shortAlarm();
  trial.rewriteLists(
    changeRecords((attributes) => {
      if (attributes.resolved_at !== null)
        attributes.resolved_at = shiftTime(String(attributes.resolved_at), -180 * MINUTE);
    }),
  );
  await trial.clock.advance(10 * MINUTE);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
  await trial.clock.advance(300 * MINUTE);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
});

test("emits an end once although the list of resolved alarms still shows it after a return", async () => {
  const id = await started();
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(3 * MINUTE);
  const triggeredAt = trial.simulator.truth.alarms.find(id, trial.clock.now())?.triggeredAtMs ?? 0;
  let old: unknown;
  trial.rewriteLists((list, path, query) => {
    if (!isAlarms(path)) return;
    const shown = list.data.find((one) => one.id === id);
    if (query.get("status") === "active") {
      if (shown !== undefined) shown.attributes.triggered_at = new Date(triggeredAt).toISOString();
    } else if (shown?.attributes.status === "resolved") old ??= structuredClone(shown);
    else if (old !== undefined && query.get("status") === "resolved")
      return { ...list, data: [...list.data, old], meta: { ...list.meta, total: list.data.length + 1 } };
  });
  await trial.clock.advance(3 * MINUTE);
  trial.simulator.control.retriggerAlarm(id);
  await trial.clock.advance(20 * MINUTE);
  expect(emitted(id).filter((kind) => kind !== "changed")).toEqual(["raised", "resolved", "retriggered"]);
});

test("the sweep emits an earlier episode, and the alarm stays active", async () => {
  trial = createTrial();
  await trial.start();
  await trial.clock.advance(5 * MINUTE);
  const id = trial.simulator.control.raiseAlarm({ siteId: 3 });
  await trial.clock.advance(MINUTE);
  // The present episode began a minute ago; the resolved list has the one before it in a row of its own.
  trial.rewriteLists((list, path, query) => {
    if (!isAlarms(path) || query.get("status") !== "resolved") return;
    const alarm = trial.simulator.truth.alarms.find(id, trial.clock.now());
    const ago = (ms: number) => new Date((alarm?.triggeredAtMs ?? 0) - ms).toISOString();
    const times = { triggered_at: ago(9_000), resolved_at: ago(5_000), status: "resolved" };
    const event = { id: 1, source: "s", type: "t", triggered_on: "x", value: 1, textlist_value: null };
    const attributes = {
      ...times,
      site: { id: 3, display_name: "S" },
      trigger: { id: 1, display_name: "T", description: null, priority: "A", enabled: true },
      source: "s",
      description: "d",
      recovering_until: null,
      acknowledged: false,
      acknowledged_by: null,
      acknowledged_message: null,
      acknowledged_at: null,
      last_active_event: { ...event, triggered_at: times.triggered_at },
    };
    const data = [...list.data, { type: "alarms", id, attributes }];
    return { ...list, data, meta: { ...list.meta, total: data.length } };
  });
  await trial.clock.advance(10 * MINUTE);
  expect(emitted(id)).toEqual(["raised", "raised", "resolved"]);
  expect((await trial.store.document<StoredAlarm>("alarm/main", id))?.state).toBe("active");
});

test("an alarm with an unknown status stays open, and is searched ever more rarely", async () => {
  const id = await started();
  trial.rewriteLists(
    changeRecords((attributes, status) => {
      if (status !== "active") Object.assign(attributes, { status: "closed", resolved_at: null });
    }),
  );
  trial.simulator.control.resolveAlarm(id);
  await trial.clock.advance(10 * MINUTE);
  const asked = () => trial.requests.filter(({ path }) => path.endsWith("/me")).length;
  const before = asked();
  await trial.clock.advance(60 * MINUTE);
  expect(emitted(id)).toEqual(["raised", "changed"]);
  // Every hour for the token, and every five minutes where somebody looks whether the scope has grown.
  expect(asked() - before).toBeLessThanOrEqual(14);
});

test.each([
  ["no time", () => null],
  ["a time without an offset", (time: string) => shiftTime(time, 0).slice(0, 19)],
])("emits an end with %s once, however long no other alarm ends", async (_what, stated) => {
  const hourly = { ...ALARMS_ONLY.schedules, alarms: "0 * * * *", resolved_sweep: "10 * * * *" };
  trial = createTrial({ sync: { ...ALARMS_ONLY, schedules: hourly } });
  await trial.start();
  await trial.clock.advance(90 * MINUTE);
  const short = await shortAlarm();
  trial.rewriteLists(
    changeRecords((attributes) => {
      if (attributes.status === "resolved") attributes.resolved_at = stated(String(attributes.resolved_at));
    }),
  );
  await trial.clock.advance(60 * MINUTE);
  const ended = await trial.store.document<StoredAlarm>("alarm/main", short);
  expect(emitted(short)).toEqual(["raised", "resolved"]);
  await trial.clock.advance(10 * 24 * 60 * MINUTE);
  // The store's log would hide that it was told anew, with another time, as long as it has the first one.
  expect(await trial.store.document<StoredAlarm>("alarm/main", short)).toEqual(ended);
});

test("reads the missed alarms of a site that is visible again, and emits none twice", async () => {
  const DAY = 24 * 60 * MINUTE;
  const hourly = { ...ALARMS_ONLY.schedules, alarms: "0 * * * *", resolved_sweep: "10 * * * *" };
  trial = createTrial({ sync: { ...ALARMS_ONLY, schedules: hourly } });
  const { control } = trial.simulator;
  await trial.start();
  await trial.clock.advance(90 * MINUTE);
  const elsewhere = await shortAlarm(4);
  await trial.clock.advance(DAY);
  const latest = await shortAlarm();
  await trial.clock.advance(90 * MINUTE);
  const ended = await trial.store.document("alarm/main", latest);
  control.changeToken(TOKEN, { sites: [2, 4] });
  const hidden = await shortAlarm();
  await trial.clock.advance(DAY);
  await shortAlarm(4);
  await trial.clock.advance(9 * DAY);
  expect(await trial.store.document("alarm/main", elsewhere)).toBeUndefined();
  control.changeToken(TOKEN, { sites: "all" });
  await trial.clock.advance(120 * MINUTE);
  expect(emitted(hidden)).toEqual(["raised", "resolved"]);
  expect(await trial.store.document("alarm/main", elsewhere)).toBeUndefined();
  expect(emitted(latest)).toEqual(["raised", "resolved"]);
  expect((await trial.store.document("alarm/main", latest)) ?? ended).toEqual(ended);
});

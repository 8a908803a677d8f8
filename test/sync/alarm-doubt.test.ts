import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import type { StoredPoll } from "#src/engine/sync/snapshot.ts";
import { createTrial, type ListChange, type TrialOptions, type TrialSync, type WireList } from "./trial-sync.ts";

/** Plausible but wrong lists and records, against the simulated service. */

const MINUTE = 60_000;
let trial: TrialSync;

async function started(active: number, options: TrialOptions = {}): Promise<readonly string[]> {
  trial = createTrial(options);
  const ids = Array.from({ length: active }, () => trial.control.raiseAlarm({ siteId: 3 }));
  await trial.start();
  await trial.clock.advance(MINUTE);
  return ids;
}

afterEach(async () => {
  await trial.stop();
});

const factOf = (event: Event) => event.data as AlarmFact;
const emitted = (id?: string) =>
  trial.store.events
    .filter((event) => event.type.startsWith("alarm-") && (id === undefined || factOf(event).alarm.id === id))
    .map((event) => event.type);
const count = (type: string) => emitted().filter((one) => one === type).length;
const problem = async () => (await trial.store.documents<StoredPoll>("poll/main")).get("alarms")?.problem ?? null;

const doubtful = async (reason: string) =>
  (await trial.metrics.alarmRecordsDoubtful.get()).values.find(
    ({ labels }) => "reason" in labels && labels.reason === reason,
  )?.value;

const isAlarms = (path: string) => path.endsWith("/alarms");
const isActive = (path: string, query: URLSearchParams) => isAlarms(path) && query.get("status") === "active";
const emptyLists: ListChange = (list, path) => {
  if (isAlarms(path)) return { ...list, data: [], meta: { ...list.meta, total: 0, last_page: 1 } };
};
/** Changes the record of one alarm in the list of active alarms. */
const changeRecord = (id: string, attributes: object): ListChange => {
  return (list, path, query) => {
    if (!isActive(path, query)) return;
    for (const record of list.data) if (record.id === id) Object.assign(record.attributes, attributes);
  };
};

test("emits an alarm of a site outside the token's scope without a request per list", async () => {
  await started(2);
  const elsewhere = (list: WireList) => {
    const record = structuredClone(list.data[0]);
    Object.assign(record, { id: "elsewhere" });
    record.attributes.site = { id: 77, display_name: "Elsewhere" };
    return {
      ...list,
      data: [...list.data, record],
      meta: { ...list.meta, total: list.meta.total + 1 },
    };
  };
  trial.rewriteLists((list, path, query) => (isActive(path, query) ? elsewhere(list) : undefined));
  await trial.clock.advance(MINUTE);
  expect(emitted("elsewhere")).toEqual(["alarm-raised"]);
  const before = trial.requests.length;
  await trial.clock.advance(10 * MINUTE);
  const asked = trial.requests.slice(before);
  expect(asked.filter(({ path, query }) => isActive(path, query)).length).toBeGreaterThanOrEqual(19);
  expect(asked.filter(({ path }) => path.endsWith("/me")).length).toBeLessThanOrEqual(1);
  trial.rewriteLists(null);
  await trial.clock.advance(2 * MINUTE);
  // What is not shown any more is explained by it, as before.
  expect(emitted("elsewhere")).toEqual(["alarm-raised", "alarm-out-of-scope"]);
});

describe("a list that drops at once", () => {
  test("is read again and reported; when it is complete again, no event was emitted", async () => {
    await started(12);
    const requests = trial.requests.length;
    trial.rewriteLists(emptyLists);
    await trial.clock.advance(30_000);
    const active = trial.requests.slice(requests).filter(({ path, query }) => isActive(path, query));
    expect(active).toHaveLength(2);
    await trial.clock.advance(3 * MINUTE);
    expect(await problem()).toMatch(/^12 of 12 active alarms left the list at once \(site 3\)/);
    expect(trial.warnings.filter((line) => line.includes("left the list at once"))).toHaveLength(1);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect(emitted()).toEqual(Array(12).fill("alarm-raised"));
    expect(await problem()).toBeNull();
  });

  test("still waits after a restart", async () => {
    await started(12);
    trial.rewriteLists(emptyLists);
    await trial.clock.advance(2 * MINUTE);
    await trial.restart();
    await trial.clock.advance(3 * MINUTE);
    expect(emitted()).toEqual(Array(12).fill("alarm-raised"));
    expect(await problem()).toMatch(/left the list at once/);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    expect(emitted()).toEqual(Array(12).fill("alarm-raised"));
  });

  test("counts after ten polls", async () => {
    const ids = await started(12);
    for (const id of ids) trial.control.deleteAlarm(id);
    await trial.clock.advance(4 * MINUTE);
    expect(count("alarm-vanished")).toBe(0);
    await trial.clock.advance(8 * MINUTE);
    expect(count("alarm-vanished")).toBe(12);
    expect(count("alarm-resolved")).toBe(0);
    expect(await problem()).toBeNull();
  });

  test("delays neither stated ends nor new alarms", async () => {
    const ids = await started(12);
    for (const id of ids) trial.control.resolveAlarm(id);
    const fresh = trial.control.raiseAlarm({ siteId: 4 });
    await trial.clock.advance(40_000);
    expect(count("alarm-resolved")).toBe(12);
    expect(emitted(fresh)).toEqual(["alarm-raised"]);
    expect(await problem()).toBeNull();
  });

  test("at one of many sites waits for that site only", async () => {
    await started(6);
    for (let i = 0; i < 20; i += 1) trial.control.raiseAlarm({ siteId: 2 });
    await trial.clock.advance(MINUTE);
    trial.rewriteLists((list, path, query) => {
      if (!isAlarms(path)) return;
      const data = list.data.filter((record) => record.attributes.site.id !== 3);
      if (query.has("site_id") || data.length < list.data.length)
        return { ...list, data, meta: { ...list.meta, total: data.length } };
    });
    await trial.clock.advance(4 * MINUTE);
    expect(count("alarm-vanished")).toBe(0);
    expect(await problem()).toMatch(/^6 of 6 .*\(site 3\)/);
  });

  test("of more than a third of the active alarms waits; a smaller drop does not", async () => {
    const ids = await started(20);
    for (const id of ids.slice(0, 6)) trial.control.deleteAlarm(id);
    await trial.clock.advance(3 * MINUTE);
    expect(count("alarm-vanished")).toBe(6);
    for (const id of ids.slice(6, 11)) trial.control.deleteAlarm(id);
    await trial.clock.advance(3 * MINUTE);
    expect(count("alarm-vanished")).toBe(6);
    expect(await problem()).toMatch(/^5 of 14 active alarms left the list at once/);
    await trial.clock.advance(8 * MINUTE);
    expect(count("alarm-vanished")).toBe(11);
  });

  test("of fewer than five alarms does not wait", async () => {
    const ids = await started(4);
    for (const id of ids) trial.control.deleteAlarm(id);
    await trial.clock.advance(3 * MINUTE);
    expect(count("alarm-vanished")).toBe(4);
  });
});

describe("many ends that the service states at once", () => {
  /** The list of resolved alarms shows every alarm that was active at the start, with an end. */
  const everythingOver = (isShown: () => boolean, records: WireList["data"]): ListChange => {
    return (list, path, query) => {
      if (!isAlarms(path) || query.get("status") !== "resolved" || !isShown()) return;
      const resolved_at = new Date(trial.clock.now()).toISOString();
      const data = structuredClone(records);
      for (const { attributes } of data) Object.assign(attributes, { status: "resolved", resolved_at });
      return { ...list, data, meta: { ...list.meta, total: data.length } };
    };
  };

  test("count in the first poll when a second reading states them again", async () => {
    const ids = await started(12);
    for (const id of ids) trial.control.resolveAlarm(id);
    await trial.clock.advance(40_000);
    expect(count("alarm-resolved")).toBe(12);
    expect(trial.warnings.filter((line) => line.includes("a second reading states the same"))).toHaveLength(1);
  });

  test("wait for the next poll when a second reading does not state them, and delay no new alarm", async () => {
    await started(12);
    const records = structuredClone(await activeRecords());
    let readings = 0;
    const isFirst = () => {
      readings += 1;
      return readings === 1;
    };
    const over = everythingOver(isFirst, records);
    const fresh = trial.control.raiseAlarm({ siteId: 4 });
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return over(list, path, query);
      const data = list.data.filter(({ id }) => id === fresh);
      return { ...list, data, meta: { ...list.meta, total: data.length } };
    });
    await trial.clock.advance(30_000);
    expect(readings).toBeGreaterThan(1);
    expect(emitted().filter((kind) => kind !== "alarm-raised")).toEqual([]);
    expect(emitted(fresh)).toEqual(["alarm-raised"]);
    expect(await problem()).toMatch(/12 of 12 active alarms are said to be resolved at once \(site 3\)/);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect(emitted().filter((kind) => kind !== "alarm-raised")).toEqual([]);
    expect(await problem()).toBeNull();
  });

  test("wait for the next sweep when only the sweep shows them", async () => {
    await started(12);
    const records = structuredClone(await activeRecords());
    const problemOfSweep = async () =>
      (await trial.store.documents<StoredPoll>("poll/main")).get("resolved_sweep")?.problem ?? null;
    trial.rewriteLists(everythingOver(() => true, records));
    await trial.clock.advance(2 * MINUTE);
    expect(count("alarm-resolved")).toBe(0);
    expect(await problemOfSweep()).toMatch(/^12 of 12 active alarms are said to be resolved at once/);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect(count("alarm-resolved")).toBe(0);
    expect(await problemOfSweep()).toBeNull();
    trial.rewriteLists(everythingOver(() => true, records));
    await trial.clock.advance(4 * MINUTE);
    expect(count("alarm-resolved")).toBe(12);
  });
});

describe("a record that contradicts itself", () => {
  test("resolved without a time in the list of active alarms: ends nothing, and the status quotes it", async () => {
    const ids = await started(8);
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      for (const { attributes } of list.data) Object.assign(attributes, { status: "resolved" });
    });
    await trial.clock.advance(20 * MINUTE);
    expect(emitted()).toEqual(Array(8).fill("alarm-raised"));
    expect(await problem()).toMatch(
      new RegExp(`contradict themselves: 8, such as alarm ${ids[0]} with the status "resolved" and the end null`),
    );
    expect(await doubtful("contradictory")).toBe(8);
    expect(trial.warnings.filter((line) => line.includes("contradict themselves"))).toHaveLength(1);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    expect(emitted()).toEqual(Array(8).fill("alarm-raised"));
    expect([await problem(), await doubtful("contradictory")]).toEqual([null, 0]);
  });

  test("ends the alarm at once when the list of resolved alarms confirms it", async () => {
    const [id = ""] = await started(1);
    const stale = structuredClone((await activeRecords())[0]);
    trial.control.resolveAlarm(id);
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      const data = [{ ...stale, attributes: { ...stale.attributes, status: "resolved" } }];
      return { ...list, data, meta: { ...list.meta, total: 1 } };
    });
    await trial.clock.advance(30_000);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });

  test("active with an end: raises a new alarm after the second reading, and keeps a stored one", async () => {
    const [id = ""] = await started(1);
    const end = new Date(trial.clock.now() + 1_000).toISOString();
    const fresh = trial.control.raiseAlarm({ siteId: 3 });
    trial.rewriteLists((list, path, query) => {
      changeRecord(id, { resolved_at: end })(list, path, query);
      changeRecord(fresh, { resolved_at: end })(list, path, query);
    });
    await trial.clock.advance(30_000);
    expect([emitted(id), emitted(fresh)]).toEqual([["alarm-raised"], []]);
    await trial.clock.advance(30_000);
    expect([emitted(id), emitted(fresh)]).toEqual([["alarm-raised"], ["alarm-raised"]]);
  });

  test("does not reopen an ended alarm", async () => {
    const [id = ""] = await started(1);
    const stale = structuredClone((await activeRecords())[0]);
    trial.control.resolveAlarm(id);
    await trial.clock.advance(MINUTE);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved"]);
    const resolved_at = new Date(trial.clock.now() - 40_000).toISOString();
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      const data = [{ ...stale, attributes: { ...stale.attributes, resolved_at } }];
      return { ...list, data, meta: { ...list.meta, total: 1 } };
    });
    await trial.clock.advance(10 * MINUTE);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });
});

async function activeRecords() {
  // biome-ignore lint/suspicious/noExplicitAny: records of the wire
  let records: any[] = [];
  trial.rewriteLists((list, path, query) => {
    if (isActive(path, query)) records = list.data;
  });
  await trial.clock.advance(30_000);
  return records;
}

describe("empty objects, as PHP sends them", () => {
  test.each(["site", "trigger", "last_active_event"])("%s: an empty object changes nothing", async (name) => {
    const [id = ""] = await started(1);
    trial.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    for (const empty of [[], {}]) {
      trial.rewriteLists(changeRecord(id, { [name]: empty }));
      await trial.clock.advance(2 * MINUTE);
    }
    trial.rewriteLists(null);
    await trial.clock.advance(2 * MINUTE);
    expect(emitted()).toEqual(["alarm-raised", "alarm-acknowledged"]);
  });

  test("attributes: keeps a stored alarm, and raises a new one when its attributes arrive", async () => {
    const [id = ""] = await started(1);
    trial.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    const fresh = trial.control.raiseAlarm({ siteId: 3 });
    trial.rewriteLists((list, path, query) => {
      if (isActive(path, query)) for (const record of list.data) record.attributes = [];
    });
    await trial.clock.advance(5 * MINUTE);
    expect([emitted(id), emitted(fresh)]).toEqual([["alarm-raised", "alarm-acknowledged"], []]);
    trial.rewriteLists(null);
    await trial.clock.advance(MINUTE);
    expect([emitted(id), emitted(fresh)]).toEqual([["alarm-raised", "alarm-acknowledged"], ["alarm-raised"]]);
  });
});

describe("acknowledgements and ends", () => {
  test("emits an acknowledgement after the end once, also the next morning", async () => {
    const [id = "", other = ""] = await started(2);
    trial.control.resolveAlarm(id);
    trial.control.resolveAlarm(other);
    await trial.clock.advance(5 * MINUTE);
    trial.control.acknowledgeAlarm(id, "Kari", "done");
    await trial.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    await trial.clock.advance(12 * 60 * MINUTE);
    await trial.restart();
    await trial.clock.advance(MINUTE);
    trial.control.acknowledgeAlarm(other, "Ola");
    await trial.clock.advance(60 * MINUTE);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    expect(emitted(other)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    const last = trial.events("alarm-acknowledged").at(-1);
    expect(last && factOf(last).alarm).toMatchObject({ status: "resolved", acknowledgedBy: "Ola" });
  });

  test("emits the changes of one poll in the order of their times", async () => {
    const [id = ""] = await started(1);
    await trial.clock.advance(5_000);
    trial.control.resolveAlarm(id);
    await trial.clock.advance(4_000);
    trial.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    expect(emitted(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    const times = trial.store.events.filter((event) => factOf(event).alarm?.id === id).map(({ time }) => time);
    expect(times).toEqual([...times].sort());
  });
});

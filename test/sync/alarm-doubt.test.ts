import { afterEach, describe, expect, test } from "vitest";
import type { AlarmFact, Event } from "#src/core/model/event.ts";
import type { StoredPoll } from "#src/engine/sync/snapshot.ts";
import { createTrial, type ListChange, type TrialOptions, type TrialSync, type WireList } from "./trial-sync.ts";

/** Lists and records that are plausible and not true: what they may change, and when. */

const MINUTE = 60_000;
let trial: TrialSync;

async function started(active: number, options: TrialOptions = {}): Promise<readonly string[]> {
  trial = createTrial(options);
  const ids = Array.from({ length: active }, () => trial.simulator.control.raiseAlarm({ siteId: 3 }));
  await trial.start();
  await trial.clock.advance(MINUTE);
  return ids;
}

afterEach(async () => {
  await trial.stop();
});

const factOf = (event: Event) => event.data as AlarmFact;
const told = (id?: string) =>
  trial.store.events
    .filter((event) => event.type.startsWith("alarm-") && (id === undefined || factOf(event).alarm.id === id))
    .map((event) => event.type);
const count = (type: string) => told().filter((one) => one === type).length;
const problem = async () => (await trial.store.documents<StoredPoll>("poll/main")).get("alarms")?.problem ?? null;

const doubtful = async (reason: string) =>
  (await trial.metrics.alarmRecordsDoubtful.get()).values.find(
    ({ labels }) => "reason" in labels && labels.reason === reason,
  )?.value;

const isAlarms = (path: string) => path.endsWith("/alarms");
const isActive = (path: string, query: URLSearchParams) => isAlarms(path) && query.get("status") === "active";
const nothing: ListChange = (list, path) => {
  if (isAlarms(path)) return { ...list, data: [], meta: { ...list.meta, total: 0, last_page: 1 } };
};
/** Bends the record of one alarm in the list of active ones. */
const bent = (id: string, attributes: object): ListChange => {
  return (list, path, query) => {
    if (!isActive(path, query)) return;
    for (const record of list.data) if (record.id === id) Object.assign(record.attributes, attributes);
  };
};

test("an alarm of a site that the token's word does not name is told, and costs no word for each list", async () => {
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
  expect(told("elsewhere")).toEqual(["alarm-raised"]);
  const before = trial.requests.length;
  await trial.clock.advance(10 * MINUTE);
  const asked = trial.requests.slice(before);
  expect(asked.filter(({ path, query }) => isActive(path, query)).length).toBeGreaterThanOrEqual(19);
  expect(asked.filter(({ path }) => path.endsWith("/me")).length).toBeLessThanOrEqual(1);
  trial.rewriteLists(null);
  await trial.clock.advance(2 * MINUTE);
  // What is not shown any more is explained by it, as before.
  expect(told("elsewhere")).toEqual(["alarm-raised", "alarm-out-of-scope"]);
});

describe("a list that drops at once", () => {
  test("is read again, held and told; when it is whole again, nothing was told", async () => {
    await started(12);
    const requests = trial.requests.length;
    trial.rewriteLists(nothing);
    await trial.clock.advance(30_000);
    const active = trial.requests.slice(requests).filter(({ path, query }) => isActive(path, query));
    expect(active).toHaveLength(2);
    await trial.clock.advance(3 * MINUTE);
    expect(await problem()).toMatch(/^12 of 12 active alarms left the list at once \(site 3\)/);
    expect(trial.warnings.filter((line) => line.includes("left the list at once"))).toHaveLength(1);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect(told()).toEqual(Array(12).fill("alarm-raised"));
    expect(await problem()).toBeNull();
  });

  test("is held after a restart, too, and when it came with the start", async () => {
    await started(12);
    trial.rewriteLists(nothing);
    await trial.clock.advance(2 * MINUTE);
    await trial.restart();
    await trial.clock.advance(3 * MINUTE);
    expect(told()).toEqual(Array(12).fill("alarm-raised"));
    expect(await problem()).toMatch(/left the list at once/);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    expect(told()).toEqual(Array(12).fill("alarm-raised"));
  });

  test("counts when ten polls have shown the same: life goes on", async () => {
    const ids = await started(12);
    for (const id of ids) trial.simulator.control.deleteAlarm(id);
    await trial.clock.advance(4 * MINUTE);
    expect(count("alarm-vanished")).toBe(0);
    await trial.clock.advance(8 * MINUTE);
    expect(count("alarm-vanished")).toBe(12);
    expect(count("alarm-resolved")).toBe(0);
    expect(await problem()).toBeNull();
  });

  test("does not keep back the service's own word, nor what is new", async () => {
    const ids = await started(12);
    for (const id of ids) trial.simulator.control.resolveAlarm(id);
    const fresh = trial.simulator.control.raiseAlarm({ siteId: 4 });
    await trial.clock.advance(40_000);
    expect(count("alarm-resolved")).toBe(12);
    expect(told(fresh)).toEqual(["alarm-raised"]);
    expect(await problem()).toBeNull();
  });

  test("at one of many sites is that site's", async () => {
    await started(6);
    for (let i = 0; i < 20; i += 1) trial.simulator.control.raiseAlarm({ siteId: 2 });
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

  test("of more than a third of the active alarms waits, a smaller part does not", async () => {
    const ids = await started(20);
    for (const id of ids.slice(0, 6)) trial.simulator.control.deleteAlarm(id);
    await trial.clock.advance(3 * MINUTE);
    expect(count("alarm-vanished")).toBe(6);
    for (const id of ids.slice(6, 11)) trial.simulator.control.deleteAlarm(id);
    await trial.clock.advance(3 * MINUTE);
    expect(count("alarm-vanished")).toBe(6);
    expect(await problem()).toMatch(/^5 of 14 active alarms left the list at once/);
    await trial.clock.advance(8 * MINUTE);
    expect(count("alarm-vanished")).toBe(11);
  });

  test("of fewer than five alarms is everyday life", async () => {
    const ids = await started(4);
    for (const id of ids) trial.simulator.control.deleteAlarm(id);
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

  test("count with the first poll where a second reading states them again, and the log says so", async () => {
    const ids = await started(12);
    for (const id of ids) trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(40_000);
    expect(count("alarm-resolved")).toBe(12);
    expect(trial.warnings.filter((line) => line.includes("a second reading states the same"))).toHaveLength(1);
  });

  test("wait for the next poll where a second reading does not state them, and delay no new alarm", async () => {
    await started(12);
    const records = structuredClone(await activeRecords());
    let readings = 0;
    const isFirst = () => {
      readings += 1;
      return readings === 1;
    };
    const over = everythingOver(isFirst, records);
    const fresh = trial.simulator.control.raiseAlarm({ siteId: 4 });
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return over(list, path, query);
      const data = list.data.filter(({ id }) => id === fresh);
      return { ...list, data, meta: { ...list.meta, total: data.length } };
    });
    await trial.clock.advance(30_000);
    expect(readings).toBeGreaterThan(1);
    expect(told().filter((kind) => kind !== "alarm-raised")).toEqual([]);
    expect(told(fresh)).toEqual(["alarm-raised"]);
    expect(await problem()).toMatch(/12 of 12 active alarms are said to be resolved at once \(site 3\)/);
    trial.rewriteLists(null);
    await trial.clock.advance(10 * MINUTE);
    expect(told().filter((kind) => kind !== "alarm-raised")).toEqual([]);
    expect(await problem()).toBeNull();
  });

  test("and that the sweep sees alone wait for its next run", async () => {
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
  test("resolved in the list of active ones, and not since when: it ends nothing, and the status quotes it", async () => {
    const ids = await started(8);
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      for (const { attributes } of list.data) Object.assign(attributes, { status: "resolved" });
    });
    await trial.clock.advance(20 * MINUTE);
    expect(told()).toEqual(Array(8).fill("alarm-raised"));
    expect(await problem()).toMatch(
      new RegExp(`contradict themselves: 8, such as alarm ${ids[0]} with the status "resolved" and the end null`),
    );
    expect(await doubtful("contradictory")).toBe(8);
    expect(trial.warnings.filter((line) => line.includes("contradict themselves"))).toHaveLength(1);
    trial.rewriteLists(null);
    await trial.clock.advance(5 * MINUTE);
    expect(told()).toEqual(Array(8).fill("alarm-raised"));
    expect([await problem(), await doubtful("contradictory")]).toEqual([null, 0]);
  });

  test("is settled at once where the resolved list says the same", async () => {
    const [id = ""] = await started(1);
    const stale = structuredClone((await activeRecords())[0]);
    trial.simulator.control.resolveAlarm(id);
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      const data = [{ ...stale, attributes: { ...stale.attributes, status: "resolved" } }];
      return { ...list, data, meta: { ...list.meta, total: 1 } };
    });
    await trial.clock.advance(30_000);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
  });

  test("active with an end: a new one is raised after the second reading, a known one stays", async () => {
    const [id = ""] = await started(1);
    const end = new Date(trial.clock.now() + 1_000).toISOString();
    const fresh = trial.simulator.control.raiseAlarm({ siteId: 3 });
    trial.rewriteLists((list, path, query) => {
      bent(id, { resolved_at: end })(list, path, query);
      bent(fresh, { resolved_at: end })(list, path, query);
    });
    await trial.clock.advance(30_000);
    expect([told(id), told(fresh)]).toEqual([["alarm-raised"], []]);
    await trial.clock.advance(30_000);
    expect([told(id), told(fresh)]).toEqual([["alarm-raised"], ["alarm-raised"]]);
  });

  test("does not open again what was told to be over", async () => {
    const [id = ""] = await started(1);
    const stale = structuredClone((await activeRecords())[0]);
    trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
    const resolved_at = new Date(trial.clock.now() - 40_000).toISOString();
    trial.rewriteLists((list, path, query) => {
      if (!isActive(path, query)) return;
      const data = [{ ...stale, attributes: { ...stale.attributes, resolved_at } }];
      return { ...list, data, meta: { ...list.meta, total: 1 } };
    });
    await trial.clock.advance(10 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved"]);
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

describe("objects that came empty, as PHP sends them", () => {
  test.each(["site", "trigger", "last_active_event"])("%s: what is not said did not change", async (name) => {
    const [id = ""] = await started(1);
    trial.simulator.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    for (const empty of [[], {}]) {
      trial.rewriteLists(bent(id, { [name]: empty }));
      await trial.clock.advance(2 * MINUTE);
    }
    trial.rewriteLists(null);
    await trial.clock.advance(2 * MINUTE);
    expect(told()).toEqual(["alarm-raised", "alarm-acknowledged"]);
  });

  test("attributes: a known alarm stays as it is, an unknown one is told when it says what it is", async () => {
    const [id = ""] = await started(1);
    trial.simulator.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    const fresh = trial.simulator.control.raiseAlarm({ siteId: 3 });
    trial.rewriteLists((list, path, query) => {
      if (isActive(path, query)) for (const record of list.data) record.attributes = [];
    });
    await trial.clock.advance(5 * MINUTE);
    expect([told(id), told(fresh)]).toEqual([["alarm-raised", "alarm-acknowledged"], []]);
    trial.rewriteLists(null);
    await trial.clock.advance(MINUTE);
    expect([told(id), told(fresh)]).toEqual([["alarm-raised", "alarm-acknowledged"], ["alarm-raised"]]);
  });
});

describe("acknowledgements and ends", () => {
  test("one that comes after the end is told, once, also the next morning", async () => {
    const [id = "", other = ""] = await started(2);
    trial.simulator.control.resolveAlarm(id);
    trial.simulator.control.resolveAlarm(other);
    await trial.clock.advance(5 * MINUTE);
    trial.simulator.control.acknowledgeAlarm(id, "Kari", "done");
    await trial.clock.advance(5 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    await trial.clock.advance(12 * 60 * MINUTE);
    await trial.restart();
    await trial.clock.advance(MINUTE);
    trial.simulator.control.acknowledgeAlarm(other, "Ola");
    await trial.clock.advance(60 * MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    expect(told(other)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    const last = trial.events("alarm-acknowledged").at(-1);
    expect(last && factOf(last).alarm).toMatchObject({ status: "resolved", acknowledgedBy: "Ola" });
  });

  test("what one poll sees of an alarm leaves in the order in which it happened", async () => {
    const [id = ""] = await started(1);
    await trial.clock.advance(5_000);
    trial.simulator.control.resolveAlarm(id);
    await trial.clock.advance(4_000);
    trial.simulator.control.acknowledgeAlarm(id, "Kari");
    await trial.clock.advance(MINUTE);
    expect(told(id)).toEqual(["alarm-raised", "alarm-resolved", "alarm-acknowledged"]);
    const times = trial.store.events.filter((event) => factOf(event).alarm?.id === id).map(({ time }) => time);
    expect(times).toEqual([...times].sort());
  });
});

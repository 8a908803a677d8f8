import { describe, expect, test } from "vitest";
import {
  activeQueries,
  activeRecords,
  countOf,
  emitted,
  factOf,
  harness,
  isActiveList,
  isAlarmList,
  jobProblem,
  listOf,
  MINUTE,
  startWithAlarms,
  unverified,
  warned,
} from "./alarm-harness.ts";
import type { ListChange, WireList } from "./sync-harness.ts";

const emptyLists: ListChange = (_list, path) => {
  if (isAlarmList(path)) return listOf([]);
};
const changeRecord = (id: string, attributes: object): ListChange => {
  return (list, path, query) => {
    if (!isActiveList(path, query)) return;
    for (const record of list.data) if (record.id === id) Object.assign(record.attributes, attributes);
  };
};

test("emits an alarm of a site outside the token's scope without requesting the scope at each poll", async () => {
  await startWithAlarms(2);
  const elsewhere = (list: WireList) => {
    const record = structuredClone({ ...list.data[0], id: "elsewhere" });
    record.attributes.site = { id: 77, display_name: "Elsewhere" };
    return listOf([...list.data, record]);
  };
  harness.rewriteLists((list, path, query) => (isActiveList(path, query) ? elsewhere(list) : undefined));
  await harness.clock.advance(MINUTE);
  expect(emitted("elsewhere")).toEqual(["raised"]);
  const before = harness.requests.length;
  await harness.clock.advance(10 * MINUTE);
  const requests = harness.requests.slice(before);
  expect(activeQueries(before).length).toBeGreaterThanOrEqual(19);
  expect(requests.filter(({ path }) => path.endsWith("/me")).length).toBeLessThanOrEqual(1);
  harness.rewriteLists(null);
  await harness.clock.advance(2 * MINUTE);
  expect(emitted("elsewhere")).toEqual(["raised", "out-of-scope"]);
});

describe("a sudden drop in the number of active alarms", () => {
  test("makes the worker read the list again and warn, without an event, also after a restart and when the alarms return", async () => {
    await startWithAlarms(12);
    const requests = harness.requests.length;
    harness.rewriteLists(emptyLists);
    await harness.clock.advance(30_000);
    expect(activeQueries(requests)).toHaveLength(2);
    await harness.clock.advance(3 * MINUTE);
    expect(await jobProblem()).toMatch(/^12 of 12 active alarms left the list at once \(site 3\)/);
    expect(warned("left the list at once")).toBe(1);
    await harness.restart();
    await harness.clock.advance(3 * MINUTE);
    expect(emitted()).toEqual(Array(12).fill("raised"));
    expect(await jobProblem()).toMatch(/left the list at once/);
    harness.rewriteLists(null);
    await harness.clock.advance(10 * MINUTE);
    expect(emitted()).toEqual(Array(12).fill("raised"));
    expect(await jobProblem()).toBeNull();
  });

  test("delays neither new alarms nor the ends of 12 alarms that the list of resolved alarms contains", async () => {
    const ids = await startWithAlarms(12);
    for (const id of ids) harness.control.resolveAlarm(id);
    const fresh = harness.control.raiseAlarm({ siteId: 4 });
    await harness.clock.advance(40_000);
    expect(countOf("resolved")).toBe(12);
    expect(warned("a second reading states the same")).toBe(1);
    expect(emitted(fresh)).toEqual(["raised"]);
    expect(await jobProblem()).toBeNull();
  });

  test("delays alarm-vanished only if more than a third of the active alarms disappear", async () => {
    const ids = await startWithAlarms(20);
    for (const id of ids.slice(0, 6)) harness.control.deleteAlarm(id);
    await harness.clock.advance(3 * MINUTE);
    expect(countOf("vanished")).toBe(6);
    for (const id of ids.slice(6, 11)) harness.control.deleteAlarm(id);
    await harness.clock.advance(3 * MINUTE);
    expect(countOf("vanished")).toBe(6);
    expect(await jobProblem()).toMatch(/^5 of 14 active alarms left the list at once/);
    await harness.clock.advance(8 * MINUTE);
    expect(countOf("vanished")).toBe(11);
  });
});

describe("many alarms that end in the same poll", () => {
  const everythingOver = (isShown: () => boolean, records: WireList["data"]): ListChange => {
    return (_list, path, query) => {
      if (!isAlarmList(path) || query.get("status") !== "resolved" || !isShown()) return;
      const resolved_at = new Date(harness.clock.now()).toISOString();
      const data = structuredClone(records);
      for (const { attributes } of data) Object.assign(attributes, { status: "resolved", resolved_at });
      return listOf(data);
    };
  };

  test("emit no alarm-resolved when a second reading of the list contradicts the first, and do not delay a new alarm", async () => {
    await startWithAlarms(12);
    const records = await activeRecords();
    let readings = 0;
    const isFirst = () => {
      readings += 1;
      return readings === 1;
    };
    const over = everythingOver(isFirst, records);
    const fresh = harness.control.raiseAlarm({ siteId: 4 });
    harness.rewriteLists((list, path, query) => {
      if (!isActiveList(path, query)) return over(list, path, query);
      const data = list.data.filter(({ id }) => id === fresh);
      return listOf(data);
    });
    await harness.clock.advance(30_000);
    expect(readings).toBeGreaterThan(1);
    expect(emitted().filter((kind) => kind !== "raised")).toEqual([]);
    expect(emitted(fresh)).toEqual(["raised"]);
    expect(await jobProblem()).toMatch(/12 of 12 active alarms are said to be resolved at once \(site 3\)/);
    harness.rewriteLists(null);
    await harness.clock.advance(10 * MINUTE);
    expect(emitted().filter((kind) => kind !== "raised")).toEqual([]);
    expect(await jobProblem()).toBeNull();
  });

  test("emit alarm-resolved when a second reading of the list of resolved alarms confirms the ends, whatever other lists contain", async () => {
    await startWithAlarms(12);
    const records = await activeRecords();
    harness.rewriteLists(everythingOver(() => true, records));
    await harness.clock.advance(2 * MINUTE);
    expect(countOf("resolved")).toBe(0);
    expect(await jobProblem("resolved_sweep")).toMatch(/^12 of 12 active alarms are said to be resolved at once/);
    harness.rewriteLists(null);
    await harness.clock.advance(10 * MINUTE);
    expect(countOf("resolved")).toBe(0);
    expect(await jobProblem("resolved_sweep")).toBeNull();
    harness.rewriteLists(everythingOver(() => true, records));
    await harness.clock.advance(4 * MINUTE);
    expect(countOf("resolved")).toBe(12);
  });
});

describe("an alarm record that contradicts itself", () => {
  test("an alarm in the active list with the status resolved and no end time stays active, and the status quotes its record", async () => {
    const ids = await startWithAlarms(8);
    harness.rewriteLists((list, path, query) => {
      if (!isActiveList(path, query)) return;
      for (const { attributes } of list.data) Object.assign(attributes, { status: "resolved" });
    });
    await harness.clock.advance(20 * MINUTE);
    expect(emitted()).toEqual(Array(8).fill("raised"));
    expect(await jobProblem()).toMatch(
      new RegExp(`contradict themselves: 8, such as alarm ${ids[0]} with the status "resolved" and the end null`),
    );
    expect(await unverified("contradictory")).toBe(8);
    expect(warned("contradict themselves")).toBe(1);
    harness.rewriteLists(null);
    await harness.clock.advance(5 * MINUTE);
    expect(emitted()).toEqual(Array(8).fill("raised"));
    expect([await jobProblem(), await unverified("contradictory")]).toEqual([null, 0]);
  });

  test("ends an alarm with the status resolved in the active list at once when the resolved list contains it", async () => {
    const [id = ""] = await startWithAlarms(1);
    const stale = (await activeRecords())[0];
    harness.control.resolveAlarm(id);
    harness.rewriteLists((_list, path, query) => {
      if (!isActiveList(path, query)) return;
      return listOf([{ ...stale, attributes: { ...stale.attributes, status: "resolved" } }]);
    });
    await harness.clock.advance(30_000);
    expect(emitted(id)).toEqual(["raised", "resolved"]);
  });

  test("with the status active and an end time: a new alarm is raised at the second reading, a stored alarm stays active", async () => {
    const [id = ""] = await startWithAlarms(1);
    const end = new Date(harness.clock.now() + 1_000).toISOString();
    const fresh = harness.control.raiseAlarm({ siteId: 3 });
    harness.rewriteLists((list, path, query) => {
      changeRecord(id, { resolved_at: end })(list, path, query);
      changeRecord(fresh, { resolved_at: end })(list, path, query);
    });
    await harness.clock.advance(30_000);
    expect([emitted(id), emitted(fresh)]).toEqual([["raised"], []]);
    await harness.clock.advance(30_000);
    expect([emitted(id), emitted(fresh)]).toEqual([["raised"], ["raised"]]);
  });
});

describe("empty objects in alarm records, as PHP sends them", () => {
  test.each(["site", "trigger", "last_active_event"])("an empty %s of a stored alarm causes no event", async (name) => {
    const [id = ""] = await startWithAlarms(1);
    harness.control.acknowledgeAlarm(id, "Kari");
    await harness.clock.advance(MINUTE);
    for (const empty of [[], {}]) {
      harness.rewriteLists(changeRecord(id, { [name]: empty }));
      await harness.clock.advance(2 * MINUTE);
    }
    harness.rewriteLists(null);
    await harness.clock.advance(2 * MINUTE);
    expect(emitted()).toEqual(["raised", "acknowledged"]);
  });

  test("a record with empty attributes keeps a stored alarm active; a new alarm is raised once its attributes arrive", async () => {
    const [id = ""] = await startWithAlarms(1);
    harness.control.acknowledgeAlarm(id, "Kari");
    await harness.clock.advance(MINUTE);
    const fresh = harness.control.raiseAlarm({ siteId: 3 });
    harness.rewriteLists((list, path, query) => {
      if (isActiveList(path, query)) for (const record of list.data) record.attributes = [];
    });
    await harness.clock.advance(5 * MINUTE);
    expect([emitted(id), emitted(fresh)]).toEqual([["raised", "acknowledged"], []]);
    harness.rewriteLists(null);
    await harness.clock.advance(MINUTE);
    expect([emitted(id), emitted(fresh)]).toEqual([["raised", "acknowledged"], ["raised"]]);
  });
});

describe("acknowledgements of ended alarms", () => {
  test("emits the acknowledgement of an ended alarm once, also 12 hours after its end", async () => {
    const [id = "", other = ""] = await startWithAlarms(2);
    harness.control.resolveAlarm(id);
    harness.control.resolveAlarm(other);
    await harness.clock.advance(5 * MINUTE);
    harness.control.acknowledgeAlarm(id, "Kari", "done");
    await harness.clock.advance(5 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "acknowledged"]);
    await harness.clock.advance(12 * 60 * MINUTE);
    await harness.restart();
    await harness.clock.advance(MINUTE);
    harness.control.acknowledgeAlarm(other, "Ola");
    await harness.clock.advance(60 * MINUTE);
    expect(emitted(id)).toEqual(["raised", "resolved", "acknowledged"]);
    expect(emitted(other)).toEqual(["raised", "resolved", "acknowledged"]);
    const last = harness.events("alarm-acknowledged").at(-1);
    expect(last && factOf(last).alarm).toMatchObject({ status: "resolved", acknowledgedBy: "Ola" });
  });
});

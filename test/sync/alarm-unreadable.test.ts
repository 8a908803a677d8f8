import { describe, expect, test } from "vitest";
import { emitted, harness, isAlarmList, jobProblem, MINUTE, startWithAlarms, unverified } from "./alarm-harness.ts";
import type { ListChange } from "./sync-harness.ts";

const replaced = (id: string, record: unknown, isActive = true): ListChange => {
  return (list, path, query) => {
    if (!isAlarmList(path) || (query.get("status") === "active") !== isActive) return;
    return { ...list, data: list.data.map((one) => (one.id === id ? record : one)) };
  };
};

describe.each<[string, unknown]>([
  ["null instead of an object", null],
  ["an object without an id", { type: "alarms", attributes: { status: "active" } }],
  ["an object with an id that is a number with decimals", { type: "alarms", id: 5.5, attributes: {} }],
])("an unreadable record in the list of active alarms: %s", (_what, record) => {
  test("ends no alarm, is quoted in the status, and does not affect other records", async () => {
    const [id = "", other = "", gone = ""] = await startWithAlarms(3);
    harness.rewriteLists(replaced(id, record));
    const fresh = harness.simulator.control.raiseAlarm({ siteId: 4 });
    harness.simulator.control.resolveAlarm(other);
    harness.simulator.control.deleteAlarm(gone);
    await harness.clock.advance(4 * MINUTE);
    expect([emitted(id), emitted(fresh), emitted(other)]).toEqual([["raised"], ["raised"], ["raised", "resolved"]]);
    expect(emitted(gone)).toEqual(["raised"]);
    const text = JSON.stringify(record);
    expect(await jobProblem()).toBe(`Records of the list of active alarms that cannot be read: 1, such as ${text}.`);
    expect(await unverified("unreadable")).toBe(1);
    const outcomes = harness.polls.filter(({ job }) => job === "alarms").map(({ outcome }) => outcome);
    expect(new Set(outcomes)).toEqual(new Set(["ok"]));
    harness.rewriteLists(null);
    await harness.clock.advance(20 * MINUTE);
    expect([emitted(id), emitted(gone)]).toEqual([["raised"], ["raised", "vanished"]]);
    expect([await jobProblem(), await unverified("unreadable")]).toEqual([null, 0]);
  });
});

test("an alarm whose listed record has only a readable id stays active", async () => {
  const [id = ""] = await startWithAlarms(2);
  harness.rewriteLists(replaced(id, { type: "alarms", id, attributes: "broken" }));
  await harness.clock.advance(10 * MINUTE);
  expect(emitted(id)).toEqual(["raised"]);
  expect(await jobProblem()).toBe(`Records of active alarms of which only the id can be read: 1 (${id}).`);
  expect(await unverified("unreadable")).toBe(1);
});

test("an unreadable record in the list of resolved alarms is reported, and the other records are applied", async () => {
  const [id = "", other = ""] = await startWithAlarms(2);
  harness.rewriteLists(replaced(id, null, false));
  harness.simulator.control.resolveAlarm(id);
  harness.simulator.control.resolveAlarm(other);
  await harness.clock.advance(5 * MINUTE);
  expect([emitted(id), emitted(other)]).toEqual([["raised"], ["raised", "resolved"]]);
  expect(await jobProblem("resolved_sweep")).toBe(
    "Records of the list of resolved alarms that cannot be read: 1, such as null.",
  );
  harness.rewriteLists(null);
  await harness.clock.advance(5 * MINUTE);
  expect(emitted(id)).toEqual(["raised", "resolved"]);
});

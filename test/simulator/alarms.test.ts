import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { errorStatuses, type SimulatedService, START_MS, simulatedService } from "./simulated-service.ts";

interface Row {
  readonly id: string;
  readonly attributes: Readonly<Record<"status" | "triggered_at", string>> &
    Readonly<Record<"resolved_at" | "recovering_until", string | null>> & {
      readonly trigger: { readonly priority: string };
      readonly site: { readonly id: number };
    };
}

const listAlarms = (service: SimulatedService, query = {}): Row[] =>
  service.get("alarms", { per_page: 500, ...query }).body.data;
const listIds = (rows: readonly Row[]) => rows.map(({ id }) => id);
const findAttributes = (service: SimulatedService, id: string) =>
  listAlarms(service, { status: "all" }).find((row) => row.id === id)?.attributes;
const withAlarms = (alarms: SimulatorOptionsInput["alarms"]) => simulatedService({ alarms });
const startFastService = (alarms: SimulatorOptionsInput["alarms"] = {}) =>
  simulatedService({ speed: 360, anchor: "next-alarm", alarms });

describe("recorded alarms of the simulator", () => {
  test("are raised and resolved at their recorded times", () => {
    const service = withAlarms({ resolved_retention_h: 100_000 });
    const file = new URL("../../src/simulator/data/alarm_events.csv", import.meta.url);
    const lines = readFileSync(file, "utf8").trim().split("\n").slice(1);
    const site = service.simulator.world.sites.get(6);
    const shiftMs = START_MS - (site?.firstSampleMs ?? 0) - (site?.timeline.positionAt(START_MS) ?? 0);
    const recorded = lines
      .map((line) => line.split(","))
      .filter((cells) => cells[2] === "6")
      .map((cells) => ({
        id: cells[0],
        raisedMs: Date.parse(cells[5] ?? "") + shiftMs,
        resolvedMs: cells[6] ? Date.parse(cells[6]) + shiftMs : Number.POSITIVE_INFINITY,
      }));
    for (let day = 0; day < 40; day += 1) {
      const nowMs = service.nowMs();
      const raisedAlarms = recorded.filter(({ raisedMs }) => raisedMs <= nowMs);
      const active = raisedAlarms.filter(({ resolvedMs }) => resolvedMs > nowMs);
      const listIdsOfSite = (query: object) => new Set(listIds(listAlarms(service, { site_id: 6, ...query })));
      expect(listIdsOfSite({})).toEqual(new Set(active.map(({ id }) => id)));
      expect(listIdsOfSite({ status: "all" })).toEqual(new Set(raisedAlarms.map(({ id }) => id)));
      service.advance(86_400);
    }
  });

  test("have times with the UTC offset of their site", () => {
    const service = startFastService();
    service.advance(420);
    const [finnish] = listAlarms(service, { status: "all", site_id: 12 });
    expect(finnish?.attributes.triggered_at).toMatch(/\+02:00$/);
  });

  test("are raised and resolved within a minute of a start with the option anchor: next-alarm", () => {
    const { simulator, nowMs } = startFastService();
    const transitions = simulator.truth.alarms.transitions(nowMs(), nowMs() + 60_000);
    const secondsUntil = (atMs: number) => (atMs - nowMs()) / 1000;
    const earlyAlarms = transitions.filter(({ kind, triggeredAtMs }) => {
      const raisedS = secondsUntil(triggeredAtMs);
      return kind === "resolved" && raisedS >= 10 && raisedS <= 20;
    });
    expect(earlyAlarms).not.toEqual([]);
  });

  test("get new ids each time the recording repeats", () => {
    const service = simulatedService({ anchor: "start", alarms: { resolved_retention_h: 24 * 365 } });
    service.advance(86_400 * 112 * 2);
    const ids = listIds(listAlarms(service, { status: "all", site_id: 6 }));
    expect(ids.some((id) => id.startsWith("1500"))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    const repeatedIds = ids.filter((id) => id.startsWith("500")).map((id) => String(Number(id) + 1_000_000));
    expect(ids).toEqual(expect.arrayContaining(repeatedIds));
  });

  test("are deleted after the retention, and absent with the option recorded: false", () => {
    const resolved = listAlarms(withAlarms({ resolved_retention_h: 24 }), { status: "resolved" });
    expect(resolved.length).toBeGreaterThan(0);
    for (const { attributes } of resolved)
      expect(Date.parse(attributes.resolved_at ?? "")).toBeGreaterThanOrEqual(START_MS - 86_400_000);
    expect(listAlarms(withAlarms({ recorded: false }), { status: "all" })).toEqual([]);
  });

  test("can have a recovering_until time before they are resolved", () => {
    const service = startFastService({ recovering_s: 10 });
    service.advance(13);
    expect(findAttributes(service, "500088")?.recovering_until).toBeNull();
    service.advance(24);
    const recovering = findAttributes(service, "500088");
    expect(recovering).toMatchObject({ status: "active", recovering_until: expect.any(String) });
    service.advance(8);
    const resolved = { status: "resolved", resolved_at: recovering?.recovering_until };
    expect(findAttributes(service, "500088")).toMatchObject(resolved);
  });
});

describe("filters of the alarm list", () => {
  const service = simulatedService();

  test("selects by status: active by default, resolved, or all", () => {
    const count = (query: object) => listAlarms(service, query).length;
    expect(new Set(listAlarms(service).map((row) => row.attributes.status))).toEqual(new Set(["active"]));
    expect(count({ status: "resolved" })).toBeGreaterThan(0);
    expect(count({ status: "all" })).toBe(count({}) + count({ status: "resolved" }));
  });

  test("selects by priority in lower case", () => {
    const alarms = listAlarms(service, { status: "all", priority: "c" });
    expect(new Set(alarms.map((row) => row.attributes.trigger.priority))).toEqual(new Set(["C"]));
  });

  test("accepts 1, true, 0 and false in the filter acknowledged", () => {
    const ownService = withAlarms({ recorded: false });
    const { control } = ownService.simulator;
    const acknowledged = control.raiseAlarm({ siteId: 6 });
    const openId = control.raiseAlarm({ siteId: 6 });
    control.acknowledgeAlarm(acknowledged, "operator");
    for (const yes of ["1", "true"])
      expect(listIds(listAlarms(ownService, { acknowledged: yes }))).toEqual([acknowledged]);
    for (const no of ["0", "false"]) expect(listIds(listAlarms(ownService, { acknowledged: no }))).toEqual([openId]);
  });

  test.each([
    ["status", "closed"],
    ["acknowledged", "perhaps"],
    ["search", "x".repeat(256)],
    ["site_id", 99],
  ])("rejects an invalid %s with 422", (source, value) => {
    const { errors } = service.get("alarms", { [source]: value }).body;
    expect(errors).toMatchObject([{ status: 422, source }]);
  });

  test("returns an empty list or 403 for a site outside the scope, as configured", () => {
    const tokens = [{ token: "simulator-token", sites: [1] }];
    const request = (out_of_scope_site: "empty" | "403") =>
      simulatedService({ tokens, alarms: { out_of_scope_site } }).get("alarms", { site_id: 6 });
    expect(request("empty").body.data).toEqual([]);
    expect(errorStatuses(request("403"))).toEqual([403]);
  });

  test("sorts by id or newest first, or differently at each request, as configured", () => {
    const ids = (order: "id" | "triggered_desc" | "shuffled") => {
      const ownService = withAlarms({ order });
      return [listIds(listAlarms(ownService, { status: "all" })), listIds(listAlarms(ownService, { status: "all" }))];
    };
    const [sorted] = ids("id");
    expect(sorted).toEqual(sorted?.toSorted((a, b) => Number(a) - Number(b)));
    const [first, second] = ids("shuffled");
    expect(first).not.toEqual(second);
    expect(first?.toSorted()).toEqual(second?.toSorted());
    expect(ids("triggered_desc")[0]).not.toEqual(sorted);
  });
});

describe("the control interface for alarms", () => {
  test("raises, acknowledges, resolves, retriggers and deletes an alarm, and lists these changes of its state", () => {
    const service = withAlarms({ recorded: false });
    const { control, truth } = service.simulator;
    const id = control.raiseAlarm({ tagId: "10168", value: 91.5 });
    const raisedAlarms = { status: "active", acknowledged: false, last_active_event: { value: 91.5 } };
    expect(findAttributes(service, id)).toMatchObject(raisedAlarms);
    service.advance(10);
    control.acknowledgeAlarm(id, "Kari", "on my way");
    const acknowledgement = { acknowledged_by: "Kari", acknowledged_message: "on my way" };
    expect(findAttributes(service, id)).toMatchObject({ acknowledged: true, ...acknowledgement });
    service.advance(10);
    control.resolveAlarm(id);
    expect(listAlarms(service)).toEqual([]);
    const resolved = findAttributes(service, id);
    expect(Date.parse(resolved?.resolved_at ?? "")).toBe(START_MS + 20_000);
    service.advance(10);
    control.retriggerAlarm(id);
    const retriggered = { status: "active", resolved_at: null, acknowledged: false };
    expect(findAttributes(service, id)).toMatchObject(retriggered);
    service.advance(10);
    control.deleteAlarm(id);
    expect(listAlarms(service, { status: "all" })).toEqual([]);
    const transitions = truth.alarms.transitions(START_MS, service.nowMs());
    expect(transitions.map(({ kind, atMs }) => [kind, (atMs - START_MS) / 1000])).toEqual([
      ["raised", 0],
      ["acknowledged", 10],
      ["resolved", 20],
      ["retriggered", 30],
      ["deleted", 40],
    ]);
    expect(() => control.resolveAlarm(id)).toThrow(/There is no alarm/);
  });

  test("acknowledges a recorded alarm, which the recording still resolves", () => {
    const service = startFastService();
    service.advance(20);
    service.simulator.control.acknowledgeAlarm("500088", "Kari");
    expect(findAttributes(service, "500088")).toMatchObject({ status: "active", acknowledged: true });
    service.advance(30);
    expect(findAttributes(service, "500088")).toMatchObject({ status: "resolved", acknowledged: true });
  });

  test("deletes the alarms that it raised once they ended longer ago than the retention", () => {
    const service = withAlarms({ recorded: false, resolved_retention_h: 1 });
    const { control } = service.simulator;
    const openId = control.raiseAlarm({ siteId: 6 });
    control.resolveAlarm(control.raiseAlarm({ siteId: 6 }));
    control.deleteAlarm(control.raiseAlarm({ siteId: 6 }));
    service.advance(3601);
    expect(listIds(listAlarms(service, { status: "all" }))).toEqual([openId]);
    const { manualAlarms, alarmChanges } = service.simulator.exportState();
    expect([manualAlarms.length, alarmChanges.length]).toEqual([1, 0]);
  });
});

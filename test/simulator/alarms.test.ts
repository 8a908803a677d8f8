import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { errorsOf, type SimulatedService, START_MS, simulatedService } from "./simulated-service.ts";

interface Row {
  readonly id: string;
  readonly attributes: {
    readonly status: string;
    readonly triggered_at: string;
    readonly resolved_at: string | null;
    readonly recovering_until: string | null;
    readonly trigger: { readonly priority: string };
    readonly site: { readonly id: number };
    readonly last_active_event: { readonly id: number };
  };
}

const list = (service: SimulatedService, query = {}): Row[] =>
  service.get("alarms", { per_page: 500, ...query }).body.data;
const idsOf = (rows: readonly Row[]) => rows.map(({ id }) => id);
const attributesOf = (service: SimulatedService, id: string) =>
  list(service, { status: "all" }).find((row) => row.id === id)?.attributes;
const withAlarms = (alarms: SimulatorOptionsInput["alarms"]) => simulatedService({ alarms });
const fast = (alarms: SimulatorOptionsInput["alarms"] = {}) =>
  simulatedService({ speed: 360, anchor: "next-alarm", alarms });

describe("recorded alarms of the simulator", () => {
  test("are raised and resolved at their recorded times", () => {
    const service = withAlarms({ resolved_retention_h: 100_000 });
    const file = new URL("../../src/simulator/data/alarm_events.csv", import.meta.url);
    const lines = readFileSync(file, "utf8").trim().split("\n").slice(1);
    const site = service.simulator.world.sites.get(6);
    const shiftMs = START_MS - (site?.firstMs ?? 0) - (site?.timeline.positionAt(START_MS) ?? 0);
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
      const raised = recorded.filter(({ raisedMs }) => raisedMs <= nowMs);
      const active = raised.filter(({ resolvedMs }) => resolvedMs > nowMs);
      const listed = (query: object) => new Set(idsOf(list(service, { site_id: 6, ...query })));
      expect(listed({})).toEqual(new Set(active.map(({ id }) => id)));
      expect(listed({ status: "all" })).toEqual(new Set(raised.map(({ id }) => id)));
      service.advance(86_400);
    }
  });

  test("have the UTC offset of their site, and never a time in the future", () => {
    const service = fast();
    for (let step = 0; step < 60; step += 1) {
      service.advance(7);
      for (const { attributes } of list(service, { status: "all" })) {
        expect(Date.parse(attributes.triggered_at)).toBeLessThanOrEqual(service.nowMs());
        if (attributes.resolved_at === null) continue;
        expect(Date.parse(attributes.resolved_at)).toBeLessThanOrEqual(service.nowMs());
        expect(attributes.status).toBe("resolved");
      }
    }
    const [finnish] = list(service, { status: "all", site_id: 12 });
    expect(finnish?.attributes.triggered_at).toMatch(/\+02:00$/);
  });

  test.each([120, 240, 360])(
    "with `next-alarm` and speed %i: the first alarm is raised and resolved within a minute",
    (speed) => {
      const { simulator, nowMs } = simulatedService({ speed, anchor: "next-alarm" });
      const transitions = simulator.truth.alarms.transitions(nowMs(), nowMs() + 300_000);
      const seconds = (atMs: number) => (atMs - nowMs()) / 1000;
      const early = transitions.filter(({ kind, atMs, triggeredAtMs }) => {
        const [raisedS, resolvedS] = [seconds(triggeredAtMs), seconds(atMs)];
        return kind === "resolved" && raisedS >= 10 && raisedS <= 20 && resolvedS >= 35 && resolvedS <= 60;
      });
      expect(early).not.toEqual([]);
      const later = transitions.filter(({ kind, atMs }) => kind === "raised" && seconds(atMs) > 60);
      expect(later.length).toBeGreaterThan(3);
    },
  );

  test("get new ids with each pass of the recording", () => {
    const service = simulatedService({ anchor: "start", alarms: { resolved_retention_h: 24 * 365 } });
    service.advance(86_400 * 112 * 2);
    const ids = idsOf(list(service, { status: "all", site_id: 6 }));
    expect(ids.some((id) => id.startsWith("1500"))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    const again = ids.filter((id) => id.startsWith("500")).map((id) => String(Number(id) + 1_000_000));
    expect(ids).toEqual(expect.arrayContaining(again));
  });

  test("are deleted after the retention, and absent with `recorded: false`", () => {
    const resolved = list(withAlarms({ resolved_retention_h: 24 }), { status: "resolved" });
    expect(resolved.length).toBeGreaterThan(0);
    for (const { attributes } of resolved)
      expect(Date.parse(attributes.resolved_at ?? "")).toBeGreaterThanOrEqual(START_MS - 86_400_000);
    expect(list(withAlarms({ recorded: false }), { status: "all" })).toEqual([]);
  });

  test("can show recovering_until before they are resolved", () => {
    const service = fast({ recovering_s: 10 });
    service.advance(13);
    expect(attributesOf(service, "500088")?.recovering_until).toBeNull();
    service.advance(24);
    const recovering = attributesOf(service, "500088");
    expect(recovering).toMatchObject({ status: "active", recovering_until: expect.any(String) });
    service.advance(8);
    const resolved = { status: "resolved", resolved_at: recovering?.recovering_until };
    expect(attributesOf(service, "500088")).toMatchObject(resolved);
  });
});

describe("filters of the alarm list", () => {
  const service = simulatedService();

  test("selects by status: active by default, resolved, or all", () => {
    const count = (query: object) => list(service, query).length;
    expect(count({})).toBeGreaterThan(0);
    expect(list(service).every((row) => row.attributes.status === "active")).toBe(true);
    expect(count({ status: "resolved" })).toBeGreaterThan(0);
    expect(count({ status: "all" })).toBe(count({}) + count({ status: "resolved" }));
  });

  test("selects by priority in upper or lower case", () => {
    const lower = list(service, { status: "all", priority: "c" });
    expect(lower.length).toBeGreaterThan(0);
    expect(lower).toEqual(list(service, { status: "all", priority: "C" }));
    expect(lower.every((row) => row.attributes.trigger.priority === "C")).toBe(true);
  });

  test("accepts 1, true, 0 and false for acknowledged", () => {
    const own = withAlarms({ recorded: false });
    const { control } = own.simulator;
    const acknowledged = control.raiseAlarm({ siteId: 6 });
    const open = control.raiseAlarm({ siteId: 6 });
    control.acknowledgeAlarm(acknowledged, "operator");
    for (const yes of ["1", "true"]) expect(idsOf(list(own, { acknowledged: yes }))).toEqual([acknowledged]);
    for (const no of ["0", "false"]) expect(idsOf(list(own, { acknowledged: no }))).toEqual([open]);
  });

  test("searches in alarm, trigger and site names for at most 255 characters", () => {
    const sites = list(service, { status: "all", search: "tampere" }).map((row) => row.attributes.site.id);
    expect(sites.every((id) => [9, 12, 13].includes(id))).toBe(true);
    expect(list(service, { status: "all", search: "leverer IKKE" }).length).toBeGreaterThan(0);
    expect(errorsOf(service.get("alarms", { search: "x".repeat(255) }))).toEqual([]);
  });

  test.each([
    ["status", "closed"],
    ["priority", "D"],
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
    expect(errorsOf(request("403"))).toEqual([403]);
  });

  test("sorts by id or newest first, or differently at each request, as configured", () => {
    const ids = (order: "id" | "triggered_desc" | "shuffled") => {
      const own = withAlarms({ order });
      return [idsOf(list(own, { status: "all" })), idsOf(list(own, { status: "all" }))];
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
  test("raises, acknowledges, resolves, retriggers and deletes an alarm, and `truth` lists the transitions", () => {
    const service = withAlarms({ recorded: false });
    const { control, truth } = service.simulator;
    const id = control.raiseAlarm({ tagId: "10168", value: 91.5 });
    const raised = { status: "active", acknowledged: false, last_active_event: { value: 91.5 } };
    expect(attributesOf(service, id)).toMatchObject(raised);
    service.advance(10);
    control.acknowledgeAlarm(id, "Kari", "on my way");
    const acknowledgement = { acknowledged_by: "Kari", acknowledged_message: "on my way" };
    expect(attributesOf(service, id)).toMatchObject({ acknowledged: true, ...acknowledgement });
    service.advance(10);
    control.resolveAlarm(id);
    expect(list(service)).toEqual([]);
    const resolved = attributesOf(service, id);
    expect(Date.parse(resolved?.resolved_at ?? "")).toBe(START_MS + 20_000);
    service.advance(10);
    control.retriggerAlarm(id);
    const retriggered = attributesOf(service, id);
    expect(retriggered).toMatchObject({ status: "active", resolved_at: null, acknowledged: false });
    expect(retriggered?.last_active_event.id).not.toBe(resolved?.last_active_event.id);
    service.advance(10);
    control.deleteAlarm(id);
    expect(list(service, { status: "all" })).toEqual([]);
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

  test("changes a recorded alarm, which the recording still resolves", () => {
    const service = fast();
    const { control } = service.simulator;
    service.advance(20);
    control.acknowledgeAlarm("500088", "Kari");
    expect(idsOf(list(service, { status: "all" })).filter((id) => id === "500088")).toHaveLength(1);
    expect(attributesOf(service, "500088")).toMatchObject({ status: "active", acknowledged: true });
    service.advance(30);
    expect(attributesOf(service, "500088")).toMatchObject({ status: "resolved", acknowledged: true });
    control.retriggerAlarm("500088");
    service.advance(3600);
    expect(attributesOf(service, "500088")?.status).toBe("active");
  });

  test("deletes its alarms that ended before the retention", () => {
    const service = withAlarms({ recorded: false, resolved_retention_h: 1 });
    const { control } = service.simulator;
    const open = control.raiseAlarm({ siteId: 6 });
    control.resolveAlarm(control.raiseAlarm({ siteId: 6 }));
    control.deleteAlarm(control.raiseAlarm({ siteId: 6 }));
    service.advance(3601);
    expect(idsOf(list(service, { status: "all" }))).toEqual([open]);
    const { manualAlarms, alarmChanges } = service.simulator.exportState();
    expect([manualAlarms.length, alarmChanges.length]).toEqual([1, 0]);
  });
});

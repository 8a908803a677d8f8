import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { errorsOf, type SimulatedService, START_MS, simulatedService } from "./simulated-service.ts";

interface Row {
  readonly id: string;
  readonly attributes: Readonly<Record<"status" | "triggered_at", string>> &
    Readonly<Record<"resolved_at" | "recovering_until", string | null>> & {
      readonly trigger: { readonly priority: string };
      readonly site: { readonly id: number };
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

  test("have times with the UTC offset of their site", () => {
    const service = fast();
    service.advance(420);
    const [finnish] = list(service, { status: "all", site_id: 12 });
    expect(finnish?.attributes.triggered_at).toMatch(/\+02:00$/);
  });

  test("are raised and resolved within a minute of a start with the anchor next-alarm", () => {
    const { simulator, nowMs } = fast();
    const transitions = simulator.truth.alarms.transitions(nowMs(), nowMs() + 60_000);
    const secondsUntil = (atMs: number) => (atMs - nowMs()) / 1000;
    const earlyAlarms = transitions.filter(({ kind, triggeredAtMs }) => {
      const raisedS = secondsUntil(triggeredAtMs);
      return kind === "resolved" && raisedS >= 10 && raisedS <= 20;
    });
    expect(earlyAlarms).not.toEqual([]);
  });

  test("get new ids with each pass of the recording", () => {
    const service = simulatedService({ anchor: "start", alarms: { resolved_retention_h: 24 * 365 } });
    service.advance(86_400 * 112 * 2);
    const ids = idsOf(list(service, { status: "all", site_id: 6 }));
    expect(ids.some((id) => id.startsWith("1500"))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    const again = ids.filter((id) => id.startsWith("500")).map((id) => String(Number(id) + 1_000_000));
    expect(ids).toEqual(expect.arrayContaining(again));
  });

  test("are deleted after the retention, and absent with the option recorded: false", () => {
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
    expect(new Set(list(service).map((row) => row.attributes.status))).toEqual(new Set(["active"]));
    expect(count({ status: "resolved" })).toBeGreaterThan(0);
    expect(count({ status: "all" })).toBe(count({}) + count({ status: "resolved" }));
  });

  test("selects by priority in lower case", () => {
    const alarms = list(service, { status: "all", priority: "c" });
    expect(new Set(alarms.map((row) => row.attributes.trigger.priority))).toEqual(new Set(["C"]));
  });

  test("accepts 1, true, 0 and false in the filter acknowledged", () => {
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
  test("raises, acknowledges, resolves, retriggers and deletes an alarm, and lists the transitions", () => {
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
    const retriggered = { status: "active", resolved_at: null, acknowledged: false };
    expect(attributesOf(service, id)).toMatchObject(retriggered);
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

  test("acknowledges a recorded alarm, which the recording still resolves", () => {
    const service = fast();
    service.advance(20);
    service.simulator.control.acknowledgeAlarm("500088", "Kari");
    expect(attributesOf(service, "500088")).toMatchObject({ status: "active", acknowledged: true });
    service.advance(30);
    expect(attributesOf(service, "500088")).toMatchObject({ status: "resolved", acknowledged: true });
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

import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import {
  type Answer,
  errorsOf,
  type SimulatedService,
  START_MS,
  simulatedService,
} from "./simulated-service.ts";

interface Row {
  readonly id: string;
  readonly attributes: {
    readonly status: string;
    readonly triggered_at: string;
    readonly resolved_at: string | null;
    readonly acknowledged: boolean;
    readonly recovering_until: string | null;
    readonly trigger: { readonly priority: string };
    readonly site: { readonly id: number };
    readonly last_active_event: { readonly id: number; readonly value: number };
  };
}

const rowsOf = (answer: Answer): Row[] => answer.body.data;
const list = (service: SimulatedService, query = {}) =>
  rowsOf(service.get("alarms", { per_page: 500, ...query }));
const one = (service: SimulatedService, id: string) =>
  list(service, { status: "all" }).find((row) => row.id === id);

describe("the recorded alarms", () => {
  test("are raised and resolved when the recording says so, site by site", () => {
    const service = simulatedService({ alarms: { resolved_retention_h: 100_000 } });
    const recorded = readFileSync(
      new URL("../../src/simulator/data/alarm_events.csv", import.meta.url),
      "utf8",
    )
      .trim()
      .split("\n")
      .slice(1)
      .map((line) => line.split(","));
    const site = service.simulator.world.sites.get(6);
    const shiftMs = START_MS - (site?.firstMs ?? 0) - (site?.timeline.positionAt(START_MS) ?? 0);
    for (let day = 0; day < 40; day += 1) {
      const nowMs = service.nowMs();
      const of6 = recorded.filter(
        (cells) => cells[2] === "6" && Date.parse(cells[5] ?? "") + shiftMs <= nowMs,
      );
      const active = of6.filter((cells) => cells[6] === "" || Date.parse(cells[6] ?? "") + shiftMs > nowMs);
      const ids = (rows: string[][]) => new Set(rows.map((cells) => cells[0]));
      expect(new Set(list(service, { site_id: 6 }).map((row) => row.id))).toEqual(ids(active));
      expect(new Set(list(service, { site_id: 6, status: "all" }).map((row) => row.id))).toEqual(ids(of6));
      service.advance(86_400);
    }
  });

  test("carry the offset of their site, and never a time in the future", () => {
    const service = simulatedService({ speed: 360, anchor: "next-alarm" });
    for (let step = 0; step < 60; step += 1) {
      service.advance(7);
      for (const row of list(service, { status: "all" })) {
        expect(Date.parse(row.attributes.triggered_at)).toBeLessThanOrEqual(service.nowMs());
        if (row.attributes.resolved_at !== null) {
          expect(Date.parse(row.attributes.resolved_at)).toBeLessThanOrEqual(service.nowMs());
          expect(row.attributes.status).toBe("resolved");
        }
      }
    }
    const finnish = list(service, { status: "all", site_id: 12 })[0];
    expect(finnish?.attributes.triggered_at).toMatch(/\+02:00$/);
  });

  test("in the demo one is raised after ten to twenty seconds and resolved before the first minute ends", () => {
    for (const speed of [120, 240, 360]) {
      const { simulator, nowMs } = simulatedService({ speed, anchor: "next-alarm" });
      const epochMs = nowMs();
      const seen = simulator.truth.alarms.transitions(epochMs, epochMs + 300_000).map((transition) => ({
        ...transition,
        atS: (transition.atMs - epochMs) / 1000,
      }));
      const inFirstMinute = seen.filter(({ kind, alarmId, atS }) => {
        const raisedS = seen.find((other) => other.kind === "raised" && other.alarmId === alarmId)?.atS ?? 0;
        return kind === "resolved" && raisedS >= 10 && raisedS <= 20 && atS >= 35 && atS <= 60;
      });
      expect(inFirstMinute, `speed ${speed}`).not.toEqual([]);
      expect(seen.filter(({ kind, atS }) => kind === "raised" && atS > 60).length).toBeGreaterThan(3);
    }
  });

  test("get new ids with each pass of the recording", () => {
    const first = simulatedService({ anchor: "start", alarms: { resolved_retention_h: 24 * 365 } });
    first.advance(86_400 * 112 * 2);
    const ids = list(first, { status: "all", site_id: 6 }).map((row) => row.id);
    expect(ids.some((id) => id.startsWith("1500"))).toBe(true);
    expect(new Set(ids).size).toBe(ids.length);
    const again = ids.filter((id) => id.startsWith("500")).map((id) => String(Number(id) + 1_000_000));
    expect(again.every((id) => ids.includes(id))).toBe(true);
  });

  test("are forgotten after the retention", () => {
    const service = simulatedService({ alarms: { resolved_retention_h: 24 } });
    const resolved = list(service, { status: "resolved" });
    expect(resolved.length).toBeGreaterThan(0);
    for (const row of resolved)
      expect(Date.parse(row.attributes.resolved_at ?? "")).toBeGreaterThanOrEqual(START_MS - 86_400_000);
    expect(list(simulatedService({ alarms: { recorded: false } }), { status: "all" })).toEqual([]);
  });

  test("can show a recovery before they are resolved", () => {
    const service = simulatedService({ speed: 360, anchor: "next-alarm", alarms: { recovering_s: 10 } });
    service.advance(13);
    expect(one(service, "500088")?.attributes.recovering_until).toBeNull();
    service.advance(24);
    const row = one(service, "500088");
    expect(row?.attributes).toMatchObject({ status: "active", recovering_until: expect.any(String) });
    service.advance(8);
    expect(one(service, "500088")?.attributes).toMatchObject({
      status: "resolved",
      resolved_at: row?.attributes.recovering_until,
    });
  });
});

describe("filters", () => {
  const service = simulatedService();
  test("only active ones by default; resolved; all", () => {
    const count = (query: object) => list(service, query).length;
    expect(count({})).toBeGreaterThan(0);
    expect(list(service).every((row) => row.attributes.status === "active")).toBe(true);
    expect(count({ status: "resolved" })).toBeGreaterThan(0);
    expect(count({ status: "all" })).toBe(count({}) + count({ status: "resolved" }));
    expect(errorsOf(service.get("alarms", { status: "closed" }))).toEqual([422]);
  });

  test("priority in either case", () => {
    const small = list(service, { status: "all", priority: "c" });
    expect(small.length).toBeGreaterThan(0);
    expect(small).toEqual(list(service, { status: "all", priority: "C" }));
    expect(small.every((row) => row.attributes.trigger.priority === "C")).toBe(true);
    expect(errorsOf(service.get("alarms", { priority: "D" }))).toEqual([422]);
  });

  test("acknowledged in four spellings", () => {
    const own = simulatedService({ alarms: { recorded: false } });
    const [done, open] = [
      own.simulator.control.raiseAlarm({ siteId: 6 }),
      own.simulator.control.raiseAlarm({ siteId: 6 }),
    ];
    own.simulator.control.acknowledgeAlarm(done, "operator");
    for (const yes of ["1", "true"])
      expect(list(own, { acknowledged: yes }).map((row) => row.id)).toEqual([done]);
    for (const no of ["0", "false"])
      expect(list(own, { acknowledged: no }).map((row) => row.id)).toEqual([open]);
    expect(errorsOf(own.get("alarms", { acknowledged: "perhaps" }))).toEqual([422]);
  });

  test("search in alarm, trigger and site names, at most 255 characters", () => {
    expect(
      list(service, { status: "all", search: "tampere" }).every((row) =>
        [9, 12, 13].includes(row.attributes.site.id),
      ),
    ).toBe(true);
    expect(list(service, { status: "all", search: "leverer IKKE" }).length).toBeGreaterThan(0);
    expect(errorsOf(service.get("alarms", { search: "x".repeat(255) }))).toEqual([]);
    expect(service.get("alarms", { search: "x".repeat(256) }).body.errors).toMatchObject([
      { status: 422, source: "search" },
    ]);
  });

  test("a site that does not exist is refused, one out of scope is empty or refused", () => {
    expect(service.get("alarms", { site_id: 99 }).body.errors).toMatchObject([
      { status: 422, source: "site_id" },
    ]);
    const tokens = [{ token: "simulator-token", sites: [1] }];
    expect(simulatedService({ tokens }).get("alarms", { site_id: 6 }).body.data).toEqual([]);
    expect(
      errorsOf(
        simulatedService({ tokens, alarms: { out_of_scope_site: "403" } }).get("alarms", { site_id: 6 }),
      ),
    ).toEqual([403]);
  });

  test("the order is by id, newest first, or another one at each request", () => {
    const ids = (order: "id" | "triggered_desc" | "shuffled") => {
      const own = simulatedService({ alarms: { order } });
      return [list(own, { status: "all" }), list(own, { status: "all" })].map((rows) =>
        rows.map((row) => row.id),
      );
    };
    const [sorted] = ids("id");
    expect(sorted).toEqual(sorted?.toSorted((a, b) => Number(a) - Number(b)));
    const [first, second] = ids("shuffled");
    expect(first).not.toEqual(second);
    expect(first?.toSorted()).toEqual(second?.toSorted());
    expect(ids("triggered_desc")[0]).not.toEqual(sorted);
  });
});

describe("by hand", () => {
  test("the whole life of an alarm, and the truth that remembers it", () => {
    const service = simulatedService({ alarms: { recorded: false } });
    const { control, truth } = service.simulator;
    const id = control.raiseAlarm({ tagId: "10168", value: 91.5 });
    expect(one(service, id)?.attributes).toMatchObject({
      status: "active",
      acknowledged: false,
      last_active_event: { value: 91.5 },
    });
    service.advance(10);
    control.acknowledgeAlarm(id, "Kari", "on my way");
    expect(one(service, id)?.attributes).toMatchObject({
      acknowledged: true,
      acknowledged_by: "Kari",
      acknowledged_message: "on my way",
    });
    service.advance(10);
    control.resolveAlarm(id);
    expect(list(service)).toEqual([]);
    expect(Date.parse(one(service, id)?.attributes.resolved_at ?? "")).toBe(START_MS + 20_000);
    const before = one(service, id)?.attributes.last_active_event.id;
    service.advance(10);
    control.retriggerAlarm(id);
    expect(one(service, id)?.attributes).toMatchObject({
      status: "active",
      resolved_at: null,
      acknowledged: false,
    });
    expect(one(service, id)?.attributes.last_active_event.id).not.toBe(before);
    service.advance(10);
    control.deleteAlarm(id);
    expect(list(service, { status: "all" })).toEqual([]);
    const told = truth.alarms
      .transitions(START_MS, service.nowMs())
      .map(({ kind, atMs }) => [kind, (atMs - START_MS) / 1000]);
    expect(told).toEqual([
      ["raised", 0],
      ["acknowledged", 10],
      ["resolved", 20],
      ["retriggered", 30],
      ["deleted", 40],
    ]);
    expect(() => control.resolveAlarm(id)).toThrow(/There is no alarm/);
  });

  test("a recorded alarm that is touched stays touched, and is still resolved by the recording", () => {
    const service = simulatedService({ speed: 360, anchor: "next-alarm" });
    service.advance(20);
    service.simulator.control.acknowledgeAlarm("500088", "Kari");
    expect(list(service, { status: "all" }).filter((row) => row.id === "500088")).toHaveLength(1);
    expect(one(service, "500088")?.attributes).toMatchObject({ status: "active", acknowledged: true });
    service.advance(30);
    expect(one(service, "500088")?.attributes).toMatchObject({ status: "resolved", acknowledged: true });
    service.simulator.control.retriggerAlarm("500088");
    service.advance(3600);
    expect(one(service, "500088")?.attributes.status).toBe("active");
  });

  test("alarms that are over and past the retention are forgotten altogether", () => {
    const service = simulatedService({ alarms: { recorded: false, resolved_retention_h: 1 } });
    const { control } = service.simulator;
    const open = control.raiseAlarm({ siteId: 6 });
    control.resolveAlarm(control.raiseAlarm({ siteId: 6 }));
    control.deleteAlarm(control.raiseAlarm({ siteId: 6 }));
    service.advance(3601);
    expect(list(service, { status: "all" }).map((row) => row.id)).toEqual([open]);
    const { manualAlarms, alarmChanges } = service.simulator.exportState();
    expect([manualAlarms.length, alarmChanges.length]).toEqual([1, 0]);
  });

  test("2,000 alarms can be raised and listed quickly", () => {
    const service = simulatedService({ replicate: 10, alarms: { recorded: false } });
    for (let count = 0; count < 2000; count += 1) service.simulator.control.raiseAlarm({ siteId: 6 });
    const started = performance.now();
    const pages = [1, 2, 3, 4].flatMap((page) => list(service, { page }));
    expect(new Set(pages.map((row) => row.id)).size).toBe(2000);
    expect(performance.now() - started).toBeLessThan(2000);
  });
});

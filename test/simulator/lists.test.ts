import { describe, expect, test } from "vitest";
import { errorStatuses, START_MS, simulatedService } from "./simulated-service.ts";

describe("pages of a list", () => {
  test("contain every record once, and link to the next page", () => {
    const service = simulatedService({ lists: { links: "keep" } });
    const ids: string[] = [];
    let query: Record<string, string> = { site_id: "1", per_page: "50" };
    for (let page = 1; ; page += 1) {
      const { body } = service.get("tags", query);
      ids.push(...body.data.map((tag: { id: string }) => tag.id));
      expect(body.meta).toMatchObject({ current_page: page, per_page: 50, total: 133, last_page: 3 });
      expect(body.meta.from).toBe((page - 1) * 50 + 1);
      if (body.links.next === null) break;
      query = Object.fromEntries(new URL(body.links.next).searchParams);
    }
    expect(ids).toHaveLength(133);
    expect(new Set(ids).size).toBe(133);
  });

  test("omit the filters in their links by default", () => {
    const { body } = simulatedService().get("tags", { site_id: 1, per_page: 50, page: 2 });
    expect(body.links).toEqual({
      first: "http://service.test/api/v1/tags?page=1",
      last: "http://service.test/api/v1/tags?page=3",
      prev: "http://service.test/api/v1/tags?page=1",
      next: "http://service.test/api/v1/tags?page=3",
    });
  });

  test("are empty, without an error, beyond the last page", () => {
    const meta = { current_page: 99, from: null, to: null, total: 133 };
    expect(simulatedService().get("tags", { site_id: 1, page: 99 }).body).toMatchObject({ data: [], meta });
  });

  test("have 100 records by default; a larger per_page than the maximum is clamped or rejected", () => {
    const service = simulatedService({ lists: { max_per_page: 120 } });
    expect(service.get("tags", { site_id: 1 }).body.data).toHaveLength(100);
    expect(service.get("tags", { site_id: 1, per_page: 500 }).body.meta.per_page).toBe(120);
    expect(errorStatuses(service.get("alarms", { per_page: 500 }))).toEqual([]);
    expect(service.get("alarms", { per_page: 501 }).body.errors[0]).toMatchObject({ status: 422, source: "per_page" });
    expect(errorStatuses(service.get("alarms", { per_page: 0 }))).toEqual([422]);
    const strictService = simulatedService({ lists: { max_per_page: 120, over_max: "refuse" } });
    expect(errorStatuses(strictService.get("tags", { site_id: 1, per_page: 121 }))).toEqual([422]);
    expect(errorStatuses(strictService.get("tags", { site_id: 1, per_page: 120 }))).toEqual([]);
  });
});

describe("filters of the lists", () => {
  const service = simulatedService();
  const ids = (path: string, query: Record<string, string | number>) =>
    service.get(path, query).body.data.map((row: { id: string | number }) => String(row.id));

  test("selects tags by system, and by name, description, host and unit", () => {
    expect(ids("tags", { site_id: 1, system_id: 501 })).toEqual(["10001", "10002"]);
    expect(ids("tags", { site_id: 6, search: "rt401_sp" })).toEqual(["10169"]);
    expect(ids("tags", { site_id: 6, search: "l/s" })).toEqual(["10171"]);
    expect(ids("tags", { site_id: 6, search: "Hot water SUPPLY" })).toContain("10168");
  });

  test("selects hosts by gateway, systems by code, and sites and gateways by name", () => {
    const hostsBehindGateway = ids("hosts", { site_id: 1, gateway_id: 102, per_page: 500 });
    const all = ids("hosts", { site_id: 1, per_page: 500 });
    expect(hostsBehindGateway.length).toBeGreaterThan(0);
    expect(hostsBehindGateway.length).toBeLessThan(all.length);
    expect(ids("systems", { site_id: 1, search: "b1=432" })).toContain("501");
    expect(ids("sites", { search: "torino" })).toEqual(["14"]);
    expect(ids("gateways", { site_id: 1, search: "OU002" })).toEqual(["102"]);
  });

  test("requires site_id to be an existing site", () => {
    for (const path of ["tags", "gateways", "hosts", "systems"]) {
      for (const query of [{}, { site_id: "six" }, { site_id: 4711 }])
        expect(service.get(path, query).body.errors).toMatchObject([{ status: 422, source: "site_id" }]);
    }
  });

  test("applies removals and new names by the control interface", () => {
    const ownService = simulatedService();
    ownService.simulator.control.changeInventory("tags", "10169", { removed: true });
    ownService.simulator.control.changeInventory("sites", 6, { attributes: { display_name: "Renamed" } });
    expect(ownService.get("tags", { site_id: 6 }).body.meta.total).toBe(7);
    expect(errorStatuses(ownService.get("tags/read", { tags: "10168,10169" }))).toEqual([404]);
    expect(ownService.get("sites", { search: "renamed" }).body.data).toEqual([{ id: 6, display_name: "Renamed" }]);
    ownService.simulator.control.changeInventory("sites", 6, { removed: true });
    expect(ownService.get("sites").body.meta.total).toBe(15);
    expect(errorStatuses(ownService.get("tags", { site_id: 6 }))).toEqual([422]);
  });
});

test("the option replicate adds copies of the sites with new ids", () => {
  const service = simulatedService({ replicate: 10, max_tags: 3000 });
  expect(service.simulator.world.tags.size).toBe(3000);
  expect(service.get("sites", { per_page: 500 }).body.meta.total).toBe(160);
  const copiedTags = service.get("tags", { site_id: 3_000_006 }).body.data;
  expect(copiedTags[0].id).toBe("3010168");
  expect(service.get("tags/read", { tags: "10168,3010168" }).body.data).toHaveLength(2);
  const { truth } = service.simulator;
  const week = ["10192", "3010192"].map((tagId) =>
    truth.history({ tagId, fromMs: START_MS - 7 * 86_400_000, toMs: START_MS, resolution: "1d", tz: "UTC" }),
  );
  expect(week[0]).toHaveLength(8);
  expect(week[1]).not.toEqual(week[0]);
  expect(service.get("hosts", { site_id: 3_000_006 }).body.data[0].attributes.gateway.id).toBeGreaterThan(3_000_000);
});

test("the option sites limits the sites and rejects an unknown site", () => {
  const service = simulatedService({ sites: [6, "nab-office"] });
  expect(service.get("sites").body.data.map((site: { id: number }) => site.id)).toEqual([6, 16]);
  expect(() => simulatedService({ sites: ["elsewhere"] })).toThrow(/names no site/);
});

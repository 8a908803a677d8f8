import { expect, test } from "vitest";
import { ConfigError, errorText, Malformed, Retryable } from "#src/core/errors/errors.ts";
import type { System, Tag, TokenInfo } from "#src/core/model/building.ts";
import type { ListPage, Source } from "#src/engine/source/source.ts";
import {
  explainInspectionError,
  inspectBuilding,
  suggestSourceName,
  summarizeBuilding,
  tagsForPlan,
} from "#src/ui/setup/building-inspection.ts";
import { never } from "../connectors/context.ts";
import { buildingWith, sitesNamed, TOKEN, tagsOf } from "./buildings.ts";

const PAGE_SIZE = 500;

/** A service with the given number of sites. `requests` records its lists. */
function serviceWith(
  sites: number,
  tagsOfSite: (site: number) => readonly Tag[] | Error,
  token: Partial<TokenInfo> = {},
) {
  const requests: string[] = [];
  async function* pages<T>(list: string, all: readonly T[] | Error): AsyncGenerator<ListPage<T>> {
    const total = all instanceof Error ? 0 : all.length;
    for (let from = 0; from === 0 || from < total; from += PAGE_SIZE) {
      requests.push(list);
      if (all instanceof Error) throw all;
      const items = all.slice(from, from + PAGE_SIZE);
      const more = from + PAGE_SIZE < total;
      yield { items, number: from / PAGE_SIZE + 1, lastPage: Math.ceil(total / PAGE_SIZE), total, hasMore: more };
    }
  }
  const forbidden = new ConfigError("systems: 403, Forbidden.", { reason: "forbidden" });
  const namedSites = sitesNamed(...Array.from({ length: sites }, (_, n) => `Site ${n + 1}`));
  const source = {
    me: async () => ({ ...TOKEN, sites: namedSites, ...token }),
    alarms: () => pages("alarms", []),
    tags: ({ siteId }: { siteId: number }) => pages("tags", tagsOfSite(siteId)),
    systems: () => pages<System>("systems", forbidden),
  } as unknown as Source;
  return { source, requests };
}

test("inspectBuilding requests at most 20 lists for 100 sites and extrapolates the other sites", async () => {
  const { source, requests } = serviceWith(100, () => tagsOf({ "°C": 300, kWh: 400 }));
  const building = await inspectBuilding(source, never());
  expect(requests.length).toBeLessThanOrEqual(20);
  const uninspected = building.sites.filter(({ tags }) => tags === null);
  expect([building.tags, building.isEstimate, uninspected.length]).toEqual([70_000, true, 82]);
});

test("inspectBuilding reads every page of two sites, and continues without permission for systems", async () => {
  const { source, requests } = serviceWith(2, () => tagsOf({ "°C": 600 }));
  const building = await inspectBuilding(source, never());
  expect([building.tags, building.listed, building.isEstimate, building.systems]).toEqual([1_200, 1_200, false, []]);
  expect(requests.filter((list) => list === "tags")).toHaveLength(4);
});

test("inspectBuilding counts a forbidden site as empty, unless the building has only that site", async () => {
  const forbiddenError = new ConfigError("tags: 403, Forbidden.", { reason: "forbidden" });
  const { source } = serviceWith(3, (site) => (site === 2 ? forbiddenError : tagsOf({ "°C": 10 })));
  const building = await inspectBuilding(source, never());
  expect([building.tags, building.sites.map(({ tags }) => tags)]).toEqual([20, [10, 0, 10]]);
  const singleSite = serviceWith(1, () => forbiddenError);
  await expect(inspectBuilding(singleSite.source, never())).rejects.toThrow("403");
});

test("inspectBuilding requests no tags when the token may not read tags", async () => {
  const { source, requests } = serviceWith(3, () => [], { abilities: ["read:alarms"] });
  expect((await inspectBuilding(source, never())).tags).toBe(0);
  expect(requests).toEqual(["alarms"]);
});

test("inspectBuilding rejects a token without a site, or without permission for both alarms and tags", async () => {
  const refusal = (sites: number, abilities: readonly string[]) =>
    inspectBuilding(serviceWith(sites, () => [], { abilities }).source, never()).catch(errorText);
  expect(await refusal(0, ["read:tags"])).toMatch(/^The token "Plenum" sees no site, so there is nothing to follow\./);
  expect(await refusal(1, ["read:hosts", "write:tags"])).toMatch(
    /^The token "Plenum" may read neither alarms nor tags; it may: read:hosts, write:tags\./,
  );
  expect(await refusal(1, [])).toContain("it may: nothing.");
  for (const ability of ["read:alarms", "read:tags"]) {
    const { source } = serviceWith(1, () => tagsOf({ "°C": 3 }), { abilities: [ability] });
    const building = await inspectBuilding(source, never());
    expect([building.tags, building.alarms]).toEqual(ability === "read:tags" ? [3, null] : [0, 0]);
  }
});

test.each([
  new ConfigError("tags: 401, Unauthenticated.", { reason: "unauthenticated" }),
  new ConfigError("tags: 422, no such thing."),
  new Retryable("tags: 500."),
])("inspectBuilding throws any error other than a missing permission: %s", async (fault) => {
  const { source } = serviceWith(3, (site) => (site === 2 ? fault : tagsOf({ "°C": 10 })));
  await expect(inspectBuilding(source, never())).rejects.toBe(fault);
});

test("inspectBuilding lists the systems of at most three sites within a limit of 18 lists, and reports progress", async () => {
  const systemsOf = (id: number): System =>
    ({ id: String(id), code: `S${id}`, displayName: "Air", datapointsCount: id }) as System;
  const listedSites: number[] = [];
  const withSystems = (sites: number) => {
    const { source } = serviceWith(sites, () => tagsOf({ "°C": 1 }));
    async function* systems({ siteId }: { readonly siteId: number }): AsyncGenerator<ListPage<System>> {
      listedSites.push(siteId);
      yield { items: [systemsOf(siteId)], number: 1, lastPage: 1, total: 1, hasMore: false };
    }
    return { ...source, systems } as unknown as Source;
  };
  const progress: string[] = [];
  const building = await inspectBuilding(withSystems(5), never(), (text) => progress.push(text));
  expect(building.systems.map(({ code, tags }) => `${code} ${tags}`)).toEqual(["S3 3", "S2 2", "S1 1"]);
  expect(progress).toEqual(["Looking at alarms", ...[1, 2, 3, 4, 5].map((n) => `Looking at tags: ${n} of 5 sites`)]);
  listedSites.length = 0;
  await inspectBuilding(withSystems(17), never());
  expect(listedSites).toEqual([1]);
  listedSites.length = 0;
  await inspectBuilding(withSystems(18), never());
  expect(listedSites).toEqual([]);
});

test.each([
  [new ConfigError("me: 401, Unauthenticated.", { reason: "unauthenticated" }), /^The service at \S+ does not acc/],
  [new ConfigError("me: 404, not found.", { hint: "Check base_url." }), /but it is not the monitoring service/],
  [new Malformed("It is not JSON.", "<html>"), /but it is not the monitoring service/],
  [
    new Retryable("It is away.", { hint: "Check the port in base_url." }),
    /^It is away\. Check the port in the address\.$/,
  ],
  [new ConfigError("It has no TLS.", { hint: "Check `base_url`." }), /^It has no TLS\. Check the address\.$/],
])("explainInspectionError explains %s without naming configuration options", (error, words) => {
  expect(errorText(explainInspectionError(error, "https://bms.example.com"))).toMatch(words);
});

test("summarizeBuilding extrapolates the units of unlisted tags and of uninspected sites", () => {
  const building = summarizeBuilding({
    token: { ...TOKEN, sites: sitesNamed("A", "B", "C") },
    tagsBySite: new Map([
      [1, { total: 400, items: tagsOf({ "°C": 75, "": 25 }) }],
      [2, { total: 100, items: tagsOf({ kWh: 100 }) }],
    ]),
    systems: [],
    alarms: null,
  });
  expect(building).toMatchObject({
    units: [
      { unit: "°C", tags: 450 },
      { unit: "", tags: 150 },
      { unit: "kWh", tags: 150 },
    ],
    ...{ tags: 750, listed: 200, isEstimate: true, alarms: null },
    sites: [{ tags: 400 }, { tags: 100 }, { tags: null }],
  });
  expect(tagsForPlan(building)).toHaveLength(750);
  expect(tagsForPlan(building)[0]).toMatchObject({ siteId: 1, tag: { unit: "°C" } });
});

test("summarizeBuilding counts at least one tag for a rare unit", () => {
  const { units } = summarizeBuilding({
    ...{ token: TOKEN, systems: [], alarms: null },
    tagsBySite: new Map([[1, { total: 2, items: tagsOf({ "°C": 9, kWh: 1 }) }]]),
  });
  expect(units.map(({ unit, tags }) => `${unit} ${tags}`)).toEqual(["°C 2", "kWh 1"]);
});

test.each([
  [["Kvarnholmen 4"], "kvarnholmen_4"],
  [["Østre Ænes – Skole"], "ostre_aenes_skole"],
  [["Přístav/2"], "pristav_2"],
  [["東京"], "building"],
  [["A", "B"], "buildings"],
])("sourceName for the sites %j is %s", (names, name) => {
  expect(suggestSourceName(buildingWith({}, { sites: sitesNamed(...names) }))).toBe(name);
});

import { expect, test } from "vitest";
import { ConfigError, Malformed, Retryable, sentence } from "#src/core/errors/errors.ts";
import type { System, Tag, TokenInfo } from "#src/core/model/building.ts";
import type { Page, Source } from "#src/engine/source/source.ts";
import { look, lookTrouble } from "#src/ui/setup/look.ts";
import { never } from "../connectors/context.ts";
import { TOKEN, tagsOf } from "./buildings.ts";

const PAGE = 500;

/** A service with so many sites, and how often its lists were asked. */
function serviceWith(
  sites: number,
  tagsOfSite: (site: number) => readonly Tag[] | Error,
  token: Partial<TokenInfo> = {},
) {
  const asked: string[] = [];
  async function* pages<T>(what: string, all: readonly T[] | Error): AsyncGenerator<Page<T>> {
    const total = all instanceof Error ? 0 : all.length;
    for (let from = 0; from === 0 || from < total; from += PAGE) {
      asked.push(what);
      if (all instanceof Error) throw all;
      const items = all.slice(from, from + PAGE);
      const more = from + PAGE < total;
      yield { items, number: from / PAGE + 1, lastPage: Math.ceil(total / PAGE), total, more };
    }
  }
  const forbidden = new ConfigError("systems: 403, Forbidden.", { reason: "forbidden" });
  const source = {
    me: async () => ({
      ...TOKEN,
      sites: Array.from({ length: sites }, (_, n) => ({ id: n + 1, displayName: `Site ${n + 1}` })),
      ...token,
    }),
    alarms: () => pages("alarms", []),
    tags: ({ siteId }: { siteId: number }) => pages("tags", tagsOfSite(siteId)),
    systems: () => pages<System>("systems", forbidden),
  } as unknown as Source;
  return { source, asked };
}

test("asks for no more lists than the pace lets pass at once, and says what is assumed", async () => {
  const { source, asked } = serviceWith(100, () => tagsOf({ "°C": 300, kWh: 400 }));
  const seen = await look(source, never());
  expect(asked.length).toBeLessThanOrEqual(20);
  expect([seen.tags, seen.isEstimate, seen.sites.filter(({ tags }) => tags === null).length]).toEqual([
    70_000,
    true,
    82,
  ]);
});

test("of few sites every page is read, and a missing permission for systems is no trouble", async () => {
  const { source, asked } = serviceWith(2, () => tagsOf({ "°C": 600 }));
  const seen = await look(source, never());
  expect([seen.tags, seen.listed, seen.isEstimate, seen.systems]).toEqual([1_200, 1_200, false, []]);
  expect(asked.filter((what) => what === "tags")).toHaveLength(4);
});

test("one site that may not be listed does not hide the others", async () => {
  const refused = new ConfigError("tags: 403, Forbidden.", { reason: "forbidden" });
  const { source } = serviceWith(3, (site) => (site === 2 ? refused : tagsOf({ "°C": 10 })));
  const seen = await look(source, never());
  expect([seen.tags, seen.sites.map(({ tags }) => tags)]).toEqual([20, [10, 0, 10]]);
  const alone = serviceWith(1, () => refused);
  await expect(look(alone.source, never())).rejects.toThrow("403");
});

test("a token that may not read tags is not asked for them", async () => {
  const { source, asked } = serviceWith(3, () => [], { abilities: ["read:alarms"] });
  expect((await look(source, never())).tags).toBe(0);
  expect(asked).toEqual(["alarms"]);
});

test("a token with which nothing can be followed is refused: no site, or neither alarms nor tags", async () => {
  const refusal = async (sites: number, abilities: readonly string[]) =>
    sentence(await look(serviceWith(sites, () => [], { abilities }).source, never()).catch((error) => error));
  expect(await refusal(0, ["read:tags"])).toMatch(/^The token "Plenum" sees no site, so there is nothing to follow\./);
  expect(await refusal(1, ["read:hosts", "write:tags"])).toMatch(
    /^The token "Plenum" may read neither alarms nor tags; it may: read:hosts, write:tags\./,
  );
  expect(await refusal(1, [])).toContain("it may: nothing.");
  for (const ability of ["read:alarms", "read:tags"]) {
    const seen = await look(serviceWith(1, () => tagsOf({ "°C": 3 }), { abilities: [ability] }).source, never());
    expect([seen.tags, seen.alarms]).toEqual(ability === "read:tags" ? [3, null] : [0, 0]);
  }
});

test.each([
  new ConfigError("tags: 401, Unauthenticated.", { reason: "unauthenticated" }),
  new ConfigError("tags: 422, no such thing."),
  new Retryable("tags: 500."),
])("another fault than a missing permission ends the look: %s", async (fault) => {
  const { source } = serviceWith(3, (site) => (site === 2 ? fault : tagsOf({ "°C": 10 })));
  await expect(look(source, never())).rejects.toBe(fault);
});

test("systems are listed of three sites, as far as lists are left, and every step is told", async () => {
  const systemsOf = (id: number): System =>
    ({ id: String(id), code: `S${id}`, displayName: "Air", datapointsCount: id }) as System;
  const listed: number[] = [];
  const withSystems = (sites: number) => {
    const { source } = serviceWith(sites, () => tagsOf({ "°C": 1 }));
    async function* systems({ siteId }: { readonly siteId: number }): AsyncGenerator<Page<System>> {
      listed.push(siteId);
      yield { items: [systemsOf(siteId)], number: 1, lastPage: 1, total: 1, more: false };
    }
    return { ...source, systems } as unknown as Source;
  };
  const told: string[] = [];
  const seen = await look(withSystems(5), never(), (text) => told.push(text));
  expect(seen.systems.map(({ code, tags }) => [code, tags])).toEqual([
    ["S3", 3],
    ["S2", 2],
    ["S1", 1],
  ]);
  expect(told).toEqual(["Looking at alarms", ...[1, 2, 3, 4, 5].map((n) => `Looking at tags: ${n} of 5 sites`)]);
  listed.length = 0;
  await look(withSystems(17), never());
  expect(listed).toEqual([1]);
  listed.length = 0;
  await look(withSystems(18), never());
  expect(listed).toEqual([]);
});

const URL_OF = "https://bms.example.com";
test.each([
  [new ConfigError("me: 401, Unauthenticated.", { reason: "unauthenticated" }), /^The service at \S+ does not acc/],
  [new ConfigError("me: 404, not found.", { hint: "Check base_url." }), /but it is not the monitoring service/],
  [new Malformed("It is not JSON.", "<html>"), /but it is not the monitoring service/],
  [
    new Retryable("It refuses the connection.", { hint: "Check the port in base_url." }),
    /^It refuses the connection\. Check the port in the address\.$/,
  ],
  [
    new ConfigError("It does not speak TLS.", { hint: "Check `base_url`." }),
    /^It does not speak TLS\. Check the address\.$/,
  ],
])("%s is said without a word of a configuration", (error, words) => {
  expect(sentence(lookTrouble(error, URL_OF))).toMatch(words);
});

import { describe, expect, it } from "vitest";
import { createListPaging } from "#src/engine/source/pages.ts";
import { createRecordParsers } from "#src/engine/source/service-records.ts";
import { readPages } from "#src/engine/sync/read-list-pages.ts";
import {
  alarmRecord,
  allItems,
  allPages,
  envelope,
  errorOf,
  type Harness,
  never,
  openHarness,
  reply,
  tagRecord,
  testConfig,
} from "./source-harness.ts";

const LIST = "https://service.example/base/api/v1/alarms";
const paramsOf = ({ path }: { readonly path: string }) => new URL(path, "https://service.example").searchParams;
const pageOf = (request: { readonly path: string }) => Number(paramsOf(request).get("page") ?? 1);

function pagedAlarms(count: number, next: (page: number) => string | null, more: object = {}) {
  return openHarness((request) => {
    const page = pageOf(request);
    const size = Number(paramsOf(request).get("per_page"));
    const last = Math.ceil(count / size);
    const ids = Array.from({ length: count }, (_, i) => `a${i}`).slice((page - 1) * size, page * size);
    const meta = { current_page: page, last_page: last, per_page: size, total: count, ...more };
    const links = { next: page < last ? next(page + 1) : null };
    return reply(200, envelope(ids.map(alarmRecord), meta, links));
  }, small);
}

const small = {
  config: testConfig("https://service.example/base", { page_size: { alarms: 2, others: 2 } }),
};
const FILTER = { status: "all", siteId: 7, acknowledged: false, search: "pump & fan" } as const;

describe("the link to the next page (links.next)", () => {
  it.each([
    ["correct", (page: number) => `${LIST}?status=all&per_page=2&page=${page}`],
    ["without the filters", (page: number) => `${LIST}?page=${page}`],
    ["with other filters", (page: number) => `${LIST}?page=${page}&status=active&site_id=1&priority=A&per_page=1`],
    ["with array filters", (page: number) => `${LIST}?page=${page}&status[]=active&priority[0]=A`],
    ["on another host", (page: number) => `https://attacker.example/api/v1/alarms?page=${page}`],
    ["without TLS", (page: number) => `http://service.example/base/api/v1/alarms?page=${page}`],
    ["on another port", (page: number) => `https://service.example:8443/base/api/v1/alarms?page=${page}`],
    ["with credentials", (page: number) => `https://me:secret@service.example/base/api/v1/alarms?page=${page}`],
    ["on another path", (page: number) => `https://service.example/admin/delete?page=${page}`],
    ["relative to the root", (page: number) => `/elsewhere?page=${page}`],
    ["of another scheme", (page: number) => `javascript:alert(1)?page=${page}`],
    ["without a page number", () => LIST],
    ["that is no address", () => "http://["],
    ["with prototype keys", (page: number) => `${LIST}?__proto__=x&constructor=y&page=${page}`],
  ])("%s: the client requests the pages of the same list with its own filters", async (_name, next) => {
    const harness = pagedAlarms(5, next);
    const items = await allItems(harness.source.alarms(FILTER, never()));
    expect(items.map((alarm) => alarm.id)).toEqual(["a0", "a1", "a2", "a3", "a4"]);
    expect(harness.requests).toHaveLength(3);
    for (const [index, request] of harness.requests.entries()) {
      const url = new URL(request.path, "https://service.example");
      expect(url.pathname).toBe("/base/api/v1/alarms");
      expect(url.searchParams.getAll("status")).toEqual(["all"]);
      expect(url.searchParams.has("priority")).toBe(false);
      expect(Object.fromEntries(url.searchParams)).toMatchObject({
        site_id: "7",
        acknowledged: "0",
        search: "pump & fan",
        per_page: "2",
        ...(index === 0 ? {} : { page: String(index + 1) }),
      });
    }
  });

  it("a next link with a cursor is followed", async () => {
    const cursors = [null, "abc", "def"];
    const harness = openHarness((request) => {
      const at = cursors.indexOf(paramsOf(request).get("cursor"));
      const next = cursors[at + 1];
      const links = { next: next === undefined ? null : `${LIST}?cursor=${next}` };
      const { meta, ...rest } = envelope([alarmRecord(`a${at}`)], {}, links);
      return reply(200, { ...rest, meta: { total: 3, per_page: "500", path: meta.path } });
    });
    const pages = await allPages(harness.source.alarms({ status: "all" }, never()));
    expect(pages.map((page) => page.items[0]?.id)).toEqual(["a0", "a1", "a2"]);
    expect(pages.map(({ number, total, hasMore: more }) => `${number} ${total} ${more}`)).toEqual([
      "1 3 true",
      "2 3 true",
      "3 3 false",
    ]);
  });

  it("page numbers in meta replace a missing next link", async () => {
    const harness = pagedAlarms(5, () => null);
    expect(await allItems(harness.source.alarms({ status: "all" }, never()))).toHaveLength(5);
  });

  it("a next link to another origin is counted as unusual", async () => {
    const harness = pagedAlarms(5, (page) => `https://attacker.example/?page=${page}`);
    await allItems(harness.source.alarms({ status: "all" }, never()));
    expect((await harness.metrics.unknownWords.get()).values).toMatchObject([
      { labels: { field: "links.next" }, value: 2 },
    ]);
  });
});

describe("endless lists", () => {
  const endless = (next: (page: number) => string, meta: object = {}) =>
    openHarness((request) => {
      const page = pageOf(request);
      const list = { current_page: page, per_page: 500, ...meta };
      return reply(200, envelope([alarmRecord(`a${page}`)], list, { next: next(page) }));
    });

  it.each([
    ["a link to itself", endless((page) => `${LIST}?page=${page}`), 1],
    ["a link to the first page", endless(() => LIST.concat("?page=1")), 1],
    ["the first page over and over", endless(() => `${LIST}?page=2`, { current_page: 1 }), 2],
    ["a link that skips a page", endless((page) => `${LIST}?page=${page + 2}`), 2],
  ])("an endless list is malformed: %s", async (_name, harness, requests) => {
    const failure = await errorOf(allItems(harness.source.alarms({ status: "all" }, never())));
    expect(failure).toMatchObject({ kind: "malformed" });
    expect(harness.requests).toHaveLength(requests);
  });

  it("an endless list ends after 1,000 pages, or after 300 s, not counting the time in Plenum's queues", async () => {
    let nowMs = 0;
    const clock = { now: () => nowMs, monotonic: () => nowMs, sleep: async () => {} };
    const listing = (queuedMs: number, ownMs: number) => {
      let page = 0;
      return {
        name: "alarms",
        filters: {},
        pageSize: 500,
        parseRecord: createRecordParsers(() => {}).alarm(undefined),
        async requestPage() {
          page++;
          nowMs += queuedMs + ownMs;
          const meta = { current_page: page, per_page: 500 };
          const body = envelope([alarmRecord(`a${page}`)], meta, { next: `?page=${page + 1}` });
          return { reply: { envelope: body, sample: "" }, queuedMs };
        },
      };
    };
    const paging = createListPaging(clock, () => {}, "https://x.example");
    const counted = async (pages: AsyncIterable<unknown>) => {
      let count = 0;
      try {
        for await (const _ of pages) count++;
      } catch (error) {
        return [count, (error as Error).message];
      }
      return [count];
    };
    const many = await counted(paging.fetchPages(listing(0, 1)));
    expect(many).toEqual([1000, "The list of alarms has more than 1000 pages."]);
    const slow = await counted(paging.fetchPages(listing(60_000, 10_000)));
    expect(slow).toEqual([31, "The list of alarms did not end within 300 s."]);
  });
});

describe("page sizes", () => {
  const config = testConfig("https://service.example/base", { page_size: { others: 500 } });
  const sizes = ({ requests }: Harness) => requests.map((request) => paramsOf(request).get("per_page"));

  it.each([
    ["the source per_page", { message: "too large", source: "per_page" }],
    ["a source in words", { message: "The per page field must not be greater than 100.", source: "per page" }],
    ["the source query.perPage", { message: "too large", source: "query.perPage" }],
    ["no source", { message: "The per page must be at most 100." }],
  ])("uses the default page size after one request is rejected with %s", async (_name, said) => {
    const harness = openHarness(
      ({ path }) =>
        path.includes("per_page=500")
          ? reply(200, { errors: [{ status: 422, ...said }] })
          : reply(200, envelope([tagRecord("1")], { per_page: 100 })),
      { config },
    );
    expect(await allItems(harness.source.tags({ siteId: 1 }, never()))).toHaveLength(1);
    expect(await allItems(harness.source.tags({ siteId: 2 }, never()))).toHaveLength(1);
    expect(sizes(harness)).toEqual(["500", "100", "100"]);
  });

  it("does not repeat a list request after an error about another field", async () => {
    const errors = [{ status: 422, message: "no", source: "site_id" }];
    const harness = openHarness(() => reply(200, { errors }), { config });
    expect(await errorOf(allItems(harness.source.tags({ siteId: 1 }, never())))).toMatchObject({ field: "site_id" });
    expect(harness.requests).toHaveLength(1);
  });

  const threePages = (sizeOf: (page: number) => number) =>
    openHarness(
      (request) => {
        const page = pageOf(request);
        const meta = { current_page: page, last_page: 3, per_page: sizeOf(page), total: 3 };
        return reply(200, envelope([tagRecord(String(page))], meta));
      },
      { config },
    );

  it("continues with the page size that the service returns", async () => {
    const harness = threePages(() => 50);
    expect(await allItems(harness.source.tags({ siteId: 1 }, never()))).toHaveLength(3);
    expect(sizes(harness)).toEqual(["500", "50", "50"]);
  });

  it("rejects a list whose page size changes, because pages would overlap", async () => {
    const harness = threePages((page) => 50 + page);
    expect(await errorOf(allItems(harness.source.tags({ siteId: 1 }, never())))).toMatchObject({ kind: "malformed" });
  });
});

describe("pages with uncountable records", () => {
  it.each([
    ["data is one record", { ...envelope([]), data: tagRecord("1") }],
    ["data is null", { ...envelope([]), data: null }],
    ["a record without id", envelope([tagRecord("1"), { type: "tags", attributes: {} }])],
    ["an id that is no whole number", envelope([{ ...tagRecord("1"), id: 1e300 }])],
    ["a record that is null", envelope([null])],
  ])("a page is malformed if its records cannot be counted: %s", async (_name, body) => {
    const harness = openHarness(() => reply(200, body));
    expect(await errorOf(allItems(harness.source.tags({ siteId: 1 }, never())))).toMatchObject({ kind: "malformed" });
  });
});

describe("empty objects and lists in the form that PHP sends", () => {
  it.each([
    ["data as an object", { ...envelope([]), data: {} }, []],
    ["data with gaps in its numbers", { ...envelope([tagRecord("1")]), data: { 3: tagRecord("1") } }, ["1"]],
    ["links as a list", { ...envelope([tagRecord("1")]), links: [] }, ["1"]],
    ["errors as an object", { ...envelope([tagRecord("1")]), errors: {} }, ["1"]],
    ["attributes as a list", envelope([{ ...tagRecord("1"), attributes: [] }]), ["1"]],
  ])("%s: the list is complete", async (_name, body, ids) => {
    const harness = openHarness(() => reply(200, body));
    const listing = await readPages(harness.source.tags({ siteId: 1 }, never()), { idOf: (tag) => tag.id });
    expect(listing).toMatchObject({ complete: true });
    expect(listing.complete && listing.items.map((tag) => tag.id)).toEqual(ids);
  });

  it.each([
    ["meta as a list", { data: [tagRecord("1")], links: {}, meta: [] }],
    ["no total", { data: [tagRecord("1")], links: {}, meta: {} }],
    ["no meta", { data: [tagRecord("1")] }],
  ])("%s: the list is incomplete but has its records", async (_name, body) => {
    const harness = openHarness(() => reply(200, body));
    const listing = await readPages(harness.source.tags({ siteId: 1 }, never()), { idOf: (tag) => tag.id });
    expect(listing).toMatchObject({ complete: false, count: 1, total: null });
    expect(listing.complete ? [] : listing.readItems).toHaveLength(1);
  });

  it("without links and counts: the client requests pages until a page is not full", async () => {
    const harness = openHarness((request) => {
      const page = pageOf(request);
      const records = Array.from({ length: page === 1 ? 100 : 3 }, (_, i) => tagRecord(`${page}-${i}`));
      return reply(200, { data: records, links: [], meta: [] });
    });
    expect(await allItems(harness.source.tags({ siteId: 1 }, never()))).toHaveLength(103);
  });
});

import { describe, expect, it } from "vitest";
import type { Tag } from "#src/core/model/building.ts";
import { registerSecret } from "#src/core/values/secret-masking.ts";
import type { FindRecord } from "#src/engine/source/source.ts";
import { allItems, allPages, envelope, errorOf, never, openHarness, reply, tagRecord } from "./source-harness.ts";

const NONE_STORED = () => undefined;

function listOfTags(records = ["1", "2", "3", "4"].map(tagRecord)) {
  const harness = openHarness(({ path }) => {
    const number = Number(new URLSearchParams(path.split("?")[1]).get("page") ?? 1);
    const data = records.slice(2 * number - 2, 2 * number);
    const next = number === 1 ? "?page=2" : null;
    return reply(200, envelope(data, { current_page: number, last_page: 2, per_page: 2, total: 4 }, { next }));
  });
  const tags = (stored: FindRecord<Tag> = NONE_STORED, siteId = 1) =>
    allItems(harness.source.tags({ siteId }, never(), stored));
  return { ...harness, records, tags };
}

const notes = async ({ metrics }: ReturnType<typeof openHarness>) =>
  Object.fromEntries(
    (await metrics.unknownWords.get()).values.map(({ labels, value }) => [(labels as { field: string }).field, value]),
  );

describe("a list page with unchanged bytes", () => {
  it("a page with unchanged bytes returns the same record objects, and the next page is requested", async () => {
    const list = listOfTags();
    const first = await list.tags();
    const second = await list.tags();
    expect(second).toHaveLength(4);
    expect(second.map((tag, n) => tag === first[n])).toEqual([true, true, true, true]);
    const queries = ["site_id=1&per_page=100", "page=2&site_id=1&per_page=2"];
    expect(list.requests.map(({ path }) => path.split("?")[1])).toEqual([...queries, ...queries]);
    const [one, other] = await allPages(list.source.tags({ siteId: 1 }, never(), NONE_STORED));
    expect(one).toMatchObject({ number: 1, lastPage: 2, total: 4, hasMore: true });
    expect(other).toMatchObject({ number: 2, lastPage: 2, total: 4, hasMore: false });
  });

  it("a page is cached per page size and filter, and only for callers that pass their stored records", async () => {
    const list = listOfTags();
    const [first] = await list.tags();
    expect((await list.tags(NONE_STORED, 2))[0]).not.toBe(first);
    expect((await allItems(list.source.tags({ siteId: 1 }, never())))[0]).not.toBe(first);
  });

  it("a page with one changed record is parsed completely", async () => {
    const list = listOfTags();
    const first = await list.tags();
    list.records[1] = { ...tagRecord("2"), attributes: { ...tagRecord("2").attributes, display_name: "New" } };
    const second = await list.tags();
    expect(second.map(({ displayName }) => displayName)).toEqual(["Tag 1", "New", "Tag 3", "Tag 4"]);
    expect(second.map((tag, n) => tag === first[n])).toEqual([false, false, true, true]);
  });

  it("the unusual fields of a cached page are counted at each request of the page", async () => {
    const strange = { ...tagRecord("3"), attributes: { ...tagRecord("3").attributes, description: 5 } } as never;
    const list = listOfTags([tagRecord("1"), tagRecord("2"), strange, tagRecord("4")]);
    for (const times of [1, 2, 3]) {
      await list.tags();
      expect(await notes(list)).toEqual({ "tag.description": times });
    }
  });

  it("a cached page masks a secret that is registered later", async () => {
    const secret = "page-cache-secret-0123456789";
    const list = listOfTags([
      { ...tagRecord("1"), attributes: { ...tagRecord("1").attributes, display_name: secret } },
    ]);
    expect((await list.tags())[0]?.displayName).toBe(secret);
    registerSecret(secret);
    expect((await list.tags())[0]?.displayName).toBe("[redacted]");
  });

  it("a page that cannot be parsed is not cached", async () => {
    const list = listOfTags([tagRecord("1"), { ...tagRecord("2"), id: null } as never]);
    for (let n = 0; n < 2; n += 1) expect(await errorOf(list.tags())).toMatchObject({ kind: "malformed" });
  });
});

it("a listed record that equals a stored record is returned as the stored object", async () => {
  const tag = (id: string, displayName: string): Tag => ({ id, displayName, description: null, unit: "°C" });
  const stored = new Map([tag("1", "Tag 1"), tag("2", "Old")].map((each) => [each.id, each]));
  const listed = await listOfTags().tags((id) => stored.get(id));
  expect(listed[0]).toBe(stored.get("1"));
  expect(listed[1]).toEqual(tag("2", "Tag 2"));
});

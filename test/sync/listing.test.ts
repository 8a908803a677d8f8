import { describe, expect, test } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import type { ListPage } from "#src/engine/source/source.ts";
import { readPages, readTwice } from "#src/engine/sync/read-list-pages.ts";

interface Item {
  readonly id: string;
  readonly value?: number;
}

async function* list(pages: readonly (readonly string[])[], totals: readonly number[]): AsyncGenerator<ListPage<Item>> {
  for (const [index, ids] of pages.entries()) {
    yield {
      items: ids.map((id) => ({ id })),
      number: index + 1,
      lastPage: pages.length,
      total: totals[index] ?? totals[0] ?? 0,
      hasMore: index + 1 < pages.length,
    };
  }
}

/** The first of three pages, up to page `end`, where the list ends early or fails. */
async function* cutList(end: number, failure?: Error): AsyncGenerator<ListPage<Item>> {
  for await (const page of list([["1"], ["2"], ["3"]], [3])) {
    if (page.number === end && failure !== undefined) throw failure;
    if (page.number === end) return;
    yield page;
  }
}

const idOf = (item: Item) => item.id;

describe("reading all pages of a list", () => {
  test("returns a complete list when every page arrived and the total equals the number of ids", async () => {
    const listing = await readPages(list([["1", "2"], ["3"]], [3]), { idOf });
    expect(listing).toMatchObject({ complete: true, pages: 2 });
  });

  test.each([
    ["the stated total changed between two pages", [["1", "2"], ["3"]], [3, 2]],
    ["one record came twice and another record was missing", [["1", "2"], ["2"]], [3]],
    ["fewer records came than the total states", [["1"], ["2"]], [3]],
    ["more records came than the total states", [["1", "2"], ["3"]], [2]],
  ])("returns an incomplete list with its records when %s", async (_what, pages, totals) => {
    const listing = await readPages(list(pages, totals), { idOf });
    expect(listing).toMatchObject({ complete: false });
    expect(listing.complete ? [] : listing.readItems?.map(idOf)).toEqual([...new Set(pages.flat())]);
  });

  test("returns an incomplete list without records when the list ends early or exceeds the page limit", async () => {
    expect(await readPages(cutList(3), { idOf })).toMatchObject({ complete: false, readItems: null });
    const long = list([["1"], ["2"], ["3"]], [3]);
    expect(await readPages(long, { idOf, maxPages: 2 })).toMatchObject({ complete: false, readItems: null, count: 2 });
  });

  test.each([1, 2, 3])("throws the error of a failing page %i", async (at) => {
    const failure = new Retryable("The connection broke.");
    await expect(readPages(cutList(at, failure), { idOf })).rejects.toBe(failure);
  });
});

describe("reading a list twice", () => {
  const steady = { idOf, compareKeyOf: idOf };

  test("reads a list of a single page once", async () => {
    let readings = 0;
    const listing = await readTwice(() => {
      readings += 1;
      return list([["1", "2"]], [2]);
    }, steady);
    expect(listing.complete).toBe(true);
    expect(readings).toBe(1);
  });

  test("finds in the second reading a record that moved between two pages during the first", async () => {
    // 1 is resolved and 4 raised while the first reading is between its pages: 3 slips to page 1 and is not seen.
    const readings = [list([["1", "2"], ["4"]], [3]), list([["2", "3"], ["4"]], [3])];
    const listing = await readTwice(() => readings.shift() ?? list([], [0]), steady);
    expect(listing.complete).toBe(false);
    expect(listing.complete ? [] : listing.readItems?.map(idOf).sort()).toEqual(["1", "2", "3", "4"]);
  });
});

import { expect, test } from "vitest";
import type { Tag } from "#src/core/model/building.ts";
import type { ListPage, Source } from "#src/engine/source/source.ts";
import { describeListProgress, readTagsFromLists, type TagListProgress } from "#src/engine/sync/visible-building.ts";
import { tagNamed } from "./live-reads-harness.ts";

test("the progress of the lists states the remaining time for 24 pages at once and 24 pages in each following minute", () => {
  const at = (pageCount: number, pagesLeft: number) => {
    const progress = { tagCount: pageCount * 500, siteNumber: 1, siteCount: 1, pageCount, pagesLeft };
    return describeListProgress(progress, { list_requests_per_minute: 30 });
  };
  expect(at(1, 59)).toBe("Listing tags: 500, site 1 of 1, about 2 min more at the pace of lists");
  expect(at(20, 40)).toBe("Listing tags: 10000, site 1 of 1, about 2 min more at the pace of lists");
  expect(at(25, 35)).toBe("Listing tags: 12500, site 1 of 1, about 1 min more at the pace of lists");
  expect(at(1, 23)).toBe("Listing tags: 500, site 1 of 1");
  expect(at(60, 0)).toBe("Listing tags: 30000, site 1 of 1");
});

test("the progress of the lists estimates the pages of a site not yet listed from the sites already listed", async () => {
  async function* pages({ siteId }: { readonly siteId?: number }): AsyncGenerator<ListPage<Tag>> {
    for (let number = 1; number <= 3; number += 1)
      yield { ...{ items: [tagNamed(`${siteId}${number}`)], number, lastPage: 3, total: 3, hasMore: number < 3 } };
  }
  const emitted: TagListProgress[] = [];
  const source = { tags: pages } as Pick<Source, "tags"> as Source;
  await readTagsFromLists(source, [1, 2], [], AbortSignal.timeout(60_000), (each) => emitted.push(each));
  const texts = emitted.map(
    (p) => `${p.tagCount} tags, site ${p.siteNumber}, page ${p.pageCount}, ${p.pagesLeft} left`,
  );
  expect([texts[0], texts[2]]).toEqual(["1 tags, site 1, page 1, 5 left", "3 tags, site 1, page 3, 3 left"]);
  expect([texts[3], texts[5]]).toEqual(["4 tags, site 2, page 4, 2 left", "6 tags, site 2, page 6, 0 left"]);
});

import { EndlessList, errorText, type Failure } from "../../core/errors/errors.ts";
import { isPageFailure } from "../source/pages.ts";
import type { ListPage } from "../source/source.ts";

/**
 * Only a complete listing proves an absence: every page arrived, and the total equals the number of different ids. A
 * list that changed proves what it contains; a list with a missing page proves nothing, unless `keepsPartial`.
 */
export type Listing<T> =
  | { readonly complete: true; readonly items: readonly T[]; readonly pages: number }
  | {
      readonly complete: false;
      readonly reason: string;
      readonly readItems: readonly T[] | null;
      readonly count: number;
      readonly total: number | null;
      /** `pages`: the list's pages never lead to its end. `trouble`: a later page failed and may succeed next time. */
      readonly brokenBy?: "pages" | "trouble";
      readonly failure?: Failure;
      /** Inconsistency of the list: `total` changed while it was read, or `records` are on two pages or on none. */
      readonly unsteady?: "total" | "records";
      readonly unreadable?: readonly string[];
    };

export interface ListReadOptions<T> {
  readonly idOf: (item: T) => string;
  readonly maxPages?: number;
  /** True keeps the records that were read before a later page failed, because each of them counts by itself. */
  readonly keepsPartial?: boolean;
  readonly onPage?: ((items: readonly T[]) => Promise<void>) | undefined;
}

const MAX_LIST_PAGES = 1_000;

/** Reads all pages of a list. Throws the source's errors, so that a failure does not look like an empty list. */
export async function readPages<T>(
  listPages: AsyncIterable<ListPage<T>>,
  options: ListReadOptions<T>,
): Promise<Listing<T>> {
  const { idOf, maxPages = MAX_LIST_PAGES, keepsPartial = false, onPage } = options;
  const itemsById = new Map<string, T>();
  const unreadableRecords: string[] = [];
  let total: number | null = null;
  let pages = 0;
  let pageFailure: Failure | null = null;
  const pageFacts = { repeated: false, totalChanged: false, lastPage: false };
  const incomplete = (reason: string, keepsItems: boolean, brokenBy?: "pages" | "trouble") => ({
    complete: false as const,
    reason,
    readItems: keepsItems ? [...itemsById.values()] : null,
    count: itemsById.size,
    total,
    ...(brokenBy === undefined ? {} : { brokenBy }),
    ...(unreadableRecords.length === 0 ? {} : { unreadable: unreadableRecords }),
  });
  try {
    for await (const page of listPages) {
      pages += 1;
      if (total !== null && page.total !== null && page.total !== total) pageFacts.totalChanged = true;
      total = page.total ?? total;
      const itemCountBefore = itemsById.size;
      for (const item of page.items) {
        const id = idOf(item);
        if (itemsById.has(id)) pageFacts.repeated = true;
        itemsById.set(id, item);
      }
      unreadableRecords.push(...(page.unreadable ?? []));
      await onPage?.(page.items);
      pageFailure = page.failure ?? pageFailure;
      if (pageFailure !== null && !keepsPartial) throw pageFailure;
      pageFacts.lastPage = !page.hasMore;
      if (pageFacts.lastPage) break;
      // Stop here: a server that ignores the page number would send the same page 1,000 times.
      if (pages > 1 && itemsById.size === itemCountBefore)
        return incomplete(`Page ${page.number} of the list shows nothing new.`, true, "trouble");
      if (keepsPartial && total !== null && itemsById.size > 2 * total + page.items.length)
        return incomplete(`The list says ${total} records and goes on after ${itemsById.size}.`, true, "pages");
      if (pages >= maxPages) return incomplete(`The list did not end within ${maxPages} pages.`, keepsPartial, "pages");
    }
  } catch (error) {
    if (!keepsPartial || pages === 0 || !isPageFailure(error)) throw error;
    const listFailureKind = error instanceof EndlessList ? "pages" : "trouble";
    return { ...incomplete(errorText(error), true, listFailureKind), failure: error };
  }
  if (pageFailure !== null) return { ...incomplete(errorText(pageFailure), true, "trouble"), failure: pageFailure };
  if (!pageFacts.lastPage) return incomplete("The list ended before its last page.", false);
  if (pageFacts.totalChanged) return { ...incomplete("The list changed while it was read.", true), unsteady: "total" };
  if (total === null) return incomplete("The list does not say how many records there are.", true);
  if (!pageFacts.repeated && unreadableRecords.length === 0 && total === itemsById.size)
    return { complete: true, items: [...itemsById.values()], pages };
  const mismatchedList = incomplete(`The list says ${total} records and shows ${itemsById.size} different ones.`, true);
  const isListUnsteady = pageFacts.repeated || total !== itemsById.size + unreadableRecords.length;
  return isListUnsteady ? { ...mismatchedList, unsteady: "records" } : mismatchedList;
}

export function lacksOnlyUnreadableRecords<T>(listing: Listing<T>): boolean {
  if (listing.complete || listing.unreadable === undefined || listing.brokenBy !== undefined) return false;
  return listing.total === listing.count + listing.unreadable.length;
}

export function listItems<T>(listing: Listing<T>): readonly T[] {
  return listing.complete ? listing.items : (listing.readItems ?? []);
}

/** Reads a fast-changing list of several pages twice: records move between pages, so both readings must agree. */
export async function readTwice<T>(
  read: () => AsyncIterable<ListPage<T>>,
  options: ListReadOptions<T> & { readonly compareKeyOf: (item: T) => string; readonly alwaysTwice?: boolean },
): Promise<Listing<T>> {
  const { idOf, compareKeyOf } = options;
  const firstReading = await readPages(read(), options);
  if (!firstReading.complete || (firstReading.pages === 1 && options.alwaysTwice !== true)) return firstReading;
  const reread = await readPages(read(), options);
  if (!reread.complete)
    return reread.readItems === null
      ? reread
      : { ...reread, readItems: joinItemsById(firstReading.items, reread.readItems, idOf) };
  const { items } = firstReading;
  const areItemsIdentical = items.length === reread.items.length && items.every((item, n) => item === reread.items[n]);
  if (areItemsIdentical || fingerprint(items, compareKeyOf) === fingerprint(reread.items, compareKeyOf)) return reread;
  const joinedItems = joinItemsById(items, reread.items, idOf);
  const reason = "Two readings of the list differ.";
  return { complete: false, reason, readItems: joinedItems, count: joinedItems.length, total: reread.items.length };
}

/** Joins two readings of a list. Later records win. Records only in the earlier reading stay: they may have moved. */
export function joinItemsById<T>(earlier: readonly T[], later: readonly T[], idOf: (item: T) => string): readonly T[] {
  return [...new Map([...earlier, ...later].map((item) => [idOf(item), item])).values()];
}

export function fingerprint<T>(items: readonly T[], compareKeyOf: (item: T) => string): string {
  return items.map(compareKeyOf).sort().join("\n");
}

import { type Failure, LocalFailure, Malformed, Retryable, sentence, Unwalkable } from "../../core/errors/errors.ts";
import type { Page } from "../source/source.ts";

/**
 * Result of all pages of one list.
 *
 * Only a complete listing proves an absence: every page arrived, and the total stayed the same and equals the number of
 * different ids. A list that changed while it was read proves what it contains and no absence. A list with a missing page
 * proves nothing, unless its records count one by one (`keepsShown`): then the pages before the missing one count.
 */
export type Listing<T> =
  | { readonly complete: true; readonly items: readonly T[]; readonly pages: number }
  | {
      readonly complete: false;
      readonly reason: string;
      readonly shown: readonly T[] | null;
      /** How many different records came before it ended. */
      readonly count: number;
      /** How many records there are, as the last page that came said. */
      readonly total: number | null;
      /**
       * Why it was not read to its end, where it was not: `pages`: they do not lead there, and will not at the next try
       * either; `trouble`: a later page failed or was none, which may pass by itself.
       */
      readonly brokenBy?: "pages" | "trouble";
      /** The error that interrupted it. */
      readonly failure?: Failure;
      /**
       * Why a list that was read to its end does not add up. `total`: the stated number of records changed from page to
       * page. `records`: it did not, and yet records are on two pages, or on none.
       */
      readonly unsteady?: "total" | "records";
      /** Records that cannot be read, each as the service sent it, cut; absent where there are none. */
      readonly unreadable?: readonly string[];
    };

export interface CollectOptions<T> {
  readonly idOf: (item: T) => string;
  /** Pages after which the list is given up; 1,000 unless told otherwise. */
  readonly maxPages?: number;
  /** True for records that count one by one: a list that breaks off after its first page shows what it showed. */
  readonly keepsShown?: boolean;
  /** Called with the records of each page before the next page is requested. */
  readonly onPage?: ((items: readonly T[]) => Promise<void>) | undefined;
}

const MAX_PAGES = 1_000;

/** Reads a list to its end. What the source throws before anything counts, this throws: a failure is no empty list. */
export async function collect<T>(answers: AsyncIterable<Page<T>>, options: CollectOptions<T>): Promise<Listing<T>> {
  const { idOf, maxPages = MAX_PAGES, keepsShown = false, onPage } = options;
  const byId = new Map<string, T>();
  let total: number | null = null;
  let pages = 0;
  let repeated = false;
  let moved = false;
  let ended = false;
  const unreadable: string[] = [];
  const incomplete = (reason: string, counts: boolean, brokenBy?: "pages" | "trouble") => ({
    complete: false as const,
    reason,
    shown: counts ? [...byId.values()] : null,
    count: byId.size,
    total,
    ...(brokenBy === undefined ? {} : { brokenBy }),
    ...(unreadable.length === 0 ? {} : { unreadable }),
  });

  try {
    for await (const page of answers) {
      pages += 1;
      if (total !== null && page.total !== null && page.total !== total) moved = true;
      total = page.total ?? total;
      const before = byId.size;
      for (const item of page.items) {
        const id = idOf(item);
        if (byId.has(id)) repeated = true;
        byId.set(id, item);
      }
      unreadable.push(...(page.unreadable ?? []));
      await onPage?.(page.items);
      ended = !page.more;
      if (ended) break;
      // A pager that ignores the number of the page shows the same page until the last of a thousand.
      if (pages > 1 && byId.size === before) {
        return incomplete(`Page ${page.number} of the list shows nothing new.`, true, "trouble");
      }
      // 30 records where 9 are stated: such a list may go on for as long as somebody asks for its next page.
      if (keepsShown && total !== null && byId.size > 2 * total + page.items.length) {
        return incomplete(`The list says ${total} records and goes on after ${byId.size}.`, true, "pages");
      }
      if (pages >= maxPages) {
        return incomplete(`The list did not end within ${maxPages} pages.`, keepsShown, "pages");
      }
    }
  } catch (error) {
    const isTheirs = !(error instanceof LocalFailure);
    const known = error instanceof Malformed || (error instanceof Retryable && isTheirs);
    if (!keepsShown || pages === 0 || !known) throw error;
    const brokenBy = error instanceof Unwalkable ? "pages" : "trouble";
    return { ...incomplete(sentence(error), true, brokenBy), failure: error };
  }
  if (!ended) return incomplete("The list ended before its last page.", false);
  if (moved) return { ...incomplete("The list changed while it was read.", true), unsteady: "total" };
  if (total === null) return incomplete("The list does not say how many records there are.", true);
  if (repeated || unreadable.length > 0 || total !== byId.size) {
    const differs = incomplete(`The list says ${total} records and shows ${byId.size} different ones.`, true);
    const isOfRecords = repeated || total !== byId.size + unreadable.length;
    return isOfRecords ? { ...differs, unsteady: "records" } : differs;
  }
  return { complete: true, items: [...byId.values()], pages };
}

/** Whether a list was read to its end, and only records that cannot be read keep it from being complete. */
export function lacksOnlyUnreadable<T>(listing: Listing<T>): boolean {
  if (listing.complete || listing.unreadable === undefined || listing.brokenBy !== undefined) return false;
  return listing.total === listing.count + listing.unreadable.length;
}

/** Records of a listing, complete or not. */
export function listedCoverage<T>(listing: Listing<T>): readonly T[] {
  return listing.complete ? listing.items : (listing.shown ?? []);
}

/**
 * As `collect`, for a list that moves fast (alarms). Records can slip from one page to another without changing the
 * total, so several pages count only when a second reading shows the same; one page is one answer and needs none.
 */
export async function collectSteady<T>(
  read: () => AsyncIterable<Page<T>>,
  options: CollectOptions<T> & { readonly sameAs: (item: T) => string; readonly always?: boolean },
): Promise<Listing<T>> {
  const first = await collect(read(), options);
  if (!first.complete || (first.pages === 1 && options.always !== true)) return first;
  const second = await collect(read(), options);
  if (!second.complete) {
    return second.shown === null ? second : { ...second, shown: union(first.items, second.shown, options.idOf) };
  }
  const isSame =
    // As a rule both show what is held, in the same order.
    (first.items.length === second.items.length && first.items.every((item, n) => item === second.items[n])) ||
    fingerprint(first.items, options.sameAs) === fingerprint(second.items, options.sameAs);
  if (isSame) return second;
  const shown = union(first.items, second.items, options.idOf);
  const reason = "Two readings of the list differ.";
  return { complete: false, reason, shown, count: shown.length, total: second.items.length };
}

/** The later reading wins; what only the earlier one shows may have slipped between two pages of the later. */
export function union<T>(earlier: readonly T[], later: readonly T[], idOf: (item: T) => string): readonly T[] {
  const byId = new Map(earlier.map((item) => [idOf(item), item]));
  for (const item of later) byId.set(idOf(item), item);
  return [...byId.values()];
}

export function fingerprint<T>(items: readonly T[], sameAs: (item: T) => string): string {
  return items.map(sameAs).sort().join("\n");
}

import type { Page } from "../source/source.ts";

/**
 * What the pages of one list add up to.
 *
 * Only a complete listing says that something is *not* there: every page arrived, the total stayed the same from
 * page to page and equals the number of different ids. A list that moved while it was read (`shown` is not null)
 * proves what it shows and nothing about what it does not show. A list with a page missing proves nothing.
 */
export type Listing<T> =
  | { readonly complete: true; readonly items: readonly T[]; readonly pages: number }
  | {
      readonly complete: false;
      readonly reason: string;
      readonly shown: readonly T[] | null;
      /** How many different records came before it ended. */
      readonly count: number;
    };

export interface CollectOptions<T> {
  readonly idOf: (item: T) => string;
  /** Pages after which the list is given up; 1,000 unless told otherwise. */
  readonly maxPages?: number;
}

const MAX_PAGES = 1_000;

/** Reads a list to its end. What the source throws, this throws: a failure is not an empty list. */
export async function collect<T>(
  answers: AsyncIterable<Page<T>>,
  options: CollectOptions<T>,
): Promise<Listing<T>> {
  const { idOf, maxPages = MAX_PAGES } = options;
  const byId = new Map<string, T>();
  let total: number | null = null;
  let pages = 0;
  let repeated = false;
  let moved = false;
  let ended = false;
  for await (const page of answers) {
    pages += 1;
    if (total !== null && page.total !== total) moved = true;
    total = page.total;
    for (const item of page.items) {
      const id = idOf(item);
      if (byId.has(id)) repeated = true;
      byId.set(id, item);
    }
    ended = !page.more;
    if (ended) break;
    if (pages >= maxPages) return broken(`The list did not end within ${maxPages} pages.`, byId.size);
  }
  if (!ended || total === null) return broken("The list ended before its last page.", byId.size);
  const shown = [...byId.values()];
  const count = shown.length;
  if (moved) return { complete: false, reason: "The list changed while it was read.", shown, count };
  if (repeated || total !== byId.size) {
    const reason = `The list says ${total} records and shows ${byId.size} different ones.`;
    return { complete: false, reason, shown, count };
  }
  return { complete: true, items: shown, pages };
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
    return second.shown === null
      ? second
      : { ...second, shown: union(first.items, second.shown, options.idOf) };
  }
  if (fingerprint(first.items, options.sameAs) === fingerprint(second.items, options.sameAs)) return second;
  const shown = union(first.items, second.items, options.idOf);
  return { complete: false, reason: "Two readings of the list differ.", shown, count: shown.length };
}

function broken(reason: string, count: number): Listing<never> {
  return { complete: false, reason, shown: null, count };
}

/** The later reading wins; what only the earlier one shows may have slipped between two pages of the later. */
function union<T>(earlier: readonly T[], later: readonly T[], idOf: (item: T) => string): readonly T[] {
  const byId = new Map(earlier.map((item) => [idOf(item), item]));
  for (const item of later) byId.set(idOf(item), item);
  return [...byId.values()];
}

function fingerprint<T>(items: readonly T[], sameAs: (item: T) => string): string {
  return items.map(sameAs).sort().join("\n");
}

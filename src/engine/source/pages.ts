import { hash } from "node:crypto";
import { ConfigError, Malformed, Unwalkable } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { secretsKnown } from "../../core/values/masking.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import type { RecordParser } from "./schema.ts";
import type { Page } from "./source.ts";
import type { TransportReply } from "./transport.ts";
import { listIn, type Note, wellFormed } from "./wire.ts";

/**
 * The pages of a list, one request each.
 *
 * The service's `links.next` may have lost our filters (the usual framework forgets them), or name another machine.
 * So nothing is taken from it but the parameters that say where to continue, merged under our own query: address,
 * path and filters stay what they were. A listing that does not advance, changes its page size on the way or does
 * not end is `Unwalkable`, never a short list. A page that does not say how many records there are shows what it shows,
 * and no list of such pages is ever complete.
 */
export interface ListRequest<T> {
  /** For messages and for remembering the page size, e.g. `alarms`. */
  readonly name: string;
  readonly filters: Readonly<Record<string, string>>;
  readonly pageSize: number;
  readonly read: RecordParser<T>;
  /** Decides whether a record is left out instead of rejecting its page. The list is incomplete then. */
  readonly leavesOut?: (record: unknown) => boolean;
  /** True where a record without a usable id is left out and reported; otherwise its page is `Malformed`. */
  readonly leavesOutUnreadable?: boolean;
  readonly ask: (query: string) => Promise<Asked>;
}

export interface Asked {
  readonly answer: DecodedReply;
  /** Milliseconds that the request waited for our own limits; a listing is not to blame for them. */
  readonly queuedMs: number;
  /** Records of the last reply when this reply has the same bytes. */
  readonly records?: PageRequest["records"];
}

interface PagingOptions {
  readonly clock: Clock;
  readonly note: Note;
  /** Origin of the service; a link to another origin is counted. */
  readonly origin: string;
  readonly maxPages?: number;
  readonly maxMs?: number;
}

interface Paging {
  pages<T>(listing: ListRequest<T>): AsyncGenerator<Page<T>, void, undefined>;
}

const MAX_PAGES = 1_000;
const MAX_MS = 300_000;
/** The service's own page size, which it cannot refuse (interface, Common list parameters). */
const DEFAULT_PAGE_SIZE = 100;

/** Every filter of the interface: a link that brings one that we did not set would list something else. */
const FILTERS = new Set([
  "site_id",
  "status",
  "priority",
  "acknowledged",
  "search",
  "system_id",
  "gateway_id",
  "per_page",
]);

export function createPaging(options: PagingOptions): Paging {
  const { clock, note, origin, maxPages = MAX_PAGES, maxMs = MAX_MS } = options;
  const refusedSizes = new Set<string>();

  async function firstPage<T>(listing: ListRequest<T>) {
    const wanted = refusedSizes.has(listing.name) ? Math.min(listing.pageSize, DEFAULT_PAGE_SIZE) : listing.pageSize;
    try {
      return { asked: await listing.ask(queryOf(listing, wanted, {})), size: wanted };
    } catch (error) {
      if (!isAboutPageSize(error) || wanted <= DEFAULT_PAGE_SIZE) throw error;
      refusedSizes.add(listing.name);
      return { asked: await listing.ask(queryOf(listing, DEFAULT_PAGE_SIZE, {})), size: DEFAULT_PAGE_SIZE };
    }
  }

  return {
    async *pages(listing) {
      const startedMs = clock.monotonic();
      const first = await firstPage(listing);
      let queuedMs = first.asked.queuedMs;
      let page = pageIn(first.asked, listing, 1, first.size);
      // A service that clamps the size without a word is asked for the size that it uses.
      const size = page.perPage ?? first.size;
      const seen = new Set([positionKey({})]);
      for (;;) {
        if (leadsAway(page.link, origin)) note("links.next");
        yield page.page;
        if (!page.page.more) return;
        const number = page.page.number + 1;
        const position = positionIn(page.link) ?? { page: String(number) };
        const key = positionKey(position);
        const trouble = seen.has(key)
          ? "leads back to a page that was read already"
          : number > maxPages
            ? `has more than ${maxPages} pages`
            : clock.monotonic() - startedMs - queuedMs > maxMs
              ? `did not end within ${maxMs / 1000} s`
              : null;
        if (trouble !== null) throw new Unwalkable(`The list of ${listing.name} ${trouble}.`, "");
        seen.add(key);
        const asked = await listing.ask(queryOf(listing, size, position));
        queuedMs += asked.queuedMs;
        page = pageIn(asked, listing, number, size);
        if (page.perPage !== null && page.perPage !== size) {
          throw new Unwalkable(`The list of ${listing.name} changed its page size on the way.`, "");
        }
      }
    },
  };
}

/** The service chooses the name of the field (`per page`, `query.perPage`), and only the message may name it. */
function isAboutPageSize(error: unknown): boolean {
  if (!(error instanceof ConfigError) || error.reason !== "validation") return false;
  return /per[^a-z]*page|page[^a-z]*size/i.test(`${error.field ?? ""} ${error.message}`);
}

type Position = Readonly<Record<string, string>>;

function queryOf<T>(listing: ListRequest<T>, size: number, position: Position): string {
  return String(new URLSearchParams({ ...position, ...listing.filters, per_page: String(size) }));
}

function positionKey(position: Position): string {
  // Page 1 is the page that comes without being named.
  const named = Object.entries(position).filter(([name, value]) => name !== "page" || value !== "1");
  return JSON.stringify(named.sort(([one], [other]) => (one < other ? -1 : 1)));
}

interface ReadPage<T> {
  readonly page: Page<T>;
  readonly perPage: number | null;
  /** `links.next`, unbelieved. */
  readonly link: string | null;
}

function pageIn<T>(asked: Asked, listing: ListRequest<T>, number: number, size: number): ReadPage<T> {
  const { answer } = asked;
  const { links, meta } = answer.envelope;
  const data = listIn(answer.envelope.data);
  const broken = (what: string) => new Malformed(`The list of ${listing.name} ${what}.`, answer.sample);
  if (data === null) throw broken("has no list of records");
  const readAll = () =>
    data.flatMap((record, index): readonly (T | UnreadableRecord)[] => {
      if (listing.leavesOut?.(record) === true) return [];
      const item = listing.read(record);
      if (item !== null) return [item];
      if (listing.leavesOutUnreadable !== true)
        throw broken(`has no usable id in record ${index + 1} of page ${number}`);
      return [new UnreadableRecord(record)];
    });
  const rows = asked.records === undefined ? readAll() : asked.records(answer, readAll);
  const items: T[] = [];
  const unreadable: string[] = [];
  for (const row of rows) {
    if (row instanceof UnreadableRecord) unreadable.push(row.text);
    else items.push(row);
  }

  const facts = isRecord(meta) ? meta : {};
  const total = countIn(facts.total);
  const current = countIn(facts.current_page);
  if (current !== null && current !== number) {
    const what = `answered page ${current} when asked for page ${number}`;
    throw new Unwalkable(`The list of ${listing.name} ${what}.`, answer.sample);
  }
  const lastPage = countIn(facts.last_page);
  const link = isRecord(links) && typeof links.next === "string" && links.next !== "" ? links.next : null;
  const saysNext = isRecord(links) && links.next !== undefined;
  // If both are PHP's empty array, a full page may have a next one.
  const mayGoOn = !saysNext && lastPage === null && total === null && rows.length >= size;
  const more = link !== null || (lastPage ?? 0) > number || mayGoOn;
  const page = {
    items,
    number,
    lastPage: Math.max(lastPage ?? number, number),
    total,
    more,
    ...(unreadable.length === 0 ? {} : { unreadable }),
  };
  return { page, perPage: countIn(facts.per_page), link };
}

/** Length of what is quoted of a record that cannot be read. */
const QUOTED_LENGTH = 200;

class UnreadableRecord {
  readonly text: string;

  constructor(record: unknown) {
    this.text = wellFormed(JSON.stringify(record) ?? "nothing")
      .slice(0, QUOTED_LENGTH)
      .toWellFormed();
  }
}

/** The parameters of a link that say where to continue. Null when it has none: then the next number is meant. */
function positionIn(link: string | null): Position | null {
  const url = link === null ? null : URL.parse(link, "http://relative.invalid");
  if (url === null) return null;
  const position: Record<string, string> = Object.create(null);
  for (const [name, value] of [...url.searchParams].slice(0, 20)) {
    const filter = FILTERS.has(name.replace(/\[.*/s, ""));
    if (!filter && name.length <= 100 && value.length <= 1000) position[name] = value;
  }
  return Object.keys(position).length === 0 ? null : position;
}

function leadsAway(link: string | null, origin: string): boolean {
  return link !== null && URL.parse(link, origin)?.origin !== origin;
}

/** A count; some frameworks repeat `per_page` as the text of the query. */
function countIn(value: unknown): number | null {
  const count = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  return typeof count === "number" && Number.isSafeInteger(count) && count >= 0 ? count : null;
}

/**
 * Reuses the records of a list page when the next response has the same bytes. A list of 5,000 alarms is requested
 * twice every 30 seconds and rarely changes. Counts of unusual fields are repeated.
 *
 * The cache stores a hash, the links to the next page and references to the records. It serves only lists whose
 * records the caller stores anyway (`Known` in `source.ts`): 100 hashes and 50,000 references for 50,000 tags.
 */
interface PageCache {
  /** For the readers of records: what they note, goes on, and is remembered with the page. */
  readonly note: Note;
  /** One request for a page, by all that is asked. */
  request(key: string): PageRequest;
}

interface PageRequest {
  /** The answer, where the reply is the one of last time: without its data, because `records` knows them. */
  recall(reply: TransportReply): DecodedReply | null;
  /** The records of the answer: those of last time, or what `read` makes of them. */
  records<T>(answer: DecodedReply, read: () => readonly T[]): readonly T[];
}

/** Parts of a page that lead to the next one. */
type Around = Pick<DecodedReply, "envelope">["envelope"];

interface RememberedPage {
  readonly hash: string;
  readonly around: Around;
  readonly records: readonly unknown[];
  /** Unusual fields counted while the page was parsed. */
  readonly noted: readonly string[];
}

/** At 500 records a page half a million; the one that was asked for longest ago is forgotten first. */
const MOST_PAGES = 1_000;

export function createPageCache(tell: Note): PageCache {
  const pages = new Map<string, RememberedPage>();
  /** Unusual fields of the page being parsed; null between two pages. */
  let noted: string[] | null = null;

  const keep = (key: string, page: RememberedPage) => {
    pages.delete(key);
    pages.set(key, page);
    for (const oldest of pages.keys()) {
      if (pages.size <= MOST_PAGES) break;
      pages.delete(oldest);
    }
  };

  return {
    note(field) {
      noted?.push(field);
      tell(field);
    },
    request(key) {
      let found: RememberedPage | undefined;
      let now = "";
      return {
        recall(reply) {
          // Include the number of known secrets: masking depends on them.
          now = `${reply.status} ${secretsKnown()} ${hash("sha256", reply.body, "base64")}`;
          const before = pages.get(key);
          found = before?.hash === now ? before : undefined;
          return found === undefined ? null : { envelope: found.around, sample: "" };
        },
        records<T>(answer: DecodedReply, read: () => readonly T[]) {
          if (found !== undefined) {
            for (const field of found.noted) tell(field);
            keep(key, found);
            return found.records as readonly T[];
          }
          noted = [];
          try {
            const records = read();
            keep(key, { hash: now, around: aroundOf(answer), records, noted });
            return records;
          } finally {
            noted = null;
          }
        },
      };
    },
  };
}

function aroundOf({ envelope: { links, meta } }: DecodedReply): Around {
  return {
    data: [],
    links: isRecord(links) ? { next: links.next } : undefined,
    meta: isRecord(meta)
      ? {
          total: meta.total,
          current_page: meta.current_page,
          last_page: meta.last_page,
          per_page: meta.per_page,
        }
      : undefined,
  };
}

/** Whether two records made of plain objects and single values say the same: as `isDeepStrictEqual`, only quicker. */
export function sameRecord(one: unknown, other: unknown): boolean {
  if (Object.is(one, other)) return true;
  if (typeof one !== "object" || typeof other !== "object" || one === null || other === null) return false;
  const record = one as Readonly<Record<string, unknown>>;
  const beside = other as Readonly<Record<string, unknown>>;
  let members = 0;
  for (const name in record) {
    if (!(name in beside) || !sameRecord(record[name], beside[name])) return false;
    members += 1;
  }
  for (const _name in beside) members -= 1;
  return members === 0;
}

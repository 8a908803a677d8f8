import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import {
  ConfigError,
  EndlessList,
  type Failure,
  LocalFailure,
  Malformed,
  Retryable,
} from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { secretsVersion } from "../../core/values/secret-masking.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import { type CountUnusualField, cleanRecordText, parseRecordList, type RecordParser } from "./service-records.ts";
import type { FindRecord, ListPage } from "./source.ts";
import type { TransportReply } from "./transport.ts";

interface ListRequest<T> {
  readonly name: string;
  readonly filters: Readonly<Record<string, string>>;
  readonly pageSize: number;
  readonly parseRecord: RecordParser<T>;
  readonly isOmitted?: (record: unknown) => boolean;
  /** True keeps the readable records of a page that fails or contains records without a usable id; false rejects it. */
  readonly allowsMissingRecords?: boolean;
  readonly requestPage: (query: string) => Promise<ListPageReply>;
}

interface ListPageReply {
  readonly reply: DecodedReply;
  readonly queuedMs: number;
  readonly reuseOrParse?: <R>(reply: DecodedReply, parse: () => readonly R[]) => readonly R[];
}

const LIST_PAGES_MAX = 1_000;
const LISTING_MS_MAX = 300_000;
const DEFAULT_PAGE_SIZE = 100;
/** Counts of smaller pages into which a failed page is split: 500 records into 5 pages of 100, and so on down to 1. */
const SMALLER_PAGE_COUNTS = [5, 4, 3, 2];
/** First-page failures in a row before smaller pages are tried: in an outage, the first page of every list fails. */
const FIRST_PAGE_FAILURES_MIN = 2;

interface FetchedPage<T> {
  readonly page: ListPage<T>;
  readonly perPage: number | null;
  readonly nextLink: string | null;
  readonly queuedMs: number;
  readonly requestedSize: number;
}

/** Query parameters that a link to the next page must not change. */
const LIST_FILTERS = new Set("site_id status priority acknowledged search system_id gateway_id per_page".split(" "));

/** Reads lists page by page. Takes only the page position from a link, which may lack filters or name another host. */
export function createListPaging(clock: Clock, countUnusualField: CountUnusualField, origin: string) {
  const listsWithSmallerPages = new Set<string>();
  const firstPageFailures = new Map<string, number>();

  async function requestFirstPage<T>(list: ListRequest<T>): Promise<FetchedPage<T>> {
    const size = listsWithSmallerPages.has(list.name) ? Math.min(list.pageSize, DEFAULT_PAGE_SIZE) : list.pageSize;
    const listKey = `${list.name} ${JSON.stringify(list.filters)}`;
    try {
      const firstPage = await requestPage(list, {}, 1, size);
      firstPageFailures.delete(listKey);
      return firstPage;
    } catch (error) {
      if (isPageSizeError(error) && size > DEFAULT_PAGE_SIZE) {
        listsWithSmallerPages.add(list.name);
        return requestPage(list, {}, 1, DEFAULT_PAGE_SIZE);
      }
      const failureCount = (firstPageFailures.get(listKey) ?? 0) + 1;
      firstPageFailures.set(listKey, failureCount);
      if (failureCount < FIRST_PAGE_FAILURES_MIN || !mayReadPageInParts(list, error)) throw error;
      return rereadFailedPage(list, 1, size, error);
    }
  }

  async function requestPage<T>(list: ListRequest<T>, position: PagePosition, pageNumber: number, pageSize: number) {
    const reply = await list.requestPage(buildListPageQuery(list, pageSize, position));
    return { ...parseListPage(reply, list, pageNumber, pageSize), queuedMs: reply.queuedMs, requestedSize: pageSize };
  }

  /**
   * Reads a failed page again in smaller pages, and splits further while exactly one of them fails. A record that fails
   * alone is unreadable; `failure` is set if more records are missing. Throws if the first two smaller pages fail.
   */
  async function rereadFailedPage<T>(list: ListRequest<T>, pageNumber: number, pageSize: number, error: Failure) {
    const fetchedPages: FetchedPage<T>[] = [];
    let failedPages = [{ number: pageNumber, size: pageSize, error }];
    for (let [pageToSplit] = failedPages; pageToSplit !== undefined; [pageToSplit] = failedPages) {
      const { number, size } = pageToSplit;
      const count = SMALLER_PAGE_COUNTS.find((divisor) => size % divisor === 0);
      if (failedPages.length > 1 || count === undefined) break;
      failedPages = [];
      for (let index = 1; index <= count; index++) {
        const smallerPage = { number: (number - 1) * count + index, size: size / count };
        try {
          const position = { page: String(smallerPage.number) };
          const fetchedPage = await requestPage(list, position, smallerPage.number, smallerPage.size);
          fetchedPages.push(fetchedPage);
          if (!fetchedPage.page.hasMore) break;
        } catch (error) {
          if (!isPageFailure(error) || (fetchedPages.length === 0 && failedPages.length > 0)) throw error;
          failedPages.push({ ...smallerPage, error });
        }
      }
    }
    const [failedPage] = failedPages;
    const isOneRecord = failedPages.length === 1 && failedPage?.size === 1;
    const lastFetchedPage = fetchedPages.at(-1);
    if (lastFetchedPage === undefined) throw error;
    const lastPage = Math.ceil((lastFetchedPage.page.lastPage * lastFetchedPage.requestedSize) / pageSize);
    const page: ListPage<T> = {
      items: fetchedPages.flatMap(({ page }) => page.items),
      unreadable: [
        ...fetchedPages.flatMap(({ page }) => page.unreadable ?? []),
        ...(isOneRecord ? [`record ${failedPage.number}: ${failedPage.error.message}`] : []),
      ],
      ...{ number: pageNumber, lastPage, total: lastFetchedPage.page.total, hasMore: lastPage > pageNumber },
      ...(failedPage === undefined || isOneRecord ? {} : { failure: failedPage.error }),
    };
    const queuedMs = fetchedPages.reduce((sum, fetchedPage) => sum + fetchedPage.queuedMs, 0);
    return { page, perPage: null, nextLink: null, queuedMs, requestedSize: pageSize };
  }

  return {
    async *fetchPages<T>(list: ListRequest<T>): AsyncGenerator<ListPage<T>, void, undefined> {
      const startedMs = clock.monotonic();
      let { page, perPage, nextLink, queuedMs, requestedSize } = await requestFirstPage(list);
      const pageSize = perPage ?? requestedSize;
      const requestedPositions = new Set([pagePositionKey({})]);
      for (;;) {
        if (nextLink !== null && URL.parse(nextLink, origin)?.origin !== origin) countUnusualField("links.next");
        yield page;
        if (!page.hasMore) return;
        const pageNumber = page.number + 1;
        const position = parseLinkedPagePosition(nextLink) ?? { page: String(pageNumber) };
        const elapsedMs = clock.monotonic() - startedMs - queuedMs;
        const isPageRepeated = requestedPositions.has(pagePositionKey(position));
        if (isPageRepeated) throw endlessListError(list, "leads back to a page that was read already");
        if (pageNumber > LIST_PAGES_MAX) throw endlessListError(list, `has more than ${LIST_PAGES_MAX} pages`);
        if (elapsedMs > LISTING_MS_MAX) throw endlessListError(list, `did not end within ${LISTING_MS_MAX / 1000} s`);
        requestedPositions.add(pagePositionKey(position));
        const nextPage = await requestPage(list, position, pageNumber, pageSize).catch((error: unknown) => {
          const isNumberedPage = Object.keys(position).join() === "page";
          if (!isNumberedPage || !mayReadPageInParts(list, error)) throw error;
          return rereadFailedPage(list, pageNumber, pageSize, error);
        });
        ({ page, perPage, nextLink } = nextPage);
        queuedMs += nextPage.queuedMs;
        if (perPage !== null && perPage !== pageSize) throw endlessListError(list, "changed its page size on the way");
      }
    },
  };
}

function mayReadPageInParts<T>(list: ListRequest<T>, error: unknown): error is Failure {
  return list.allowsMissingRecords === true && isPageFailure(error) && !(error instanceof EndlessList);
}

/** True for a failure that may concern only the requested page and not the complete service. */
export function isPageFailure(error: unknown): error is Failure {
  return error instanceof Malformed || (error instanceof Retryable && !(error instanceof LocalFailure));
}

function endlessListError(list: { readonly name: string }, problem: string, sample = ""): EndlessList {
  return new EndlessList(`The list of ${list.name} ${problem}.`, sample);
}

function isPageSizeError(error: unknown): boolean {
  if (!(error instanceof ConfigError) || error.reason !== "validation") return false;
  return /per[^a-z]*page|page[^a-z]*size/i.test(`${error.field ?? ""} ${error.message}`);
}

type PagePosition = Readonly<Record<string, string>>;

function buildListPageQuery<T>(list: ListRequest<T>, pageSize: number, position: PagePosition): string {
  return String(new URLSearchParams({ ...position, ...list.filters, per_page: String(pageSize) }));
}

function pagePositionKey(position: PagePosition): string {
  const positionParameters = Object.entries(position).filter(([name, value]) => name !== "page" || value !== "1");
  return JSON.stringify(positionParameters.sort(([a], [b]) => (a < b ? -1 : 1)));
}

function parseListPage<T>(
  { reply, reuseOrParse }: ListPageReply,
  list: ListRequest<T>,
  pageNumber: number,
  pageSize: number,
) {
  const { links, meta, data } = reply.envelope;
  const rawRecords = parseRecordList(data);
  const malformedListError = (problem: string) => new Malformed(`The list of ${list.name} ${problem}.`, reply.sample);
  if (rawRecords === null) throw malformedListError("has no list of records");
  const parseRecords = () =>
    rawRecords.flatMap((record, index): readonly (T | UnreadableRecord)[] => {
      if (list.isOmitted?.(record) === true) return [];
      const parsedRecord = list.parseRecord(record);
      if (parsedRecord !== null) return [parsedRecord];
      if (list.allowsMissingRecords === true) return [new UnreadableRecord(record)];
      throw malformedListError(`has no usable id in record ${index + 1} of page ${pageNumber}`);
    });
  const parsedRows = reuseOrParse === undefined ? parseRecords() : reuseOrParse(reply, parseRecords);
  const items = parsedRows.filter((row) => !(row instanceof UnreadableRecord)) as T[];
  const unreadableRecords = parsedRows.flatMap((row) => (row instanceof UnreadableRecord ? row.recordText : []));
  const { total, current_page, last_page, per_page } = isRecord(meta) ? meta : {};
  const currentPageNumber = parseCount(current_page);
  if (currentPageNumber !== null && currentPageNumber !== pageNumber)
    throw endlessListError(list, `answered page ${currentPageNumber} when asked for page ${pageNumber}`, reply.sample);
  const lastPage = parseCount(last_page);
  const next = isRecord(links) ? links.next : undefined;
  const nextLink = typeof next === "string" && next !== "" ? next : null;
  const mayHaveNextPage =
    next === undefined && lastPage === null && parseCount(total) === null && parsedRows.length >= pageSize;
  const page: ListPage<T> = {
    items,
    number: pageNumber,
    lastPage: Math.max(lastPage ?? pageNumber, pageNumber),
    total: parseCount(total),
    hasMore: nextLink !== null || (lastPage ?? 0) > pageNumber || mayHaveNextPage,
    ...(unreadableRecords.length === 0 ? {} : { unreadable: unreadableRecords }),
  };
  return { page, perPage: parseCount(per_page), nextLink };
}

const QUOTED_RECORD_LENGTH_MAX = 200;

class UnreadableRecord {
  readonly recordText: string;
  constructor(record: unknown) {
    this.recordText = cleanRecordText(JSON.stringify(record) ?? "nothing")
      .slice(0, QUOTED_RECORD_LENGTH_MAX)
      .toWellFormed();
  }
}

function parseLinkedPagePosition(link: string | null): PagePosition | null {
  const url = link === null ? null : URL.parse(link, "http://relative.invalid");
  if (url === null) return null;
  const position: Record<string, string> = Object.create(null);
  for (const [name, value] of [...url.searchParams].slice(0, 20)) {
    const isListFilter = LIST_FILTERS.has(name.replace(/\[.*/s, ""));
    if (!isListFilter && name.length <= 100 && value.length <= 1000) position[name] = value;
  }
  return Object.keys(position).length === 0 ? null : position;
}

function parseCount(value: unknown): number | null {
  const count = typeof value === "string" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  return typeof count === "number" && Number.isSafeInteger(count) && count >= 0 ? count : null;
}

interface CachedListPage {
  readonly hash: string;
  readonly envelope: DecodedReply["envelope"];
  readonly records: readonly unknown[];
  readonly unusualFields: readonly string[];
}

const CACHED_LIST_PAGES_MAX = 1_000;

/** Reuses the parsed records of a list page whose bytes did not change. Example: 5,000 alarms, listed twice every 30 s. */
export function createListPageCache(countUnusualField: CountUnusualField) {
  const cachedPages = new Map<string, CachedListPage>();
  let unusualFields: string[] | null = null;

  function storeCachedPage(key: string, page: CachedListPage): void {
    cachedPages.delete(key);
    cachedPages.set(key, page);
    const [oldestKey] = cachedPages.keys();
    if (cachedPages.size > CACHED_LIST_PAGES_MAX && oldestKey !== undefined) cachedPages.delete(oldestKey);
  }

  return {
    noteUnusualField(field: string): void {
      unusualFields?.push(field);
      countUnusualField(field);
    },
    /** Returns the stored object if it equals the record, so that comparisons by reference succeed. */
    reuseStored<T extends { readonly id: string | number }>(record: T | null, findStored: FindRecord<T>): T | null {
      const storedRecord = record === null ? undefined : findStored(String(record.id));
      return storedRecord !== undefined && isDeepStrictEqual({ ...storedRecord, ...record }, storedRecord)
        ? storedRecord
        : record;
    },
    forRequest(key: string) {
      let cachedPage: CachedListPage | undefined;
      let replyHash = "";
      return {
        findCachedReply(reply: TransportReply): DecodedReply | null {
          // Add the version of the secrets to the hash, because the known secrets decide which texts are masked.
          replyHash = `${reply.status} ${secretsVersion()} ${hash("sha256", reply.body, "base64")}`;
          const previousCachedPage = cachedPages.get(key);
          cachedPage = previousCachedPage?.hash === replyHash ? previousCachedPage : undefined;
          return cachedPage === undefined ? null : { envelope: cachedPage.envelope, sample: "" };
        },
        reuseOrParse<T>(reply: DecodedReply, parse: () => readonly T[]): readonly T[] {
          if (cachedPage !== undefined) {
            for (const field of cachedPage.unusualFields) countUnusualField(field);
            storeCachedPage(key, cachedPage);
            return cachedPage.records as readonly T[];
          }
          unusualFields = [];
          try {
            const records = parse();
            const { links, meta } = reply.envelope;
            storeCachedPage(key, {
              hash: replyHash,
              envelope: { data: [], links, meta },
              records,
              unusualFields,
            });
            return records;
          } finally {
            unusualFields = null;
          }
        },
      };
    },
  };
}

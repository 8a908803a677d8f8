import { hash } from "node:crypto";
import { isDeepStrictEqual } from "node:util";
import { secretsKnown } from "../../core/values/masking.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import type { Known } from "./source.ts";
import type { TransportReply } from "./transport.ts";
import type { Note } from "./wire.ts";

interface CachedPage {
  readonly hash: string;
  /** The response without its records. */
  readonly envelope: DecodedReply["envelope"];
  readonly records: readonly unknown[];
  /** Unusual fields counted while the page was parsed. */
  readonly noted: readonly string[];
}

/** Half a million records at 500 a page; the page that was requested longest ago is dropped first. */
const MOST_PAGES = 1_000;

/**
 * Reuses the records of a list page when the next response has the same bytes. A list of 5,000 alarms is requested twice
 * every 30 seconds and rarely changes. Counts of unusual fields are repeated.
 *
 * The cache stores a hash, the links to the next page and references to the records. It serves only lists whose records
 * the caller stores anyway: 100 hashes and 50,000 references for 50,000 tags.
 */
export function createPageCache(report: Note) {
  const pages = new Map<string, CachedPage>();
  /** Unusual fields of the page being parsed; null between two pages. */
  let noted: string[] | null = null;

  function store(key: string, page: CachedPage): void {
    pages.delete(key);
    pages.set(key, page);
    const [oldest] = pages.keys();
    if (pages.size > MOST_PAGES && oldest !== undefined) pages.delete(oldest);
  }

  return {
    /** For the parsers of records. */
    note(field: string): void {
      noted?.push(field);
      report(field);
    },

    /** The stored record if it is equal to a record of the response, so that comparisons by reference succeed. */
    asStored<T extends { readonly id: string | number }>(record: T | null, stored: Known<T>): T | null {
      const known = record === null ? undefined : stored(String(record.id));
      return known !== undefined && isDeepStrictEqual(record, known) ? known : record;
    },

    /** One request for a page; `key` identifies its endpoint and query. */
    request(key: string) {
      let cached: CachedPage | undefined;
      let replyHash = "";
      return {
        /** Returns the cached response if the reply has the same bytes. */
        recall(reply: TransportReply): DecodedReply | null {
          // Masked texts depend on the known secrets.
          replyHash = `${reply.status} ${secretsKnown()} ${hash("sha256", reply.body, "base64")}`;
          const before = pages.get(key);
          cached = before?.hash === replyHash ? before : undefined;
          return cached === undefined ? null : { envelope: cached.envelope, sample: "" };
        },
        /** The cached records, or the result of `parse`. */
        records<T>(answer: DecodedReply, parse: () => readonly T[]): readonly T[] {
          if (cached !== undefined) {
            for (const field of cached.noted) report(field);
            store(key, cached);
            return cached.records as readonly T[];
          }
          noted = [];
          try {
            const records = parse();
            store(key, { hash: replyHash, envelope: withoutData(answer), records, noted });
            return records;
          } finally {
            noted = null;
          }
        },
      };
    },
  };
}

function withoutData({ envelope: { links, meta } }: DecodedReply): DecodedReply["envelope"] {
  const { total, current_page, last_page, per_page } = isRecord(meta) ? meta : {};
  return {
    data: [],
    links: isRecord(links) ? { next: links.next } : undefined,
    meta: { total, current_page, last_page, per_page },
  };
}

import { hash } from "node:crypto";
import { secretsKnown } from "../../core/values/masking.ts";
import type { TransportReply } from "./reception.ts";
import { type DecodedReply, isRecord } from "./reply.ts";
import type { Note } from "./wire.ts";

/**
 * What the pages of lists said last time. A list of 5,000 alarms is read twice every 30 seconds and nearly always says
 * the same; where a page is the same, byte for byte, to the same request, it means the same, and nothing of it is read
 * anew: not even its JSON. What is counted of it is counted again.
 *
 * Remembered are a hash, the few words that lead to the next page, and the records. Only lists whose records their reader
 * holds anyway come here (see `Held` in source.ts): of 50,000 tags it keeps 100 hashes and 50,000 references.
 */
export interface PageCache {
  /** For the readers of records: what they note, goes on, and is remembered with the page. */
  readonly note: Note;
  /** One request for a page, by all that is asked. */
  request(key: string): PageRequest;
}

export interface PageRequest {
  /** The answer, where the reply is the one of last time: without its data, because `records` knows them. */
  recall(reply: TransportReply): DecodedReply | null;
  /** The records of the answer: those of last time, or what `read` makes of them. */
  records<T>(answer: DecodedReply, read: () => readonly T[]): readonly T[];
}

/** What is needed of a page to walk on from it. */
type Around = Pick<DecodedReply, "envelope">["envelope"];

interface RememberedPage {
  readonly hash: string;
  readonly around: Around;
  readonly records: readonly unknown[];
  /** What was noted while it was read. */
  readonly noted: readonly string[];
}

/** At 500 records a page half a million; the one that was asked for longest ago is forgotten first. */
const MOST_PAGES = 1_000;

export function createPageCache(tell: Note): PageCache {
  const pages = new Map<string, RememberedPage>();
  /** Of the page that is being read; null between two. */
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
          // What is masked of a page depends on the secrets that are known.
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

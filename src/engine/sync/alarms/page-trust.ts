import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { type Listing, listedCoverage } from "../listing.ts";

/**
 * Why the pages of a list cannot be trusted.
 *
 * | kind      | evidence                                                                     |
 * | --------- | ---------------------------------------------------------------------------- |
 * | `pages`   | the links lead back, the page size changes, or the list does not end          |
 * | `fails`   | a later page fails, in three readings in a row and for two minutes            |
 * | `ignored` | a later page shows only records of earlier pages, in two readings in a row    |
 * | `records` | records are on two pages or on none, in three readings in a row               |
 * | `total`   | the stated number of records changes from page to page and the records do not, three times in a row |
 *
 * A number that changes together with the records is none: alarms come and go.
 */
type Kind = "pages" | "fails" | "ignored" | "records" | "total";

interface Evidence {
  readonly readings: number;
  readonly forMs: number;
  readonly text: (reason: string) => string;
}

const EVIDENCE: Readonly<Record<Kind, Evidence>> = {
  pages: { readings: 1, forMs: 0, text: (reason) => reason },
  fails: { readings: 3, forMs: 120_000, text: (reason) => `A later page fails again and again: ${reason}` },
  ignored: { readings: 2, forMs: 0, text: () => "A later page shows the records of an earlier one." },
  records: { readings: 3, forMs: 0, text: () => "Records are on two pages, or on none." },
  total: { readings: 3, forMs: 0, text: () => "The number of records changes, and the records do not." },
};
/** Steady readings in a row after which the pages are trusted again. */
const STEADY_READINGS = 3;
/** Pages that lead nowhere are tried again after this time, in milliseconds. */
const RETRY_MS = 3_600_000;

/** Decides by the readings of a list whether its pages can be trusted. */
export interface PageTrust {
  /**
   * Takes a reading of the list into account; not one that was limited to its first page. `ofOneSite`: the list of the
   * only site has the same pages, so records and totals that do not add up are no reason to read that list instead.
   */
  judge(listing: Listing<Alarm>, ofOneSite: boolean): void;
  /** Why the pages are not trusted, as a sentence; null while they are. */
  distrust(): string | null;
  /** False while nothing but the first page is worth a request. */
  leadsOn(): boolean;
  /** True when the pages are trusted, or were found unusable an hour ago. */
  isDue(): boolean;
}

export function createPageTrust(clock: Clock, log: Pick<Log, "info" | "warn">): PageTrust {
  let distrust: { readonly kind: Kind; readonly sinceMs: number; readonly text: string } | null = null;
  let seen: { readonly kind: Kind; readonly sinceMs: number; readonly readings: number } | null = null;
  let steady = 0;
  let lastIds = "";
  const isDue = () => distrust === null || clock.monotonic() - distrust.sinceMs >= RETRY_MS;

  /** Whether a reading shows the records of the one before. */
  function isRepeated(listing: Listing<Alarm>): boolean {
    const ids = listedCoverage(listing)
      .map(({ id }) => id)
      .sort()
      .join();
    const before = lastIds;
    lastIds = ids;
    return ids === before;
  }

  return {
    judge(listing, ofOneSite) {
      const nowMs = clock.monotonic();
      const kind = kindOf(listing);
      if (kind === "total" && !isRepeated(listing)) {
        seen = null;
        return;
      }
      const concerns = !(ofOneSite && (kind === "records" || kind === "total"));
      if (kind === null || listing.complete || !concerns) {
        seen = null;
        steady += 1;
        if (distrust === null || (distrust.kind !== "pages" && steady < STEADY_READINGS)) return;
        log.info("the pages of the list of active alarms can be trusted again");
        distrust = null;
        return;
      }
      steady = 0;
      const before = seen?.kind === kind ? seen : { kind, sinceMs: nowMs, readings: 0 };
      seen = { ...before, readings: before.readings + 1 };
      const { readings, forMs, text } = EVIDENCE[kind];
      if (seen.readings < readings || nowMs - seen.sinceMs < forMs) return;
      const reason = text(listing.reason);
      if (distrust === null)
        log.warn({ reason }, "the pages of the list of active alarms cannot be trusted: sites are listed one by one");
      distrust = { kind, sinceMs: nowMs, text: reason };
    },
    distrust: () => distrust?.text ?? null,
    leadsOn: () => distrust?.kind !== "pages" || isDue(),
    isDue,
  };
}

function kindOf(listing: Listing<Alarm>): Kind | null {
  if (listing.complete) return null;
  if (listing.brokenBy === "pages") return "pages";
  if (listing.brokenBy === "trouble") return listing.failure === undefined ? "ignored" : "fails";
  return listing.unsteady ?? null;
}

import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { type Listing, listItems } from "../read-list-pages.ts";

/** Faults of list pages. Plenum distrusts the pages after `readings` faulty readings in a row over at least `forMs`. */
const PAGE_FAULT_RULES = {
  pages: { readings: 1, forMs: 0, text: (reason: string) => reason },
  fails: { readings: 3, forMs: 120_000, text: (reason: string) => `A later page fails again and again: ${reason}` },
  ignored: { readings: 2, forMs: 0, text: () => "A later page shows the records of an earlier one." },
  records: { readings: 3, forMs: 0, text: () => "Records are on two pages, or on none." },
  total: { readings: 3, forMs: 0, text: () => "The number of records changes, and the records do not." },
} as const;
type PageFault = keyof typeof PAGE_FAULT_RULES;

const READINGS_TO_REGAIN_TRUST = 3;
const PAGE_DISTRUST_RETRY_MS = 3_600_000;

export function createListPageTrust(clock: Clock, log: Pick<Log, "info" | "warn">) {
  let distrust: { readonly kind: PageFault; readonly sinceMs: number; readonly text: string } | null = null;
  let faultEvidence: { readonly kind: PageFault; readonly sinceMs: number; readonly readings: number } | null = null;
  let goodReadings = 0;
  let lastAlarmIds = "";
  const isRetryDue = () => distrust === null || clock.monotonic() - distrust.sinceMs >= PAGE_DISTRUST_RETRY_MS;

  function showsSameAlarms(listing: Listing<Alarm>): boolean {
    const alarmIds = listItems(listing).map(({ id }) => id);
    const previousAlarmIds = lastAlarmIds;
    lastAlarmIds = alarmIds.sort().join();
    return lastAlarmIds === previousAlarmIds;
  }

  return {
    /** Decides whether list pages are trusted. `isSlow`: pages were so slow that alarms may have moved between them. */
    judgePages(listing: Listing<Alarm>, isListOfOneSite: boolean, isSlow: boolean): void {
      const nowMs = clock.monotonic();
      const kind = findPageFault(listing);
      const isFaultOfRecords = kind === "records" || kind === "total";
      if (isSlow && isFaultOfRecords) return;
      if (kind === "total" && !showsSameAlarms(listing)) {
        faultEvidence = null;
        return;
      }
      if (kind === null || listing.complete || (isListOfOneSite && isFaultOfRecords)) {
        faultEvidence = null;
        goodReadings += 1;
        if (distrust === null || (distrust.kind !== "pages" && goodReadings < READINGS_TO_REGAIN_TRUST)) return;
        log.info("the pages of the list of active alarms can be trusted again");
        distrust = null;
        return;
      }
      goodReadings = 0;
      const earlierFaultEvidence = faultEvidence?.kind === kind ? faultEvidence : { kind, sinceMs: nowMs, readings: 0 };
      faultEvidence = { ...earlierFaultEvidence, readings: earlierFaultEvidence.readings + 1 };
      const { readings, forMs, text } = PAGE_FAULT_RULES[kind];
      if (faultEvidence.readings < readings || nowMs - faultEvidence.sinceMs < forMs) return;
      const reason = text(listing.reason);
      if (distrust === null)
        log.warn({ reason }, "the pages of the list of active alarms cannot be trusted: sites are listed one by one");
      distrust = { kind, sinceMs: nowMs, text: reason };
    },
    distrustReason: () => distrust?.text ?? null,
    hasUsablePages: () => distrust?.kind !== "pages" || isRetryDue(),
    isRetryDue,
  };
}

function findPageFault(listing: Listing<Alarm>): PageFault | null {
  if (listing.complete) return null;
  if (listing.brokenBy === "pages") return "pages";
  if (listing.brokenBy === "trouble") return listing.failure === undefined ? "ignored" : "fails";
  return listing.unsteady ?? null;
}

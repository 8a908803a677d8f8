import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { type Listing, recordsOf } from "../listing.ts";

/** Evidence against the pages of a list: `readings` in a row must show it, for at least `forMs`. */
const EVIDENCE = {
  pages: { readings: 1, forMs: 0, text: (reason: string) => reason },
  fails: { readings: 3, forMs: 120_000, text: (reason: string) => `A later page fails again and again: ${reason}` },
  ignored: { readings: 2, forMs: 0, text: () => "A later page shows the records of an earlier one." },
  records: { readings: 3, forMs: 0, text: () => "Records are on two pages, or on none." },
  total: { readings: 3, forMs: 0, text: () => "The number of records changes, and the records do not." },
} as const;
type EvidenceKind = keyof typeof EVIDENCE;

const STEADY_READINGS = 3;
const RETRY_MS = 3_600_000;

export function createPageTrust(clock: Clock, log: Pick<Log, "info" | "warn">) {
  let distrust: { readonly kind: EvidenceKind; readonly sinceMs: number; readonly text: string } | null = null;
  let evidence: { readonly kind: EvidenceKind; readonly sinceMs: number; readonly readings: number } | null = null;
  let steadyReadings = 0;
  let lastIds = "";
  const isDue = () => distrust === null || clock.monotonic() - distrust.sinceMs >= RETRY_MS;

  function showsSameRecords(listing: Listing<Alarm>): boolean {
    const ids = recordsOf(listing).map(({ id }) => id);
    const before = lastIds;
    lastIds = ids.sort().join();
    return lastIds === before;
  }

  return {
    /** `ofOneSite`: its own list has the same pages. `isSlow`: changes between pages explain wrong totals. */
    judge(listing: Listing<Alarm>, ofOneSite: boolean, isSlow: boolean): void {
      const nowMs = clock.monotonic();
      const kind = evidenceIn(listing);
      const isAboutRecords = kind === "records" || kind === "total";
      if (isSlow && isAboutRecords) return;
      if (kind === "total" && !showsSameRecords(listing)) {
        evidence = null;
        return;
      }
      if (kind === null || listing.complete || (ofOneSite && isAboutRecords)) {
        evidence = null;
        steadyReadings += 1;
        if (distrust === null || (distrust.kind !== "pages" && steadyReadings < STEADY_READINGS)) return;
        log.info("the pages of the list of active alarms can be trusted again");
        distrust = null;
        return;
      }
      steadyReadings = 0;
      const before = evidence?.kind === kind ? evidence : { kind, sinceMs: nowMs, readings: 0 };
      evidence = { ...before, readings: before.readings + 1 };
      const { readings, forMs, text } = EVIDENCE[kind];
      if (evidence.readings < readings || nowMs - evidence.sinceMs < forMs) return;
      const reason = text(listing.reason);
      if (distrust === null)
        log.warn({ reason }, "the pages of the list of active alarms cannot be trusted: sites are listed one by one");
      distrust = { kind, sinceMs: nowMs, text: reason };
    },
    distrust: () => distrust?.text ?? null,
    hasUsablePages: () => distrust?.kind !== "pages" || isDue(),
    isDue,
  };
}

function evidenceIn(listing: Listing<Alarm>): EvidenceKind | null {
  if (listing.complete) return null;
  if (listing.brokenBy === "pages") return "pages";
  if (listing.brokenBy === "trouble") return listing.failure === undefined ? "ignored" : "fails";
  return listing.unsteady ?? null;
}

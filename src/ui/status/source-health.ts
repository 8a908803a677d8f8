import type { QuotaStatus } from "../../engine/source/source.ts";
import { documentSet } from "../../engine/store/store.ts";
import type { PlanReport } from "../../engine/sync/plan/report.ts";
import { type StoredPoll, type StoredToken, type StoredUnavailability, syncSet } from "../../engine/sync/snapshot.ts";
import type { FirstInventoryReport, SourceCounts, SuddenChange } from "../../engine/sync/work.ts";
import { type CachedDocuments, WATCHED_MS } from "./cached-documents.ts";
import { type JobReport, jobReports, type Moment, type Paces } from "./job-report.ts";
import { type Reading, readingOf } from "./reading.ts";

/**
 * Health of one source of a running worker for `/readyz` and `/metrics`. They are requested every few seconds for years, so it
 * comes from counts and a dozen small documents, and from no tag, value or alarm.
 */
export interface SourceHealth {
  readonly name: string;
  readonly unavailable: readonly Unavailable[];
  readonly token: TokenReport | null;
  readonly jobs: readonly JobReport[];
  /** How far the number of alarms can be believed. */
  readonly alarms: Reading;
  /** Null where no worker counts. */
  readonly counts: SourceCounts | null;
  /** How far the first reading of the building is; null where no worker says. */
  readonly firstInventory: FirstInventoryReport | null;
}

/** State of a source that only a running worker has. */
export interface LiveSource {
  readonly quota: QuotaStatus | null;
  readonly clockSkewMs: number | null;
  plan(): Promise<PlanReport>;
  /** Since when history has been due and got no turn, UTC; null while it gets its share. */
  historyStarvesSince?(): string | null;
  /** Values that changed at once and are not settled yet. */
  suddenChanges?(): readonly SuddenChange[];
  firstInventory?(): FirstInventoryReport;
  /** Counts that the worker changes with each commit. */
  counts?(): SourceCounts | Promise<SourceCounts>;
}

/** A source as it is configured. */
export interface ShownSource {
  readonly name: string;
  readonly origin: string;
  /** When its jobs are late, so that every job is shown; without it only those that ran, and none is late. */
  readonly paces?: Paces;
}

export interface Unavailable {
  /** The job whose feature it is; null for the service as a whole. */
  readonly job: string | null;
  readonly since: string;
  readonly reason: string;
}

export interface LostSite {
  readonly siteId: number;
  readonly since: string;
  readonly reason: string;
}

export interface TokenReport {
  readonly name: string;
  readonly expiresAt: string | null;
  readonly checkedAt: string;
}

/** Before the id of a site that the token does not see, in the set of availability. */
const SITE = "site/";

export async function sourceHealth(
  remembered: CachedDocuments,
  shown: ShownSource,
  live: LiveSource | null,
  time: { readonly started: Moment | null; readonly now: Moment },
): Promise<SourceHealth> {
  const counts = (await live?.counts?.()) ?? null;
  const { jobs, reading, token, unavailable } = await pollsOf(remembered, shown, { counts, ...time });
  return {
    ...{ name: shown.name, unavailable, token, jobs, counts },
    firstInventory: live?.firstInventory?.() ?? null,
    alarms: reading("alarms", sumOf(counts?.activeAlarms.values() ?? [])),
  };
}

function sumOf(sites: Iterable<ReadonlyMap<string, number>>): number {
  let sum = 0;
  for (const priorities of sites) for (const count of priorities.values()) sum += count;
  return sum;
}

/** How the polls of a source are, and what of the service is unavailable. */
export async function pollsOf(
  remembered: CachedDocuments,
  { name, paces = new Map() }: ShownSource,
  known: {
    readonly counts: SourceCounts | null;
    readonly newestValue?: string | null;
    readonly started: Moment | null;
    readonly now: Moment;
  },
) {
  const { counts, newestValue, started, now } = known;
  const read = <T>(set: string) => remembered.documents<T>(set, WATCHED_MS);
  const [polls, availability, tokens] = await Promise.all([
    read<StoredPoll>(documentSet("poll", name)),
    read<StoredUnavailability>(syncSet("availability", name)),
    read<StoredToken>(documentSet("token", name)),
  ]);
  const jobs = jobReports({
    ...{ polls, paces, started, now },
    lastPolls: counts?.lastPolls ?? new Map(),
    inventoryMs: counts?.inventoryPageMs ?? null,
    ...(newestValue === undefined ? {} : { newestValue }),
  });
  const unavailable: Unavailable[] = [];
  const lostSites: LostSite[] = [];
  for (const [subject, { since, reason }] of availability) {
    if (subject.startsWith(SITE)) lostSites.push({ siteId: Number(subject.slice(SITE.length)), since, reason });
    else {
      const job = subject.startsWith("feature/") ? subject.slice("feature/".length) : null;
      unavailable.push({ job, since, reason });
    }
  }
  const held = tokens.get("token");
  const token: TokenReport | null =
    held === undefined ? null : { name: held.info.name, expiresAt: held.info.expiresAt, checkedAt: held.checkedAt };
  const reading = (job: string, count: number) =>
    readingOf({
      job: jobs.find((each) => each.name === job),
      isOff: paces.get(job) === "off",
      isAvailable: !unavailable.some((each) => each.job === null || each.job === job),
      held: count,
    });
  return { jobs, lostSites, reading, token, unavailable };
}

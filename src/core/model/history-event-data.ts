import type { Measurement, Resolution, Site, Tag } from "./building.ts";

interface BucketGrid {
  /** Length of a bucket: 5m, 1h, 1d, 1w or 1mo. */
  readonly resolution: Resolution;
  /** IANA time zone in which the service aligned the buckets. */
  readonly timeZone: string;
}

export interface TagHistoryFact extends BucketGrid {
  readonly tag: Tag;
  /** Buckets in ascending order of time, each bucket once. */
  readonly points: readonly Measurement[];
  /** `live`: buckets fetched soon after their end. `backfill`: buckets from before Plenum first saw the tag. */
  readonly origin: "live" | "backfill";
  /** True when these buckets were delivered before with other values (late data at the source). */
  readonly revised: boolean;
}

export interface TagTotalFact extends BucketGrid {
  readonly tag: Tag;
  /** Start of the period, UTC. */
  readonly from: string;
  /** End of the period (exclusive), UTC. */
  readonly to: string;
  /** Last minus first value of the meter in the period. */
  readonly total: number | null;
  /** True when the total is negative: the meter was reset or exchanged. */
  readonly reset: boolean;
}

/**
 * State of the configured buckets that begin in some UTC days. Always
 * `expected = had + null + absent + withoutLog + refused + pending`.
 */
export interface DayBucketCounts {
  /** Number of configured buckets. */
  readonly expected: number;
  /** Number of buckets with a value. */
  readonly had: number;
  /** Number of buckets that the service returned without a value. */
  readonly null: number;
  /** Number of buckets that a complete response did not contain. */
  readonly absent: number;
  /** Number of buckets without a log at the service (404). */
  readonly withoutLog: number;
  /** Number of buckets that the service refused for another reason; they are requested again. */
  readonly refused: number;
  /** Number of buckets whose state is not known yet. */
  readonly pending: number;
  /** Number of buckets of the same days before the configured backfill. Not part of `expected`. */
  readonly notWanted: number;
}

interface BucketKind extends BucketGrid {
  /** True if totals of a meter are fetched instead of values. */
  readonly total: boolean;
}

/** State of the buckets of several series. */
export interface SeriesAccount extends BucketKind, DayBucketCounts {
  /** Number of series. */
  readonly series: number;
}

/** Every bucket of a series in a range of UTC days was fetched, or has no log at the service. */
export interface SeriesCompleteFact extends BucketKind, DayBucketCounts {
  readonly tag: Tag;
  /** First of the UTC days, inclusive, e.g. `2026-11-02`. */
  readonly firstDate: string;
  /** Last of the UTC days, inclusive. */
  readonly lastDate: string;
}

/** Completeness of all series of a site with one resolution; emitted when one of the dates changes. */
export interface SiteCompleteFact extends BucketKind {
  readonly site: Site;
  /** First complete UTC day, e.g. `2026-11-02`; null if all configured days before `until` are complete. */
  readonly from: string | null;
  /** The first UTC day that is not complete. */
  readonly until: string;
  /** Number of series. */
  readonly series: number;
  /** Series whose missing buckets delay `until` although that day has long ended; at most 20. */
  readonly waiting: readonly WaitingSeries[];
  /** Number of series that delay `until`. */
  readonly waitingCount: number;
}

export interface WaitingSeries {
  /** The tag's id. */
  readonly tagId: string;
  /** The tag's name. */
  readonly displayName: string;
  /**
   * `behind`: ended buckets are not fetched yet. `backfill`: the configured past is not fetched yet. `unproven`: unknown
   * whether a log exists. `refused`: the service refused the request. `out-of-scope`: the token does not see the site.
   * `open`: the buckets have not ended yet.
   */
  readonly why: "behind" | "backfill" | "unproven" | "refused" | "out-of-scope" | "open";
  /** The service's message; null without a message. */
  readonly said: string | null;
  /** Time of the service's message, UTC; null without a message. */
  readonly at: string | null;
}

/** A UTC day of a site is complete and was read again for late data. */
export interface DaySealedFact extends DayBucketCounts {
  readonly site: Site;
  /** The complete UTC day, e.g. `2026-11-02`. */
  readonly date: string;
  /** IANA time zones in which the service aligned the buckets. */
  readonly timeZones: readonly string[];
  /** Revision of the day: 1 at first, increased by each later change. */
  readonly revision: number;
  /** Number of points that arrived or changed since the previous revision; 0 in the first revision. */
  readonly revised: number;
  /** Number of series of the site. */
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  /** Series with buckets without a log, 200 at most. */
  readonly seriesWithoutLog: readonly SeriesStatement[];
  /** Number of series with buckets without a log. */
  readonly seriesWithoutLogCount: number;
  /** Series with buckets that were refused, 200 at most. */
  readonly seriesRefused: readonly SeriesStatement[];
  /** Number of series with refused buckets. */
  readonly seriesRefusedCount: number;
}

/** The service's message about a series, and its time, UTC. */
export interface SeriesStatement {
  /** The tag's id. */
  readonly tagId: string;
  /** Length of a bucket: 5m, 1h, 1d, 1w or 1mo. */
  readonly resolution: Resolution;
  /** True if totals of a meter are fetched instead of values. */
  readonly total: boolean;
  /** Number of buckets of the day that the message concerns. */
  readonly buckets: number;
  /** The service's message; null without a message. */
  readonly said: string | null;
  /** Time of the service's message, UTC; null without a message. */
  readonly at: string | null;
}

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
  /** `live`: buckets fetched soon after their end. `backfill`: buckets that ended before Plenum first saw the tag. */
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
 * Number of history buckets that begin in some UTC days, by state. Always
 * `expected = had + null + absent + withoutLog + refused + pending`.
 */
export interface DayBucketCounts {
  /** Number of buckets that the configuration requests. */
  readonly expected: number;
  /** Number of buckets with a value. */
  readonly had: number;
  /** Number of buckets that the service returned without a value. */
  readonly null: number;
  /** Number of buckets that a complete response did not contain. */
  readonly absent: number;
  /** Number of buckets for which the service has no history (404). */
  readonly withoutLog: number;
  /** Number of buckets that the service refused for a reason other than 404; they are requested again. */
  readonly refused: number;
  /** Number of buckets whose state is not known yet. */
  readonly pending: number;
  /** Number of buckets of these days that are older than the configured backfill. Not part of `expected`. */
  readonly notWanted: number;
}

interface BucketKind extends BucketGrid {
  /** True if totals of a meter are fetched instead of values. */
  readonly total: boolean;
}

/** Number of a site's history buckets by state, for one resolution. */
export interface SeriesAccount extends BucketKind, DayBucketCounts {
  /** Number of series, i.e. of tags with this resolution. */
  readonly series: number;
}

/** A tag's history with one resolution was fetched for a range of UTC days, or the service has none. */
export interface SeriesCompleteFact extends BucketKind, DayBucketCounts {
  readonly tag: Tag;
  /** First of the UTC days, inclusive, e.g. `2026-11-02`. */
  readonly firstDate: string;
  /** Last of the UTC days, inclusive. */
  readonly lastDate: string;
}

/** Days for which a site's history with one resolution is complete; emitted when one of the dates changes. */
export interface SiteCompleteFact extends BucketKind {
  readonly site: Site;
  /** First complete UTC day, e.g. `2026-11-02`; null if all configured days before `until` are complete. */
  readonly from: string | null;
  /** The first UTC day that is not complete. */
  readonly until: string;
  /** Number of series, i.e. of tags with this resolution. */
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
   * whether the service has history. `refused`: the service refused the request. `out-of-scope`: the token does not see
   * the site. `open`: the buckets have not ended yet.
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
  /** Number of series of the site: its tags, each counted once per resolution. */
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  /** Series for which the service has no history of some buckets of the day; at most 200. */
  readonly seriesWithoutLog: readonly SeriesStatement[];
  /** Number of series for which the service has no history of some buckets. */
  readonly seriesWithoutLogCount: number;
  /** Series with buckets that the service refused; at most 200. */
  readonly seriesRefused: readonly SeriesStatement[];
  /** Number of series with refused buckets. */
  readonly seriesRefusedCount: number;
}

/** The service's message about missing buckets of a series (a tag's history with one resolution). */
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

import type { Measurement, Resolution, Site, Tag } from "./building.ts";

export interface TagHistoryFact {
  readonly tag: Tag;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** Ascending by time, every bucket once. */
  readonly points: readonly Measurement[];
  /** `live`: a bucket soon after it closed; `backfill`: older than the series' start of live following. */
  readonly origin: "live" | "backfill";
  /** True when these buckets were delivered before with other values (late data at the source). */
  readonly revised: boolean;
}

export interface TagTotalFact {
  readonly tag: Tag;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** Begin of the period, UTC. */
  readonly from: string;
  /** End of the period (exclusive), UTC. */
  readonly to: string;
  /** Last minus first over the period. */
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
  /** Number of buckets that are not known yet. */
  readonly pending: number;
  /** Number of buckets of the same days before the configured backfill. Not part of `expected`. */
  readonly notWanted: number;
}

/** State of the buckets of several series. */
export interface SeriesAccount extends DayBucketCounts {
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** Number of series. */
  readonly series: number;
}

/** Every bucket of a series that begins in these UTC days was fetched, or has no log at the service. */
export interface SeriesCompleteFact extends DayBucketCounts {
  readonly tag: Tag;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** The first of the days, `2026-11-02`; included. */
  readonly firstDate: string;
  /** The last of the days; included. */
  readonly lastDate: string;
}

/** Completeness of all series of a site with one resolution; emitted when one of the dates changes. */
export interface SiteCompleteFact {
  readonly site: Site;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** First complete day, `2026-11-02`; null when no earlier day is configured. */
  readonly from: string | null;
  /** The first UTC day that is not complete. */
  readonly until: string;
  /** Number of series. */
  readonly series: number;
  /** Series that delay `until` although the day is long over; at most 20. */
  readonly waiting: readonly WaitingSeries[];
  /** Number of series that delay it. */
  readonly waitingCount: number;
}

export interface WaitingSeries {
  /** The tag's id. */
  readonly tagId: string;
  /** The tag's name. */
  readonly displayName: string;
  /**
   * `behind`: closed and not fetched yet. `backfill`: the configured past, not fetched yet. `unproven`: not known yet
   * whether it has a log. `refused`: asked for and refused. `out-of-scope`: the token does not see its site. `open`: not
   * closed yet.
   */
  readonly why: "behind" | "backfill" | "unproven" | "refused" | "out-of-scope" | "open";
  /** The service's message; null when there is none. */
  readonly said: string | null;
  /** Time of that message, UTC; null when there is none. */
  readonly at: string | null;
}

/** A UTC day of a site is complete, and the time in which late data may arrive was read again. */
export interface DaySealedFact extends DayBucketCounts {
  readonly site: Site;
  /** The UTC day, `2026-11-02`. */
  readonly date: string;
  /** IANA zones in which the service aligned the buckets. */
  readonly timeZones: readonly string[];
  /** 1 at first; increases with each later change of the day. */
  readonly revision: number;
  /** Points that arrived or changed since the previous revision; 0 in the first. */
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
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** Number of buckets of the day that the message concerns. */
  readonly buckets: number;
  /** The service's message; null when there is none. */
  readonly said: string | null;
  /** Time of the service's message, UTC; null when there is none. */
  readonly at: string | null;
}

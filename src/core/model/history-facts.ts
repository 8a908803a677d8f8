import type { Measurement, Resolution, Site, Tag } from "./building.ts";

/** What events say of logged history, and of the UTC days that are known of it. */

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
  /** Its end, which is not part of it, UTC. */
  readonly to: string;
  /** Last minus first over the period. */
  readonly total: number | null;
  /** True when the total is negative: the meter was reset or exchanged. */
  readonly reset: boolean;
}

/**
 * What became of the buckets that begin in some UTC days and are wanted. Always
 * `expected = had + null + absent + withoutLog + refused + pending`.
 */
export interface DayAccount {
  /** How many buckets are wanted. */
  readonly expected: number;
  /** How many of them were answered with a value. */
  readonly had: number;
  /** How many were answered without a value. */
  readonly null: number;
  /** How many were not in the answer, although their time was answered. */
  readonly absent: number;
  /** How many have no log by the service's word (404). */
  readonly withoutLog: number;
  /** How many were asked for and refused for another reason; they are asked for again. */
  readonly refused: number;
  /** How many are not known yet. */
  readonly pending: number;
  /** How many of the same days nobody wants: before the depth of the backfill. Not among the expected. */
  readonly notWanted: number;
}

/** The same of several series. */
export interface SeriesAccount extends DayAccount {
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** How many series these are. */
  readonly series: number;
}

/** Every bucket of a series that begins in these UTC days is answered, or has no log by the service's word. */
export interface SeriesCompleteFact extends DayAccount {
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

/** The same of all series of a site that have one resolution; told whenever one of the dates changes. */
export interface SiteCompleteFact {
  readonly site: Site;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** Every day from this one on is complete, `2026-11-02`; null where nothing earlier is wanted. */
  readonly from: string | null;
  /** The first UTC day that is not complete. */
  readonly until: string;
  /** How many series these are. */
  readonly series: number;
  /** Series that hold `until` back though the day is long over, 20 of them at most. */
  readonly waiting: readonly WaitingSeries[];
  /** How many hold it back in all. */
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
  /** The service's words; null where it said nothing. */
  readonly said: string | null;
  /** When the service said so, UTC; null where it did not. */
  readonly at: string | null;
}

/** Nothing of a UTC day of a site is unknown any more, and the time in which its data may come late has been looked at. */
export interface DaySealedFact extends DayAccount {
  readonly site: Site;
  /** The UTC day, `2026-11-02`. */
  readonly date: string;
  /** IANA zones in which the service aligned the buckets. */
  readonly timeZones: readonly string[];
  /** 1, and one more each time when something of the day has changed afterwards. */
  readonly revision: number;
  /** Points of the day that came or changed since the revision before; 0 in the first. */
  readonly revised: number;
  /** How many series the site has. */
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  /** Series with buckets without a log, 200 at most. */
  readonly seriesWithoutLog: readonly SeriesStatement[];
  /** How many there are without a log. */
  readonly seriesWithoutLogCount: number;
  /** Series with buckets that were refused, 200 at most. */
  readonly seriesRefused: readonly SeriesStatement[];
  /** How many were refused. */
  readonly seriesRefusedCount: number;
}

/** What the service said of a series, and when, UTC. */
export interface SeriesStatement {
  /** The tag's id. */
  readonly tagId: string;
  /** 5m, 1h, 1d, 1w or 1mo: the length of a bucket. */
  readonly resolution: Resolution;
  /** True where totals are fetched. */
  readonly total: boolean;
  /** How many buckets of the day this is about. */
  readonly buckets: number;
  /** The service's words; null where it said nothing. */
  readonly said: string | null;
  /** When it said so, UTC; null where it did not. */
  readonly at: string | null;
}

import type { Measurement, Resolution, Site, Tag } from "./building.ts";

/** What events say of logged history, and of the UTC days that are known of it. */

export interface TagHistoryFact {
  readonly tag: Tag;
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
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly from: string;
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
  readonly expected: number;
  /** A value was answered. */
  readonly had: number;
  /** The bucket was answered without a value. */
  readonly null: number;
  /** The time was answered, and there was no such bucket in the answer. */
  readonly absent: number;
  /** The service said 404 of the log. */
  readonly withoutLog: number;
  /** Asked for and refused for another reason; asked again. */
  readonly refused: number;
  /** Not known yet. */
  readonly pending: number;
  /** Buckets of the same days that nobody wants: before the depth of the backfill. Not among the expected. */
  readonly notWanted: number;
}

/** The same of several series. */
export interface SeriesAccount extends DayAccount {
  readonly resolution: Resolution;
  /** IANA zone in which the service aligned the buckets. */
  readonly timeZone: string;
  /** True where totals are fetched. */
  readonly total: boolean;
  readonly series: number;
}

/** Every bucket of a series that begins in these UTC days is answered, or has no log by the service's word. */
export interface SeriesCompleteFact extends DayAccount {
  readonly tag: Tag;
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly total: boolean;
  /** The first and the last of the days, `2026-11-02`; both included. */
  readonly firstDate: string;
  readonly lastDate: string;
}

/** The same of all series of a site that have one resolution; told whenever one of the dates changes. */
export interface SiteCompleteFact {
  readonly site: Site;
  readonly resolution: Resolution;
  readonly timeZone: string;
  readonly total: boolean;
  /** Every day from this one on is complete, `2026-11-02`; null where nothing earlier is wanted. */
  readonly from: string | null;
  /** The first UTC day that is not complete. */
  readonly until: string;
  readonly series: number;
  /** Series that hold `until` back though the day is long over, 20 of them at most, and how many there are. */
  readonly waiting: readonly WaitingSeries[];
  readonly waitingCount: number;
}

export interface WaitingSeries {
  readonly tagId: string;
  readonly displayName: string;
  /**
   * `behind`: closed and not fetched yet. `backfill`: the configured past, not fetched yet. `unproven`: not known yet
   * whether it has a log. `refused`: asked for and refused. `out-of-scope`: the token does not see its site. `open`: not
   * closed yet.
   */
  readonly why: "behind" | "backfill" | "unproven" | "refused" | "out-of-scope" | "open";
  /** The service's words, and when it said them, UTC; null where it did not. */
  readonly said: string | null;
  readonly at: string | null;
}

/** Nothing of a UTC day of a site is unknown any more, and the time in which its data may come late has been looked at. */
export interface DaySealedFact extends DayAccount {
  readonly site: Site;
  /** The UTC day, `2026-11-02`. */
  readonly date: string;
  readonly timeZones: readonly string[];
  /** 1, and one more each time when something of the day has changed afterwards. */
  readonly revision: number;
  /** Points of the day that came or changed since the revision before; 0 in the first. */
  readonly revised: number;
  readonly series: number;
  readonly byResolution: readonly SeriesAccount[];
  /** Series with buckets without a log, or refused: 200 of each at most, and how many there are. */
  readonly seriesWithoutLog: readonly WordOfSeries[];
  readonly seriesWithoutLogCount: number;
  readonly seriesRefused: readonly WordOfSeries[];
  readonly seriesRefusedCount: number;
}

/** What the service said of a series, and when, UTC. */
export interface WordOfSeries {
  readonly tagId: string;
  readonly resolution: Resolution;
  readonly total: boolean;
  readonly buckets: number;
  readonly said: string | null;
  readonly at: string | null;
}

import type { Alarm, Resolution, TagValue, TokenInfo } from "../../core/model/building.ts";
import type { SiteStatusFact } from "../../core/model/event.ts";
import type { DayBucketCounts } from "../../core/model/history-event-data.ts";
import type { StaleReason, TagValueQuality } from "../../core/model/tag-event-data.ts";

export type SyncDocumentSetName =
  | "tag-system"
  | "tag-seen"
  | "alarm-site"
  | "gateway-check"
  | "sweep"
  | "availability"
  | "health"
  | "site-status"
  | "quarantine"
  | "left-out"
  | "history-told"
  | "history-days"
  | "history-complete"
  | "day-sealed"
  | "day-changed"
  | "history-window"
  | "backfill"
  | "backfill-pause";

export function syncSet(name: SyncDocumentSetName, source: string): string {
  return `${name}/${source}`;
}

/** An object of an inventory (sets `site`, `gateway`, `host`, `system`, `tag`), keyed by its id. */
export interface StoredObject<T> {
  readonly value: T;
  /** Site of the object; null for a site itself. A tag in several sites' lists keeps the first site. */
  readonly siteId: number | null;
  readonly since: string;
  readonly missingSince: string | null;
  readonly lastSeen?: string;
}

/** Systems of a tag (set `tag-system`, by tag id). */
export interface StoredTagSystems {
  readonly systemIds: readonly string[];
  /** Time of the last event about the tag's systems; absent in older states, so the event is emitted again. */
  readonly toldAt?: string;
}

/** Start times of the last complete lists of a site's tags and of its systems' tags (set `tag-seen`, by site id). */
export interface StoredTagListTimes {
  readonly tags: string | null;
  readonly systems: string | null;
}

/** A current or recent alarm (set `alarm`), keyed by alarm id. */
export interface StoredAlarm {
  readonly alarm: Alarm;
  readonly episode: string;
  /** State of the alarm. `missing`: absent, without an end. `out-of-scope`: the token does not see the alarm's site. */
  readonly state: "active" | "missing" | "out-of-scope" | "resolved" | "vanished";
  readonly since: string;
  readonly misses: number;
  /** True for an episode that was never emitted, because it ended before Plenum followed its site. */
  readonly untold?: true;
  /** Number of times that an ended or invisible episode became active again; part of the ids of later events. */
  readonly returns: number;
  /** Present after an ended episode reopened: the last emitted end (ms since 1970) and the number of the last event. */
  readonly ended?: { readonly endMs: number | null; readonly eventId: number | null };
  readonly former?: readonly FormerEpisode[];
}

export interface FormerEpisode {
  readonly episode: string;
  readonly endMs: number | null;
}

/** Times of a site's first lists of active and resolved alarms (set `alarm-site`, by site id). */
export interface StoredAlarmSite {
  readonly activeSince: string | null;
  readonly resolvedSince: string | null;
  /** Time up to which the site's resolved alarms were read; present while the token does not see the site. */
  readonly sweptUntil?: string;
}

/** A site with new alarms whose gateways are not read yet (set `gateway-check`, by site id). */
export interface StoredGatewayCheck {
  readonly since: string;
}

/** Progress of the sweep over resolved alarms (set `sweep`, key `resolved`). */
export interface AlarmSweep {
  /** Latest end of an alarm in a complete sweep, by the service's clock, UTC. */
  readonly watermark: string;
  /** The service lists resolved alarms in descending order of this time; null if it has no such order. */
  readonly newestFirstBy: "resolved" | "triggered" | null;
  readonly wholeAt: string;
}

/** Last emitted status of a site (set `site-status`, by site id). `name`: the site's name in the last event. */
export type StoredSiteStatus = Omit<SiteStatusFact, "site"> & { readonly name?: string };

export interface StoredUnavailability {
  readonly since: string;
  readonly reason: string;
}

/** Last result of the service's health check during an outage (set `health`, key `health`). */
export interface StoredServiceHealth {
  readonly status: string;
  readonly time: string | null;
  readonly askedAt: string;
}

export interface StoredToken {
  readonly info: TokenInfo;
  readonly checkedAt: string;
  readonly warnedDays: number | null;
  readonly lost?: Readonly<Record<string, string>>;
}

/** Latest reading of a tag (set `value`), usually `{"value":21.5,"quality":"good","time":"…","told":"this"}`. */
export interface StoredValue {
  readonly value: TagValue;
  readonly quality: TagValueQuality;
  readonly time: string;
  readonly lastGood?: GoodReading | null;
  readonly nulls?: number;
  /** Why the type is uncertain. `changed`: only one reading has it. `unit`: a boolean with a unit of numbers. */
  readonly typeDoubt?: UnverifiedType;
  /** Last emitted reading; `this` if the latest reading was emitted. Absent before the first event. */
  readonly told?: EmittedReading | "this";
  readonly behindGateway?: string;
  /** Present with the quality `stale`; `time` is then the time at which the value became stale. */
  readonly staleReason?: StaleReason;
}

export type UnverifiedType = "changed" | "unit";

export interface GoodReading {
  readonly value: TagValue;
  readonly time: string;
}

export interface EmittedReading extends GoodReading {
  readonly quality: TagValueQuality;
  readonly behindGateway?: string;
}

export function lastGoodOf({ lastGood, time, value }: StoredValue): GoodReading | null {
  return lastGood === undefined ? { value, time } : lastGood;
}

export function readingTimeOf({ lastGood, quality, time }: StoredValue): string {
  return quality === "stale" ? (lastGood?.time ?? time) : time;
}

export function lastEmittedOf({ behindGateway, quality, time, told, value }: StoredValue): EmittedReading | undefined {
  return told === "this" ? { value, quality, time, ...(behindGateway !== undefined && { behindGateway }) } : told;
}

/** A tag that was refused singly twice though the token may read it (set `quarantine`, by tag id). */
export interface StoredTagQuarantine {
  readonly until: string;
  readonly reason: string;
  /** Time of the refusal, UTC, and number of refusals in a row; absent in documents of an older version. */
  readonly at?: string;
  readonly times?: number;
}

/** A requested tag without a usable value in the replies (set `left-out`, by tag id). */
export interface StoredLeftOut {
  readonly since: string;
  /** `unreadable`: the service sent an invalid value. `unanswered`: the tag was not in the reply. */
  readonly kind?: "unreadable" | "unanswered";
  readonly reason: string;
}

/**
 * Ledger of a series: its fetched ranges and its refused ranges (set `history`). The key is `<tag id> <resolution>`, or
 * `<tag id> <resolution> total` for totals. Times are UTC.
 *
 * ```
 *   requested from                       since          watermark     now
 *     |  null  | refused |  not fetched |  points  | points  |  to come |
 *              | ◄─ backfill goes backwards     | following goes on ─►
 * ```
 */
export interface StoredLedger {
  /** Older ledgers have no version, and their past is fetched again. */
  readonly version: 2;
  readonly resolution: Resolution;
  readonly timeZone: string;
  /** Time at which the tag was first seen: following starts here, older buckets are backfill. */
  readonly since: string;
  /** Time up to which every closed bucket since `since` is fetched or unreadable. */
  readonly watermark: string;
  readonly wished: string;
  /** Fetched and refused ranges, ascending and disjoint; gaps between the ranges were not requested yet. */
  readonly spans: readonly StoredRange[];
  /** Number of fetched values per UTC day, packed by complete-days.ts; absent in ledgers of older versions. */
  readonly days?: string;
  readonly daysMoved?: true;
  readonly countedFrom?: string;
  /** A re-read for late data continues at this time; null while none runs. */
  readonly rereadFrom: string | null;
  /** Times of the latest re-reads for late data: of the last day, and of the complete look-back. */
  readonly dailyAt: string;
  readonly weeklyAt: string;
  /** Start of the time for which all emitted points are stored. */
  readonly rememberedFrom: string;
  /** State of the series. `unproven`: unknown whether it has a log. `no-log`: the service answered 404 (`refusal`). */
  readonly state: "unproven" | "following" | "no-log";
  readonly refusal: StoredRefusal | null;
}

/** Time range of a series and its state. Fetched: `points`, `null` (no value), `no-log` (404). Unfetched: `refused`. */
export interface StoredRange extends Partial<StoredRefusal> {
  readonly from: string;
  readonly to: string;
  readonly why: "points" | "null" | "no-log" | "refused";
  readonly emitted?: true;
}

export interface StoredRefusal {
  /** Message of the service for `no-log` and `refused`; for `null`, how it is known that no value exists. */
  readonly said: string;
  readonly at: string;
  readonly times: number;
  readonly againAt: string;
  readonly reason?: "unreadable";
}

/** True if a series has all configured buckets up to its watermark. */
export function isSeriesComplete({ state, refusal, spans, wished, since, watermark }: StoredLedger): boolean {
  if (state !== "following" || refusal || !spans) return false;
  let completeUntil = wished < since ? wished : since;
  for (const { from, to, why } of spans) {
    if (why === "refused" || from > completeUntil) continue;
    if (to > completeUntil) completeUntil = to;
  }
  return completeUntil >= watermark && watermark >= since;
}

/** A range of the past requested by `plenum backfill` (set `backfill`, keyed by id). Times are UTC. */
export interface StoredBackfill {
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  readonly select: unknown;
  readonly askedAt: string;
  /** Set when every bucket was fetched or is known to have no log. */
  readonly doneAt: string | null;
  readonly withoutLog?: { readonly buckets: number; readonly tags: number };
}

/** Pause of all backfill (set `backfill-pause`, key `pause`). */
export interface StoredPause {
  readonly pausedAt: string | null;
}

/** Emitted points that may still change. Stored in `history-told` by series and number of the time range. */
export interface EmittedPoints {
  /** Times of the points, seconds since the start of the range, ascending. */
  readonly at: readonly number[];
  readonly values: readonly TagValue[];
}

/** Values by UTC day of older days, moved out of the ledger (set `history-days`, with the ledger's key). */
export interface StoredDayCounts {
  readonly timeZone: string;
  readonly days: string;
}

/** Last emitted complete days of a site (set `history-complete`), keyed by `<site> <resolution> <zone>[ total]`. */
export interface StoredCompleteness {
  readonly from: string | null;
  readonly until: string;
  readonly heldBack: string | null;
}

/** A finalized UTC day of a site (set `day-sealed`), keyed by `<site> <date>`, with the counts of its last event. */
export interface FinalizedDay {
  readonly revision: number;
  readonly sealedAt: string;
  readonly series: number;
  readonly account: DayBucketCounts;
}

/** Later change of a finalized day (set `day-changed`), keyed as `FinalizedDay`. */
export interface StoredDayChange {
  readonly at: string;
  readonly points: number;
}

/** Learned maximum number of values in one history request (set `history-window`, key `values`). */
export interface StoredRequestSize {
  readonly good: number;
  readonly bad: number | null;
  readonly doubt: { readonly before: number | null } | null;
  readonly streak: number;
  readonly failures?: number;
}

/** Number of points above which the service cuts a history response (set `history-window`, key `cut`). */
export interface PointLimit {
  readonly series: number | null;
  readonly answer: number | null;
  readonly either: boolean;
  readonly at: string;
}

/** State of one job (set `poll`), keyed by job name. Written when `problem` changes, otherwise once a minute. */
export interface StoredJob {
  readonly lastSuccess: string | null;
  readonly lastAttempt: string;
  readonly problem: string | null;
}

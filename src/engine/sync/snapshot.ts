import type { Alarm, Resolution, TagValue, TokenInfo } from "../../core/model/building.ts";
import type { DayAccount } from "../../core/model/history-facts.ts";
import type { Quality } from "../../core/model/tag-facts.ts";

/**
 * Documents that are stored between two polls. Sets are named by `documentSet`; those that only this package uses by `syncSet`.
 * Pollers write them; the status page and the command gate read them.
 */

/** Sets of this room alone. */
export type SyncSet =
  | "tag-system"
  | "tag-seen"
  | "alarm-site"
  | "sweep"
  | "availability"
  | "health"
  | "quarantine"
  | "left-out"
  | "history-told"
  | "history-days"
  | "history-complete"
  | "day-sealed"
  | "day-changed"
  | "history-window"
  | "backfill"
  | "backfill-pause"
  | "sensors"
  | "silent-sensors";

export function syncSet(name: SyncSet, source: string): string {
  return `${name}/${source}`;
}

/** An object of an inventory (sets `site`, `gateway`, `host`, `system`, `tag`), keyed by its id. */
export interface Listed<T> {
  readonly value: T;
  /** Null for a site itself. A tag that several listings show keeps the first. */
  readonly siteId: number | null;
  /** When it was first seen, UTC. */
  readonly since: string;
  /** Since when complete listings do not show it; null while they do. */
  readonly missingSince: string | null;
  /** For a missing tag: time before the last list that contained it, UTC. */
  readonly lastSeen?: string;
}

/** How a tag hangs together with the building; what the interface lets us learn of it (set `tag-system`, by tag id). */
export interface StoredTagSystems {
  /** System ids whose listing shows the tag. */
  readonly systemIds: readonly string[];
  /** Time of the last event about them, UTC; absent in older states, which emits them again. */
  readonly toldAt?: string;
}

/** When complete listings last showed a site's tags, and those of its systems (set `tag-seen`, by site id). */
export interface StoredTagSeen {
  /** Before the listing began, UTC; null where there was none. */
  readonly tags: string | null;
  readonly systems: string | null;
}

/** An alarm that is, or lately was, of interest (set `alarm`), keyed by alarm id. */
export interface StoredAlarm {
  readonly alarm: Alarm;
  readonly episode: string;
  /**
   * `active` as the service says; `missing` after a complete listing without it, until evidence is found;
   * `out-of-scope` while the token does not see its site; `resolved` and `vanished` are ends of the episode.
   */
  readonly state: "active" | "missing" | "out-of-scope" | "resolved" | "vanished";
  /** When it came into this state, by our clock, UTC. */
  readonly since: string;
  /** Complete listings in a row that did not show it. */
  readonly misses: number;
  /** True for an episode that ended before its site was followed and was never emitted. */
  readonly untold?: true;
  /** How often the same episode came back after it had ended or left the scope; part of the ids of what follows. */
  readonly returns: number;
  /**
   * The last emitted end before the episode came back: its time, milliseconds since 1970, and the number of its last active event.
   * Absent while it never came back.
   */
  readonly ended?: { readonly endMs: number | null; readonly eventId: number | null };
  /** Episodes of the same alarm before this one, the latest of them, oldest first; absent where there was none. */
  readonly former?: readonly FormerEpisode[];
}

/** An earlier episode and its end, milliseconds since 1970; null when unknown. */
export interface FormerEpisode {
  readonly episode: string;
  readonly endMs: number | null;
}

/** Known alarms of a site (set `alarm-site`), keyed by site id; a site without an entry is new. */
export interface StoredAlarmSite {
  /** First listing of its active alarms, UTC. */
  readonly activeSince: string | null;
  /** First listing of its resolved alarms, UTC. */
  readonly resolvedSince: string | null;
  /** Up to when its resolved alarms are known, while the token does not see the site; absent while it does. */
  readonly sweptUntil?: string;
}

/** How far the sweep over resolved alarms came (set `sweep`, key `resolved`). */
export interface StoredSweep {
  /** The latest resolution that a complete sweep saw, by the service's clock, UTC. */
  readonly watermark: string;
  /** By which time the service lists the newest first, as the last reading of several pages showed; null when by none. */
  readonly newestFirstBy: "resolved" | "triggered" | null;
  /** When all pages were last read, UTC. */
  readonly wholeAt: string;
}

/** An unavailable service or feature (set `availability`), keyed by subject; absent while it is available. */
export interface StoredUnavailability {
  readonly since: string;
  readonly reason: string;
}

/** The last word of the service's own health check, while it seems to be away (set `health`, key `health`). */
export interface StoredHealth {
  readonly status: string;
  /** Time stated by the service, UTC; null without one. */
  readonly time: string | null;
  readonly askedAt: string;
}

/** Information about the token (set `token`, key `token`). */
export interface StoredToken {
  readonly info: TokenInfo;
  readonly checkedAt: string;
  /** Smallest number of days before this expiry that was emitted; null without one. */
  readonly warnedDays: number | null;
  /** Lost sites (ids) and abilities, with the time (UTC) of the loss. */
  readonly lost?: Readonly<Record<string, string>>;
}

/**
 * The latest reading of a tag (set `value`), keyed by tag id. It is written with each reading, so what it would only say
 * twice is left out: nearly always it is `{"value":21.5,"quality":"good","time":"…","told":"this"}`, 80 bytes instead of 200.
 */
export interface StoredValue {
  readonly value: TagValue;
  readonly quality: Quality;
  readonly time: string;
  /** The last reading that was no null, and null when there was none; absent where it is this one. */
  readonly lastGood?: GoodReading | null;
  /** Reads in a row that answered null; absent where this one did not. */
  readonly nulls?: number;
  /**
   * Why the type of the last value that was no null is not believed. `changed`: the values before it are of the other type,
   * and no second reading has confirmed the new one. `unit`: it is a boolean, and the unit is one of numbers. Absent while
   * the type is believed.
   */
  readonly typeDoubt?: UnverifiedType;
  /** Last emitted reading; differs from this one with `on_change`. Absent before the first. */
  readonly told?: EmittedReading | "this";
  /** The offline gateway that explains a null; absent where none does. */
  readonly behindGateway?: string;
}

export type UnverifiedType = "changed" | "unit";

export interface GoodReading {
  readonly value: TagValue;
  readonly time: string;
}

export interface EmittedReading extends GoodReading {
  readonly quality: Quality;
  readonly behindGateway?: string;
}

/** The last reading of a tag that was no null; null when there was none. */
export function lastGoodOf({ lastGood, time, value }: StoredValue): GoodReading | null {
  return lastGood === undefined ? { value, time } : lastGood;
}

/** Last emitted reading of a tag; undefined before the first. */
export function lastEmittedOf({ behindGateway, quality, time, told, value }: StoredValue): EmittedReading | undefined {
  return told === "this" ? { value, quality, time, ...(behindGateway !== undefined && { behindGateway }) } : told;
}

/**
 * A tag that the service refused alone twice, while the token may read it (set `quarantine`, keyed by tag id): it is
 * set aside, and asked alone after `until`.
 */
export interface StoredQuarantine {
  readonly until: string;
  /** The service's words. */
  readonly reason: string;
  /** When that was, UTC, and how often in a row; absent where an earlier rule, which could be wrong, said so. */
  readonly at?: string;
  readonly times?: number;
}

/** A requested tag without a usable value in the replies (set `left-out`, by tag id). */
export interface StoredLeftOut {
  /** Time of the first such reply in a row, UTC. */
  readonly since: string;
  /**
   * `unreadable`: the reply has a value that the interface does not allow. `unanswered`: the reply does not list the tag. Absent
   * in what an older version stored.
   */
  readonly kind?: "unreadable" | "unanswered";
  readonly reason: string;
}

/**
 * Ledger of a series: fetched ranges, and the reasons for the others (set `history`), keyed by `<tag id> <resolution>`, or by
 * `<tag id> <resolution> total` for totals. Times are UTC.
 *
 * ```
 *   wished                               since          watermark     now
 *     |  null  | refused |  not fetched |  points  | points  |  to come |
 *              | ◄─ backfill goes backwards     | following goes on ─►
 * ```
 */
export interface StoredHistory {
  /** Absent in what was written before a span said why; what such a ledger says of the past is not believed. */
  readonly version: 2;
  readonly resolution: Resolution;
  readonly timeZone: string;
  /** The first sight of the tag: following starts here, older buckets are backfill. */
  readonly since: string;
  /** Every closed bucket from `since` to this time is fetched, or was answered and is unreadable. */
  readonly watermark: string;
  /** The configured depth of the backfill. */
  readonly wished: string;
  /** Ascending and disjoint; what lies between them was not asked for yet. */
  readonly spans: readonly StoredRange[];
  /**
   * Points by UTC day, as `src/engine/sync/completeness/days.ts` writes them; of days that are not here none was answered, or
   * they are in `StoredDays`. Absent in what was written before points were counted.
   */
  readonly days?: string;
  /** Older days than the first here may be in `StoredDays`. */
  readonly daysMoved?: true;
  /** Responses before this time were not counted; absent when all were. */
  readonly countedFrom?: string;
  /** Start of the next re-read for late data; null while none runs. */
  readonly rereadFrom: string | null;
  /** When the last day, and the whole look-back, were last read again. */
  readonly dailyAt: string;
  readonly weeklyAt: string;
  /** Emitted points are stored completely from this time on. */
  readonly rememberedFrom: string;
  /** `unproven`: not yet known whether it has a log. `no-log`: the service said 404 of its log (`refusal`). */
  readonly state: "unproven" | "following" | "no-log";
  /** Why it is not followed now, and until when it is left alone; null while all is well. */
  readonly refusal: StoredRefusal | null;
}

/**
 * A stretch of a series. Had: `points`, where values were answered (short times without any in between included);
 * `null`, answered without a value; `no-log`, the service said 404 of it. Not had: `refused`, for another reason, or
 * because the answer is unreadable.
 */
export interface StoredRange {
  readonly from: string;
  readonly to: string;
  readonly why: "points" | "null" | "no-log" | "refused";
  /** `no-log` and `refused`: the service's words and when. `null`: what says so, where it was not the series itself. */
  readonly said?: string;
  readonly at?: string;
  /** `refused`: how often in a row, and when it is asked again. */
  readonly times?: number;
  readonly againAt?: string;
  /** `refused`: it was answered, and the answer could not be read. */
  readonly reason?: "unreadable";
  /** The readable points between the unreadable buckets of this stretch were emitted. */
  readonly emitted?: true;
}

/** The service's last message about a rejection, its time, and the number of consecutive rejections. */
export interface StoredRefusal {
  readonly said: string;
  readonly at: string;
  readonly times: number;
  /** It is asked again, alone, after this time. */
  readonly againAt: string;
  /** It was answered, and the answer could not be read. */
  readonly reason?: "unreadable";
}

/** True when a series has all configured buckets up to its watermark; for the status page. */
export function isComplete({ state, refusal, spans, wished, since, watermark }: StoredHistory): boolean {
  // A state written before has no spans.
  if (state !== "following" || refusal || !spans) return false;
  let until = wished < since ? wished : since;
  for (const { from, to, why } of spans) {
    if (why === "refused" || from > until) continue;
    if (to > until) until = to;
  }
  return until >= watermark && watermark >= since;
}

/** A stretch of the past that `plenum backfill` asked for (set `backfill`, keyed by id). Times are UTC. */
export interface StoredBackfill {
  readonly from: string;
  readonly to: string;
  readonly resolution: Resolution;
  /** A selection as in the configuration. */
  readonly select: unknown;
  readonly askedAt: string;
  /** Time at which every bucket was fetched or known to have no log; null until then. */
  readonly doneAt: string | null;
  /** Buckets of which it said so, and of how many tags; absent in orders that ended before this was known. */
  readonly withoutLog?: { readonly buckets: number; readonly tags: number };
}

/** Pause of all backfill (set `backfill-pause`, key `pause`). */
export interface StoredPause {
  readonly pausedAt: string | null;
}

/** Emitted points that may still change (set `history-told`), keyed by `<history key> <number of the range>`. */
export interface EmittedPoints {
  /** Seconds since the start of the span, ascending. */
  readonly at: readonly number[];
  readonly values: readonly TagValue[];
}

/** Points of the days that take no more room in the ledger (set `history-days`), keyed as the ledger. */
export interface StoredDays {
  /** Another zone cuts other buckets. */
  readonly timeZone: string;
  readonly days: string;
}

/** Last emitted completeness of a site (set `history-complete`), keyed by `<site> <resolution> <zone>[ total]`. */
export interface StoredCompleteness {
  /** As in the event, `2026-11-02`. */
  readonly from: string | null;
  readonly until: string;
  /** Latest day with a reported delay; null without one. */
  readonly heldBack: string | null;
}

/** A UTC day of a site that was sealed (set `day-sealed`), keyed by `<site> <date>`; the account is that of the event. */
export interface FinalizedDay {
  readonly revision: number;
  readonly sealedAt: string;
  readonly series: number;
  readonly account: DayAccount;
}

/** Later change of a finalized day (set `day-changed`), keyed as `FinalizedDay`. */
export interface StoredDayChange {
  /** When, UTC; of several changes shortly after each other the first. */
  readonly at: string;
  /** Points that came or changed. */
  readonly points: number;
}

/** How many values one history request may ask for (set `history-window`, key `values`); learned. */
export interface StoredWindow {
  /** The most values that were answered at once. */
  readonly good: number;
  /** The fewest that were not, as long as that is believed. */
  readonly bad: number | null;
  /** Value of `bad` before a failure that may have another cause. */
  readonly doubt: { readonly before: number | null } | null;
  /** Full answers since the last change. */
  readonly streak: number;
  /** Failures in a row at sizes that had been answered before; absent when the last such answer came. */
  readonly failures?: number;
}

/**
 * Limit at which the service left out points of a history response without an error (set `history-window`, key
 * `cut`).
 */
export interface StoredCut {
  /** Points of one series; null where it is not known to matter. */
  readonly series: number | null;
  /** Points of the whole answer. */
  readonly answer: number | null;
  /** It is one of the two, and not known which. */
  readonly either: boolean;
  /** When it was proved last, UTC. */
  readonly at: string;
}

/** The period in which sensors are watched now (set `sensors`, key `period`). */
export interface StoredSensorPeriod {
  /** UTC. */
  readonly from: string;
  /** How long of it the worker has watched, milliseconds by measured time. */
  readonly watchedMs: number;
}

/** Readings of up to 250 tags (set `sensors`, by number from 0) in the period. */
export interface StoredSensors {
  readonly from: string;
  readonly ids: readonly string[];
  /** Columns of src/engine/sync/sensors/sensor-table.ts, one tag after the other. */
  readonly numbers: readonly number[];
}

/** The state of one job (set `poll`), keyed by job name. Written when it changes its mind, otherwise once a minute. */
export interface StoredPoll {
  readonly lastSuccess: string | null;
  readonly lastAttempt: string;
  /** One sentence, null while all is well. */
  readonly problem: string | null;
}

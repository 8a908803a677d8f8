import type { Alarm, Resolution, TagValue } from "../building.ts";
import type { Quality } from "../event.ts";

/**
 * What is held in the store between two polls: the snapshot, as documents. Sets are named by `documentSet`.
 * The pollers write these; the status page and the command gate read them.
 */

/** An object of an inventory (sets `site`, `gateway`, `host`, `system`, `tag`), keyed by its id. */
export interface Held<T> {
  readonly value: T;
  /** Null for a site itself. A tag that several listings show keeps the first. */
  readonly siteId: number | null;
  /** When it was first seen, UTC. */
  readonly since: string;
  /** Since when complete listings do not show it; null while they do. */
  readonly missingSince: string | null;
}

/** How a tag hangs together with the building; what the interface lets us learn of it. */
export interface HeldTagPlace {
  /** System ids whose listing shows the tag. */
  readonly systemIds: readonly string[];
}

/** An alarm that is, or lately was, of interest (set `alarm`), keyed by alarm id. */
export interface HeldAlarm {
  readonly alarm: Alarm;
  readonly episode: string;
  /**
   * `active` as the service says; `missing` after a complete listing without it, until evidence is found;
   * `out-of-scope` while the token does not see its site; `resolved` and `vanished` are ends of the episode.
   */
  readonly state: "active" | "missing" | "out-of-scope" | "resolved" | "vanished";
  readonly since: string;
  /** Complete listings in a row that did not show it. */
  readonly misses: number;
}

/** The latest reading of a tag (set `value`), keyed by tag id. */
export interface HeldValue {
  readonly value: TagValue;
  readonly quality: Quality;
  readonly time: string;
  readonly lastGood: { readonly value: TagValue; readonly time: string } | null;
  /** Reads in a row that answered null. */
  readonly nulls: number;
}

/** How far the history of a tag is told (set `history`), keyed by `<tag id> <resolution>`. */
export interface HeldHistory {
  readonly resolution: Resolution;
  /** Every closed bucket before this time is fetched or known to be empty; UTC. */
  readonly watermark: string;
  /** `no-log`: the service answered 404 for it; asked again after `askAgainAt`. */
  readonly state: "following" | "no-log";
  readonly askAgainAt: string | null;
}

/** The state of one job (set `poll`), keyed by job name or `<job>/<site id>`. */
export interface HeldPoll {
  readonly lastSuccess: string | null;
  readonly lastAttempt: string;
  /** One sentence, null while all is well. */
  readonly problem: string | null;
}

import type { System, Tag, TagValue } from "./building.ts";

/**
 * `bad`: the gateway could not read the value (null). `uncertain`: the worker's clock or the value's type is in doubt (see
 * `TagValueFact.type`), or more than a third of the values of the same reply changed their type. `stale`: the last good
 * value is older than its interval plus two request slots (null).
 */
export type TagValueQuality = "good" | "uncertain" | "bad" | "stale";

/** Cause of a stale value. The first matching cause counts: a quarantined tag of a lost site is `out-of-scope`. */
export type StaleReason = (typeof STALE_REASONS)[number];
export const STALE_REASONS = [
  "out-of-scope",
  "no-ability",
  "quarantined",
  "gateway-offline",
  "source-unavailable",
  "not-scheduled",
] as const;

export interface TagValueFact {
  readonly tag: Tag;
  /** Number or boolean; null unless the quality is `good` or `uncertain`. Never 0 in place of null. */
  readonly value: TagValue;
  /**
   * `bad`: the gateway could not read the value. `uncertain`: the clock or the type is in doubt, or over a third of the
   * reply's values changed type. `stale`: the tag was not read within its interval plus two request slots. Else `good`.
   */
  readonly quality: TagValueQuality;
  /** Time at which the reply arrived, or the value became stale, UTC; the service states no time for live values. */
  readonly time: string;
  /** Milliseconds from the request to the reply; `time` is inexact by this duration. */
  readonly latencyMs: number;
  /** The tag's last value that was not null, with its time; null before the first such value. */
  readonly lastGood: {
    /** Number or boolean. */
    readonly value: TagValue;
    /** Time of the reading, UTC. */
    readonly time: string;
  } | null;
  /** Id of the offline gateway that explains a bad or stale value; null without such a gateway. */
  readonly behindGateway: string | null;
  /**
   * Only while the quality is `stale`. `out-of-scope`: the token does not see the site. `no-ability`: no permission
   * `read:tags`. `quarantined`: the service refused the tag. `gateway-offline`: the site's only gateway is offline.
   * `source-unavailable`: the service does not answer, or fails, refuses or omits the tag. `not-scheduled`: the tag was
   * not read in time although the service answers (overload, slow replies), the worker did not run, or no class of
   * `read` selects the tag. When the reason changes, the stale value is emitted again.
   */
  readonly staleReason?: StaleReason;
  /**
   * Present while the type is in doubt: when a number follows a boolean or the reverse, for one reading, until a second
   * reading confirms the new type; or while a boolean has a unit of numbers, such as °C.
   */
  readonly type?: {
    /** Type of the earlier values, or the type that the unit demands. */
    readonly before: TagValueType;
    /** Type of this value. */
    readonly now: TagValueType;
  };
}

export type TagValueType = "number" | "boolean";

/** Technical systems whose lists of tags contain the tag (`inventory.tags_of_systems`). */
export interface TagSystemsFact {
  readonly tag: Tag;
  /** The tag's systems, sorted by id; empty when no system lists the tag, or the tag was removed. */
  readonly systems: readonly Pick<System, "id" | "code" | "displayName">[];
  /** Ids of the tag's systems in the previous event; empty in the first event. */
  readonly before: readonly string[];
}

/**
 * Later values of a tag are not comparable with earlier ones: do not add or compare them. A unit, name or system that
 * is stated for the first time is no break.
 */
export interface SeriesBreak {
  /** The tag after the change. */
  readonly tag: Tag;
  /** Changed fields. */
  readonly what: readonly ("unit" | "name" | "system")[];
  /** Previous values of the changed fields; `systems` are ids. */
  readonly before: {
    /** The previous unit; absent if the unit did not change. */
    readonly unit?: string;
    /** The previous name; absent if the name did not change. */
    readonly displayName?: string;
    /** The previous ids of the tag's systems; absent if the systems did not change. */
    readonly systems?: readonly string[];
  };
  /** The new ids of the tag's systems; absent if the systems did not change. */
  readonly systems?: readonly string[];
  /** The change happened between the last list with the previous state and the first list with the new state. */
  readonly since: {
    /** Time of the last listing with the previous state, UTC. */
    readonly lastBefore: string;
    /** Time of the first listing with the new state, UTC. */
    readonly firstAfter: string;
  };
}

import type { Resolution, Site, System, Tag, TagValue } from "./building.ts";

/**
 * `bad`: the gateway could not read the value (null). `uncertain`: our own clock is in doubt, the type of the value is (see
 * `TagValueFact.type`), or more than a third of the values of the same reply changed their type. `stale`: the last good
 * value is older than its interval plus two request slots (null).
 */
export type TagValueQuality = "good" | "uncertain" | "bad" | "stale";

/** Cause of a stale value. The order is that of the checks: a quarantined tag of a lost site is `out-of-scope`. */
export type StaleReason =
  | "out-of-scope"
  | "no-ability"
  | "quarantined"
  | "gateway-offline"
  | "source-unavailable"
  | "not-scheduled";

export interface TagValueFact {
  readonly tag: Tag;
  /** Number or boolean; null unless the quality is `good` or `uncertain`. Never 0 in place of null. */
  readonly value: TagValue;
  /**
   * `bad`: could not be read. `uncertain`: our clock is in doubt, the type is (`type`), or more than a third of the values of
   * the same reply changed their type. `stale`: not read again within its interval plus two request slots. Else `good`.
   */
  readonly quality: TagValueQuality;
  /** When the reply arrived, or when the value became stale, UTC; the service states no time of its own for a read. */
  readonly time: string;
  /** Milliseconds between sending the request and having the reply: how vague `time` is. */
  readonly latencyMs: number;
  /** The last value that was not null, and its time; null when there never was one. */
  readonly lastGood: {
    /** Number or boolean. */
    readonly value: TagValue;
    /** Time of the reading, UTC. */
    readonly time: string;
  } | null;
  /** Id of the gateway that was offline and explains a bad or stale value; null where none does. */
  readonly behindGateway: string | null;
  /**
   * Only while the quality is `stale`. `out-of-scope`: the token does not see the site. `no-ability`: the token lacks `read:tags`.
   * `quarantined`: the service refused the tag. `gateway-offline`: the only gateway of the site is offline.
   * `source-unavailable`: the service does not answer, or fails, refuses or leaves out the tag. `not-scheduled`: the tag was
   * not read in time although the service answers (overload, slow replies), or no class of `read` selects it.
   */
  readonly staleReason?: StaleReason;
  /**
   * Only while the type is in doubt. A number follows a boolean or the reverse: for one reading, until a second of the new
   * type confirms it. A boolean has a unit of numbers, such as °C: as long as it lasts.
   */
  readonly type?: {
    /** Type that the values before have, or that the unit demands. */
    readonly before: TagValueType;
    /** Type of this one. */
    readonly now: TagValueType;
  };
}

export type TagValueType = "number" | "boolean";

/** Which systems have a tag, as the listings of their tags show it (`inventory.tags_of_systems`). */
export interface TagSystemsFact {
  readonly tag: Tag;
  /** By id; none once no listing shows the tag any more, its systems were removed, or it was itself. */
  readonly systems: readonly Pick<System, "id" | "code" | "displayName">[];
  /** Ids in the previous event; empty the first time. */
  readonly before: readonly string[];
}

/**
 * Later values of a tag are not comparable with earlier ones: check this before you add or compare them. A unit, name or system that
 * is stated for the first time is no break.
 */
export interface SeriesBreak {
  /** Current state. */
  readonly tag: Tag;
  /** Changed fields. */
  readonly what: readonly ("unit" | "name" | "system")[];
  /** Previous values of the changed fields; `systems` are ids. */
  readonly before: {
    /** The unit before; only where it changed. */
    readonly unit?: string;
    /** The name before; only where it changed. */
    readonly displayName?: string;
    /** The ids of its systems before; only where they changed. */
    readonly systems?: readonly string[];
  };
  /** The ids of its systems now; only where they changed. */
  readonly systems?: readonly string[];
  /** When it happened lies between: the last listing that showed it as it was, and the first as it is, UTC. */
  readonly since: {
    /** Time of the last listing with the previous state, UTC. */
    readonly lastBefore: string;
    /** Time of the first listing with the new state, UTC. */
    readonly firstAfter: string;
  };
}

/**
 * Findings about the data of one period: `never-moved`, a measured number
 * was the same at every reading; `always-null`, the gateway could not read it once; `log-differs`, the log says something
 * else than the live values of the same times; `log-clock-off`, the log's newest values lie elsewhere in time than those
 * of the other tags of the site.
 */
export const SENSOR_FINDINGS = ["never-moved", "always-null", "log-differs", "log-clock-off"] as const;
export type SensorFindingKind = (typeof SENSOR_FINDINGS)[number];

/** One for each site and period, in parts of at most 500 findings; told also where there is none. */
export interface SilentSensors {
  readonly site: Site;
  /** Begin of the period, UTC. */
  readonly from: string;
  /** End of the period, UTC. */
  readonly to: string;
  /** Hours of the period in which the worker watched: it does not know of the others. */
  readonly watchedHours: number;
  /** Tags of the site of which anything was read in it. */
  readonly tags: number;
  /** Tags that were read often enough to be judged. */
  readonly judged: number;
  /** Number of findings of each kind in all parts together. */
  readonly counts: Readonly<Record<SensorFindingKind, number>>;
  /** Number of this part of the report, from 1 on. */
  readonly part: number;
  /** Number of parts of the report. */
  readonly parts: number;
  /** Findings, one per tag. */
  readonly findings: readonly SensorFinding[];
}

export interface SensorFinding {
  /** Kind of the finding. */
  readonly finding: SensorFindingKind;
  readonly tag: Tag;
  /** For a person, one sentence. */
  readonly message: string;
  /** Live readings in the period, those without a value included. */
  readonly readings: number;
  /** `never-moved`: the value; `log-differs`: the mean of the live values. Else null. */
  readonly value: number | null;
  /** `log-differs`: the mean of the log at the same times. Else null. */
  readonly logged: number | null;
  /** `log-differs`: how many pairs of live value and logged value were compared. Else null. */
  readonly pairs: number | null;
  /** `log-clock-off`: by how much its newest value lies behind those of the others, milliseconds; negative: ahead. */
  readonly lagMs: number | null;
  /** Resolution of the compared log; null without one. */
  readonly resolution: Resolution | null;
}

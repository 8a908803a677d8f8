import type { Resolution, Site, System, Tag } from "./building.ts";

/** Which systems have a tag, as the listings of their tags show it (`inventory.tags_of_systems`). */
export interface TagSystemsFact {
  readonly tag: Tag;
  /** By id; none once no listing shows the tag any more, its systems were removed, or it was itself. */
  readonly systems: readonly Pick<System, "id" | "code" | "displayName">[];
  /** Ids as they were told last; none the first time. */
  readonly before: readonly string[];
}

/**
 * From here on the values of a tag are not those that came before: who adds them up, or compares them, looks first. A
 * unit, a name or a system that is stated for the first time takes back nothing that was said, and is no break.
 */
export interface SeriesBreak {
  /** As it is now. */
  readonly tag: Tag;
  readonly what: readonly ("unit" | "name" | "system")[];
  /** Of what changed, as it was; `systems` are ids. */
  readonly before: {
    readonly unit?: string;
    readonly displayName?: string;
    readonly systems?: readonly string[];
  };
  /** The ids of its systems now; only where they changed. */
  readonly systems?: readonly string[];
  /** When it happened lies between: the last listing that showed it as it was, and the first as it is, UTC. */
  readonly since: { readonly lastBefore: string; readonly firstAfter: string };
}

/**
 * What the worker noticed of the data themselves in one period, of what it read anyway: `never-moved`, a measured number
 * was the same at every reading; `always-null`, the gateway could not read it once; `log-differs`, the log says something
 * else than the live values of the same times; `log-clock-off`, the log's newest values lie elsewhere in time than those
 * of the other tags of the site.
 */
export const SENSOR_FINDINGS = ["never-moved", "always-null", "log-differs", "log-clock-off"] as const;
export type SensorFindingKind = (typeof SENSOR_FINDINGS)[number];

/** One for each site and period, in parts of at most 500 findings; told also where there is none. */
export interface SilentSensors {
  readonly site: Site;
  /** The period, UTC. */
  readonly from: string;
  readonly to: string;
  /** Hours of it in which the worker watched: it does not know of the others. */
  readonly watchedHours: number;
  /** Tags of the site of which anything was read in it, and those that were read often enough to be judged. */
  readonly tags: number;
  readonly judged: number;
  /** Of all parts. */
  readonly counts: Readonly<Record<SensorFindingKind, number>>;
  /** From 1 on. */
  readonly part: number;
  readonly parts: number;
  readonly findings: readonly SensorFinding[];
}

export interface SensorFinding {
  readonly finding: SensorFindingKind;
  readonly tag: Tag;
  /** For a person, one sentence. */
  readonly message: string;
  /** Live readings in the period, those without a value included. */
  readonly readings: number;
  /** `never-moved`: the value; `log-differs`: the mean of the live values. Else null. */
  readonly value: number | null;
  /** `log-differs`: the mean of the log at the same times, and how many pairs that were. Else null. */
  readonly logged: number | null;
  readonly pairs: number | null;
  /** `log-clock-off`: by how much its newest value lies behind those of the others, milliseconds; negative: ahead. */
  readonly lagMs: number | null;
  /** Of the log that was compared; null where none was. */
  readonly resolution: Resolution | null;
}

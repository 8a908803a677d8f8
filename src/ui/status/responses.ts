import type { Alarm, Tag, TagValue } from "../../core/model/building.ts";

/**
 * JSON responses of the worker to the page, one per view. Times are UTC as ISO text for people, and seconds since 1970 in plotted
 * columns (uPlot's unit). Null means unknown; an unknown number is never 0.
 */

/** Columns of one plot, all of the same length, by rising time. A null is a gap in the line, never joined over. */
export interface Columns {
  /** Seconds since 1970. */
  readonly t: readonly number[];
  /** The last value within the step; false and true are 0 and 1. */
  readonly value: readonly (number | null)[];
  /** The lowest and the highest within the step; the same arrays are left out where each step holds one value. */
  readonly low?: readonly (number | null)[];
  readonly high?: readonly (number | null)[];
}

/** GET /api/tags?source&site&search&show&sort&offset&limit (limit ≤ 200). */
export interface TagList {
  readonly total: number;
  /** Number of tags that each choice of `show` would list, among those that match source, site and search. */
  readonly counts: {
    readonly all: number;
    readonly bad: number;
    readonly stale: number;
    readonly unread: number;
  };
  readonly rows: readonly TagRow[];
}
/** show = all | bad | stale | unread; sort = name | value | age | site, with `-` in front for descending. */
export interface TagRow {
  readonly source: string;
  readonly siteId: number | null;
  readonly site: string | null;
  readonly tag: Tag;
  /** Null while it was never read. */
  readonly value: TagValue;
  readonly quality: "good" | "uncertain" | "bad" | null;
  readonly time: string | null;
  /** Older than its class promises. */
  readonly stale: boolean;
  readonly class: string | null;
}

/** GET /api/tag?source&id */
export interface TagResponse extends TagRow {
  readonly systems: readonly { readonly id: string; readonly displayName: string }[];
  readonly gatewayOffline: string | null;
  readonly lastGood: { readonly value: TagValue; readonly time: string } | null;
  /** Target interval of its class in seconds; null when it is not read. */
  readonly everySeconds: number | null;
  /** When it is read next, and in words why then; or why it is not read. */
  readonly next: { readonly at: string | null; readonly why: string };
  /** The log at the service, by resolution that is followed. */
  readonly log: readonly {
    readonly resolution: string;
    /** followed | no log | refused | not followed, in words for a person. */
    readonly state: string;
    readonly knownUntil: string | null;
    readonly holes: number;
  }[];
  /** Topics or queries of each sink that sends this tag, ready to be copied. */
  readonly places: readonly { readonly sink: string; readonly connector: string; readonly text: string }[];
  readonly alarms: readonly AlarmBrief[];
  readonly commands: readonly CommandRow[];
  /** Null where the allow-list does not name it. */
  readonly writable: {
    readonly type: "number" | "boolean";
    readonly min: number | null;
    readonly max: number | null;
    readonly step: number | null;
    /** Why nothing can be written now: rehearsal, stopped, not armed, viewer …; null where it can. */
    readonly closed: string | null;
  } | null;
}

/** GET /api/plot?source&tag&span (span = 6h | 24h | 7d | 30d), and with &fetch=1 from the service in its spare quota. */
export interface PlotResponse extends Columns {
  readonly from: string;
  readonly to: string;
  readonly unit: string | null;
  /** Seconds that one step stands for; without low and high the usual distance of two points. */
  readonly stepSeconds: number;
  /** Origin of the points: live readings, logged history, or both. */
  readonly origin: "read" | "logged" | "both" | "none";
  /** State of filling gaps from history: idle | asked (request again in a moment) | refused, with the reason. */
  readonly history: { readonly state: "idle" | "asked" | "refused" | "off"; readonly why: string | null };
}

export interface AlarmBrief {
  readonly source: string;
  readonly id: string;
  readonly episode: string;
  readonly name: string;
  readonly site: string;
  readonly priority: string;
  readonly state: string;
  readonly raisedAt: string;
  readonly endedAt: string | null;
}

/** GET /api/alarm?source&id&episode (episode left out: the latest that is known) */
export interface AlarmResponse {
  readonly brief: AlarmBrief;
  readonly alarm: Alarm;
  /** raised, acknowledged, recovering, resolved, vanished, out of scope, changed …, by rising time. */
  readonly life: readonly { readonly at: string; readonly what: string; readonly words: string }[];
  /** The one tag that it names; null where none or several have the name. */
  readonly tag: { readonly source: string; readonly id: string; readonly displayName: string } | null;
  /** Delivery state per sink. */
  readonly sinks: readonly {
    readonly sink: string;
    readonly connector: string | null;
    /** delivered | waiting | dead letter | not for this sink | unknown (the log no longer has it) */
    readonly state: string;
    readonly words: string;
    readonly link: string | null;
  }[];
  readonly episodes: readonly AlarmBrief[];
}

/** GET /api/site?source&id */
export interface SiteResponse {
  readonly source: string;
  readonly id: number;
  readonly displayName: string;
  readonly alarms: readonly AlarmBrief[];
  readonly gateways: readonly {
    readonly id: string;
    readonly displayName: string;
    readonly online: boolean | null;
  }[];
  readonly systems: readonly {
    readonly id: string;
    readonly displayName: string;
    /** Null when tags of systems are not read (`inventory.tags_of_systems`) and the service states no number. */
    readonly tags: number | null;
  }[];
  readonly tags: TagList["counts"];
  /** Alarms that were raised, by UTC day of the last 30. */
  readonly raised: DayBars;
}

export interface DayBars {
  /** YYYY-MM-DD, rising, without holes. */
  readonly days: readonly string[];
  readonly byPriority: Readonly<Record<string, readonly number[]>>;
}

/** GET /api/alarm-days?source&site: alarms over the last 30 days. */
export type AlarmDays = DayBars;

/** GET /api/sink?name */
export interface SinkResponse {
  readonly sink: string;
  readonly connector: string | null;
  readonly state: string;
  readonly problem: string | null;
  /** Events that it has still to get, of those that its filter lets through; every minute of the last 24 hours. */
  readonly lag: Columns;
  /** Events a minute that it accepted. */
  readonly rate: Columns;
  readonly dead: readonly {
    readonly id: string;
    readonly type: string;
    readonly at: string;
    readonly reason: string;
    readonly gist: string;
  }[];
  readonly deadTotal: number;
}
/** POST /api/sink/retry {name, ids?: string[]}: sends its dead letters again. → {again: number} */

/** GET /api/source?name */
export interface SourceResponse {
  readonly source: string;
  /** Requests per minute of the last 24 hours by lane, to be stacked; all have the same `t`. */
  readonly t: readonly number[];
  readonly lanes: Readonly<Record<"write" | "on-demand" | "live" | "history" | "spare", readonly (number | null)[]>>;
  readonly allowed: number;
  /** Rejections and failures of the service, newest first, at most 50. */
  readonly refused: readonly { readonly at: string; readonly what: string; readonly words: string }[];
}

/** GET /api/commands?tag&limit */
export interface CommandRow {
  readonly id: string;
  readonly tagId: string | null;
  readonly source: string | null;
  readonly tag: string | null;
  readonly requested: TagValue;
  readonly by: string;
  readonly at: string;
  /** accepted, sending, confirmed, mismatch, rejected, expired, unknown … */
  readonly state: string;
  readonly words: string;
}
/** POST /api/write {source, tag, value, expect?}: through the gate as `plenum write` goes. → {id} or {message} with 4xx */

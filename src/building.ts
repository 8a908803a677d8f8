/**
 * The nouns of the monitored buildings, as Plenum speaks of them.
 *
 * The source room turns the service's JSON into these; everything above it knows only these.
 * Times are ISO 8601 strings. A time that the service gave with an offset is held in UTC with a trailing `Z`;
 * one that came without an offset is held exactly as given, so a missing `Z` says "offset unknown" and nobody guesses.
 */

/** A building, or a group of buildings, as the service scopes tokens. */
export interface Site {
  readonly id: number;
  readonly displayName: string;
}

/** Alarm priority as the service states it: A (highest), B or C; an unknown letter is kept as it came. */
export type Priority = string;

export interface AlarmTrigger {
  readonly id: number;
  readonly displayName: string;
  readonly description: string | null;
  readonly priority: Priority;
  readonly enabled: boolean;
}

/** The latest event that kept an alarm active. */
export interface AlarmActivity {
  readonly id: number;
  readonly source: string;
  readonly type: string;
  readonly triggeredOn: string;
  readonly value: number | null;
  readonly textlistValue: string | null;
  readonly triggeredAt: string;
}

export interface Alarm {
  readonly id: string;
  readonly site: Site;
  readonly trigger: AlarmTrigger;
  /** `active` and `resolved` are the words the interface names; any other is kept and never read as resolved. */
  readonly status: string;
  readonly source: string;
  readonly description: string;
  readonly triggeredAt: string;
  /** `triggeredAt` as the service wrote it, offset and all. */
  readonly triggeredAtRaw: string;
  readonly resolvedAt: string | null;
  readonly resolvedAtRaw: string | null;
  readonly recoveringUntil: string | null;
  readonly acknowledged: boolean;
  readonly acknowledgedBy: string | null;
  readonly acknowledgedMessage: string | null;
  readonly acknowledgedAt: string | null;
  readonly lastActiveEvent: AlarmActivity | null;
}

/** A data point. `unit` and `description` are null where the building's engineers left them out. */
export interface Tag {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | null;
  readonly unit: string | null;
}

export type TagScalar = number | boolean;

/** `null` means that the gateway could not read the device (interface, GET tags/read); it is never 0. */
export type TagValue = TagScalar | null;

/** A tag with the value that one read or write answered. */
export interface TagReading extends Tag {
  readonly value: TagValue;
}

/** Interval for grouping or sampling of history (interface, GET tags/history). */
export const RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type Resolution = (typeof RESOLUTIONS)[number];

const HOUR_MS = 3_600_000;

/** Usual length of a bucket, milliseconds; for expected numbers of values, never for boundaries. */
export const BUCKET_MS: Readonly<Record<Resolution, number>> = {
  "5m": HOUR_MS / 12,
  "1h": HOUR_MS,
  "1d": 24 * HOUR_MS,
  "1w": 7 * 24 * HOUR_MS,
  "1mo": 30 * 24 * HOUR_MS,
};

/** One bucket of a logged series; `time` is the service's own stamp, UTC, and is the key of the bucket. */
export interface Measurement {
  readonly time: string;
  readonly value: TagValue;
}

/** A list, or columns that hold the same (src/points.ts), because a reply may have a quarter of a million. */
export interface TagLog extends Tag {
  readonly measurements: Iterable<Measurement>;
}

/** Last minus first over a period (interface, `scalar=1`); negative after a meter was reset, null when unknown. */
export interface TagTotal extends Tag {
  readonly total: number | null;
}

export interface Gateway {
  readonly id: string;
  readonly displayName: string;
  /** Null where the record does not say: then it is neither online nor offline. */
  readonly online: boolean | null;
  readonly version: string | null;
  readonly hardware: string | null;
  readonly ipAddress: string | null;
  readonly location: string | null;
}

export interface Host {
  readonly id: string;
  readonly displayName: string;
  readonly description: string | null;
  readonly type: string | null;
  readonly modelName: string | null;
  readonly ip: string | null;
  readonly macAddress: string | null;
  readonly gateway: { readonly id: number; readonly displayName: string } | null;
}

/** A technical system of the building (FDV documentation): heating, main distribution, room automation … */
export interface System {
  readonly id: string;
  readonly code: string;
  readonly displayName: string;
  readonly discipline: string | null;
  readonly description: string | null;
  readonly location: string | null;
  readonly manufacturer: string | null;
  readonly installedYear: number | null;
  readonly maintenanceNotes: string | null;
  readonly datapointsCount: number | null;
}

/** What the service says about the token that asks (GET me). */
export interface TokenInfo {
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly name: string;
  readonly abilities: readonly string[];
  /** UTC; null where the service states no expiry. */
  readonly expiresAt: string | null;
  readonly sites: readonly Site[];
}

export interface Health {
  readonly status: string;
  readonly time: string | null;
}

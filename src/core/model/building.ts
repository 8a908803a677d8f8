/**
 * Objects of the monitored buildings.
 *
 * The source package parses the service's JSON into these types; all other code uses only these.
 * Times are ISO 8601 strings. A time that the service stated with an offset is stored in UTC with a trailing `Z`;
 * a time without an offset stays as received, so a missing `Z` means "offset unknown".
 */

/** A building, or a group of buildings, as the service scopes tokens. */
export interface Site {
  /** The service's number of the site. */
  readonly id: number;
  /** Name of the site, as the service shows it. */
  readonly displayName: string;
}

/** Alarm priority as the service states it: A (highest), B or C; an unknown letter is kept as it came. */
export type AlarmPriority = string;

/** The rule at the service that raises an alarm. */
export interface AlarmTrigger {
  /** The service's number of the trigger. */
  readonly id: number;
  /** Name of the trigger; mostly what people call the alarm. */
  readonly displayName: string;
  /** Description of the watched condition; null when the record has none. */
  readonly description: string | null;
  /** A (highest), B or C; any other letter is kept as it came. */
  readonly priority: AlarmPriority;
  /** True when the trigger is switched on at the service. */
  readonly enabled: boolean;
}

/** The latest event that kept an alarm active. */
export interface AlarmActivity {
  /** The service's number of that event. */
  readonly id: number;
  /** Object that raised it, as the service names it; usually a tag's name. */
  readonly source: string;
  /** Type of the event, as the service names it. */
  readonly type: string;
  /** Field or tag that triggered it, as the service names it. */
  readonly triggeredOn: string;
  /** The number that triggered it; null where it was none. */
  readonly value: number | null;
  /** The text that triggered it; null where it was none. */
  readonly textlistValue: string | null;
  /** Time of the event; UTC when the service stated an offset. */
  readonly triggeredAt: string;
}

/** An alarm, as the service shows it. */
export interface Alarm {
  /** The service's number of the alarm, as text. It stays over several episodes. */
  readonly id: string;
  /** Site of the alarm. */
  readonly site: Site;
  /** The rule that raised it. */
  readonly trigger: AlarmTrigger;
  /** `active` and `resolved` are the words the interface names; any other is kept and never read as resolved. */
  readonly status: string;
  /** Object that raised it, as the service names it; usually a tag's name. */
  readonly source: string;
  /** The service's description of the problem. */
  readonly description: string;
  /** Start of this episode; UTC when the service stated an offset. */
  readonly triggeredAt: string;
  /** `triggeredAt` as the service wrote it, offset and all. */
  readonly triggeredAtRaw: string;
  /** Time of the end as the service states it; null while it states none. */
  readonly resolvedAt: string | null;
  /** `resolvedAt` as the service wrote it. */
  readonly resolvedAtRaw: string | null;
  /** Time until which the service waits before it ends the alarm; null while it does not wait. */
  readonly recoveringUntil: string | null;
  /** True when a person acknowledged it at the service. */
  readonly acknowledged: boolean;
  /** Name of that person; null when it is not acknowledged or the service states no name. */
  readonly acknowledgedBy: string | null;
  /** Text of the acknowledgement; null when it is empty. */
  readonly acknowledgedMessage: string | null;
  /** Time of the acknowledgement; UTC when the service stated an offset; null like `acknowledgedBy`. */
  readonly acknowledgedAt: string | null;
  /** The latest event that kept it active; null where the record has none. */
  readonly lastActiveEvent: AlarmActivity | null;
}

/** Names of a tag from the names file (`sources[].names`). A name is absent when the file states none. */
export interface TagNames {
  /** Readable name for other systems, such as `Supply air temperature`. */
  readonly alias?: string;
  /** Place of the tag in other systems: levels separated by `/`, such as `b1/432.001/OE001_Energi`. */
  readonly path?: string;
  /** Code of the unit in other systems, such as the UCUM code `Cel`. */
  readonly unitCode?: string;
}

/** A data point. `unit` and `description` are null where the building's engineers left them out. */
export interface Tag extends TagNames {
  /** The service's number of the tag, as text: the key in every system. */
  readonly id: string;
  /** Name of the tag, as the engineers wrote it; not always unique in a site. */
  readonly displayName: string;
  /** Description; null when it is empty. */
  readonly description: string | null;
  /** The unit as the service writes it, such as `°C`; null where there is none. */
  readonly unit: string | null;
}

export type TagScalar = number | boolean;

/** `null` means that the gateway could not read the device (interface, GET tags/read); it is never 0. */
export type TagValue = TagScalar | null;

export interface TagReading extends Tag {
  readonly value: TagValue;
}

export const RESOLUTIONS = ["5m", "1h", "1d", "1w", "1mo"] as const;
export type Resolution = (typeof RESOLUTIONS)[number];

const HOUR_MS = 3_600_000;

/** Usual length of a bucket in milliseconds, for estimates only, because days and months vary in length. */
export const BUCKET_MS: Readonly<Record<Resolution, number>> = {
  "5m": HOUR_MS / 12,
  "1h": HOUR_MS,
  "1d": 24 * HOUR_MS,
  "1w": 7 * 24 * HOUR_MS,
  "1mo": 30 * 24 * HOUR_MS,
};

/** Bucket of a logged series. `time` is the service's own stamp in UTC and the key of the bucket. */
export interface Measurement {
  /** Begin of the bucket, as the service stamps it, UTC. */
  readonly time: string;
  /** Number or boolean; null: the bucket has no value. */
  readonly value: TagValue;
}

/** Measurements of a response, up to 250,000: a list, or columns (src/core/codec/points.ts). */
export interface TagLog extends Tag {
  readonly measurements: Iterable<Measurement>;
  /** Absent if every measurement could be read. */
  readonly unreadable?: UnreadableTagLog;
}

/** Measurements in a response that could not be parsed, in contrast to null and missing measurements. */
export interface UnreadableTagLog {
  /** Times of the unreadable measurements, milliseconds since 1970; null when the complete log is unreadable. */
  readonly timesMs: readonly number[] | null;
  /** Message with the service's own words. */
  readonly said: string;
}

/** Last minus first over a period (interface, `scalar=1`); negative after a meter was reset, null when unknown. */
export interface TagTotal extends Tag {
  readonly total: number | null;
  /** Message with the service's own words when the returned total could not be read; `total` is null then. */
  readonly unreadable?: string;
}

/** A device in the building through which the service reaches the others. */
export interface Gateway {
  /** The service's number of the gateway, as text. */
  readonly id: string;
  /** Name of the gateway. */
  readonly displayName: string;
  /** Connection state; null when the record does not state one. */
  readonly online: boolean | null;
  /** Version of the gateway's software. */
  readonly version: string | null;
  /** Model of the gateway. */
  readonly hardware: string | null;
  /** IP address in the building's network. */
  readonly ipAddress: string | null;
  /** Location, as the engineers entered it. */
  readonly location: string | null;
}

/** A device behind a gateway: a controller, a meter … */
export interface Host {
  /** The service's number of the host, as text. */
  readonly id: string;
  /** Name of the host. */
  readonly displayName: string;
  /** Description; null when it is empty. */
  readonly description: string | null;
  /** Protocol, such as `modbus`. */
  readonly type: string | null;
  /** Model of the host. */
  readonly modelName: string | null;
  /** IP address in the building's network. */
  readonly ip: string | null;
  /** Hardware (MAC) address of the host. */
  readonly macAddress: string | null;
  /** Gateway that connects it; null when unknown. */
  readonly gateway: {
    /** The service's number of the gateway. */
    readonly id: number;
    /** Name of the gateway. */
    readonly displayName: string;
  } | null;
}

/** A technical system of the building (FDV documentation): heating, main distribution, room automation … */
export interface System {
  /** The service's number of the system, as text. */
  readonly id: string;
  /** Code of the system in the building's scheme, such as `360.001`. */
  readonly code: string;
  /** Name of the system. */
  readonly displayName: string;
  /** The trade, such as ventilation. */
  readonly discipline: string | null;
  /** Description; null when it is empty. */
  readonly description: string | null;
  /** Location, as the engineers entered it. */
  readonly location: string | null;
  /** Manufacturer. */
  readonly manufacturer: string | null;
  /** Year of installation. */
  readonly installedYear: number | null;
  /** Maintenance notes, as the engineers entered them. */
  readonly maintenanceNotes: string | null;
  /** Number of the system's tags, as the service counts them. */
  readonly datapointsCount: number | null;
}

export interface TokenInfo {
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly name: string;
  /** Abilities of the token, such as `read:tags`; for `*`, all that the interface names. */
  readonly abilities: readonly string[];
  /** Time at which the token expires, UTC; null if the service states none. */
  readonly expiresAt: string | null;
  readonly sites: readonly Site[];
}

export interface ServiceHealth {
  readonly status: string;
  readonly time: string | null;
}

/**
 * Objects of the monitored buildings.
 *
 * The source package parses the service's JSON into these types; all other code uses only these.
 * Times are ISO 8601 strings. A time that the service stated with an offset is stored in UTC with a trailing `Z`;
 * a time without an offset stays as received, so a missing `Z` means "offset unknown".
 */

/** A building or a group of buildings; a token of the service may be limited to some sites. */
export interface Site {
  /** The service's number of the site. */
  readonly id: number;
  /** Name of the site, as the service shows it. */
  readonly displayName: string;
}

/** Alarm priority of the service: A (highest), B or C; an unknown letter is kept. */
export type AlarmPriority = string;

/** The rule at the service that raises an alarm. */
export interface AlarmTrigger {
  /** The service's number of the trigger. */
  readonly id: number;
  /** Name of the trigger; people usually use it as the name of the alarm. */
  readonly displayName: string;
  /** Description of the condition that raises the alarm; null without a description. */
  readonly description: string | null;
  /** Alarm priority: A (highest), B or C; an unknown letter is kept. */
  readonly priority: AlarmPriority;
  /** True when the trigger is switched on at the service. */
  readonly enabled: boolean;
}

/** The latest event that kept an alarm active. */
export interface AlarmActivity {
  /** The service's number of the event. */
  readonly id: number;
  /** The service's name of the object that raised the event; usually a tag's name. */
  readonly source: string;
  /** The service's name of the event's type. */
  readonly type: string;
  /** The service's name of the field or tag that triggered the event. */
  readonly triggeredOn: string;
  /** The number that triggered the event; null if no number did. */
  readonly value: number | null;
  /** The text that triggered the event; null if no text did. */
  readonly textlistValue: string | null;
  /** Time of the event; in UTC if the service stated an offset. */
  readonly triggeredAt: string;
}

/** An alarm, as the service shows it. */
export interface Alarm {
  /** The service's number of the alarm, as text. All episodes of an alarm have the same number. */
  readonly id: string;
  /** Site of the alarm. */
  readonly site: Site;
  /** The rule that raised the alarm. */
  readonly trigger: AlarmTrigger;
  /** `active`, `resolved`, or another word of the service, which never counts as resolved. */
  readonly status: string;
  /** The service's name of the object that raised the alarm; usually a tag's name. */
  readonly source: string;
  /** The service's description of the problem. */
  readonly description: string;
  /** Start of the alarm's current episode; in UTC if the service stated an offset. */
  readonly triggeredAt: string;
  /** `triggeredAt` in the service's own text, including the offset. */
  readonly triggeredAtRaw: string;
  /** End of the episode; null while the service states no end. */
  readonly resolvedAt: string | null;
  /** `resolvedAt` in the service's own text. */
  readonly resolvedAtRaw: string | null;
  /** Time until which the service waits before ending the alarm; null while the service does not wait. */
  readonly recoveringUntil: string | null;
  /** True when a person acknowledged the alarm at the service. */
  readonly acknowledged: boolean;
  /** Name of the person who acknowledged the alarm; null without an acknowledgement or a name. */
  readonly acknowledgedBy: string | null;
  /** Text of the acknowledgement; null when it is empty. */
  readonly acknowledgedMessage: string | null;
  /** Time of the acknowledgement, in UTC if the service stated an offset; null without an acknowledgement or a time. */
  readonly acknowledgedAt: string | null;
  /** The latest event that kept the alarm active; null if the service states none. */
  readonly lastActiveEvent: AlarmActivity | null;
}

/** Names of a tag from the names file (`sources[].names`). A name is absent when the file states none. */
export interface TagNames {
  /** Readable name for other systems, such as `Supply air temperature`. */
  readonly alias?: string;
  /** Location of the tag in other systems: levels separated by `/`, such as `b1/432.001/OE001_Energi`. */
  readonly path?: string;
  /** Code of the unit in other systems, such as the UCUM code `Cel`. */
  readonly unitCode?: string;
}

/** A data point of a building, e.g. a sensor. `unit` and `description` are null if the engineers left them empty. */
export interface Tag extends TagNames {
  /** The service's number of the tag, as text: every receiver identifies the tag by this number. */
  readonly id: string;
  /** Name of the tag, as the engineers wrote it; not always unique in a site. */
  readonly displayName: string;
  /** Description of the tag; null when empty. */
  readonly description: string | null;
  /** The unit in the service's spelling, such as `°C`; null without a unit. */
  readonly unit: string | null;
}

export type TagScalar = number | boolean;

/** Value of a tag; null, never 0, if the gateway could not read the device (interface specification, GET tags/read). */
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

/** Bucket of a tag's history: one value for a time span such as 5 minutes. `time` identifies the bucket. */
export interface Measurement {
  /** Start of the bucket, as the service states it, UTC. */
  readonly time: string;
  /** Number or boolean; null if the bucket has no value. */
  readonly value: TagValue;
}

/** A tag's history in one response: up to 250,000 values, as objects or in columns (src/core/codec/points.ts). */
export interface TagLog extends Tag {
  readonly measurements: Iterable<Measurement>;
  /** Absent if every measurement could be read. */
  readonly unreadable?: UnreadableTagLog;
}

/** Measurements in a response that could not be parsed, in contrast to null and missing measurements. */
export interface UnreadableTagLog {
  /** Times of the unreadable measurements, milliseconds since 1970; null if all are unreadable. */
  readonly timesMs: readonly number[] | null;
  /** Message with the service's own words. */
  readonly said: string;
}

/** Last minus first value of a meter in a period (parameter `scalar=1`); negative after a reset, null when unknown. */
export interface TagTotal extends Tag {
  readonly total: number | null;
  /** Message with the service's own words when the returned total could not be read; `total` is null then. */
  readonly unreadable?: string;
}

/** A device in the building through which the service reaches the building's other devices. */
export interface Gateway {
  /** The service's number of the gateway, as text. */
  readonly id: string;
  /** Name of the gateway. */
  readonly displayName: string;
  /** True while the service reaches the gateway; null when the service does not state the connection. */
  readonly online: boolean | null;
  /** Version of the gateway's software. */
  readonly version: string | null;
  /** Model of the gateway. */
  readonly hardware: string | null;
  /** IP address in the building's network. */
  readonly ipAddress: string | null;
  /** Location of the gateway, as the building's engineers entered it. */
  readonly location: string | null;
}

/** A device behind a gateway, e.g. a controller or a meter. */
export interface Host {
  /** The service's number of the host, as text. */
  readonly id: string;
  /** Name of the host. */
  readonly displayName: string;
  /** Description of the host; null when empty. */
  readonly description: string | null;
  /** Protocol, such as `modbus`. */
  readonly type: string | null;
  /** Model of the host. */
  readonly modelName: string | null;
  /** IP address in the building's network. */
  readonly ip: string | null;
  /** Hardware (MAC) address of the host. */
  readonly macAddress: string | null;
  /** Gateway that connects the host; null when unknown. */
  readonly gateway: {
    /** The service's number of the gateway. */
    readonly id: number;
    /** Name of the gateway. */
    readonly displayName: string;
  } | null;
}

/** A technical system of the building, e.g. heating, electrical distribution or room automation. */
export interface System {
  /** The service's number of the system, as text. */
  readonly id: string;
  /** Code of the system in the building's scheme, such as `360.001`. */
  readonly code: string;
  /** Name of the system. */
  readonly displayName: string;
  /** Technical trade of the system, such as ventilation. */
  readonly discipline: string | null;
  /** Description of the system; null when empty. */
  readonly description: string | null;
  /** Location of the system, as the building's engineers entered it. */
  readonly location: string | null;
  /** Manufacturer. */
  readonly manufacturer: string | null;
  /** Year of installation. */
  readonly installedYear: number | null;
  /** Maintenance notes of the building's engineers. */
  readonly maintenanceNotes: string | null;
  /** Number of the system's tags, as counted by the service. */
  readonly datapointsCount: number | null;
}

export interface TokenInfo {
  readonly user: { readonly id: number; readonly name: string; readonly email: string };
  readonly name: string;
  /** Permissions of the token, such as `read:tags`; a token with `*` has all permissions. */
  readonly abilities: readonly string[];
  /** Time at which the token expires, UTC; null if the service states none. */
  readonly expiresAt: string | null;
  readonly sites: readonly Site[];
}

export interface ServiceHealth {
  readonly status: string;
  readonly time: string | null;
}

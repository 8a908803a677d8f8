import { hash } from "node:crypto";
import type { Alarm, Gateway, Host, Priority, Site, System, Tag, TagValue } from "./building.ts";
import type {
  DaySealedFact,
  SeriesCompleteFact,
  SiteCompleteFact,
  TagHistoryFact,
  TagTotalFact,
} from "./history-facts.ts";
import type { SilenceFact } from "./silence-facts.ts";
import type { SeriesBreak, SilentSensors, TagSystemsFact } from "./tag-facts.ts";

/**
 * The event vocabulary: what Plenum tells, as facts in the past tense.
 *
 * An event leaves in a CloudEvents 1.0 envelope. Its id is derived from the source's own facts (site, object,
 * episode, kind), so the same fact has the same id after a restart, after a lost state file, on every retry.
 */
export interface EventData {
  "site-added": { readonly site: Site };
  "site-changed": Changed<{ readonly site: Site }>;
  "site-removed": { readonly site: Site };
  "gateway-added": { readonly gateway: Gateway };
  "gateway-changed": Changed<{ readonly gateway: Gateway }>;
  "gateway-removed": { readonly gateway: Gateway };
  "gateway-online": GatewayFact;
  "gateway-offline": GatewayFact;
  "host-added": { readonly host: Host };
  "host-changed": Changed<{ readonly host: Host }>;
  "host-removed": { readonly host: Host };
  "system-added": { readonly system: System };
  "system-changed": Changed<{ readonly system: System }>;
  "system-removed": { readonly system: System };
  "tag-added": { readonly tag: Tag };
  "tag-changed": Changed<{ readonly tag: Tag }>;
  "tag-removed": { readonly tag: Tag };
  "tag-systems-changed": TagSystemsFact;
  "series-break": SeriesBreak;

  "alarm-raised": AlarmFact & { readonly initial: boolean };
  "alarm-resolved": AlarmFact;
  "alarm-acknowledged": AlarmFact;
  "alarm-unacknowledged": AlarmFact;
  "alarm-recovering": AlarmFact;
  "alarm-retriggered": AlarmFact;
  "alarm-changed": Changed<AlarmFact>;
  "alarm-vanished": AlarmFact;
  "alarm-out-of-scope": AlarmFact;

  "tag-value": TagValueFact;
  "tag-history": TagHistoryFact;
  "tag-total": TagTotalFact;
  "history-complete": SeriesCompleteFact | SiteCompleteFact;
  "day-sealed": DaySealedFact;

  "command-accepted": CommandAccepted;
  "command-result": CommandResult;
  "command-not-restored": CommandNotRestored;
  "audit-head": AuditHead;

  "silent-sensors": SilentSensors;
  "silence-started": SilenceFact;
  "silence-ended": SilenceFact;

  "token-expiring": { readonly expiresAt: string; readonly daysLeft: number };
  "source-unavailable": { readonly reason: string; readonly since: string };
  "source-available": { readonly unavailableSince: string };
  "delivery-gap": DeliveryGap;
}

export type Kind = keyof EventData;

type Changed<T> = T & {
  /** Names of the fields that differ, with the value before. */
  readonly before: Readonly<Record<string, unknown>>;
};

export interface GatewayFact {
  readonly gateway: Gateway;
  /** What hangs on it, so that a receiver can fold the trouble that follows; empty when that is not known. */
  readonly hosts: readonly { readonly id: string; readonly displayName: string }[];
  /** True when the site has no other gateway, so that every tag of the site is behind this one. */
  readonly wholeSite: boolean;
}

export interface AlarmFact {
  readonly alarm: Alarm;
  /** Alarm id plus trigger time: one episode is one raise and one end. */
  readonly episode: string;
  /** True when the event was found after the fact, by the sweep over resolved alarms. */
  readonly late: boolean;
  /** The gateway that was offline at that moment, where one explains the alarm. */
  readonly behindGateway: string | null;
  /** Where people find the alarm at the receivers, as far as it was told there when this happened; absent where nowhere. */
  readonly tickets?: readonly {
    readonly sink: string;
    readonly ticket: string | null;
    readonly link: string | null;
  }[];
}

/**
 * `bad`: the gateway could not read it (value null). `uncertain`: our own clock is in doubt, or the value is of another
 * type than the one before.
 */
export type Quality = "good" | "uncertain" | "bad";

export interface TagValueFact {
  readonly tag: Tag;
  readonly value: TagValue;
  readonly quality: Quality;
  /** When the reply arrived, UTC; the service states no time of its own for a read. */
  readonly time: string;
  /** Milliseconds between sending the request and having the reply: how vague `time` is. */
  readonly latencyMs: number;
  /** The last value that was not null, and its time; null when there never was one. */
  readonly lastGood: { readonly value: TagValue; readonly time: string } | null;
  readonly behindGateway: string | null;
  /** Only where a number follows a boolean or the reverse: for one reading; a second of the new type settles it. */
  readonly type?: { readonly before: ValueType; readonly now: ValueType };
}

export type ValueType = "number" | "boolean";

/** A command passed the gate and is in the journal; its one `command-result` follows. */
export interface CommandAccepted {
  readonly commandId: string;
  readonly tagId: string;
  readonly requested: TagValue;
  /** How long the quota will make it wait at most, in milliseconds, as it looked then. */
  readonly waitMs: number;
  /** After this time it is not sent any more, UTC. */
  readonly expiresAt: string;
  /** After this time the old value is put back, in milliseconds; null for a write that stays. */
  readonly forMs: number | null;
  /** True when it leaves only after a second person has agreed to it, before `expiresAt`. */
  readonly needsSecond: boolean;
  /** As in the result. */
  readonly correlation: string | null;
  readonly replyTo: string | null;
}

export const COMMAND_OUTCOMES = [
  "confirmed",
  "accepted-unverified",
  "mismatch",
  "rejected",
  "expired",
  "superseded",
  "duplicate",
  "unknown",
] as const;
export type CommandOutcome = (typeof COMMAND_OUTCOMES)[number];

export interface CommandResult {
  readonly commandId: string;
  readonly tagId: string | null;
  readonly outcome: CommandOutcome;
  /** Machine-readable reason, e.g. `out-of-range`; null when confirmed. */
  readonly reason: string | null;
  /** The same for a person. */
  readonly message: string;
  readonly requested: TagValue;
  readonly before: TagValue;
  readonly readBack: TagValue;
  /** True in rehearsal mode: everything but the write was done. */
  readonly rehearsal: boolean;
  /** Opaque text of the requester (MQTT 5 correlation data, base64), echoed. */
  readonly correlation: string | null;
  /** Where the requester wants its answer besides the ordinary result topic (MQTT 5 response topic). */
  readonly replyTo: string | null;
}

/**
 * How far the audit log reaches, told with each write and once an hour. Whoever keeps one finds out whether the log was
 * emptied, cut or written anew: `plenum audit verify --expect <records>:<head>`.
 */
export interface AuditHead {
  readonly records: number;
  /** Hash of the last record, in which those of all before it have their part: SHA-256, hexadecimal. */
  readonly head: string;
}

/** A value that was written for a time is still in force, because the old one could not be put back. */
export interface CommandNotRestored {
  /** The command that wrote the value for a time. */
  readonly commandId: string;
  readonly tagId: string;
  /** What the tag holds as far as is known; null when nobody knows. */
  readonly inForce: TagValue;
  /** When it was written, UTC. */
  readonly since: string;
  /** The old value, which should hold again since `dueAt`. */
  readonly wanted: TagValue;
  readonly dueAt: string;
  /** Machine-readable reason of the last try, as in a `command-result`. */
  readonly reason: string;
  /** The same for a person. */
  readonly message: string;
}

export interface DeliveryGap {
  readonly sink: string;
  readonly reason: "age" | "size";
  readonly firstTime: string;
  readonly lastTime: string;
  readonly count: number;
}

export interface Event<K extends Kind = Kind> {
  readonly id: string;
  /** Where it comes from: `/sources/<name>` for a monitored service, `/plenum` for the worker itself. */
  readonly source: string;
  readonly type: K;
  /** What it is about, e.g. `site/1/alarm/500001`; together with `source` the key that keeps its order. */
  readonly subject: string;
  /** When it happened by the service's own word, otherwise when it was seen; ISO 8601 UTC. */
  readonly time: string;
  /** CloudEvents extension attribute: the site's id as text; absent for facts about no single site. */
  readonly siteid?: string;
  /** CloudEvents extension attribute: alarm priority; only on alarm events. */
  readonly priority?: Priority;
  /**
   * CloudEvents extension attribute: nothing happened; it tells one sink what is believed already (`from: state`,
   * `plenum outbox snapshot`), in the words of an event.
   */
  readonly snapshot?: true;
  readonly data: EventData[K];
}

/** An event of any one kind, so that a check of `type` narrows `data`. */
export type AnyEvent = { [K in Kind]: Event<K> }[Kind];

/** Every kind, for filters, topics and documentation; the compiler checks that none is missing. */
export const KINDS = Object.keys({
  "site-added": 1,
  "site-changed": 1,
  "site-removed": 1,
  "gateway-added": 1,
  "gateway-changed": 1,
  "gateway-removed": 1,
  "gateway-online": 1,
  "gateway-offline": 1,
  "host-added": 1,
  "host-changed": 1,
  "host-removed": 1,
  "system-added": 1,
  "system-changed": 1,
  "system-removed": 1,
  "tag-added": 1,
  "tag-changed": 1,
  "tag-removed": 1,
  "tag-systems-changed": 1,
  "series-break": 1,
  "alarm-raised": 1,
  "alarm-resolved": 1,
  "alarm-acknowledged": 1,
  "alarm-unacknowledged": 1,
  "alarm-recovering": 1,
  "alarm-retriggered": 1,
  "alarm-changed": 1,
  "alarm-vanished": 1,
  "alarm-out-of-scope": 1,
  "tag-value": 1,
  "tag-history": 1,
  "tag-total": 1,
  "history-complete": 1,
  "day-sealed": 1,
  "command-accepted": 1,
  "command-result": 1,
  "command-not-restored": 1,
  "audit-head": 1,
  "silent-sensors": 1,
  "silence-started": 1,
  "silence-ended": 1,
  "token-expiring": 1,
  "source-unavailable": 1,
  "source-available": 1,
  "delivery-gap": 1,
} satisfies Record<Kind, 1>) as readonly Kind[];

/** Telemetry is dropped before facts when the outbox must shrink: a value comes again, an alarm does not. */
export function isTelemetry(kind: Kind): boolean {
  return kind === "tag-value" || kind === "tag-history" || kind === "tag-total";
}

/** The key within which order is kept. */
export function orderKey(event: Pick<Event, "source" | "subject">): string {
  return `${event.source} ${event.subject}`;
}

/**
 * A deterministic id: the kind, then 128 bits of SHA-256 over the kind and the facts, as base64url.
 * Safe in headers, topics and file names.
 */
export function eventId(kind: Kind, source: string, ...facts: readonly (string | number | null)[]): string {
  return `${kind}.${hashOf(16, kind, source, ...facts)}`;
}

/** So many bytes of SHA-256, as base64url. */
function hashOf(bytes: number, ...facts: readonly (string | number | null)[]): string {
  return hash("sha256", JSON.stringify(facts), "buffer").subarray(0, bytes).toString("base64url");
}

/**
 * The id of a value: the kind, its time in milliseconds as nine characters to the base of 36, then 96 bits of SHA-256
 * over the tag and the facts. Values are nearly all there is, and ids that rise lie next to each other in the index of
 * the log: of random ones each touches a page of its own, and a card that is written wears out twice as fast. The time
 * stands in the id once, so the hash is the same for all values of a tag, and a column of ids costs a lake 2 bytes a
 * value instead of 13.
 */
function valueId(source: string, time: string, ...facts: readonly (string | number | null)[]): string {
  const rising = Date.parse(time).toString(36).padStart(9, "0");
  return `tag-value.${rising}${hashOf(12, "tag-value", source, ...facts)}`;
}

/** Builds an event; `facts` are what makes it this event and no other, besides kind, source, subject and, of a live value, its time. */
export function makeEvent<K extends Kind>(fields: {
  readonly type: K;
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  readonly siteId?: number | string | null;
  readonly priority?: Priority;
  readonly data: EventData[K];
  readonly facts: readonly (string | number | null)[];
}): Event<K> {
  const { type, source, subject, time, facts } = fields;
  return {
    id:
      type === "tag-value"
        ? valueId(source, time, subject, ...facts)
        : eventId(type, source, subject, ...facts),
    source,
    type,
    subject,
    time,
    ...(fields.siteId === undefined || fields.siteId === null ? {} : { siteid: String(fields.siteId) }),
    ...(fields.priority === undefined ? {} : { priority: fields.priority }),
    data: fields.data,
  };
}

/** The event as a CloudEvents 1.0 JSON object (structured mode), with further attributes. */
export function toCloudEvent(event: Event, further: object = {}): Record<string, unknown> {
  const { data, ...attributes } = event;
  return { specversion: "1.0", ...attributes, ...further, datacontenttype: "application/json", data };
}

/** How events name a configured source. */
export function sourceUri(name: string): string {
  return `/sources/${name}`;
}

/** The configured source that an event comes from; null for the worker itself. */
export function sourceName({ source }: Pick<Event, "source">): string | null {
  const [, name = null] = /^\/sources\/(.*)$/s.exec(source) ?? [];
  return name;
}

/**
 * The subjects of events: what an event is about. Together with the source it is the key that keeps its order,
 * so every room that tells of a thing must spell it alike.
 */
export type Noun = "site" | "gateway" | "host" | "system" | "tag" | "alarm";

/** `site/1` for a site, `site/1/tag/4711` for everything inside one. */
export function subjectOf(noun: Noun, siteId: number | null, id: string): string {
  if (noun === "site") return `site/${id}`;
  return siteId === null ? `${noun}/${id}` : `site/${siteId}/${noun}/${id}`;
}

/** The monitored service as a whole. */
export const SERVICE_SUBJECT = "service";

/** One feature of the service (the work of one job), where only that one is refused. */
export function featureSubject(job: string): string {
  return `feature/${job}`;
}

import type { Alarm, AlarmPriority, Gateway, Host, Site, System, Tag } from "./building.ts";
import type { AuditHead, CommandAccepted, CommandNotRestored, CommandResult } from "./command-event-data.ts";
import type { ConfigurationChanged } from "./config-change-report.ts";
import { type EventIdFacts, eventId, tagValueEventId } from "./event-ids.ts";
import type {
  DaySealedFact,
  SeriesCompleteFact,
  SiteCompleteFact,
  TagHistoryFact,
  TagTotalFact,
} from "./history-event-data.ts";
import type { SilenceFact } from "./silence-event-data.ts";
import type { SeriesBreak, SilentSensors, TagSystemsFact, TagValueFact } from "./tag-event-data.ts";

/** Data by event kind. The id of an event derives from the source's facts, so it survives restarts and lost state. */
export interface EventData {
  /** A site became visible to the token; at the first start, every site. */
  "site-added": { readonly site: Site };
  /** A site has another name. */
  "site-changed": ChangedObject<{ readonly site: Site }>;
  /**
   * A site was missing from complete lists for `inventory.remove_after` (7 days) while the token saw it before and
   * after.
   */
  "site-removed": { readonly site: Site };
  /** A site is online, degraded or offline: at the first inventory, and at each change of the status or its reason. */
  "site-status-changed": SiteStatusFact;
  /** A site's list shows a gateway that was not known; at the first start, every gateway. */
  "gateway-added": { readonly gateway: Gateway };
  /** A field of a gateway differs; `online` has events of its own. */
  "gateway-changed": ChangedObject<{ readonly gateway: Gateway }>;
  /** As for sites: complete lists of its site did not show it for `inventory.remove_after`. */
  "gateway-removed": { readonly gateway: Gateway };
  /** A gateway that was offline or of unknown state is online. */
  "gateway-online": GatewayFact;
  /** A gateway that was online or of unknown state is offline: devices behind it cannot be read. */
  "gateway-offline": GatewayFact;
  /** A host (a device behind a gateway) is listed that was not known. */
  "host-added": { readonly host: Host };
  /** A field of a host differs. */
  "host-changed": ChangedObject<{ readonly host: Host }>;
  /** Complete lists of its site did not show the host for `inventory.remove_after`. */
  "host-removed": { readonly host: Host };
  /** A technical system of a building is listed that was not known. */
  "system-added": { readonly system: System };
  /** A field of a system differs. */
  "system-changed": ChangedObject<{ readonly system: System }>;
  /** Complete lists of its site did not show the system for `inventory.remove_after`. */
  "system-removed": { readonly system: System };
  /** A tag is listed that was not known; at the first start, every tag. */
  "tag-added": { readonly tag: Tag };
  /** A field of a tag differs. When that breaks its series, `series-break` is emitted as well. */
  "tag-changed": ChangedObject<{ readonly tag: Tag }>;
  /** Complete lists of its site did not show the tag for `inventory.remove_after`. */
  "tag-removed": { readonly tag: Tag };
  /** The systems of the tag differ from the last event; only with `inventory.tags_of_systems`. */
  "tag-systems-changed": TagSystemsFact;
  /** The unit, name or systems of a tag changed: its values are not comparable with older ones. */
  "series-break": SeriesBreak;

  /** An alarm episode begins: listed as active, or found over by the sweep between two polls (`late`). */
  "alarm-raised": AlarmFact & {
    /** True where it was met and not seen to begin: at the first look at a site, or `alarms.startup: announce`. */
    readonly initial: boolean;
  };
  /** The service itself states that the alarm is over; an absence alone never counts as this. */
  "alarm-resolved": AlarmFact;
  /** A person acknowledged the alarm, or acknowledged it again with another name, text or time. */
  "alarm-acknowledged": AlarmFact;
  /** An acknowledgement was taken back. */
  "alarm-unacknowledged": AlarmFact;
  /** The service states a time up to which the alarm is recovering, or another one than before. */
  "alarm-recovering": AlarmFact;
  /** An active alarm was triggered again, or one that was over is active again as the same episode. */
  "alarm-retriggered": AlarmFact;
  /** Site, trigger, status, source, description or trigger time of an open alarm differ, or it stopped recovering. */
  "alarm-changed": ChangedObject<AlarmFact>;
  /** Complete lists lack the alarm and the service does not return it on request: its end is unknown. */
  "alarm-vanished": AlarmFact;
  /** The alarm's site is no longer visible to the token; the state of the alarm is unknown. */
  "alarm-out-of-scope": AlarmFact;

  /**
   * A live value was read; with `on_change` only where it or its quality differs, or `max_silence` is over. Also emitted once
   * when a value becomes `stale`.
   */
  "tag-value": TagValueFact;
  /** Closed buckets of a tag's log, each emitted once, and again with `revised` when a value differs. */
  "tag-history": TagHistoryFact;
  /** The total of a meter over a closed period (last value minus first). */
  "tag-total": TagTotalFact;
  /** Every bucket of these UTC days is fetched or has no log: of a series (`tag`) or a site (`site`). */
  "history-complete": SeriesCompleteFact | SiteCompleteFact;
  /** A UTC day of a site is complete, after a look for late data; again with the next `revision` after a change. */
  "day-sealed": DaySealedFact;

  /** A command passed the gate and waits for a slot of the quota; its `command-result` follows. */
  "command-accepted": CommandAccepted;
  /** Outcome of a command, or the reason of its rejection: one per command. */
  "command-result": CommandResult;
  /** A value that was written for a time is still in force, because the old one could not be put back. */
  "command-not-restored": CommandNotRestored;
  /** Length and last hash of the audit log: with each write, and once an hour. */
  "audit-head": AuditHead;

  /** Report on sensors that seem dead, for each site and period (`silent_sensors.every`, 7 days), also when empty. */
  "silent-sensors": SilentSensors;
  /** An agreed silence has begun. */
  "silence-started": SilenceFact;
  /** An agreed silence is over, at its time or because somebody ended it. */
  "silence-ended": SilenceFact;

  /** The access token expires in 30, 14, 7 or 1 days or less; once for each of them. */
  "token-expiring": {
    /** Time of expiry, UTC. */
    readonly expiresAt: string;
    /** Whole days until then. */
    readonly daysLeft: number;
  };
  /**
   * The service does not answer (subject `service`), refuses one job (subject `feature/<job>`), or does not show the
   * token a site any more (subject `site/<id>`); once until it is back.
   */
  "source-unavailable": {
    /** Why, for a person, in the service's words where there are any. */
    readonly reason: string;
    /** Time of the detection, UTC. */
    readonly since: string;
  };
  /** The subject of a `source-unavailable` event is available again. */
  "source-available": {
    /** `since` of the `source-unavailable` event, UTC. */
    readonly unavailableSince: string;
  };
  /**
   * The worker is alive and events of this source get through: the heartbeat for somebody who notices its absence. Comes
   * at the start and then every `heartbeat` (off by default). A sink never gets one that is older than its interval.
   */
  "worker-alive": {
    /** The configured interval, in seconds. */
    readonly intervalSeconds: number;
    /** Version of the worker. */
    readonly version: string;
    /** Time of the last successful read of the active alarms, UTC; null before the first. */
    readonly alarmsPolledAt: string | null;
  };
  /** The configuration file changed while the worker ran: changes in force, and changes that wait for a restart. */
  "configuration-changed": ConfigurationChanged;
  /** Events were dropped before delivery, by age or a full log; at most once an hour for each sink and reason. */
  "delivery-gap": DeliveryGap;
}

export type EventKind = keyof EventData;

type ChangedObject<T> = T & {
  /** Names of the fields that differ, with the value before. */
  readonly before: Readonly<Record<string, unknown>>;
};

export interface GatewayFact {
  readonly gateway: Gateway;
  /** Hosts behind the gateway, so that a receiver can group the alarms that follow; empty when unknown. */
  readonly hosts: readonly {
    /** The host's id. */
    readonly id: string;
    /** The host's name. */
    readonly displayName: string;
  }[];
  /** True when the site has no other gateway, so that every tag of the site is behind this one. */
  readonly wholeSite: boolean;
}

export interface AlarmFact {
  /** The alarm as the service shows it now. */
  readonly alarm: Alarm;
  /** Alarm id plus trigger time: one episode is one raise and one end. */
  readonly episode: string;
  /** True when the event was found after the fact, by the sweep over resolved alarms. */
  readonly late: boolean;
  /** True when a later episode of the alarm was emitted before, so that this episode is not the current state. */
  readonly superseded?: true;
  /** The gateway that was offline at that moment, where one explains the alarm. */
  readonly behindGateway: string | null;
  /** Messages and tickets of the alarm at receivers when the event happened; absent without any. */
  readonly tickets?: readonly {
    /** Name of the sink. */
    readonly sink: string;
    /** Name at the receiver, such as `FM-112`; null without a name. */
    readonly ticket: string | null;
    /** Its web address; null without one. */
    readonly link: string | null;
  }[];
}

export type SiteStatus = "online" | "degraded" | "offline";

/** Whether values of a site can be read now. Emitted for each site at the first inventory, then at each change. */
export interface SiteStatusFact {
  readonly site: Site;
  /**
   * `offline`: the service is unavailable, the token does not see the site, or all gateways of the site are offline.
   * `degraded`: some gateways are offline. Else `online`.
   */
  readonly status: SiteStatus;
  /** Why, for a person; null while the site is online. */
  readonly reason: string | null;
  /** Time since when the site has this status, UTC. */
  readonly since: string;
}

export interface DeliveryGap {
  /** Name of the sink that did not get the events. */
  readonly sink: string;
  /** `age`: older than `state.max_age`. `size`: the log was full (`state.max_bytes`). */
  readonly reason: "age" | "size";
  /** Time of the oldest of the events, UTC. */
  readonly firstTime: string;
  /** Time of the newest of the events, UTC. */
  readonly lastTime: string;
  /** Number of dropped events. */
  readonly count: number;
}

export interface Event<K extends EventKind = EventKind> {
  /** The same fact has the same id after every retry, restart and lost state: use it to remove duplicates. */
  readonly id: string;
  /** `/sources/<name>` for a service, `/plenum` for the worker; in a fleet `/plenum/<name>` for a source's member. */
  readonly source: string;
  /** The kind. */
  readonly type: K;
  /** Object of the event, e.g. `site/1/alarm/500001`; events with the same `source` and `subject` keep their order. */
  readonly subject: string;
  /** Time that the service states, otherwise the time of the request; ISO 8601 UTC. */
  readonly time: string;
  /** CloudEvents extension attribute: the site's id as text; absent for facts about no single site. */
  readonly siteid?: string;
  /** CloudEvents extension attribute: alarm priority; only on alarm events. */
  readonly priority?: AlarmPriority;
  /** Nothing happened: the event sends the stored state to one sink (`from: state`, `plenum outbox snapshot`). */
  readonly snapshot?: true;
  /** Data of the kind; see the sections below. */
  readonly data: EventData[K];
}

/** An event of any one kind, so that a check of `type` narrows `data`. */
export type AnyEvent = { [K in EventKind]: Event<K> }[EventKind];

/** Every kind, for filters, topics and documentation; the compiler checks that none is missing. */
export const EVENT_KINDS = Object.keys({
  "site-added": 1,
  "site-changed": 1,
  "site-removed": 1,
  "site-status-changed": 1,
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
  "worker-alive": 1,
  "configuration-changed": 1,
  "delivery-gap": 1,
} satisfies Record<EventKind, 1>) as readonly EventKind[];

/** Telemetry is dropped before facts when the outbox must shrink: a value comes again, an alarm does not. */
export function isTelemetry(kind: EventKind): boolean {
  return kind === "tag-value" || kind === "tag-history" || kind === "tag-total";
}

/** Events that overtake values. A kind that joins the list needs a schema step that sets `sink.urgent` to 0. */
export function isUrgentKind(kind: EventKind): boolean {
  return /^(alarm|command|gateway|silence|site|source|worker)-/.test(kind);
}

export function eventOrderingKey(event: Pick<Event, "source" | "subject">): string {
  return `${event.source} ${event.subject}`;
}

/** Builds an event; `facts` are what makes it this event and no other, besides kind, source, subject and, of a live value, its time. */
export function makeEvent<K extends EventKind>(fields: {
  readonly type: K;
  readonly source: string;
  readonly subject: string;
  readonly time: string;
  readonly siteId?: number | string | null;
  readonly priority?: AlarmPriority;
  readonly data: EventData[K];
  readonly facts: EventIdFacts;
}): Event<K> {
  const { type, source, subject, time, facts } = fields;
  return {
    id: type === "tag-value" ? tagValueEventId(source, time, subject, facts) : eventId(type, source, subject, ...facts),
    source,
    type,
    subject,
    time,
    ...(fields.siteId === undefined || fields.siteId === null ? {} : { siteid: String(fields.siteId) }),
    ...(fields.priority === undefined ? {} : { priority: fields.priority }),
    data: fields.data,
  };
}

export function toCloudEvent(event: Event, further: object = {}): Record<string, unknown> {
  const { data, ...attributes } = event;
  return { specversion: "1.0", ...attributes, ...further, datacontenttype: "application/json", data };
}

const SOURCE_URI_PREFIX = "/sources/";

export function sourceUri(name: string): string {
  return `${SOURCE_URI_PREFIX}${name}`;
}

const WORKER_SOURCE_URI = "/plenum";

/** The same event; where it is a worker's own, of the one that works for this source. */
export function assignEventToWorker<E extends Pick<Event, "source">>(source: string, event: E): E {
  return event.source === WORKER_SOURCE_URI ? { ...event, source: `${WORKER_SOURCE_URI}/${source}` } : event;
}

/** The configured source that an event comes from; null for the worker itself. */
export function eventSourceName({ source }: Pick<Event, "source">): string | null {
  return source.startsWith(SOURCE_URI_PREFIX) ? source.slice(SOURCE_URI_PREFIX.length) : null;
}

/** Kind of object in an event's subject. Source and subject are the key that keeps the order of events. */
export type SubjectObjectKind = "site" | "gateway" | "host" | "system" | "tag" | "alarm";

/** `site/1` for a site, `site/1/tag/4711` for everything inside one. */
export function eventSubject(noun: SubjectObjectKind, siteId: number | string | null, id: string): string {
  if (noun === "site") return `site/${id}`;
  return siteId === null ? `${noun}/${id}` : `site/${siteId}/${noun}/${id}`;
}

export const SERVICE_SUBJECT = "service";
export const WORKER_SUBJECT = "worker";

/** Subject of a single feature of the service (the work of one job) that the service refuses. */
export function featureSubject(job: string): string {
  return `feature/${job}`;
}

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
import type { SeriesBreak, TagSystemsFact, TagValueFact } from "./tag-event-data.ts";

/** Data by event kind. The id is a hash of the service's data, so it is the same after a restart or lost state. */
export interface EventData {
  /** A site became visible to the token; at the first start, emitted for every site. */
  "site-added": { readonly site: Site };
  /** The name of a site changed. */
  "site-changed": ChangedObject<{ readonly site: Site }>;
  /** Complete lists of sites did not show the site for `inventory.remove_after` (7 days). */
  "site-removed": { readonly site: Site };
  /** A site is online, degraded or offline: at the first inventory, and at each change of the status or its reason. */
  "site-status-changed": SiteStatusFact;
  /** A site's list shows a new gateway; at the first start, emitted for every gateway. */
  "gateway-added": { readonly gateway: Gateway };
  /** A field of a gateway changed; changes of `online` have separate events. */
  "gateway-changed": ChangedObject<{ readonly gateway: Gateway }>;
  /** Complete lists of a gateway's site did not show the gateway for `inventory.remove_after`. */
  "gateway-removed": { readonly gateway: Gateway };
  /** A gateway that was offline or of unknown state is online. */
  "gateway-online": GatewayFact;
  /** A gateway that was online or of unknown state is offline: devices behind it cannot be read. */
  "gateway-offline": GatewayFact;
  /** A site's list shows a new host (a device behind a gateway). */
  "host-added": { readonly host: Host };
  /** A field of a host changed. */
  "host-changed": ChangedObject<{ readonly host: Host }>;
  /** Complete lists of a host's site did not show the host for `inventory.remove_after`. */
  "host-removed": { readonly host: Host };
  /** A site's list shows a new technical system. */
  "system-added": { readonly system: System };
  /** A field of a system changed. */
  "system-changed": ChangedObject<{ readonly system: System }>;
  /** Complete lists of a system's site did not show the system for `inventory.remove_after`. */
  "system-removed": { readonly system: System };
  /** A list shows a new tag; at the first start, emitted for every tag. */
  "tag-added": { readonly tag: Tag };
  /** A field of a tag changed. If new values are not comparable with older ones, `series-break` is emitted as well. */
  "tag-changed": ChangedObject<{ readonly tag: Tag }>;
  /** Complete lists of a tag's site did not show the tag for `inventory.remove_after`. */
  "tag-removed": { readonly tag: Tag };
  /** The systems that list a tag changed; only with `inventory.tags_of_systems`. */
  "tag-systems-changed": TagSystemsFact;
  /** The unit, name or systems of a tag changed, so that its new values are not comparable with older ones. */
  "series-break": SeriesBreak;

  /** An alarm episode began. `late`: the episode also ended between two polls and was found later. */
  "alarm-raised": AlarmFact & {
    /** True if the alarm was active already when Plenum first read its site, or `alarms.startup` is `announce`. */
    readonly initial: boolean;
  };
  /** The service states that the alarm ended; a mere absence from a list never counts as the end. */
  "alarm-resolved": AlarmFact;
  /** A person acknowledged the alarm, or acknowledged it again with another name, text or time. */
  "alarm-acknowledged": AlarmFact;
  /** An acknowledgement of the alarm was withdrawn. */
  "alarm-unacknowledged": AlarmFact;
  /** The service states a new time until which it waits before it ends the alarm. */
  "alarm-recovering": AlarmFact;
  /** An active alarm was triggered again, or an ended alarm is active again in the same episode. */
  "alarm-retriggered": AlarmFact;
  /** An open alarm got a new site, trigger, status, source, description or trigger time, or lost `recoveringUntil`. */
  "alarm-changed": ChangedObject<AlarmFact>;
  /** Complete lists lack an open alarm, and the service does not return it on request. Whether it ended is unknown. */
  "alarm-vanished": AlarmFact;
  /** The alarm's site is no longer visible to the token; the state of the alarm is unknown. */
  "alarm-out-of-scope": AlarmFact;

  /**
   * A live value was read; with `on_change` only if value or quality changed, or after `max_silence`. Also emitted once
   * when a value becomes `stale`.
   */
  "tag-value": TagValueFact;
  /** Finished time buckets of a tag's history, each emitted once, and again with `revised` when a value changed. */
  "tag-history": TagHistoryFact;
  /** The total of a meter over a period that has ended (last value minus first). */
  "tag-total": TagTotalFact;
  /** All history of a tag (`tag`) or site (`site`) in a range of UTC days was fetched, or the service has none. */
  "history-complete": SeriesCompleteFact | SiteCompleteFact;
  /** A site's history of a UTC day is complete and was checked for late data. Later changes increase `revision`. */
  "day-sealed": DaySealedFact;

  /** A command passed all checks and waits for the request quota; its `command-result` follows. */
  "command-accepted": CommandAccepted;
  /** Outcome of a command, or the reason of its rejection; emitted once per command. */
  "command-result": CommandResult;
  /** A tag still has the value of a temporary write, because Plenum could not put the old value back. */
  "command-not-restored": CommandNotRestored;
  /** Length and last hash of the audit log, emitted with each write and once an hour. */
  "audit-head": AuditHead;

  /** A period began in which people are not notified of certain alarms. */
  "silence-started": SilenceFact;
  /** A silence ended, at the agreed time or because a person ended the silence. */
  "silence-ended": SilenceFact;

  /** The access token expires in at most 30, 14, 7 or 1 days; emitted once for each of these limits. */
  "token-expiring": {
    /** Time at which the token expires, UTC. */
    readonly expiresAt: string;
    /** Whole days until the token expires. */
    readonly daysLeft: number;
  };
  /**
   * The service does not answer (subject `service`), refuses the requests of one job (subject `feature/<job>`), or no
   * longer shows a site to the token (subject `site/<id>`). Emitted once until it is available again.
   */
  "source-unavailable": {
    /** Reason for people, in the service's words if possible. */
    readonly reason: string;
    /** Time at which the loss was detected, UTC. */
    readonly since: string;
  };
  /** The subject of a `source-unavailable` event is available again. */
  "source-available": {
    /** `since` of the `source-unavailable` event, UTC. */
    readonly unavailableSince: string;
  };
  /**
   * Heartbeat: the worker runs and delivers events of this source, so a receiver can notice a missing heartbeat. Emitted
   * at the start and then every `heartbeat` (off by default). A sink gets no heartbeat that is older than the interval.
   */
  "worker-alive": {
    /** The configured interval of heartbeats, in seconds. */
    readonly intervalSeconds: number;
    /** Version of the worker. */
    readonly version: string;
    /** Time of the last successful read of the active alarms, UTC; null before the first. */
    readonly alarmsPolledAt: string | null;
  };
  /** The configuration file changed while the worker ran: changes in force, and changes that wait for a restart. */
  "configuration-changed": ConfigurationChanged;
  /** A sink missed events that were dropped by age or because the event log was full. At most hourly per reason. */
  "delivery-gap": DeliveryGap;
}

export type EventKind = keyof EventData;

type ChangedObject<T> = T & {
  /** Previous values of the changed fields, by the name of the field. */
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
  /** True when the site has no other gateway, so that every tag of the site is behind this gateway. */
  readonly wholeSite: boolean;
}

export interface AlarmFact {
  /** The alarm as the service showed it last. */
  readonly alarm: Alarm;
  /** Id of the episode: alarm id plus trigger time. An episode lasts from the start of an alarm to its end. */
  readonly episode: string;
  /** True when polls of active alarms missed the event and a later list of resolved alarms showed it. */
  readonly late: boolean;
  /** True when a later episode of the alarm was already emitted, so that this episode is not the current state. */
  readonly superseded?: true;
  /** Gateway that was offline at the time of the event and may explain the alarm. */
  readonly behindGateway: string | null;
  /** Messages and tickets that sinks had created for the alarm before the event; absent without any. */
  readonly tickets?: readonly {
    /** Name of the sink. */
    readonly sink: string;
    /** Name of the message or ticket at the receiver, such as `FM-112`; null without a name. */
    readonly ticket: string | null;
    /** Web address of the message or ticket; null without an address. */
    readonly link: string | null;
  }[];
}

export type SiteStatus = "online" | "degraded" | "offline";

/** Whether values of a site can be read now. Emitted for each site at the first inventory, then at each change. */
export interface SiteStatusFact {
  readonly site: Site;
  /**
   * `offline`: the service is unavailable, the token does not see the site, or all gateways of the site are offline.
   * `degraded`: some gateways are offline, or no value of the site can be read. Else `online`.
   */
  readonly status: SiteStatus;
  /** Reason of the status, for people; null while the site is online. */
  readonly reason: string | null;
  /** Time at which the site got this status, UTC. */
  readonly since: string;
}

export interface DeliveryGap {
  /** Name of the sink that did not get the events. */
  readonly sink: string;
  /** `age`: the events were older than `state.max_age`. `size`: the event log was full (`state.max_bytes`). */
  readonly reason: "age" | "size";
  /** Time of the oldest dropped event, UTC. */
  readonly firstTime: string;
  /** Time of the newest dropped event, UTC. */
  readonly lastTime: string;
  /** Number of dropped events. */
  readonly count: number;
}

export interface Event<K extends EventKind = EventKind> {
  /** An event that is sent again, even after a restart or lost state, keeps its id: use it to remove duplicates. */
  readonly id: string;
  /** `/sources/<name>` for a service, `/plenum` for the worker; in a fleet `/plenum/<name>` for a source's member. */
  readonly source: string;
  /** The kind. */
  readonly type: K;
  /** Object of the event, e.g. `site/1/alarm/500001`; events with the same `source` and `subject` keep their order. */
  readonly subject: string;
  /** Time that the service states, otherwise the time of the request; ISO 8601 UTC. */
  readonly time: string;
  /** CloudEvents extension attribute: the site's id as text; absent if the event concerns no single site. */
  readonly siteid?: string;
  /** CloudEvents extension attribute: alarm priority; only on alarm events. */
  readonly priority?: AlarmPriority;
  /** True if the event repeats stored state for one sink and reports no change (`from: state`, `plenum outbox snapshot`). */
  readonly snapshot?: true;
  /** Data of the kind; see the sections below. */
  readonly data: EventData[K];
}

/** An event of any one kind, so that a check of `type` narrows `data`. */
export type AnyEvent = { [K in EventKind]: Event<K> }[EventKind];

export type AlarmEvent = Extract<AnyEvent, { type: `alarm-${string}` }>;
export const isAlarmEvent = (event: AnyEvent): event is AlarmEvent => event.type.startsWith("alarm-");

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
  "silence-started": 1,
  "silence-ended": 1,
  "token-expiring": 1,
  "source-unavailable": 1,
  "source-available": 1,
  "worker-alive": 1,
  "configuration-changed": 1,
  "delivery-gap": 1,
} satisfies Record<EventKind, 1>) as readonly EventKind[];

/** True for tag data. A full outbox drops tag data before other events: a value is read again, an alarm is not. */
export function isTelemetry(kind: EventKind): boolean {
  return kind === "tag-value" || kind === "tag-history" || kind === "tag-total";
}

/** True for kinds delivered before tag values. If you add a kind, add a migration that sets `sink.urgent` to 0. */
export function isUrgentKind(kind: EventKind): boolean {
  return /^(alarm|command|gateway|silence|site|source|worker)-/.test(kind);
}

export function eventOrderingKey(event: Pick<Event, "source" | "subject">): string {
  return `${event.source} ${event.subject}`;
}

/** Builds an event. The id derives from kind, source, subject and `facts`, and for a live value also from the time. */
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

export function toCloudEvent(event: Event, extraAttributes: object = {}): Record<string, unknown> {
  const { data, ...attributes } = event;
  return { specversion: "1.0", ...attributes, ...extraAttributes, datacontenttype: "application/json", data };
}

const SOURCE_URI_PREFIX = "/sources/";

export function sourceUri(name: string): string {
  return `${SOURCE_URI_PREFIX}${name}`;
}

const WORKER_SOURCE_URI = "/plenum";

/** Names the source's worker in an event about the worker itself; returns any other event unchanged. */
export function assignEventToWorker<E extends Pick<Event, "source">>(source: string, event: E): E {
  return event.source === WORKER_SOURCE_URI ? { ...event, source: `${WORKER_SOURCE_URI}/${source}` } : event;
}

/** The configured source that an event comes from; null for the worker itself. */
export function eventSourceName({ source }: Pick<Event, "source">): string | null {
  return source.startsWith(SOURCE_URI_PREFIX) ? source.slice(SOURCE_URI_PREFIX.length) : null;
}

/** Kind of object in an event's subject. Source and subject are the key that keeps the order of events. */
export type SubjectObjectKind = "site" | "gateway" | "host" | "system" | "tag" | "alarm";

/** Builds a subject such as `site/1`, or `site/1/tag/4711` for an object of a site. */
export function eventSubject(objectKind: SubjectObjectKind, siteId: number | string | null, id: string): string {
  if (objectKind === "site") return `site/${id}`;
  return siteId === null ? `${objectKind}/${id}` : `site/${siteId}/${objectKind}/${id}`;
}

export const SERVICE_SUBJECT = "service";
export const WORKER_SUBJECT = "worker";

/** Subject of a feature of the service, i.e. of the requests of one job, that the service refuses. */
export function featureSubject(job: string): string {
  return `feature/${job}`;
}

import type { ZodType } from "zod";
import type { Alarm, Gateway, Host, Site, System, Tag, TagValue } from "./model/building.ts";
import type { EventNumber } from "./model/delivery-sequence.ts";
import type { Event, SiteStatusFact } from "./model/event.ts";
import type { StaleReason, TagSystemsFact, TagValueQuality } from "./model/tag-event-data.ts";
import type { Clock } from "./runtime/clock.ts";
import type { Log } from "./runtime/log.ts";
import type { Metrics } from "./runtime/metrics.ts";

/**
 * The contract between the engine and a connector.
 *
 * A connector is a folder for one external system: README.md, config.ts, sink.ts and what they need. The engine
 * (src/engine/delivery) implements order, retries, back-off, dead letters, filters, metrics and shutdown for all connectors.
 * A sink only translates events and reports one outcome for each:
 *
 * | Outcome  | How                               | What the engine does                                        |
 * | -------- | --------------------------------- | ----------------------------------------------------------- |
 * | accepted | not mentioned in the receipt      | settles it (delivered): the server acknowledged it          |
 * | rejected | `rejected: [{ index, reason }]`   | stores a dead letter                                        |
 * | retried  | `retry: { from, error }` or throw | passes it to the sink again after a wait                    |
 * | buffered | `buffered: true`                  | settles nothing yet and passes later events to the sink     |
 *
 * How long the engine waits depends on the error's class (src/core/errors/errors.ts).
 */
export interface Sink extends RequiredSinkMethods, SinkDeliveryMethods, SinkDiagnostics {}

export interface RequiredSinkMethods {
  /** Maximum events per batch; default: the option `batch`. Example: 1 for a webhook with one event per request. */
  readonly maxBatch?: number;
  /** Connects. The engine calls it again, without `close`, after a failed `write`. */
  open(signal: AbortSignal): Promise<void>;
  /** Called serially with 1 to `maxBatch` events in commit order. `accepted(3)`: the first three are delivered. */
  write(batch: readonly Event[], signal: AbortSignal, accepted?: AcceptEvents, batchInfo?: BatchInfo): Promise<Receipt>;
  close(): Promise<void>;
}

export interface SinkDeliveryMethods {
  /** True if the server replaces a repeated event, e.g. a retained message. A crash may repeat up to 100 events. */
  readonly toleratesRepeats?: true;
  /** True keeps all events in commit order, e.g. for a file. In other sinks, alarms and commands overtake values. */
  readonly strictOrder?: true;
  /** Does work without new events, e.g. sends reminders. Called after `open`, and again after the returned time. */
  tick?(signal: AbortSignal): Promise<TickResult>;
  /** Number of requests that the sink must still send for events that it has accepted, e.g. 12 tickets to open. */
  pendingRequests?(): number;
}

export interface SinkDiagnostics {
  /** Identifies the server, e.g. a hash of its address. A sink that ended for good starts again if this id changes. */
  readonly serverId?: string;
  /** Tests the connection without writing an event. `plenum check` prints "acme answers", or the error if it rejects. */
  probe?(signal: AbortSignal): Promise<void>;
  /** Sends an alarm that is marked as a test, changes and ends it, for `plenum sink test`. Prints one line per step. */
  test?(printLine: (line: string) => void, signal: AbortSignal): Promise<void>;
  /** Detects a restart that may have lost acknowledged events. Called after `open` and every 30 s. */
  detectRestart?(lastInstanceId: string | null, signal: AbortSignal): Promise<ServerInstance | null>;
  /** How long the server keeps data, in milliseconds; infinite when it deletes nothing, null when unknown. */
  retentionMs?(signal: AbortSignal): Promise<number | null>;
  /** Monotonic time at which a write last made progress; the time limit of the write starts there. */
  progressMs?(): number;
}

export type AcceptEvents = (count: number, stateChanges?: SinkStateChange) => void;

export interface BatchInfo {
  /** Positions of the events in the event log, ascending; 0 for an event marked `snapshot`. */
  readonly positions: readonly number[];
  /** Commit times of the events, UTC; empty for an event marked `snapshot`. */
  readonly committedAt: readonly string[];
  /** True when a person requested that delivered events are sent again. */
  readonly isRedelivery: boolean;
  /** Sequence numbers if the sink's option `sequence` is on; null for snapshots and for delivered events sent again. */
  readonly sequences?: readonly (EventNumber | null)[];
}

export interface TickResult {
  readonly stateChanges?: SinkStateChange;
  /** Accepted events that the server later rejected for good; they become dead letters. */
  readonly refused?: readonly { readonly position: number; readonly reason: string }[];
  readonly failing?: FailedRequest;
  readonly settled?: true;
  readonly tickInMs: number;
}

/** New values of a sink's state by key, as JSON; null deletes a key. */
export type SinkStateChange = ReadonlyMap<string, unknown>;

/** Stored state of one sink, e.g. the ticket id of each open alarm. */
export interface SinkState {
  get<T>(key: string): Promise<T | undefined>;
  all<T>(): Promise<ReadonlyMap<string, T>>;
  /** Resolves when the change is on disk. Write here before an action that must not happen twice. */
  put(changes: SinkStateChange): Promise<void>;
}

export interface BuildingView {
  /** Alarms of all sources that the service listed as active. */
  activeAlarms(): Promise<readonly AlarmView[]>;
  findAlarm(source: string, id: string): Promise<AlarmView | undefined>;
  inventory<N extends keyof ObjectByNoun>(noun: N): Promise<readonly ListedInventoryObject<ObjectByNoun[N]>[]>;
  /** Finds an object as the service last listed it; undefined for an unknown id. */
  findObject<N extends keyof ObjectByNoun>(noun: N, source: string, id: string): Promise<ObjectByNoun[N] | undefined>;
  /** Time of the first list that contained the object, UTC; undefined if the time is unknown. */
  firstListedAt(noun: keyof ObjectByNoun, source: string, id: string): Promise<string | undefined>;
  /** True after the tags of a site's systems were listed once. Before that, systems of a tag may be unknown. */
  hasListedSystems(source: string, siteId: string): Promise<boolean>;
  /** Systems that list the tag; empty if no system lists it or if the tags of systems are not read. */
  systemsOf(source: string, tagId: string): Promise<readonly System[]>;
  values(): Promise<readonly TagValueView[]>;
  findValue(source: string, tagId: string): Promise<TagValueView | undefined>;
  /** Systems of each tag that has any; empty without `inventory.tags_of_systems`. */
  tagSystems(): Promise<readonly TagSystemsView[]>;
  /** Last emitted status of each site. */
  siteStatuses(): Promise<readonly SiteStatusView[]>;
  findSiteStatus(source: string, siteId: string): Promise<SiteStatusView | undefined>;
  /** Values of the alarm's tag and up to 19 other tags of its systems, from the newest 75,000 stored events. */
  timeSeries(source: string, alarm: Alarm, range: TimeRange): Promise<readonly TimeSeries[]>;
  silences(): Promise<readonly SilenceView[]>;
  /** Sites whose new alarms are held back until the gateways are read, because a gateway outage may explain them. */
  pendingGatewayChecks(): Promise<readonly PendingGatewayCheck[]>;
  /** True after the alarms and tags of every source were read once. Before that, a missing object may still exist. */
  isComplete(): Promise<boolean>;
  /** IANA time zone of a source's buildings; UTC for an unknown source. */
  timeZone(source: string): string;
}

export interface TimeSeries {
  readonly tag: Tag;
  readonly points: readonly TimeSeriesPoint[];
}

export interface TimeSeriesPoint {
  readonly atMs: number;
  readonly value: TagValue;
}

export interface TimeRange {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface ObjectByNoun {
  readonly site: Site;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
  readonly tag: Tag;
}

export interface ListedInventoryObject<T> {
  readonly source: string;
  readonly siteId: number | null;
  readonly value: T;
  readonly isListed: boolean;
}

export interface AlarmView {
  readonly source: string;
  readonly alarm: Alarm;
  readonly episode: string;
  /** State of the alarm's episode; `resolved` and `vanished` are ended episodes. */
  readonly state: "active" | "missing" | "out-of-scope" | "resolved" | "vanished";
}

export interface PendingGatewayCheck {
  readonly source: string;
  readonly siteId: number;
  readonly sinceMs: number;
}

export interface SilenceView {
  readonly fromMs: number;
  readonly toMs: number;
  covers(source: string, alarm: Alarm): boolean;
}

export interface TagSystemsView {
  readonly source: string;
  readonly siteId: number | null;
  readonly tag: Tag;
  readonly systems: TagSystemsFact["systems"];
}

export interface TagValueView {
  readonly source: string;
  readonly siteId: number | null;
  readonly tag: Tag;
  readonly value: TagValue;
  readonly quality: TagValueQuality;
  readonly time: string;
  /** The tag's last value that was not null, with its time; null before the first such value. */
  readonly lastGood: { readonly value: TagValue; readonly time: string } | null;
  readonly staleReason?: StaleReason;
}

export interface SiteStatusView extends SiteStatusFact {
  readonly source: string;
}

export interface ServerInstance {
  readonly instanceId: string;
  readonly isNew: boolean;
}

export interface Receipt {
  readonly rejected: readonly EventRejection[];
  readonly retry?: { readonly from: number; readonly error: unknown };
  readonly stateChanges?: SinkStateChange;
  /** The sink buffered the batch. A later receipt without `buffered`, or a tick with `settled`, reports delivery. */
  readonly buffered?: true;
  readonly failing?: FailedRequest;
  readonly tickInMs?: number;
}

/** A failure that a sink retries by itself, so that other events do not wait. */
export interface FailedRequest {
  readonly error: unknown;
  readonly attempts: number;
  readonly retryInMs: number;
}

export interface EventRejection {
  readonly index: number;
  readonly reason: string;
}

export const EVENTS_ACCEPTED: Receipt = { rejected: [] };

/** Builds a receipt. Drops the rejections of events that the engine will pass to the sink again. */
export function buildReceipt(reasonByIndex: ReadonlyMap<number, string>, retry?: Receipt["retry"]): Receipt {
  const refused = [...reasonByIndex].filter(([index]) => retry === undefined || index < retry.from);
  return { rejected: refused.map(([index, reason]) => ({ index, reason })), ...(retry === undefined ? {} : { retry }) };
}

/** Receives commands from a broker. `accept` resolves when the command is durable; only then acknowledge it. */
export interface CommandSource {
  open(accept: AcceptCommand, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export type AcceptCommand = (message: CommandMessage) => Promise<void>;

export interface CommandMessage {
  /** The connector instance, e.g. the sink's name in the configuration. */
  readonly via: string;
  readonly topic: string;
  /** Id of the tag in the topic; null if the payload names the tag. */
  readonly tagId: string | null;
  /** Present when the message came on the topic for approvals by a second person. */
  readonly purpose?: "second";
  /** Name of the source in the topic; null if the payload names the source or there is only one. */
  readonly source: string | null;
  readonly payload: Uint8Array;
  /** True for a message that the broker had stored (retained) and sent at the subscription. */
  readonly retained: boolean;
  readonly duplicate: boolean;
  /** Remaining lifetime in seconds (MQTT 5 message expiry); null when the broker states none. */
  readonly expirySeconds: number | null;
  readonly replyTo: string | null;
  readonly correlation: string | null;
  readonly properties: Readonly<Record<string, string>>;
  readonly receivedAtMs: number;
}

export interface FleetAssignment {
  readonly fleet: string;
  readonly source: string;
  /** Wall time that all members of the fleet share, in milliseconds since 1970. */
  now(): number;
}

export interface ConnectorContext {
  readonly name: string;
  /** Identity of this worker if its state folder was copied from another worker; otherwise absent. */
  readonly identity?: string;
  /** Present when a source reads history, so that the sink will get `day-sealed` events. */
  readonly readsHistory?: true;
  readonly assignment?: FleetAssignment;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly sinkState: SinkState;
  readonly building: BuildingView;
  /** Random numbers from 0 up to 1, for tests; `Math.random` when absent. */
  readonly random?: () => number;
}

export interface StoreSharedBySinks {
  /** Path, below the connector's name, of the option with equal values in both sinks, e.g. `["folder"]`. */
  readonly path: readonly string[];
  /** Ends the message "The sinks a and b would …", e.g. `write the same files: give one of them another folder`. */
  readonly consequence: string;
  /** True if two sinks may share the store when their filters select different events. */
  readonly allowsDistinctFilters?: true;
}

export interface ConnectorDefinition<C = unknown> {
  readonly name: string;
  /** Description of the connector in one line, for `plenum check` and the documentation. */
  readonly summary: string;
  readonly Config: ZodType<C>;
  /** Default waits between attempts to deliver a rejected event. If absent, attempts end when the event is deleted. */
  readonly retryWaitsMs?: readonly number[];
  /** True if the sink sends `BatchInfo.sequences`. Otherwise the configuration rejects `sequence: true`. */
  readonly carriesSequence?: true;
  /** Topic or query with which a person finds the event at the server; null when the server does not store it. */
  locateEvent?(config: C, event: Event, sinkState: Pick<SinkState, "get">): string | null | Promise<string | null>;
  /** Names a resource that two sinks must not share, such as a folder; null when they share nothing. */
  findSharedStore?(config: C, otherConfig: C): StoreSharedBySinks | null;
  /** Returns a promise if the connector loads its libraries only when it is configured. */
  sink?(config: C, context: ConnectorContext): Sink | Promise<Sink>;
  /** Patterns of the event kinds that the sink receives; undefined for all kinds. */
  kinds?(config: C): readonly string[] | undefined;
  commands?(config: C, context: ConnectorContext): CommandSource | Promise<CommandSource>;
}

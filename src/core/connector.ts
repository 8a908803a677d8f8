import type { ZodType } from "zod";
import type { Alarm, Gateway, Host, Site, System, Tag, TagValue } from "./model/building.ts";
import type { Event } from "./model/event.ts";
import type { Sequence } from "./model/sequence.ts";
import type { Quality, TagSystemsFact } from "./model/tag-facts.ts";
import type { Clock } from "./runtime/clock.ts";
import type { Log } from "./runtime/log.ts";
import type { Metrics } from "./runtime/metrics.ts";

/**
 * The contract between the engine and a connector.
 *
 * A connector is a folder that knows one foreign system: README.md, config.ts, sink.ts and what they need.
 * The engine (src/engine/delivery) does the hard part once for all of them: order, retry, back-off, dead letters,
 * filters, metrics, shutdown. So a connector stays small, and these rules are all it has to keep.
 */

/**
 * Where events go.
 *
 * `open` is called before the first write and again after a write failed because the connection was lost; it
 * may be called on an open sink and then has nothing to do. It throws as `write` does.
 *
 * `write` is called serially, never twice at a time, with 1 to `maxBatch` events in commit order. When it
 * returns, every event has an outcome, and the sink holds on to none of them:
 * - accepted: not mentioned in the receipt. The far end has acknowledged it (an MQTT PUBACK, an HTTP 2xx), not
 *   merely a client library or a socket buffer.
 * - rejected: listed with its index and a reason. It will never be accepted; it becomes a dead letter.
 * - kept: everything from `kept.from` on. Not acknowledged, so the engine offers it again after `kept.error`
 *   has been waited out. Throwing means that the whole batch is kept.
 * A sink that makes one thing of many batches, such as a file that is worth writing, answers `gathered: true`: it has
 * taken the batch into its hands and none of it is durable. Nothing is settled then, and what follows in the log is
 * offered next; the first receipt without it, or a `tick` that answers `settled`, says that all of it is durable and
 * settles it. After anything else (a throw, `kept`, a crash) all of it is offered again from the first event on, perhaps
 * in other batches, so whoever throws forgets what it has gathered. What comes `again` or stands nowhere in the log
 * (position 0) is never gathered.
 * A far end that takes events one by one tells of each with `accepted(count)`: so many events at the beginning of the
 * batch are accepted, none of them rejected, and settled at once. A crash then repeats one event and not the batch.
 * `write` must not retry, must not buffer, and must honour `signal`: when it aborts, reject promptly, or keep what is not
 * accepted then where something was.
 *
 * A sink that has to know later what it did (the ticket that it opened for an alarm) says so in its receipt, or with
 * `accepted`: what is to be remembered is written in the transaction that settles those events, and read by
 * `context.memory`. With a batch of which nothing is settled it is written all the same.
 *
 * What `write` throws, or gives as `kept.error`, says what happens next: `Retryable` and any unknown error are
 * tried again with back-off; `Throttled` waits for the time it was told, which is not an attempt; `ConfigError`
 * stops this sink, visibly, and is tried again slowly (or never, with the reason `gone`). `Rejected` says that the
 * far end answered to the first kept event itself and did not take it, though it may one day: it is tried again by
 * the sink's `schedule`, and after that it is a dead letter, so that one event cannot hold up all others for ever.
 * An outage never uses up that schedule.
 *
 * `close` frees everything; it is called once, after the last write returned, also when `open` never succeeded.
 *
 * `probe` checks that the far end can be reached and would accept us, without writing an event.
 *
 * `farEnd` tells one far end from another, such as a hash of its address, and is never shown: a sink that has ended
 * because its far end is gone goes on by itself where it leads to another.
 *
 * `look` notices that the far end was restarted, by which some lose what they had acknowledged. It answers a text that
 * names the far end's present life (its start time, say), and whether that is another life than `before`, its last
 * answer, which is null at the first time and outlives our own restarts; null when the far end does not say. Asked after
 * each `open` and every 30 s, never while a write is under way. What may be lost is then offered again.
 *
 * `lastStepMs` says when, on the monotonic clock, a call last got a step further: a request began that has a time limit
 * of its own, or the far end answered to a part of the batch. The sink's deadline counts from there, so that one that is
 * slow, but within its limits, is never cut off in the middle of a request, to which nobody would know the answer; one
 * that hangs is. Without it the deadline counts from where the call began.
 *
 * `tick` is for a sink that has to do something although nothing happens, such as repeat what the far end forgets. It
 * is called after `open`, never while a write is under way, and again after the time that it answers; what it throws
 * means what it means of `write`.
 *
 * `keepsMs` asks the far end for how long it keeps what it takes, in milliseconds: infinite when it never forgets,
 * null when it does not say. What is older would be lost there by its own setting, so `check` compares it.
 *
 * `oneOrder` is for a sink whose readers rely on the order of commit across alarms and values, such as a file that is read
 * line by line, and for one that gathers. Any other sink is offered urgent events (alarms, gateways, results of commands)
 * before the values that wait for it, in the order of commit among themselves.
 *
 * `mayRepeat` says that what comes twice after a crash does no harm there, because it takes the place of what came
 * first: a retained message, a point of the same time. Then what was accepted need not be on the disk at once, but goes
 * along with the next transaction: up to 100 events may come twice after a crash, also of batches that were settled.
 *
 * `waiting` is for a sink that settles events before the far end has what follows from them: the number of things that it
 * has still to send. It is part of the sink's lag.
 *
 * `test` opens, changes and closes a marked test alarm where people look, and says of each step what came of it.
 */
export interface Sink {
  readonly maxBatch?: number;
  readonly farEnd?: string;
  readonly mayRepeat?: true;
  readonly oneOrder?: true;
  open(signal: AbortSignal): Promise<void>;
  write(batch: readonly Event[], signal: AbortSignal, accepted?: Accepted, offer?: Offered): Promise<Receipt>;
  close(): Promise<void>;
  lastStepMs?(): number;
  waiting?(): number;
  tick?(signal: AbortSignal): Promise<Ticked>;
  look?(before: string | null, signal: AbortSignal): Promise<ServerInstance | null>;
  probe?(signal: AbortSignal): Promise<void>;
  keepsMs?(signal: AbortSignal): Promise<number | null>;
  test?(say: (line: string) => void, signal: AbortSignal): Promise<void>;
}

/**
 * So many events at the beginning of the batch are accepted; with them something may be remembered, which belongs into
 * the receipt as well: it covers what could not be settled early.
 */
export type Accepted = (count: number, remember?: SinkStateChange) => void;

/** Where the events of a batch stand in the log. */
export interface Offered {
  /**
   * One for each event, ascending; of one that comes again the same as before. 0 for an event that is marked `snapshot`:
   * it stands nowhere in the log, and what stands there may still follow.
   */
  readonly positions: readonly number[];
  /** When the worker committed each, UTC; empty where it stands nowhere in the log. */
  readonly committedAt: readonly string[];
  /** They were delivered before, and somebody wants them once more. */
  readonly again: boolean;
  /**
   * One for each event, where the sink's `sequence` is on: its number in the unbroken count of what this sink was offered,
   * the same however often it is offered until it is settled. Null for what is not counted: an event that is marked
   * `snapshot`, and one that comes again after it was settled, but for a dead letter, which has the number it had.
   */
  readonly sequences?: readonly (Sequence | null)[];
}

export interface Ticked {
  readonly remember?: SinkStateChange;
  /** Events that were accepted before, and that the far end turned out to refuse for good: dead letters. */
  readonly refused?: readonly { readonly position: number; readonly reason: string }[];
  /** See `Receipt`. */
  readonly failing?: Failing;
  /** All that was gathered is durable. */
  readonly settled?: true;
  /** After so many milliseconds it is wanted again. */
  readonly inMs: number;
}

/** What is to be remembered, by key; null forgets. Anything that JSON can say. */
export type SinkStateChange = ReadonlyMap<string, unknown>;

/** What one sink remembers, over restarts. It outlives everything but the state and the sink's name. */
export interface SinkState {
  get<T>(key: string): Promise<T | undefined>;
  all<T>(): Promise<ReadonlyMap<string, T>>;
  /** On the disk when it resolves: what is about to be done is written down first, so that a crash does not hide it. */
  put(remembered: SinkStateChange): Promise<void>;
}

/** What is believed now about the buildings; read only, and read anew at each call. */
export interface BuildingView {
  /** The alarms that are active by the service's last word, of all sources. */
  activeAlarms(): Promise<readonly AlarmView[]>;
  /** The last that is known of an alarm; undefined when it is not known, or not any more. */
  alarm(source: string, id: string): Promise<AlarmView | undefined>;
  inventory<N extends keyof Inventory>(noun: N): Promise<readonly ListedObject<Inventory[N]>[]>;
  /** One thing by its id, as it was last listed; undefined when it is not known. Costs the same however many there are. */
  one<N extends keyof Inventory>(noun: N, source: string, id: string): Promise<Inventory[N] | undefined>;
  /** When a thing was first listed, UTC; undefined when it is not known. */
  firstListed(noun: keyof Inventory, source: string, id: string): Promise<string | undefined>;
  /** Whether the tags of a site's systems have been listed once: before, a tag without systems may have some. */
  hasListedSystems(source: string, siteId: string): Promise<boolean>;
  /** The systems whose listings show a tag; empty when none does, or their tags are not listed. */
  systemsOf(source: string, tagId: string): Promise<readonly System[]>;
  values(): Promise<readonly ValueView[]>;
  /**
   * Which systems each tag has that lists show and that has one; empty where nobody learns it
   * (`inventory.tags_of_systems`).
   */
  tagSystems(): Promise<readonly TagSystemsView[]>;
  /**
   * How the tag that an alarm is about went, and up to 19 others of its systems: its own first, and each only where a
   * value is known. From the state alone: the service is not asked, and of the log the newest 75,000 events are looked
   * through; names and systems of tags are read at most once a minute. Empty where no tag of the site has the name that
   * the alarm gives, or several have.
   */
  curves(source: string, alarm: Alarm, span: TimeRange): Promise<readonly TimeSeries[]>;
  /** Agreed times in which people are not told of alarms, those to come included. */
  silences(): Promise<readonly SilenceView[]>;
  /** Whether the alarms and tags of every source have been read once: before, what is not there says nothing. */
  isWhole(): Promise<boolean>;
  /** IANA zone of a source's buildings; UTC where the source is not known. */
  timeZone(source: string): string;
}

/** How a tag went. */
export interface TimeSeries {
  readonly tag: Tag;
  /** Ascending by time; null where it could not be read. */
  readonly points: readonly TimeSeriesPoint[];
}

export interface TimeSeriesPoint {
  /** Milliseconds since 1970. */
  readonly atMs: number;
  readonly value: TagValue;
}

/** Milliseconds since 1970. */
export interface TimeRange {
  readonly fromMs: number;
  readonly toMs: number;
}

export interface Inventory {
  readonly site: Site;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
  readonly tag: Tag;
}

export interface ListedObject<T> {
  /** Name of the source. */
  readonly source: string;
  readonly siteId: number | null;
  readonly value: T;
  /** False while complete listings do not show it. */
  readonly isThere: boolean;
}

export interface AlarmView {
  readonly source: string;
  readonly alarm: Alarm;
  readonly episode: string;
  /** As in the snapshot: `resolved` and `vanished` are ends. */
  readonly state: "active" | "missing" | "out-of-scope" | "resolved" | "vanished";
}

export interface SilenceView {
  /** Milliseconds since 1970. */
  readonly fromMs: number;
  readonly toMs: number;
  covers(source: string, alarm: Alarm): boolean;
}

export interface TagSystemsView {
  readonly source: string;
  readonly siteId: number | null;
  readonly tag: Tag;
  /** By id. */
  readonly systems: TagSystemsFact["systems"];
}

export interface ValueView {
  readonly source: string;
  readonly siteId: number | null;
  readonly tag: Tag;
  readonly value: TagValue;
  readonly quality: Quality;
  /** When it was read, UTC. */
  readonly time: string;
  /** The last value that was not null, and its time; null when there never was one. */
  readonly lastGood: { readonly value: TagValue; readonly time: string } | null;
}

export interface ServerInstance {
  readonly life: string;
  readonly isNew: boolean;
}

export interface Receipt {
  readonly rejected: readonly Rejection[];
  readonly kept?: { readonly from: number; readonly error: unknown };
  readonly remember?: SinkStateChange;
  /** The whole batch was taken, and nothing of it is durable yet. Never together with `kept`. */
  readonly gathered?: true;
  /** The sink accepted the batch, and has still to send what follows from it: its failure is shown in its status. */
  readonly failing?: Failing;
  /** `tick` is wanted after so many milliseconds, if that is earlier than the last tick said. */
  readonly tickInMs?: number;
}

/** A failure that a sink retries by itself, because other events are not to wait for it. */
export interface Failing {
  readonly error: unknown;
  /** Calls that failed since the last one that succeeded. */
  readonly attempts: number;
  /** The next attempt is in so many milliseconds. */
  readonly inMs: number;
}

export interface Rejection {
  readonly index: number;
  readonly reason: string;
}

/** The receipt of a batch that was accepted whole. */
export const ACCEPTED: Receipt = { rejected: [] };

/**
 * Where commands come from.
 *
 * `open` starts listening and returns; arrivals are handed to `accept` one at a time. `accept` resolves when the
 * command is durable (journaled or refused with a published result); only then may the connector acknowledge it
 * to its broker. When `accept` rejects, the connector must not acknowledge.
 */
export interface CommandSource {
  open(accept: Accept, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export type Accept = (arrival: Arrival) => Promise<void>;

/** A command as it arrived, before anybody believed a word of it. */
export interface Arrival {
  /** The connector instance, e.g. the sink's name in the configuration. */
  readonly via: string;
  /** The topic it came on, or what corresponds to it. */
  readonly topic: string;
  /** The tag that the topic names; null when the payload has to say it. */
  readonly tagId: string | null;
  /** Present where the topic is for a second person's word on a command, and for nothing else. */
  readonly purpose?: "second";
  /** The source that the topic names; null when there is only one, or the payload has to say it. */
  readonly source: string | null;
  readonly payload: Uint8Array;
  /** True when the broker replayed it from its memory instead of passing it on fresh. */
  readonly retained: boolean;
  /** True when the broker says it may have sent this before. */
  readonly duplicate: boolean;
  /** Remaining life in seconds as the broker states it (MQTT 5 message expiry); null when it does not. */
  readonly expirySeconds: number | null;
  /** MQTT 5 response topic; null when there is none. */
  readonly replyTo: string | null;
  /** MQTT 5 correlation data, base64; null when there is none. */
  readonly correlation: string | null;
  /** MQTT 5 user properties or what corresponds to them. */
  readonly properties: Readonly<Record<string, string>>;
  /** Wall time of arrival, milliseconds since 1970. */
  readonly receivedAtMs: number;
}

/**
 * In a fleet each source has sinks of its own, wherever it is held: the same one source at another machine later, and
 * other sources at the same time elsewhere. So a name at the far end has to name the source, and not the machine.
 */
export interface FleetAssignment {
  /** Tells this fleet from others: 8 hexadecimal digits, the same in all members. */
  readonly fleet: string;
  readonly source: string;
  /** A wall clock that all members have in common, milliseconds since 1970: for what one remembers and another compares. */
  now(): number;
}

/** What the engine hands to a connector; there are no globals. */
export interface ConnectorContext {
  /** The instance's name in the configuration. */
  readonly name: string;
  /** Tells this worker from the one whose state it was copied from; absent where it was not. */
  readonly identity?: string;
  /** A source follows history, so days are accounted for and `day-sealed` comes; absent where none does. */
  readonly followsHistory?: true;
  /** Which part of its work this is; absent where one worker does all of it. */
  readonly share?: FleetAssignment;
  readonly log: Log;
  readonly clock: Clock;
  readonly metrics: Metrics;
  readonly memory: SinkState;
  readonly picture: BuildingView;
  /** Numbers from 0 up to 1, for tests; `Math.random` without this. */
  readonly random?: () => number;
}

export interface SharedStore {
  /** The option that leads both there, below the connector's name. */
  readonly path: readonly string[];
  /** For the sentence "The sinks a and b would …": `write the same files: give one of them another folder`. */
  readonly would: string;
  /** It bears two that are offered different events, by their filters. */
  readonly bearsOthers?: true;
}

/** A connector as the catalogue lists it. A capability is the presence of its function. */
export interface ConnectorDefinition<C = unknown> {
  readonly name: string;
  /** One line for `plenum check` and the documentation. */
  readonly summary: string;
  readonly Config: ZodType<C>;
  /**
   * Waits between the attempts for one event that the far end answers but does not take (`Rejected`), in
   * milliseconds, where a convention names them; after the last it becomes a dead letter. A sink's `schedule`
   * overrides it. Absent: tried as long as it is kept.
   */
  readonly scheduleMs?: readonly number[];
  /** The far end gets `Offered.sequences`; without this a sink of it that asks for `sequence` is refused. */
  readonly carriesSequence?: true;
  /**
   * Where a person finds there what is told with an event: a topic, or a question that the far end understands, ready to be
   * copied; null where it keeps no such event.
   */
  whereIs?(config: C, event: Event): string | null;
  /**
   * What two sinks of it have in common that each needs for itself, such as a folder; null where nothing. Two that do are
   * refused by the configuration.
   */
  shared?(one: C, other: C): SharedStore | null;
  /** A promise where more than a few files belong to it: they are loaded only where such a sink is configured. */
  sink?(config: C, context: ConnectorContext): Sink | Promise<Sink>;
  /** The kinds of events that its sinks use, as patterns; they are offered no others. Absent or undefined: all of them. */
  kinds?(config: C): readonly string[] | undefined;
  commands?(config: C, context: ConnectorContext): CommandSource | Promise<CommandSource>;
}

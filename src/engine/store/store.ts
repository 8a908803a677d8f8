import type { EventNumber } from "../../core/model/delivery-sequence.ts";
import type { DeliveryGap, Event, EventKind } from "../../core/model/event.ts";

/** Durable state of a worker. A commit that has returned survives a kill and a power cut. */
export interface Store {
  document<T>(setName: string, key: string): Promise<T | undefined>;
  documents<T>(setName: string): Promise<Map<string, T>>;
  /** Returns a number that changes when this process may have changed the set, for caches. */
  version(setName: string): Promise<number>;
  /** Returns a number that changes when any process may have changed anything. */
  changes(): Promise<number>;
  /** Returns the keys of documents that are absent because they were damaged. */
  damagedKeys(setName: string): Promise<readonly string[]>;
  /** Commits everything or nothing. Rejects with `DocumentKeyConflict` when an `insert` finds its key taken. */
  commit(change: StoreChange): Promise<StoreCommitResult>;
  /** Stores a document with the next transaction, after 5 s at most; resolves once it is durable. */
  putDeferred(setName: string, key: string, value: unknown): Promise<void>;
  records<T>(log: string, afterSequence: number, limit: number): Promise<readonly LogRecord<T>[]>;
  lastRecord<T>(log: string): Promise<LogRecord<T> | undefined>;
  readonly outbox: Outbox;
  readonly quotaStore: QuotaStore;
  describe(): Promise<StoreDescription>;
  /** Aborts when the state is damaged beyond repair while it is open: close it and open it again. */
  readonly damaged?: AbortSignal;
  close(): Promise<void>;
}

export interface StoreChange {
  readonly documents?: readonly DocumentChange[];
  readonly events?: readonly Event[];
  readonly records?: readonly { readonly log: string; readonly body: unknown }[];
}

export interface DocumentChange {
  readonly set: string;
  readonly put?: Iterable<readonly [key: string, value: unknown]>;
  /** Like `put`, but the whole commit is refused when a key exists already. */
  readonly insert?: Iterable<readonly [key: string, value: unknown]>;
  readonly remove?: Iterable<string>;
}

/** Result of a commit. `repeated` lists ids that were in the log already; these events are not emitted again. */
export interface StoreCommitResult {
  readonly lastPosition: number;
  readonly repeated: readonly string[];
}

export class DocumentKeyConflict extends Error {
  readonly set: string;
  readonly key: string;
  constructor(set: string, key: string) {
    super(`${set} already holds ${key}.`);
    this.name = "Conflict";
    this.set = set;
    this.key = key;
  }
}

export interface LogRecord<T> {
  readonly sequence: number;
  readonly body: T;
  readonly damaged?: true;
}

export interface StoreDescription {
  readonly file: string;
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Name of the quarantined state file if the state was damaged at the start. */
  readonly quarantinedFile?: string;
  readonly recoveryMessage?: string;
  readonly lostLogMessage?: string;
  /** Present when this state is a copy whose original may be in use. */
  readonly copy?: KnownStateCopy;
  readonly damaged: readonly DamagedRows[];
}

export interface StateCopy {
  /** Suffix of the names under which the copy connects to servers: 8 hexadecimal digits. */
  readonly identity: string;
  readonly at: string;
  readonly from: { readonly folder: string; readonly host: string };
  readonly isHere: boolean;
}

export interface KnownStateCopy extends StateCopy {
  readonly isOriginalThere: boolean;
}

export interface DamagedRows {
  readonly table: string;
  readonly part: string;
  readonly rows: number;
  readonly lastFound: string;
}

/** Names of the document sets that each source has; a key is the object's id as text. */
export type SetName = "site" | "gateway" | "host" | "system" | "tag" | "alarm" | "value" | "history" | "poll" | "token";

export function sinkStateSet(sink: string): string {
  return `memory/${sink}`;
}

export function documentSet(name: SetName, source: string): string {
  return `${name}/${source}`;
}

export interface LoggedEvent {
  readonly position: number;
  readonly committedAt: string;
  readonly event: Event;
  /** Sequence number of a dead letter that is offered again. */
  readonly sequence?: EventNumber;
}

/** Selects events of one source about the listed subjects and the subjects below them. */
export interface EventQuery {
  readonly source: string;
  readonly subjects: readonly string[];
}

export interface Outbox {
  register(sink: string, from: "now" | "beginning"): Promise<SinkPosition>;
  /** Returns events to send again, else those after the cursor. `afterPosition` skips events that a filter left out. */
  next(sink: string, limit: number, afterPosition?: number): Promise<OfferedEvents>;
  /** Returns urgent events: those to send again, or else those after the cursor, `after` and `seenThrough`. */
  nextUrgent(
    sink: string,
    limit: number,
    bounds?: { readonly after: number; readonly seenThrough: number },
  ): Promise<OfferedEvents>;
  settle(sink: string, settlement: SettledBatch): Promise<void>;
  /** Ends a sink or continues it (null). An ended sink keeps its cursor, but the log retains no events for it. */
  setEnded(sink: string, reason: string | null): Promise<void>;
  deadLetters(sink?: string, limit?: number): Promise<readonly DeadLetter[]>;
  resendDeadLetters(sink: string, ids: readonly number[] | "all"): Promise<number>;
  discardDeadLetters(sink: string, ids: readonly number[] | "all"): Promise<number>;
  /** Marks events that were committed since a time (UTC) to be sent again; returns how many. */
  replay(sink: string, since: string, kinds?: readonly EventKind[]): Promise<number>;
  /** Marks stored events between two positions to be sent again; urgent events only after `urgentAfter`, if given. */
  replayBetween(sink: string, afterPosition: number, throughPosition: number, urgentAfter?: number): Promise<number>;
  lag(lagFilters?: ReadonlyMap<string, LagFilter>): Promise<readonly SinkLag[]>;
  pressure(): Promise<EventLogPressure>;
  /** Removes events beyond the limits of age and size. Emits at most one gap event an hour for each sink's lost events. */
  prune(bounds: RetentionBounds): Promise<EventLogPruneReport>;
  /** Returns the newest events. `query` selects subjects from the whole log, which takes a second without a match. */
  latest(limit: number, kinds?: readonly EventKind[], query?: EventQuery): Promise<readonly LoggedEvent[]>;
  /** Returns the events after a position, ascending, settled or not; fewer than `limit` when they are large. */
  after(position: number, limit: number): Promise<readonly LoggedEvent[]>;
  /** Returns recent events about exactly these subjects, newest first. Searches in steps: 75,000 events take 0.1 s. */
  recent(query: EventQuery, kinds: readonly EventKind[], bounds: RecentEventBounds): Promise<readonly LoggedEvent[]>;
  /** Resolves when this process commits an event or marks an event to be sent again, or when the signal aborts. */
  waitForChange(signal: AbortSignal): Promise<void>;
}

export interface RecentEventBounds {
  readonly sinceMs: number;
  readonly maxSearched: number;
  readonly limit: number;
}

export interface EventLogPressure {
  readonly bytes: number;
  /** Bytes of the events that the slowest sink in use has not settled, without those marked to be sent again. */
  readonly pendingBytes: number;
  readonly oldestTelemetry: string | null;
}

export interface OfferedEvents {
  readonly events: readonly LoggedEvent[];
  /** True when the events are marked to be sent again; they may be older than the cursor. */
  readonly isRepeat: boolean;
  /** True when the offer skips events that are not urgent: settling it does not move the cursor. */
  readonly urgent?: boolean;
  /** Urgent events of the offer up to this position are settled already. */
  readonly urgentThrough?: number;
  /** Sequence number before the first event of the offer; undefined for marked events. */
  readonly counted: EventNumber | undefined;
}

export interface SettledBatch {
  readonly isRepeat: boolean;
  readonly urgent?: boolean | undefined;
  readonly through: number;
  readonly rejected: readonly RejectedEvent[];
  /** Sequence number of the last settled event that passed the filter; undefined when none did. */
  readonly counted?: EventNumber | undefined;
  readonly documents?: readonly DocumentChange[];
  /** Allows storing the cursor with the next transaction, for a sink that tolerates repeats. */
  readonly mayDefer?: boolean;
}

export interface RejectedEvent {
  readonly position: number;
  readonly reason: string;
  readonly sequence?: EventNumber | undefined;
}

export interface SinkPosition {
  readonly sink: string;
  readonly position: number;
  /** Position up to which urgent events are settled; it may be before `position`. */
  readonly urgent: number;
  readonly ended: string | null;
}

export interface LagFilter {
  readonly kinds: readonly EventKind[];
  readonly kindsOnly: boolean;
  readonly matches: (event: Event) => boolean;
}

export interface SinkLag extends SinkPosition {
  readonly depth: number;
  /** Commit time of the oldest event that `depth` counts. */
  readonly oldest: string | null;
  /** False when counting would be expensive: `depth` and `again` are then upper bounds. */
  readonly exact: boolean;
  readonly deadLetters: number;
  readonly again: number;
  readonly dropped: number;
  readonly remembered: number;
}

export interface DeadLetter {
  readonly id: number;
  readonly sink: string;
  readonly reason: string;
  readonly at: string;
  /** Sequence number that the receiver misses; absent if the event had none. */
  readonly sequence?: EventNumber;
  /** Null if the event is damaged: then `bytes` has the content, which cannot be sent again. */
  readonly event: Event | null;
  readonly bytes?: string;
}

export interface RetentionBounds {
  /** Maximum size of the log. A full log shrinks to 95 %: settled events leave first, then telemetry, then others. */
  readonly maxBytes: number;
  /** Time since the last call in which the worker ran with a trusted clock. Events age only by this time. */
  readonly ranMs: number;
  readonly maxAgeMs: number;
  readonly replayMs: number;
  /** Returns whether a sink's filter matches an event; without it every unsettled event counts as lost. */
  readonly wanted?: (sink: string, event: Event) => boolean;
}

export interface EventLogPruneReport {
  readonly removed: number;
  readonly gaps: readonly DeliveryGap[];
}

/** Stores requests that may still count against a quota, each before it is sent. */
export interface QuotaStore {
  load(key: string): Promise<readonly QuotaSlot[]>;
  save(key: string, slot: QuotaSlot): Promise<void>;
  /** Stores a sent request with the next transaction, after 5 s at most; resolves when it is durable. */
  saveDeferred(key: string, slot: QuotaSlot): Promise<void>;
  forgetSlots(key: string, beforeMs: number): Promise<void>;
  loadPause(key: string): Promise<QuotaPause | undefined>;
  savePause(key: string, pause: QuotaPause): Promise<void>;
  loadClock(key: string, boot: string): Promise<BootClockMark | undefined>;
  saveClock(key: string, boot: string, mark: BootClockMark): Promise<void>;
}

export interface BootClockMark {
  readonly wallMs: number;
  readonly sinceBootMs: number;
}

export interface QuotaPause {
  /** Time at which the service ordered the pause, to detect a clock that was set back. */
  readonly orderedAtMs: number;
  readonly untilMs: number;
}

export interface QuotaSlot {
  readonly id: number;
  readonly sentAtMs: number;
  /** Latest time at which the service may have counted the request; exact after the response. */
  readonly countedByMs: number;
}

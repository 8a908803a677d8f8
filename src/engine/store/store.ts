import type { Event, Kind } from "../../core/model/event.ts";
import type { Sequence } from "../../core/model/sequence.ts";

/**
 * The durable memory of a worker: what it believes, what it has told, who has heard it, what it has sent.
 *
 * Everything is asynchronous, so that another database can stand here when several workers share the work.
 * A commit that has returned survives a kill and a power cut (given a disk that honours fsync).
 *
 * Three shapes serve every room:
 * - documents: sets of JSON values by key: snapshots, watermarks, ledgers, journal entries;
 * - the outbox: one append-only log of events with one cursor per sink;
 * - logs: append-only records with a sequence, such as the audit log.
 */
export interface Store {
  document<T>(set: string, key: string): Promise<T | undefined>;
  /** A document that is damaged is absent, and set aside. */
  documents<T>(set: string): Promise<Map<string, T>>;
  /** Another number whenever this process may have changed the set, for whoever keeps what was made of it. */
  version(set: string): Promise<number>;
  /** Another number whenever anybody may have changed anything, other processes included. */
  changes(): Promise<number>;
  /** Keys of documents that were damaged and are absent since, for whom it matters that they were there. */
  damagedKeys(set: string): Promise<readonly string[]>;
  /** One transaction: all of it or nothing. Rejects with `Conflict` when an `insert` finds its key taken. */
  commit(change: Change): Promise<Committed>;
  /**
   * Puts a document that may wait: with the next transaction, and after 5 s in one of its own. Of one document the last
   * word counts; a crash may leave the one before. Resolves once it is durable.
   */
  putSoon(set: string, key: string, value: unknown): Promise<void>;
  /** Records of a log after a sequence number, ascending. */
  records<T>(log: string, after: number, limit: number): Promise<readonly LogRecord<T>[]>;
  lastRecord<T>(log: string): Promise<LogRecord<T> | undefined>;
  readonly outbox: Outbox;
  readonly quotaMemory: QuotaStore;
  /** Size on disk in bytes, and the schema's version. */
  describe(): Promise<StoreDescription>;
  /** Aborts when the state is found damaged and cannot be repaired while it is open: close it and open it again. */
  readonly damaged?: AbortSignal;
  close(): Promise<void>;
}

export interface Change {
  readonly documents?: readonly DocumentChange[];
  readonly events?: readonly Event[];
  readonly records?: readonly { readonly log: string; readonly body: unknown }[];
}

export interface DocumentChange {
  readonly set: string;
  readonly put?: Iterable<readonly [key: string, value: unknown]>;
  /** As `put`, but the whole commit is refused with `Conflict` when a key exists already. */
  readonly insert?: Iterable<readonly [key: string, value: unknown]>;
  readonly remove?: Iterable<string>;
}

/** What a commit did: events whose id was in the log already are not told twice, and are listed here. */
export interface Committed {
  readonly lastPosition: number;
  readonly repeated: readonly string[];
}

export class Conflict extends Error {
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
  /** Empty when the record is damaged. */
  readonly body: T;
  /** The record is not what was written; it keeps its place. */
  readonly damaged?: true;
}

export interface StoreDescription {
  readonly file: string;
  readonly bytes: number;
  readonly schemaVersion: number;
  /** Where a damaged state file was put at opening; absent when it was sound. */
  readonly setAside?: string;
  /** The same for people, with what was taken over and what was lost. */
  readonly takenOver?: string;
  /** For people: that the write-ahead log was missing at opening; absent when it was there. */
  readonly lostLog?: string;
  /** What this state was copied from, where the original may be in use as well; absent where it is no copy. */
  readonly copy?: SeenCopy;
  /** Rows that were not what had been written and are kept apart since; empty when all was sound. */
  readonly damaged: readonly DamagedRows[];
}

/** That a state is a copy of one that may be in use elsewhere. */
export interface StateCopy {
  /** What tells it from the original, where both introduce themselves to others: 8 hexadecimal digits. */
  readonly identity: string;
  /** When it was noticed, UTC. */
  readonly at: string;
  readonly from: { readonly folder: string; readonly host: string };
  /** Whether the original lies on this machine. */
  readonly isHere: boolean;
}

/** A copy, and whether the original can still be seen. */
export interface SeenCopy extends StateCopy {
  readonly isOriginalThere: boolean;
}

/** Damaged rows of one kind, for people. */
export interface DamagedRows {
  readonly table: string;
  /** The set, log, sink or bucket; of an event its kind. */
  readonly part: string;
  readonly rows: number;
  /** ISO 8601 UTC. */
  readonly lastFound: string;
}

/** The snapshot sets of one source; a key is the object's id as text. */
export type SnapshotName =
  | "site"
  | "gateway"
  | "host"
  | "system"
  | "tag"
  | "alarm"
  | "value"
  | "history"
  | "poll"
  | "token";

/** What a sink remembers, by its own keys. */
export function sinkStateSet(sink: string): string {
  return `memory/${sink}`;
}

export function documentSet(name: SnapshotName, source: string): string {
  return `${name}/${source}`;
}

/** An event in the log, with its place. */
export interface LoggedEvent {
  readonly position: number;
  readonly committedAt: string;
  readonly event: Event;
  /** Of one that is offered again: the number that it had, where that is known. */
  readonly sequence?: Sequence;
}

/** Events of one source about certain subjects, and what lies below them. */
export interface EventsAbout {
  readonly source: string;
  readonly subjects: readonly string[];
}

export interface Outbox {
  /** Makes a sink known. A new one starts at the end of the log (`now`) or at its beginning. */
  register(sink: string, from: "now" | "beginning"): Promise<SinkPosition>;
  /**
   * What a sink is to be offered next: events marked to be sent again first (with their old positions), then
   * the log after its cursor, ascending. Empty when there is nothing. It moves nothing; `settle` does.
   * `after` skips what the caller has looked at already and not settled yet, because its filter took it out.
   * An offer of large events may hold fewer than `limit`, though at least one.
   */
  next(sink: string, limit: number, after?: number): Promise<Offer>;
  /**
   * The urgent events that a sink is to be offered, before whatever else `next` offers: those marked to be sent again
   * first, then those of the log, ascending. `looked` is the last position up to which the caller has looked for them.
   */
  nextUrgent(
    sink: string,
    limit: number,
    skip?: { readonly after: number; readonly looked: number },
  ): Promise<Offer>;
  /** Moves a sink past an offer, in one transaction with its dead letters and what it remembers. */
  settle(sink: string, settlement: Settlement): Promise<void>;
  /**
   * Stops a sink for good (410 Gone, or taken out of the configuration), or lets it go on with null. An ended
   * sink keeps its cursor, holds nothing back in the log, and what it misses is not counted as dropped.
   */
  setEnded(sink: string, reason: string | null): Promise<void>;
  deadLetters(sink?: string, limit?: number): Promise<readonly DeadLetter[]>;
  /** Marks dead letters to be sent again; answers how many. */
  resendDeadLetters(sink: string, ids: readonly number[] | "all"): Promise<number>;
  discardDeadLetters(sink: string, ids: readonly number[] | "all"): Promise<number>;
  /** Marks events that were committed at or after a time (UTC) to be sent again, same ids; answers how many. */
  replay(sink: string, since: string, kinds?: readonly Kind[]): Promise<number>;
  /**
   * The same for the events after a position and up to another, as far as the log still holds them; for urgent events
   * only after `urgentAfter` where that is given.
   */
  replayBetween(sink: string, after: number, through: number, urgentAfter?: number): Promise<number>;
  /** How far each sink is behind; `wanted` names the sinks whose filters leave something out. */
  lag(wanted?: ReadonlyMap<string, Wanted>): Promise<readonly SinkLag[]>;
  pressure(): Promise<LogPressure>;
  gaps(sink?: string): Promise<readonly StoredGap[]>;
  /**
   * Enforces the bounds, in short transactions with time for others between them. What a sink had not settled
   * is lost to it: counted, and gathered in a gap record in the same transaction. A gap is told as a
   * `delivery-gap` event at once, and what the same sink loses within an hour after that as one more.
   */
  prune(bounds: RetentionBounds): Promise<PruneReport>;
  /**
   * Latest events, newest first, for the status page and the command line. Those about one thing are looked for in the
   * whole log: at once where they are recent, in a second where a full log has none.
   */
  latest(limit: number, kinds?: readonly Kind[], about?: EventsAbout): Promise<readonly LoggedEvent[]>;
  /** Events after a position, ascending, whoever has settled them; fewer than `limit` where they are large. */
  after(position: number, limit: number): Promise<readonly LoggedEvent[]>;
  /**
   * Of the newest events those about exactly these subjects, newest first. However full the log is, it looks at no more
   * than the bounds say: a tenth of a second for 75,000 events.
   */
  recent(about: EventsAbout, kinds: readonly Kind[], bounds: RecentBounds): Promise<readonly LoggedEvent[]>;
  /** Resolves when an event is committed or a redelivery is marked by this process, or the signal aborts. */
  changed(signal: AbortSignal): Promise<void>;
}

export interface RecentBounds {
  /** Committed since then, milliseconds since 1970. */
  readonly sinceMs: number;
  /** At most so many events are passed over, whatever they are about. */
  readonly within: number;
  /** At most so many are answered. */
  readonly limit: number;
}

/** How full the log is, and with what. */
export interface LogPressure {
  readonly bytes: number;
  /** Bytes of the events that the slowest sink in use has not settled; what is marked to be sent again not included. */
  readonly pendingBytes: number;
  /** When the oldest value that is still there was committed; null when none is. */
  readonly oldestTelemetry: string | null;
}

export interface Offer {
  readonly events: readonly LoggedEvent[];
  /** True when these are marked to be sent again; they may be older than the cursor. */
  readonly again: boolean;
  /** True when the offer passes over events that are not urgent: settling it leaves the cursor where it is. */
  readonly urgent?: boolean;
  /** Urgent events of the offer up to this position are settled already. */
  readonly urgentThrough?: number;
  /** The number of the last event that the sink was offered before these; of marked ones undefined. */
  readonly counted: Sequence | undefined;
}

export interface Settlement {
  readonly again: boolean;
  /** As in the offer. */
  readonly urgent?: boolean | undefined;
  /** Position of the last event of the offer that is settled (accepted, rejected or filtered out). */
  readonly through: number;
  readonly rejected: readonly Refusal[];
  /** The number of the last event of the offer that is settled and passed the filter; undefined when none did. */
  readonly counted?: Sequence | undefined;
  /** What the sink wants to be remembered with it, in the same transaction. */
  readonly documents?: readonly DocumentChange[];
  /**
   * The cursor may reach the disk with the next transaction, 5 s later at most: for a sink to which nothing happens when
   * it gets after a crash once more what it had. Only a plain move waits.
   */
  readonly soon?: boolean;
}

/** An event that a sink will never take, and the number that it used up. */
export interface Refusal {
  readonly position: number;
  readonly reason: string;
  readonly sequence?: Sequence | undefined;
}

export interface SinkPosition {
  readonly sink: string;
  readonly position: number;
  /** Urgent events up to here are settled as well; it may lie before `position`. */
  readonly urgent: number;
  /** Why the sink was ended for good; null while it is in use. */
  readonly ended: string | null;
}

/** What a sink's filter lets through, as far as counting has to know it. */
export interface Wanted {
  readonly kinds: readonly Kind[];
  /** True when the kind alone decides. */
  readonly byKind: boolean;
  readonly matches: (event: Event) => boolean;
}

export interface SinkLag extends SinkPosition {
  /** Events after the cursor that the sink will get. */
  readonly depth: number;
  /** When the oldest of them was committed; null when there is none. */
  readonly oldest: string | null;
  /** False where counting would be expensive: then `depth` and `again` say how many it can be at most. */
  readonly exact: boolean;
  readonly deadLetters: number;
  /** Events that it will get once more. */
  readonly again: number;
  readonly dropped: number;
  /** What the sink remembers, entries. */
  readonly remembered: number;
}

export interface DeadLetter {
  readonly id: number;
  readonly sink: string;
  readonly reason: string;
  readonly at: string;
  /** The number that it used up, which a receiver misses; absent where it had none. */
  readonly sequence?: Sequence;
  /** Null when it is damaged; then it cannot be sent again, and `bytes` is what was found. */
  readonly event: Event | null;
  readonly bytes?: string;
}

export interface StoredGap {
  readonly sink: string;
  readonly reason: "age" | "size";
  readonly firstTime: string;
  readonly lastTime: string;
  readonly count: number;
  readonly at: string;
}

export interface RetentionBounds {
  /**
   * Bytes that the log takes. Beyond, goes first what every sink has, then telemetry, then facts, each from the
   * oldest on, until a twentieth is free: a full log shrinks in rare large steps, each with one gap record.
   */
  readonly maxBytes: number;
  /**
   * Milliseconds that the worker has been running since it asked last, by a clock that was not in doubt. Only this
   * makes events older.
   */
  readonly ranMs: number;
  /** Milliseconds of such time that an unsettled event is kept. */
  readonly maxAgeMs: number;
  /** Milliseconds of such time that an event is kept after every sink settled it, so that it can be sent again. */
  readonly replayMs: number;
  /** Whether a sink's filter matches an event; without it every unsettled event counts as lost to the sink. */
  readonly wanted?: (sink: string, event: Event) => boolean;
}

export interface PruneReport {
  readonly removed: number;
  /** What this run lost, by sink and reason. */
  readonly gaps: readonly StoredGap[];
}

/** Requests that may still count against a quota; written before each request leaves. */
export interface QuotaStore {
  load(key: string): Promise<readonly QuotaSlot[]>;
  save(key: string, slot: QuotaSlot): Promise<void>;
  /** The same with the next transaction that there is, after 5 s at most; resolves when it is durable. */
  saveSoon(key: string, slot: QuotaSlot): Promise<void>;
  forget(key: string, beforeMs: number): Promise<void>;
  /** The last pause that the service ordered; the next one takes its place. */
  loadHold(key: string): Promise<QuotaPause | undefined>;
  saveHold(key: string, hold: QuotaPause): Promise<void>;
  /** How the wall clock stood during this run of the machine; the last one saved. */
  loadClock(key: string, boot: string): Promise<ClockMark | undefined>;
  saveClock(key: string, boot: string, mark: ClockMark): Promise<void>;
}

/** One moment by two clocks: by the wall, milliseconds since 1970, and since the machine was started. */
export interface ClockMark {
  readonly wallMs: number;
  readonly sinceBootMs: number;
}

/** Wall times, milliseconds since 1970. */
export interface QuotaPause {
  /** When it was ordered: shows later whether the clock was set back meanwhile. */
  readonly saidAtMs: number;
  readonly untilMs: number;
}

export interface QuotaSlot {
  readonly id: number;
  /** Wall time, milliseconds since 1970, of the send. */
  readonly sentAtMs: number;
  /** The latest moment at which the service can have counted it; until the response is in, an upper bound. */
  readonly countedByMs: number;
}

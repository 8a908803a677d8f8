import { type Event, isTelemetry, isUrgent, KINDS, type Kind, makeEvent } from "../../core/model/event.ts";
import type { Sequence } from "../../core/model/sequence.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { LoggedEvent, RetentionBounds, SinkPosition, StoredGap, Wanted } from "./store.ts";

/** A crash has no sink get more than so many events once more, by the promise. */
export const IN_FLIGHT = 100;

/** How far a sink is before the disk says so. */
export interface Ahead {
  readonly through: number;
  readonly counted: Sequence | undefined;
}

/** The one of two that is further on. */
export function further(before: Ahead | undefined, now: Ahead): Ahead {
  if (before === undefined) return now;
  const [first, last] = before.through <= now.through ? [before, now] : [now, before];
  return { through: last.through, counted: last.counted ?? first.counted };
}

/** Whether these are the very next events after a position, so that settling them moves the cursor. */
export function followsOn(events: readonly LoggedEvent[], position: number): boolean {
  return (events.at(-1)?.position ?? 0) === position + events.length;
}

/** Milliseconds since 1970 of a time that somebody wrote. */
export function sinceMs(since: string): number {
  const ms = Date.parse(since);
  if (Number.isNaN(ms)) throw new RangeError(`${since} is not a time; write it as 2026-11-02T06:00:00Z.`);
  return ms;
}

/** How far a sink is behind: what its filter leaves out nobody waits for. */

/** Events that are looked at one by one for each sink: about 4 ms. Beyond, the count of their class is the most it can be. */
export const LOOK_EVENTS = 2_000;
/** Bytes of events that are read to ask a filter about more than their kind: about 10 ms. */
const LOOK_BYTES = 1024 ** 2;

/** An event that a sink has still to get. */
export interface PendingRow {
  readonly position: number;
  /** Null for a dead letter whose event has left the log: the sink was offered it, so its filter matches. */
  readonly kind: Kind | null;
  readonly bytes: number;
  readonly committed_ms: number;
}

/** How many events, and since when they wait. */
export interface Count {
  readonly events: number;
  /** When the first of them was committed, milliseconds since 1970. */
  readonly oldestMs: number | null;
  readonly exact: boolean;
}

export const NONE: Count = { events: 0, oldestMs: null, exact: true };

/** The filter of a sink that has none. */
export const EVERYTHING: Wanted = { kinds: KINDS, byKind: true, matches: () => true };

/** How many events of one class, telemetry or facts, lie behind a cursor, and the first of them. */
export interface ClassCount {
  readonly telemetry: number;
  readonly events: number;
  readonly first: number | null;
}

/** The classes of which a filter lets something through, and whether it lets all of them through. */
export function wantedOf(classes: readonly ClassCount[], wanted: Wanted) {
  const isOf = (telemetry: number) => (kind: Kind) => isTelemetry(kind) === (telemetry === 1);
  const open = classes.filter(({ telemetry, events }) => events > 0 && wanted.kinds.some(isOf(telemetry)));
  const isExact =
    wanted.byKind &&
    open.every(({ telemetry }) => KINDS.filter(isOf(telemetry)).every((kind) => wanted.kinds.includes(kind)));
  return { open, events: open.reduce((sum, each) => sum + each.events, 0), isExact };
}

/** Rows of the kinds that a filter lets through, and whether it would take too long to read them. */
export function rowsOfKinds(rows: readonly PendingRow[], wanted: Wanted) {
  const ofKind = rows.filter(({ kind }) => kind === null || wanted.kinds.includes(kind));
  return { ofKind, isLarge: ofKind.reduce((sum, row) => sum + row.bytes, 0) > LOOK_BYTES };
}

/** What rows come to. */
export function counted(rows: readonly PendingRow[], exact: boolean): Count {
  const times = rows.map(({ committed_ms }) => committed_ms);
  const oldestMs = times.reduce<number | null>(
    (first, ms) => (first === null || ms < first ? ms : first),
    null,
  );
  return { events: rows.length, oldestMs, exact: exact || rows.length === 0 };
}

/** One gap event per sink and reason in this time; what is lost in between is gathered for the next one. */
export const MERGE_MS = 60 * 60_000;
/** How long told gaps can be looked up. */
export const RETAINED_MS = 90 * 24 * 60 * 60_000;

/** One event that one sink will not get, because it is gone. */
export interface Loss {
  readonly sink: string;
  readonly reason: "age" | "size";
  /** The event's own time. */
  readonly time: string;
}

/** Sums up gaps, one for each sink and reason. */
export function createGapSums() {
  const sums = new Map<string, StoredGap>();
  return {
    add(gaps: readonly StoredGap[]): void {
      for (const gap of gaps) {
        const key = `${gap.reason} ${gap.sink}`;
        const before = sums.get(key);
        sums.set(key, before === undefined ? gap : joined(before, gap));
      }
    },
    report: (): readonly StoredGap[] => [...sums.values()],
  };
}

/** What tells everybody of a gap. */
export function gapEvent(
  { sink, reason, firstTime, lastTime, count }: Omit<StoredGap, "at">,
  nowMs: number,
): Event<"delivery-gap"> {
  return makeEvent({
    type: "delivery-gap",
    source: "/plenum",
    subject: `sink/${sink}`,
    time: isoUtc(nowMs),
    facts: [reason, firstTime, lastTime, count, nowMs],
    data: { sink, reason, firstTime, lastTime, count },
  });
}

/** Losses of one moment as gaps, one for each sink and reason. */
export function summed(losses: readonly Loss[], nowMs: number): readonly StoredGap[] {
  const gaps = new Map<string, StoredGap>();
  for (const { sink, reason, time } of losses) {
    const key = `${reason} ${sink}`;
    const one: StoredGap = { sink, reason, firstTime: time, lastTime: time, count: 1, at: isoUtc(nowMs) };
    const before = gaps.get(key);
    gaps.set(key, before === undefined ? one : joined(before, one));
  }
  return [...gaps.values()];
}

function joined(a: StoredGap, b: StoredGap): StoredGap {
  return {
    ...a,
    firstTime: a.firstTime < b.firstTime ? a.firstTime : b.firstTime,
    lastTime: a.lastTime > b.lastTime ? a.lastTime : b.lastTime,
    count: a.count + b.count,
  };
}

/** What one transaction removes at most, so that others wait a few milliseconds only. */
export const SLICE_ROWS = 250;
export const SLICE_BYTES = 4 * 1024 ** 2;
/** A full log is emptied by a twentieth more than it has to be: rare large steps instead of constant nibbling. */
export const EMPTIED_TO = 0.95;
/** Dead letters may take this share of the log's bytes. */
export const LETTER_SHARE = 0.1;

/** An event that is about to go. */
export interface Leaving {
  readonly position: number;
  readonly committed_ms: number;
}

interface Losers {
  /** The sinks in use, and how far they are. */
  readonly sinks: readonly (Pick<SinkPosition, "position" | "urgent"> & { readonly name: string })[];
  /** Whether a sink is to get it once more. */
  readonly isMarked: (sink: string, position: number) => boolean;
  /** Null where it is not known what the event was. */
  readonly eventAt: (position: number) => Event | null;
  readonly wanted: RetentionBounds["wanted"];
}

/** Who loses what when these events go, as far as they wanted it, and which sinks lose one that they were never offered. */
export function lossesOf(
  leaving: readonly Leaving[],
  reason: Loss["reason"],
  { sinks, isMarked, eventAt, wanted }: Losers,
): { readonly lost: readonly Loss[]; readonly withoutOffer: ReadonlySet<string> } {
  const lost: Loss[] = [];
  const withoutOffer = new Set<string>();
  for (const { position, committed_ms } of leaving) {
    const without = sinks.filter((sink) => position > sink.position || isMarked(sink.name, position));
    if (without.length === 0) continue;
    const event = eventAt(position);
    const time = event?.time ?? isoUtc(committed_ms);
    for (const { name, position: cursor, urgent } of without) {
      const isDelivered = event !== null && isUrgent(event.type) && position <= urgent;
      if (isDelivered && !isMarked(name, position)) continue;
      if (event !== null && wanted?.(name, event) === false) continue;
      lost.push({ sink: name, reason, time });
      if (position > cursor && !isDelivered) withoutOffer.add(name);
    }
  }
  return { lost, withoutOffer };
}

import { isTelemetry, KINDS, type Kind } from "../../core/model/event.ts";
import type { Wanted } from "./store.ts";

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

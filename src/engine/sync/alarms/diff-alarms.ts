import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFact, Event, Kind } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import {
  type AlarmContext,
  announce,
  beginEpisode,
  continueEpisode,
  countMiss,
  isOpen,
  leaveScope,
  resolve,
  type Step,
  vanish,
} from "./diff-alarm.ts";
import {
  contradictsItself,
  fillFromStored,
  isEmittedEnd,
  isOfFormerEpisode,
  isOverBefore,
  isOvertaken,
  isResolved,
  isSameEpisode,
  orderOfActivity,
  type Relation,
  relationOf,
} from "./episode.ts";
import { endOf } from "./times.ts";

export interface AlarmReading {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  readonly doubted?: ReadonlySet<string>;
  /** Ids of alarms whose overtaken records enough polls have shown: they count. */
  readonly insisted?: ReadonlySet<string>;
  /** Ids of alarms whose listed start counts although it is not the stored one. */
  readonly corrected?: ReadonlySet<string>;
  readonly found: readonly Alarm[];
  readonly searched: ReadonlySet<string>;
  readonly scope: Scope | null;
}

/** Absent alarms are over (`complete`), unverified in a changing list (`moving`), or were not read (`none`). */
export type Coverage = "complete" | "moving" | "none";

export interface Scope {
  readonly before: ReadonlySet<number>;
  readonly after: ReadonlySet<number>;
}

export interface DiffOptions extends AlarmContext {
  readonly vanishAfterMisses: number;
  /** False for a site that is listed for the first time: Plenum did not see the beginning of its alarms. */
  readonly isKnownSite: (siteId: number) => boolean;
  /** Handling of a site's first list after the start of the worker, and the time of that start, UTC. */
  readonly startup: "reconcile" | "announce" | "silent";
  readonly startedAt: string;
  readonly isTakenOver: (alarm: Alarm) => boolean;
}

export interface AlarmDiff {
  readonly put: ReadonlyMap<string, StoredAlarm>;
  readonly events: readonly Event[];
}

type Steps = Generator<Step>;
type Alarms = ReadonlyMap<string, StoredAlarm>;

/** Returns open alarms that the list should show and does not, or shows with a newer episode. */
export function findAbsent(
  alarms: Alarms,
  listed: readonly Alarm[],
  coverage: (siteId: number) => Coverage,
  isVisible: (siteId: number) => boolean,
): readonly StoredAlarm[] {
  const records = new Map(listed.map((record) => [record.id, record]));
  return [...alarms.values()].filter((known) => {
    const { id, site } = known.alarm;
    if (!isOpen(known) || coverage(site.id) === "none") return false;
    const record = records.get(id);
    if (record !== undefined) return relationOf(known, record) === "newer";
    return known.state !== "out-of-scope" || isVisible(site.id);
  });
}

/** Compares stored alarms with one poll. Pure. Yields after each possible change, because 5,000 alarms take 100 ms. */
export function* diffAlarms(
  alarms: Alarms,
  seen: AlarmReading,
  options: DiffOptions,
): Generator<undefined, AlarmDiff, undefined> {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const apply = (steps: Iterable<Step>) => {
    const emitted: Event[] = [];
    for (const step of steps) {
      const { alarm } = step.stored;
      if (!isDeepStrictEqual(put.get(alarm.id) ?? alarms.get(alarm.id), step.stored)) put.set(alarm.id, step.stored);
      if (options.startup !== "silent" || options.isTakenOver(alarm)) emitted.push(...step.events);
    }
    events.push(...inEpisodeOrder(emitted));
  };

  const records = [
    ...seen.listed.map((record) => fillRecord(alarms, record, seen.corrected?.has(record.id))),
    ...seen.found.map((record) => fillRecord(alarms, record)),
  ];
  const comparison = { seen, evidence: groupById(records.filter(isResolved)), options };
  const compared = new Set<string>();
  for (const record of records) {
    if (isResolved(record) || compared.has(record.id)) continue;
    compared.add(record.id);
    const known = alarms.get(record.id);
    const isUnchanged = record === known?.alarm && known.state === "active" && known.untold === undefined;
    if (isUnchanged && !isAnnounced(record, options)) continue;
    apply(compareListed(known, record, comparison));
    yield;
  }
  for (const known of alarms.values()) {
    if (compared.has(known.alarm.id)) continue;
    apply(compareAbsent(known, comparison));
    yield;
  }
  return { put, events };
}

function isAnnounced(alarm: Alarm, { startup, isTakenOver }: DiffOptions): boolean {
  return startup === "announce" && !isTakenOver(alarm);
}

type Comparison = { readonly seen: AlarmReading; readonly evidence: Evidence; readonly options: DiffOptions };

function* compareListed(known: StoredAlarm | undefined, record: Alarm, { seen, evidence, options }: Comparison): Steps {
  const isAnnouncing = isAnnounced(record, options);
  const initial = !options.isKnownSite(record.site.id) || isAnnouncing;
  if (known === undefined) {
    yield beginEpisode(record, initial, options);
    return;
  }
  const relation = relationOf(known, record);
  if (isOvertaken(known, record) && !(seen.insisted?.has(record.id) === true && addsToOpenAlarm(known, record))) return;
  // Only a record without an end revokes an emitted end.
  if (relation === "same" && known.state === "resolved" && contradictsItself(record)) return;
  const isKnownPast = () => isOpen(known) || isSameEpisode(known, record) || isOfFormerEpisode(known, record);
  if (relation === "same" || (relation === "past" && isKnownPast())) {
    const { stored, events } = continueEpisode(known, record, options);
    yield { stored, events: isAnnouncing ? [announce(stored, options.startedAt, options), ...events] : events };
    return;
  }
  const closed = isOpen(known) ? closeEpisode(known, evidence, options) : null;
  if (closed !== null) yield closed;
  yield beginEpisode(record, initial, options, closed?.stored ?? known);
}

/** True when an overtaken record adds to an open alarm: a service restored from a backup repeats event numbers. */
function addsToOpenAlarm(known: StoredAlarm, record: Alarm): boolean {
  if (!isOpen(known) || orderOfActivity(record, known.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = known.alarm;
  return !isDeepStrictEqual({ ...record, triggeredAt, triggeredAtRaw, lastActiveEvent }, known.alarm);
}

function* compareAbsent(known: StoredAlarm, { seen, evidence, options }: Comparison): Steps {
  const { id, site } = known.alarm;
  const isComplete = seen.coverage(site.id) === "complete";
  const isDoubted = seen.doubted?.has(id) === true;
  const ended = lastRecord(known, "same", evidence) ?? lastRecord(known, "newer", evidence);
  if (ended !== undefined && isOpen(known) && isEmittedEnd(known, ended)) {
    // The alarm came back after this end. Both lists now state that it is over, but they disagreed before: wait.
    if (!isComplete) return;
    const step = countMiss(known, options);
    yield step.stored.misses >= options.vanishAfterMisses ? resolve(step.stored, ended, options) : step;
    return;
  }
  // An end before the known start is that of an older episode for as long as the alarm may still be listed.
  if (ended !== undefined && (!isComplete || isDoubted) && isOverBefore(known, ended)) return;
  if (ended !== undefined && (isOpen(known) || known.state === "vanished")) {
    yield* endEpisode(known, ended, evidence, options);
    return;
  }
  if (!isOpen(known) || seen.scope === null || isDoubted) return;
  if (!seen.scope.after.has(site.id)) {
    if (known.state !== "out-of-scope") yield leaveScope(known, options);
    return;
  }
  if (!seen.scope.before.has(site.id) || !isComplete) return;
  const step = countMiss(known, options);
  const hasVanished = step.stored.misses >= options.vanishAfterMisses && seen.searched.has(id);
  yield hasVanished ? vanish(step.stored, options) : step;
}

export function* endEpisode(known: StoredAlarm, record: Alarm, evidence: Evidence, context: AlarmContext): Steps {
  if (relationOf(known, record) !== "newer") {
    yield resolve(known, record, context);
    return;
  }
  const closed = isOpen(known) ? closeEpisode(known, evidence, context) : null;
  if (closed !== null) yield closed;
  yield* beginAndEnd(record, { ...context, late: true }, closed?.stored ?? known);
}

export function* beginAndEnd(record: Alarm, context: AlarmContext, before?: StoredAlarm): Steps {
  const begun = beginEpisode(record, false, context, before);
  yield begun;
  yield resolve(begun.stored, record, context);
}

function closeEpisode(known: StoredAlarm, evidence: Evidence, context: AlarmContext): Step {
  const record = lastRecord(known, "same", evidence);
  return record === undefined ? vanish(known, context) : resolve(known, record, context);
}

function lastRecord(known: StoredAlarm, relation: Relation, evidence: Evidence): Alarm | undefined {
  const records = (evidence.get(known.alarm.id) ?? []).filter((record) => relationOf(known, record) === relation);
  return records.sort((one, other) => Number(endOf(other)) - Number(endOf(one)))[0];
}

/** Completes a record with the stored alarm. `counts`: its start counts even if it is later than the stored one. */
export function fillRecord(alarms: Alarms, record: Alarm, counts = false): Alarm {
  const known = alarms.get(record.id);
  return known === undefined ? record : fillFromStored(known, record, counts);
}

export type Evidence = ReadonlyMap<string, readonly Alarm[]>;

export function groupById(records: readonly Alarm[]): Evidence {
  return Map.groupBy(records, ({ id }) => id);
}

const KINDS_IN_ORDER: readonly Kind[] = [
  "alarm-raised",
  "alarm-acknowledged",
  "alarm-retriggered",
  "alarm-recovering",
  "alarm-unacknowledged",
  "alarm-changed",
  "alarm-resolved",
  "alarm-vanished",
  "alarm-out-of-scope",
];

/** Orders one alarm's events by episode and time, the raise first: without a stated time it has that of the poll. */
export function inEpisodeOrder(events: readonly Event[]): readonly Event[] {
  if (events.length < 2) return events;
  const rankOf = ({ type }: Event) => KINDS_IN_ORDER.indexOf(type);
  const compare = (one: Event, other: Event) => {
    const byTime = [one, other].some(({ type }) => type === "alarm-raised")
      ? 0
      : Date.parse(one.time) - Date.parse(other.time);
    return byTime || rankOf(one) - rankOf(other);
  };
  const episodes = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...episodes.values()].flatMap((own) => own.toSorted(compare));
}

/** Cuts a difference into parts of `size` alarms with their documents and events. There is always a last part. */
export function* cutDiff({ put, events }: AlarmDiff, size: number) {
  const eventsOf = Map.groupBy(events, (event) => (event.data as AlarmFact).alarm.id);
  const ids = [...new Set([...eventsOf.keys(), ...put.keys()])];
  for (let from = 0; from === 0 || from < ids.length; from += size) {
    const part = ids.slice(from, from + size);
    yield {
      put: part.flatMap((id) => {
        const stored = put.get(id);
        return stored === undefined ? [] : [[id, stored] as const];
      }),
      events: part.flatMap((id) => eventsOf.get(id) ?? []),
      isLast: from + size >= ids.length,
    };
  }
}

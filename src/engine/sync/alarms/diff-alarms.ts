import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFact, Event, EventKind } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import {
  announceAtStart,
  beginEpisode,
  continueEpisode,
  countAbsence,
  type DiffContext,
  type DiffStep,
  isOpenAlarm,
  markOutOfScope,
  markVanished,
  resolveEpisode,
} from "./diff-alarm.ts";
import {
  compareActivity,
  contradictsItself,
  type EpisodeRelation,
  endsBeforeStart,
  fillFromStored,
  isEmittedEnd,
  isOfFormerEpisode,
  isOutdated,
  isResolved,
  isSameEpisode,
  relateRecord,
} from "./episode.ts";
import { endOrStartMs } from "./times.ts";

export interface AlarmReading {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  readonly doubted?: ReadonlySet<string>;
  /** Ids of alarms whose outdated records are accepted, because enough polls have shown them. */
  readonly insisted?: ReadonlySet<string>;
  /** Ids of alarms whose listed start replaces the stored start. */
  readonly corrected?: ReadonlySet<string>;
  readonly found: readonly Alarm[];
  readonly searched: ReadonlySet<string>;
  readonly scope: ScopeChange | null;
}

/** Alarms absent from a site's list are over (`complete`), unverified as it changed (`moving`), or unread (`none`). */
export type Coverage = "complete" | "moving" | "none";

export interface ScopeChange {
  readonly before: ReadonlySet<number>;
  readonly after: ReadonlySet<number>;
}

export interface DiffOptions extends DiffContext {
  readonly vanishAfterMisses: number;
  /** False for a site that is listed for the first time: Plenum did not see the beginning of its alarms. */
  readonly isKnownSite: (siteId: number) => boolean;
  /** Handling of a site's first alarm list after the worker's start. */
  readonly startup: "reconcile" | "announce" | "silent";
  readonly startedAt: string;
  readonly isTakenOver: (alarm: Alarm) => boolean;
}

export interface AlarmDiff {
  readonly put: ReadonlyMap<string, StoredAlarm>;
  readonly events: readonly Event[];
}

type Steps = Generator<DiffStep>;
type StoredAlarms = ReadonlyMap<string, StoredAlarm>;

/** Returns open alarms that the list should show and does not, or shows with a newer episode. */
export function findAbsent(
  alarms: StoredAlarms,
  listed: readonly Alarm[],
  coverage: (siteId: number) => Coverage,
  isVisible: (siteId: number) => boolean,
): readonly StoredAlarm[] {
  const records = new Map(listed.map((record) => [record.id, record]));
  return [...alarms.values()].filter((known) => {
    const { id, site } = known.alarm;
    if (!isOpenAlarm(known) || coverage(site.id) === "none") return false;
    const record = records.get(id);
    if (record !== undefined) return relateRecord(known, record) === "newer";
    return known.state !== "out-of-scope" || isVisible(site.id);
  });
}

/** Compares stored alarms with one poll. Pure. Yields after each possible change: 5,000 alarms take 100 ms. */
export function* diffAlarms(
  alarms: StoredAlarms,
  seen: AlarmReading,
  options: DiffOptions,
): Generator<undefined, AlarmDiff, undefined> {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const apply = (steps: Iterable<DiffStep>) => {
    const emitted: Event[] = [];
    for (const step of steps) {
      const { alarm } = step.stored;
      if (!isDeepStrictEqual(put.get(alarm.id) ?? alarms.get(alarm.id), step.stored)) put.set(alarm.id, step.stored);
      if (options.startup !== "silent" || options.isTakenOver(alarm)) emitted.push(...step.events);
    }
    events.push(...sortEpisodeEvents(emitted));
  };

  const records = [
    ...seen.listed.map((record) => fillRecord(alarms, record, seen.corrected?.has(record.id))),
    ...seen.found.map((record) => fillRecord(alarms, record)),
  ];
  const comparison = { seen, resolved: groupById(records.filter(isResolved)), options };
  const compared = new Set<string>();
  for (const record of records) {
    if (isResolved(record) || compared.has(record.id)) continue;
    compared.add(record.id);
    const known = alarms.get(record.id);
    const isUnchanged = record === known?.alarm && known.state === "active" && known.untold === undefined;
    if (isUnchanged && !isAnnouncedAtStart(record, options)) continue;
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

function isAnnouncedAtStart(alarm: Alarm, { startup, isTakenOver }: DiffOptions): boolean {
  return startup === "announce" && !isTakenOver(alarm);
}

type DiffInput = { readonly seen: AlarmReading; readonly resolved: EndRecords; readonly options: DiffOptions };

function* compareListed(known: StoredAlarm | undefined, record: Alarm, { seen, resolved, options }: DiffInput): Steps {
  const isAnnouncing = isAnnouncedAtStart(record, options);
  const initial = !options.isKnownSite(record.site.id) || isAnnouncing;
  if (known === undefined) {
    yield beginEpisode(record, initial, options);
    return;
  }
  const relation = relateRecord(known, record);
  if (isOutdated(known, record) && !(seen.insisted?.has(record.id) === true && addsToOpenAlarm(known, record))) return;
  // A record that states an end cannot reopen an alarm whose end was emitted.
  if (relation === "same" && known.state === "resolved" && contradictsItself(record)) return;
  const isKnownPast = () => isOpenAlarm(known) || isSameEpisode(known, record) || isOfFormerEpisode(known, record);
  if (relation === "same" || (relation === "past" && isKnownPast())) {
    const { stored, events } = continueEpisode(known, record, options);
    yield { stored, events: isAnnouncing ? [announceAtStart(stored, options.startedAt, options), ...events] : events };
    return;
  }
  const closed = isOpenAlarm(known) ? closeEpisode(known, resolved, options) : null;
  if (closed !== null) yield closed;
  yield beginEpisode(record, initial, options, closed?.stored ?? known);
}

/** True if an outdated record changes an open alarm: a service restored from a backup repeats event numbers. */
function addsToOpenAlarm(known: StoredAlarm, record: Alarm): boolean {
  if (!isOpenAlarm(known) || compareActivity(record, known.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = known.alarm;
  return !isDeepStrictEqual({ ...record, triggeredAt, triggeredAtRaw, lastActiveEvent }, known.alarm);
}

function* compareAbsent(known: StoredAlarm, { seen, resolved, options }: DiffInput): Steps {
  const { id, site } = known.alarm;
  const isComplete = seen.coverage(site.id) === "complete";
  const isDoubted = seen.doubted?.has(id) === true;
  const ended = findLastRecord(known, "same", resolved) ?? findLastRecord(known, "newer", resolved);
  if (ended !== undefined && isOpenAlarm(known) && isEmittedEnd(known, ended)) {
    // The alarm came back after this end, so the active and resolved lists disagreed before: wait for more polls.
    if (!isComplete) return;
    const step = countAbsence(known, options);
    yield step.stored.misses >= options.vanishAfterMisses ? resolveEpisode(step.stored, ended, options) : step;
    return;
  }
  // An end before the stored start belongs to an older episode while the alarm may still be active.
  if (ended !== undefined && (!isComplete || isDoubted) && endsBeforeStart(known, ended)) return;
  if (ended !== undefined && (isOpenAlarm(known) || known.state === "vanished")) {
    yield* endEpisode(known, ended, resolved, options);
    return;
  }
  if (!isOpenAlarm(known) || seen.scope === null || isDoubted) return;
  if (!seen.scope.after.has(site.id)) {
    if (known.state !== "out-of-scope") yield markOutOfScope(known, options);
    return;
  }
  if (!seen.scope.before.has(site.id) || !isComplete) return;
  const step = countAbsence(known, options);
  const hasVanished = step.stored.misses >= options.vanishAfterMisses && seen.searched.has(id);
  yield hasVanished ? markVanished(step.stored, options) : step;
}

export function* endEpisode(known: StoredAlarm, record: Alarm, resolved: EndRecords, context: DiffContext): Steps {
  if (relateRecord(known, record) !== "newer") {
    yield resolveEpisode(known, record, context);
    return;
  }
  const closed = isOpenAlarm(known) ? closeEpisode(known, resolved, context) : null;
  if (closed !== null) yield closed;
  yield* beginAndEnd(record, { ...context, late: true }, closed?.stored ?? known);
}

export function* beginAndEnd(record: Alarm, context: DiffContext, before?: StoredAlarm): Steps {
  const begun = beginEpisode(record, false, context, before);
  yield begun;
  yield resolveEpisode(begun.stored, record, context);
}

function closeEpisode(known: StoredAlarm, resolved: EndRecords, context: DiffContext): DiffStep {
  const record = findLastRecord(known, "same", resolved);
  return record === undefined ? markVanished(known, context) : resolveEpisode(known, record, context);
}

function findLastRecord(known: StoredAlarm, relation: EpisodeRelation, resolved: EndRecords): Alarm | undefined {
  const records = (resolved.get(known.alarm.id) ?? []).filter((record) => relateRecord(known, record) === relation);
  return records.sort((one, other) => Number(endOrStartMs(other)) - Number(endOrStartMs(one)))[0];
}

/** Fills a record from the stored alarm. `acceptsLaterStart`: the record's start replaces an earlier stored start. */
export function fillRecord(alarms: StoredAlarms, record: Alarm, acceptsLaterStart = false): Alarm {
  const known = alarms.get(record.id);
  return known === undefined ? record : fillFromStored(known, record, acceptsLaterStart);
}

export type EndRecords = ReadonlyMap<string, readonly Alarm[]>;

export function groupById(records: readonly Alarm[]): EndRecords {
  return Map.groupBy(records, ({ id }) => id);
}

const EVENT_KINDS_IN_ORDER: readonly EventKind[] = [
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

/** Sorts one alarm's events by episode and time, but the raise first: its time may be that of the poll. */
export function sortEpisodeEvents(events: readonly Event[]): readonly Event[] {
  if (events.length < 2) return events;
  const rankOf = ({ type }: Event) => EVENT_KINDS_IN_ORDER.indexOf(type);
  const compare = (one: Event, other: Event) => {
    const byTime = [one, other].some(({ type }) => type === "alarm-raised")
      ? 0
      : Date.parse(one.time) - Date.parse(other.time);
    return byTime || rankOf(one) - rankOf(other);
  };
  const episodes = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...episodes.values()].flatMap((own) => own.toSorted(compare));
}

/** Splits an alarm diff into parts of `size` alarms with their documents and events; yields at least one part. */
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

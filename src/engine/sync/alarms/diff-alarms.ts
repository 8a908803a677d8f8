import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFact, Event, EventKind } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { endOrStartMs } from "./alarm-times.ts";
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

export interface AlarmReading {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  readonly doubted?: ReadonlySet<string>;
  /** Ids of alarms whose outdated records are accepted, because enough polls have shown them. */
  readonly insisted?: ReadonlySet<string>;
  readonly corrected?: ReadonlySet<string>;
  readonly found: readonly Alarm[];
  readonly searched: ReadonlySet<string>;
  readonly scope: ScopeChange | null;
}

/** Site's list: `complete` (absent alarms have ended), `moving` (changed while it was read), or `none` (not read). */
export type Coverage = "complete" | "moving" | "none";

export interface ScopeChange {
  readonly before: ReadonlySet<number>;
  readonly after: ReadonlySet<number>;
}

export interface DiffOptions extends DiffContext {
  readonly vanishAfterMisses: number;
  /** False for a site that is listed for the first time: Plenum did not see the beginning of its alarms. */
  readonly isKnownSite: (siteId: number) => boolean;
  readonly startup: "reconcile" | "announce" | "silent";
  readonly startedAt: string;
  readonly isTakenOver: (alarm: Alarm) => boolean;
}

export interface AlarmDiff {
  readonly put: ReadonlyMap<string, StoredAlarm>;
  readonly events: readonly Event[];
}

type DiffSteps = Generator<DiffStep>;
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
  const applySteps = (steps: Iterable<DiffStep>) => {
    const stepEvents: Event[] = [];
    for (const step of steps) {
      const { alarm } = step.stored;
      if (!isDeepStrictEqual(put.get(alarm.id) ?? alarms.get(alarm.id), step.stored)) put.set(alarm.id, step.stored);
      if (options.startup !== "silent" || options.isTakenOver(alarm)) stepEvents.push(...step.events);
    }
    events.push(...sortEpisodeEvents(stepEvents));
  };
  const records = [
    ...seen.listed.map((record) => fillRecord(alarms, record, seen.corrected?.has(record.id))),
    ...seen.found.map((record) => fillRecord(alarms, record)),
  ];
  const comparison = { seen, resolved: groupById(records.filter(isResolved)), options };
  const comparedIds = new Set<string>();
  for (const record of records) {
    if (isResolved(record) || comparedIds.has(record.id)) continue;
    comparedIds.add(record.id);
    const storedAlarm = alarms.get(record.id);
    const { alarm, state, untold } = storedAlarm ?? {};
    const isRepeated = record === alarm && state === "active" && untold === undefined;
    if (isRepeated && !isAnnouncedAtStart(record, options)) continue;
    applySteps(diffListed(storedAlarm, record, comparison));
    yield;
  }
  for (const absentAlarm of alarms.values()) {
    if (comparedIds.has(absentAlarm.alarm.id)) continue;
    applySteps(diffAbsent(absentAlarm, comparison));
    yield;
  }
  return { put, events };
}

function isAnnouncedAtStart(alarm: Alarm, { startup, isTakenOver }: DiffOptions): boolean {
  return startup === "announce" && !isTakenOver(alarm);
}

type DiffInput = { readonly seen: AlarmReading; readonly resolved: EndRecords; readonly options: DiffOptions };

function* diffListed(known: StoredAlarm | undefined, record: Alarm, { seen, resolved, options }: DiffInput): DiffSteps {
  const isAnnouncing = isAnnouncedAtStart(record, options);
  const isFirstListing = !options.isKnownSite(record.site.id) || isAnnouncing;
  if (known === undefined) {
    yield beginEpisode(record, isFirstListing, options);
    return;
  }
  const episodeRelation = relateRecord(known, record);
  if (isOutdated(known, record) && !(seen.insisted?.has(record.id) === true && addsToOpenAlarm(known, record))) return;
  // A record that states an end cannot reopen an alarm whose end was emitted.
  if (episodeRelation === "same" && known.state === "resolved" && contradictsItself(record)) return;
  const isKnownPast = () => isOpenAlarm(known) || isSameEpisode(known, record) || isOfFormerEpisode(known, record);
  if (episodeRelation === "same" || (episodeRelation === "past" && isKnownPast())) {
    const { stored, events } = continueEpisode(known, record, options);
    yield { stored, events: isAnnouncing ? [announceAtStart(stored, options.startedAt, options), ...events] : events };
    return;
  }
  const closedStep = isOpenAlarm(known) ? closeEpisode(known, resolved, options) : null;
  if (closedStep !== null) yield closedStep;
  yield beginEpisode(record, isFirstListing, options, closedStep?.stored ?? known);
}

/** True if an outdated record changes an open alarm: a service restored from a backup repeats event numbers. */
function addsToOpenAlarm(known: StoredAlarm, record: Alarm): boolean {
  if (!isOpenAlarm(known) || compareActivity(record, known.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = known.alarm;
  return !isDeepStrictEqual({ ...record, triggeredAt, triggeredAtRaw, lastActiveEvent }, known.alarm);
}

function* diffAbsent(known: StoredAlarm, { seen, resolved, options }: DiffInput): DiffSteps {
  const { id, site } = known.alarm;
  const isComplete = seen.coverage(site.id) === "complete";
  const isRecordDoubted = seen.doubted?.has(id) === true;
  const lastEnd = findLastRecord(known, "same", resolved) ?? findLastRecord(known, "newer", resolved);
  const absenceStep = countAbsence(known, options);
  const hasMissesLeft = absenceStep.stored.misses < options.vanishAfterMisses;
  if (lastEnd !== undefined && isOpenAlarm(known) && isEmittedEnd(known, lastEnd)) {
    // The alarm came back after this end, so the active and resolved lists disagreed before: wait for more polls.
    if (isComplete) yield hasMissesLeft ? absenceStep : resolveEpisode(absenceStep.stored, lastEnd, options);
    return;
  }
  // An end before the stored start belongs to an older episode while the alarm may still be active.
  if (lastEnd !== undefined && (!isComplete || isRecordDoubted) && endsBeforeStart(known, lastEnd)) return;
  if (lastEnd !== undefined && (isOpenAlarm(known) || known.state === "vanished")) {
    yield* endEpisode(known, lastEnd, resolved, options);
    return;
  }
  if (!isOpenAlarm(known) || seen.scope === null || isRecordDoubted) return;
  if (!seen.scope.after.has(site.id)) {
    if (known.state !== "out-of-scope") yield markOutOfScope(known, options);
    return;
  }
  if (!seen.scope.before.has(site.id) || !isComplete) return;
  yield hasMissesLeft || !seen.searched.has(id) ? absenceStep : markVanished(absenceStep.stored, options);
}

export function* endEpisode(known: StoredAlarm, record: Alarm, resolved: EndRecords, context: DiffContext): DiffSteps {
  if (relateRecord(known, record) !== "newer") {
    yield resolveEpisode(known, record, context);
    return;
  }
  const closedStep = isOpenAlarm(known) ? closeEpisode(known, resolved, context) : null;
  if (closedStep !== null) yield closedStep;
  yield* beginAndEnd(record, { ...context, late: true }, closedStep?.stored ?? known);
}

export function* beginAndEnd(record: Alarm, context: DiffContext, before?: StoredAlarm): DiffSteps {
  const beginStep = beginEpisode(record, false, context, before);
  yield beginStep;
  yield resolveEpisode(beginStep.stored, record, context);
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
  const storedAlarm = alarms.get(record.id);
  return storedAlarm === undefined ? record : fillFromStored(storedAlarm, record, acceptsLaterStart);
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
  const eventRank = ({ type }: Event) => EVENT_KINDS_IN_ORDER.indexOf(type);
  const compareEvents = (one: Event, other: Event) => {
    const timeDifference = [one, other].some(({ type }) => type === "alarm-raised")
      ? 0
      : Date.parse(one.time) - Date.parse(other.time);
    return timeDifference || eventRank(one) - eventRank(other);
  };
  const episodes = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...episodes.values()].flatMap((own) => own.toSorted(compareEvents));
}

/** Splits an alarm diff into parts of `size` alarms with their documents and events; yields at least one part. */
export function* cutDiff({ put, events }: AlarmDiff, size: number) {
  const eventsByAlarm = Map.groupBy(events, (event) => (event.data as AlarmFact).alarm.id);
  const ids = [...new Set([...eventsByAlarm.keys(), ...put.keys()])];
  for (let partStart = 0; partStart === 0 || partStart < ids.length; partStart += size) {
    const partIds = ids.slice(partStart, partStart + size);
    yield {
      put: partIds.flatMap((id) => {
        const storedAlarm = put.get(id);
        return storedAlarm === undefined ? [] : [[id, storedAlarm] as const];
      }),
      events: partIds.flatMap((id) => eventsByAlarm.get(id) ?? []),
      isLast: partStart + size >= ids.length,
    };
  }
}

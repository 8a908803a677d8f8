import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFact, Event, EventKind } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { alarmEndOrStartMs } from "./alarm-times.ts";
import {
  type AlarmChange,
  beginEpisode,
  continueEpisode,
  countAlarmAbsence,
  type EventContext,
  isOpenAlarm,
  markAlarmOutOfScope,
  markAlarmVanished,
  resolveEpisode,
  startupEvent,
} from "./diff-alarm.ts";
import {
  compareLastActiveEvents,
  contradictsItself,
  type EpisodeRelation,
  endsBeforeStart,
  fillFromStoredAlarm,
  isEmittedAlarmEnd,
  isFormerEpisode,
  isOldRecord,
  isResolvedAlarm,
  isSameEpisode,
  relateToEpisode,
} from "./episode.ts";

export interface SeenAlarms {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => ListCoverage;
  readonly doubted?: ReadonlySet<string>;
  /** Ids of alarms whose outdated records are accepted, because enough polls have shown them. */
  readonly insisted?: ReadonlySet<string>;
  readonly corrected?: ReadonlySet<string>;
  readonly found: readonly Alarm[];
  readonly searched: ReadonlySet<string>;
  readonly scope: TokenScopeChange | null;
}

/** `complete`: absent alarms have ended. `moving`: the list changed while it was read. `none`: it was not read. */
export type ListCoverage = "complete" | "moving" | "none";

export interface TokenScopeChange {
  readonly before: ReadonlySet<number>;
  readonly after: ReadonlySet<number>;
}

export interface AlarmDiffOptions extends EventContext {
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

type Changes = Generator<AlarmChange>;
type StoredAlarmsById = ReadonlyMap<string, StoredAlarm>;

/** Returns open alarms that the list should show and does not, or shows with a newer episode. */
export function findAbsentAlarms(
  alarms: StoredAlarmsById,
  listed: readonly Alarm[],
  coverage: (siteId: number) => ListCoverage,
  isVisible: (siteId: number) => boolean,
): readonly StoredAlarm[] {
  const records = new Map(listed.map((record) => [record.id, record]));
  return [...alarms.values()].filter((known) => {
    const { id, site } = known.alarm;
    if (!isOpenAlarm(known) || coverage(site.id) === "none") return false;
    const record = records.get(id);
    if (record !== undefined) return relateToEpisode(known, record) === "newer";
    return known.state !== "out-of-scope" || isVisible(site.id);
  });
}

/** Compares stored alarms with one poll. Pure. Yields after each possible change: 5,000 alarms take 100 ms. */
export function* diffAlarms(
  alarms: StoredAlarmsById,
  seen: SeenAlarms,
  options: AlarmDiffOptions,
): Generator<undefined, AlarmDiff, undefined> {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const applyChanges = (steps: Iterable<AlarmChange>) => {
    const newEvents: Event[] = [];
    for (const step of steps) {
      const { alarm } = step.stored;
      if (!isDeepStrictEqual(put.get(alarm.id) ?? alarms.get(alarm.id), step.stored)) put.set(alarm.id, step.stored);
      if (options.startup !== "silent" || options.isTakenOver(alarm)) newEvents.push(...step.events);
    }
    events.push(...sortAlarmEvents(newEvents));
  };
  const records = [
    ...seen.listed.map((record) => fillRecord(alarms, record, seen.corrected?.has(record.id))),
    ...seen.found.map((record) => fillRecord(alarms, record)),
  ];
  const comparisonInput = { seen, resolved: groupByAlarm(records.filter(isResolvedAlarm)), options };
  const comparedAlarmIds = new Set<string>();
  for (const record of records) {
    if (isResolvedAlarm(record) || comparedAlarmIds.has(record.id)) continue;
    comparedAlarmIds.add(record.id);
    const storedAlarm = alarms.get(record.id);
    const { alarm, state, untold } = storedAlarm ?? {};
    const isAlarmRecordRepeated = record === alarm && state === "active" && untold === undefined;
    if (isAlarmRecordRepeated && !isAlarmAnnouncedAtStart(record, options)) continue;
    applyChanges(diffListed(storedAlarm, record, comparisonInput));
    yield;
  }
  for (const absentAlarm of alarms.values()) {
    if (comparedAlarmIds.has(absentAlarm.alarm.id)) continue;
    applyChanges(diffAbsentAlarm(absentAlarm, comparisonInput));
    yield;
  }
  return { put, events };
}

function isAlarmAnnouncedAtStart(alarm: Alarm, { startup, isTakenOver }: AlarmDiffOptions): boolean {
  return startup === "announce" && !isTakenOver(alarm);
}

type DiffInput = { readonly seen: SeenAlarms; readonly resolved: RecordsById; readonly options: AlarmDiffOptions };

function* diffListed(known: StoredAlarm | undefined, record: Alarm, { seen, resolved, options }: DiffInput): Changes {
  const isAnnounced = isAlarmAnnouncedAtStart(record, options);
  const isFirstListOfSite = !options.isKnownSite(record.site.id) || isAnnounced;
  if (known === undefined) {
    yield beginEpisode(record, isFirstListOfSite, options);
    return;
  }
  const episodeRelation = relateToEpisode(known, record);
  if (isOldRecord(known, record) && !(seen.insisted?.has(record.id) === true && changesOpenAlarm(known, record)))
    return;
  // A record that states an end cannot reopen an alarm whose end was emitted.
  if (episodeRelation === "same" && known.state === "resolved" && contradictsItself(record)) return;
  const isKnownEpisode = () => isOpenAlarm(known) || isSameEpisode(known, record) || isFormerEpisode(known, record);
  if (episodeRelation === "same" || (episodeRelation === "past" && isKnownEpisode())) {
    const { stored, events } = continueEpisode(known, record, options);
    yield { stored, events: isAnnounced ? [startupEvent(stored, options.startedAt, options), ...events] : events };
    return;
  }
  const oldEpisodeEnd = isOpenAlarm(known) ? endOldEpisode(known, resolved, options) : null;
  if (oldEpisodeEnd !== null) yield oldEpisodeEnd;
  yield beginEpisode(record, isFirstListOfSite, options, oldEpisodeEnd?.stored ?? known);
}

/** True if an outdated record changes an open alarm: a service restored from a backup repeats event numbers. */
function changesOpenAlarm(known: StoredAlarm, record: Alarm): boolean {
  if (!isOpenAlarm(known) || compareLastActiveEvents(record, known.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = known.alarm;
  return !isDeepStrictEqual({ ...record, triggeredAt, triggeredAtRaw, lastActiveEvent }, known.alarm);
}

function* diffAbsentAlarm(known: StoredAlarm, { seen, resolved, options }: DiffInput): Changes {
  const { id, site } = known.alarm;
  const isListComplete = seen.coverage(site.id) === "complete";
  const isUnverified = seen.doubted?.has(id) === true;
  const endRecord = findEndRecord(known, "same", resolved) ?? findEndRecord(known, "newer", resolved);
  const absence = countAlarmAbsence(known, options);
  const isTooEarly = absence.stored.misses < options.vanishAfterMisses;
  if (endRecord !== undefined && isOpenAlarm(known) && isEmittedAlarmEnd(known, endRecord)) {
    // The alarm came back after this end: wait for more polls before the end counts.
    if (isListComplete) yield isTooEarly ? absence : resolveEpisode(absence.stored, endRecord, options);
    return;
  }
  // An end before the stored start belongs to an older episode while the alarm may still be active.
  if (endRecord !== undefined && (!isListComplete || isUnverified) && endsBeforeStart(known, endRecord)) return;
  if (endRecord !== undefined && (isOpenAlarm(known) || known.state === "vanished")) {
    yield* endEpisode(known, endRecord, resolved, options);
    return;
  }
  if (!isOpenAlarm(known) || seen.scope === null || isUnverified) return;
  if (!seen.scope.after.has(site.id)) {
    if (known.state !== "out-of-scope") yield markAlarmOutOfScope(known, options);
    return;
  }
  if (!seen.scope.before.has(site.id) || !isListComplete) return;
  yield isTooEarly || !seen.searched.has(id) ? absence : markAlarmVanished(absence.stored, options);
}

export function* endEpisode(known: StoredAlarm, record: Alarm, resolved: RecordsById, context: EventContext): Changes {
  if (relateToEpisode(known, record) !== "newer") {
    yield resolveEpisode(known, record, context);
    return;
  }
  const oldEpisodeEnd = isOpenAlarm(known) ? endOldEpisode(known, resolved, context) : null;
  if (oldEpisodeEnd !== null) yield oldEpisodeEnd;
  yield* beginAndEnd(record, { ...context, late: true }, oldEpisodeEnd?.stored ?? known);
}

export function* beginAndEnd(record: Alarm, context: EventContext, before?: StoredAlarm): Changes {
  const episodeBegin = beginEpisode(record, false, context, before);
  yield episodeBegin;
  yield resolveEpisode(episodeBegin.stored, record, context);
}

function endOldEpisode(known: StoredAlarm, resolved: RecordsById, context: EventContext): AlarmChange {
  const record = findEndRecord(known, "same", resolved);
  return record === undefined ? markAlarmVanished(known, context) : resolveEpisode(known, record, context);
}

function findEndRecord(known: StoredAlarm, relation: EpisodeRelation, resolved: RecordsById): Alarm | undefined {
  const records = (resolved.get(known.alarm.id) ?? []).filter((record) => relateToEpisode(known, record) === relation);
  return records.sort((one, other) => Number(alarmEndOrStartMs(other)) - Number(alarmEndOrStartMs(one)))[0];
}

export function fillRecord(alarms: StoredAlarmsById, record: Alarm, acceptsLaterStart = false): Alarm {
  const storedAlarm = alarms.get(record.id);
  return storedAlarm === undefined ? record : fillFromStoredAlarm(storedAlarm, record, acceptsLaterStart);
}

export type RecordsById = ReadonlyMap<string, readonly Alarm[]>;

export function groupByAlarm(records: readonly Alarm[]): RecordsById {
  return Map.groupBy(records, ({ id }) => id);
}

const ALARM_EVENT_KINDS_IN_ORDER: readonly EventKind[] = [
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

/** Sorts one alarm's events by episode and time, but `alarm-raised` first: its time may be the time of the poll. */
export function sortAlarmEvents(events: readonly Event[]): readonly Event[] {
  if (events.length < 2) return events;
  const eventKindRank = ({ type }: Event) => ALARM_EVENT_KINDS_IN_ORDER.indexOf(type);
  const compareAlarmEvents = (one: Event, other: Event) => {
    const eventTimeDifference = [one, other].some(({ type }) => type === "alarm-raised")
      ? 0
      : Date.parse(one.time) - Date.parse(other.time);
    return eventTimeDifference || eventKindRank(one) - eventKindRank(other);
  };
  const eventsByEpisode = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...eventsByEpisode.values()].flatMap((own) => own.toSorted(compareAlarmEvents));
}

export function* splitAlarmDiff({ put, events }: AlarmDiff, size: number) {
  const eventsByAlarm = Map.groupBy(events, (event) => (event.data as AlarmFact).alarm.id);
  const ids = [...new Set([...eventsByAlarm.keys(), ...put.keys()])];
  for (let partStart = 0; partStart === 0 || partStart < ids.length; partStart += size) {
    const alarmIdsOfPart = ids.slice(partStart, partStart + size);
    yield {
      put: alarmIdsOfPart.flatMap((id) => {
        const storedAlarm = put.get(id);
        return storedAlarm === undefined ? [] : [[id, storedAlarm] as const];
      }),
      events: alarmIdsOfPart.flatMap((id) => eventsByAlarm.get(id) ?? []),
      isLast: partStart + size >= ids.length,
    };
  }
}

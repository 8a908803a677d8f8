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
  readonly unverifiedIds?: ReadonlySet<string>;
  /** Ids of alarms whose outdated records Plenum accepts: 10 polls repeated them, or the stored end is not listed. */
  readonly acceptedOutdatedIds?: ReadonlySet<string>;
  readonly correctedStartIds?: ReadonlySet<string>;
  readonly foundRecords: readonly Alarm[];
  readonly searchedIds: ReadonlySet<string>;
  readonly scope: TokenScopeChange | null;
}

/** `complete`: all active alarms are listed. `moving`: the list changed while it was read. `none`: it was not read. */
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
  readonly isStartupOver: (alarm: Alarm) => boolean;
}

export interface AlarmDiff {
  readonly put: ReadonlyMap<string, StoredAlarm>;
  readonly events: readonly Event[];
}

type AlarmChanges = Generator<AlarmChange>;
type RecordsById = ReadonlyMap<string, readonly Alarm[]>;
type StoredAlarmsById = ReadonlyMap<string, StoredAlarm>;

/** Returns stored open alarms that the list of their site lacks or shows with a newer episode. */
export function findAbsentAlarms(
  alarms: StoredAlarmsById,
  listedAlarms: readonly Alarm[],
  coverage: (siteId: number) => ListCoverage,
  isVisible: (siteId: number) => boolean,
): readonly StoredAlarm[] {
  const recordsById = new Map(listedAlarms.map((record) => [record.id, record]));
  return [...alarms.values()].filter((storedAlarm) => {
    const { id, site } = storedAlarm.alarm;
    if (!isOpenAlarm(storedAlarm) || coverage(site.id) === "none") return false;
    const record = recordsById.get(id);
    if (record !== undefined) return relateToEpisode(storedAlarm, record) === "newer";
    return storedAlarm.state !== "out-of-scope" || isVisible(site.id);
  });
}

/** Compares stored alarms with the records of one poll. Yields after each alarm, because 5,000 alarms take 100 ms. */
export function* diffAlarms(
  alarms: StoredAlarmsById,
  seenAlarms: SeenAlarms,
  options: AlarmDiffOptions,
): Generator<undefined, AlarmDiff, undefined> {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const applyChanges = (changes: Iterable<AlarmChange>) => {
    const newEvents: Event[] = [];
    for (const step of changes) {
      const { alarm } = step.stored;
      if (!isDeepStrictEqual(put.get(alarm.id) ?? alarms.get(alarm.id), step.stored)) put.set(alarm.id, step.stored);
      if (options.startup !== "silent" || options.isStartupOver(alarm)) newEvents.push(...step.events);
    }
    events.push(...sortAlarmEvents(newEvents));
  };
  const records = [
    ...seenAlarms.listed.map((record) => fillRecord(alarms, record, seenAlarms.correctedStartIds?.has(record.id))),
    ...seenAlarms.foundRecords.map((record) => fillRecord(alarms, record)),
  ];
  const input: DiffInput = {
    seen: seenAlarms,
    resolvedById: Map.groupBy(records.filter(isResolvedAlarm), ({ id }) => id),
    options,
  };
  const comparedAlarmIds = new Set<string>();
  for (const record of records) {
    if (isResolvedAlarm(record) || comparedAlarmIds.has(record.id)) continue;
    comparedAlarmIds.add(record.id);
    const storedAlarm = alarms.get(record.id);
    const { alarm, state, untold } = storedAlarm ?? {};
    const isAlarmRecordRepeated = record === alarm && state === "active" && untold === undefined;
    if (isAlarmRecordRepeated && !isAlarmAnnouncedAtStart(record, options)) continue;
    applyChanges(diffListedAlarm(storedAlarm, record, input));
    yield;
  }
  for (const absentAlarm of alarms.values()) {
    if (comparedAlarmIds.has(absentAlarm.alarm.id)) continue;
    applyChanges(diffAbsentAlarm(absentAlarm, input));
    yield;
  }
  return { put, events };
}

function isAlarmAnnouncedAtStart(alarm: Alarm, { startup, isStartupOver }: AlarmDiffOptions): boolean {
  return startup === "announce" && !isStartupOver(alarm);
}

type DiffInput = { readonly seen: SeenAlarms; readonly resolvedById: RecordsById; readonly options: AlarmDiffOptions };

function* diffListedAlarm(
  storedAlarm: StoredAlarm | undefined,
  record: Alarm,
  { seen, resolvedById, options }: DiffInput,
): AlarmChanges {
  const isAnnounced = isAlarmAnnouncedAtStart(record, options);
  const isFirstListOfSite = !options.isKnownSite(record.site.id) || isAnnounced;
  if (storedAlarm === undefined) {
    yield beginEpisode(record, isFirstListOfSite, options);
    return;
  }
  const episodeRelation = relateToEpisode(storedAlarm, record);
  if (
    isOldRecord(storedAlarm, record) &&
    !(seen.acceptedOutdatedIds?.has(record.id) === true && changesOpenAlarm(storedAlarm, record))
  )
    return;
  // An active record with an end time cannot reopen an alarm whose end was emitted.
  if (episodeRelation === "same" && storedAlarm.state === "resolved" && contradictsItself(record)) return;
  const isKnownEpisode = () =>
    isOpenAlarm(storedAlarm) || isSameEpisode(storedAlarm, record) || isFormerEpisode(storedAlarm, record);
  if (episodeRelation === "same" || (episodeRelation === "past" && isKnownEpisode())) {
    const { stored, events } = continueEpisode(storedAlarm, record, options);
    yield { stored, events: isAnnounced ? [startupEvent(stored, options.startedAt, options), ...events] : events };
    return;
  }
  const oldEpisodeEnd = isOpenAlarm(storedAlarm) ? endOldEpisode(storedAlarm, resolvedById, options) : null;
  if (oldEpisodeEnd !== null) yield oldEpisodeEnd;
  yield beginEpisode(record, isFirstListOfSite, options, oldEpisodeEnd?.stored ?? storedAlarm);
}

/** True unless only an open alarm's start and last event differ: after a restore, a service reuses event numbers. */
function changesOpenAlarm(storedAlarm: StoredAlarm, record: Alarm): boolean {
  if (!isOpenAlarm(storedAlarm) || compareLastActiveEvents(record, storedAlarm.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = storedAlarm.alarm;
  return !isDeepStrictEqual({ ...record, triggeredAt, triggeredAtRaw, lastActiveEvent }, storedAlarm.alarm);
}

function* diffAbsentAlarm(storedAlarm: StoredAlarm, { seen, resolvedById, options }: DiffInput): AlarmChanges {
  const { id, site } = storedAlarm.alarm;
  const isListComplete = seen.coverage(site.id) === "complete";
  const isUnverified = seen.unverifiedIds?.has(id) === true;
  const endRecord =
    findEndRecord(storedAlarm, "same", resolvedById) ?? findEndRecord(storedAlarm, "newer", resolvedById);
  const absenceChange = countAlarmAbsence(storedAlarm, options);
  const isTooEarly = absenceChange.stored.misses < options.vanishAfterMisses;
  if (endRecord !== undefined && isOpenAlarm(storedAlarm) && isEmittedAlarmEnd(storedAlarm, endRecord)) {
    // The alarm came back after this end: wait for more polls before the end counts.
    if (isListComplete) yield isTooEarly ? absenceChange : resolveEpisode(absenceChange.stored, endRecord, options);
    return;
  }
  // The end is before the stored start and the alarm may still be active: the end belongs to an older episode.
  if (endRecord !== undefined && (!isListComplete || isUnverified) && endsBeforeStart(storedAlarm, endRecord)) return;
  if (endRecord !== undefined && (isOpenAlarm(storedAlarm) || storedAlarm.state === "vanished")) {
    yield* endEpisode(storedAlarm, endRecord, resolvedById, options);
    return;
  }
  if (!isOpenAlarm(storedAlarm) || seen.scope === null || isUnverified) return;
  if (!seen.scope.after.has(site.id)) {
    if (storedAlarm.state !== "out-of-scope") yield markAlarmOutOfScope(storedAlarm, options);
    return;
  }
  if (!seen.scope.before.has(site.id) || !isListComplete) return;
  yield isTooEarly || !seen.searchedIds.has(id) ? absenceChange : markAlarmVanished(absenceChange.stored, options);
}

export function* endEpisode(
  storedAlarm: StoredAlarm,
  record: Alarm,
  resolvedById: RecordsById,
  context: EventContext,
): AlarmChanges {
  if (relateToEpisode(storedAlarm, record) !== "newer") {
    yield resolveEpisode(storedAlarm, record, context);
    return;
  }
  const oldEpisodeEnd = isOpenAlarm(storedAlarm) ? endOldEpisode(storedAlarm, resolvedById, context) : null;
  if (oldEpisodeEnd !== null) yield oldEpisodeEnd;
  yield* beginAndEnd(record, { ...context, late: true }, oldEpisodeEnd?.stored ?? storedAlarm);
}

export function* beginAndEnd(record: Alarm, context: EventContext, storedBefore?: StoredAlarm): AlarmChanges {
  const episodeBegin = beginEpisode(record, false, context, storedBefore);
  yield episodeBegin;
  yield resolveEpisode(episodeBegin.stored, record, context);
}

function endOldEpisode(storedAlarm: StoredAlarm, resolvedById: RecordsById, context: EventContext): AlarmChange {
  const record = findEndRecord(storedAlarm, "same", resolvedById);
  return record === undefined ? markAlarmVanished(storedAlarm, context) : resolveEpisode(storedAlarm, record, context);
}

function findEndRecord(storedAlarm: StoredAlarm, relation: EpisodeRelation, resolvedById: RecordsById) {
  const records = resolvedById.get(storedAlarm.alarm.id) ?? [];
  const [lastRecord] = records
    .filter((record) => relateToEpisode(storedAlarm, record) === relation)
    .sort((a, b) => Number(alarmEndOrStartMs(b)) - Number(alarmEndOrStartMs(a)));
  return lastRecord;
}

export function fillRecord(alarms: StoredAlarmsById, record: Alarm, acceptsLaterStart = false): Alarm {
  const storedAlarm = alarms.get(record.id);
  return storedAlarm === undefined ? record : fillFromStoredAlarm(storedAlarm, record, acceptsLaterStart);
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
  const compareAlarmEvents = (a: Event, b: Event) => {
    const hasRaisedEvent = a.type === "alarm-raised" || b.type === "alarm-raised";
    return (hasRaisedEvent ? 0 : Date.parse(a.time) - Date.parse(b.time)) || eventKindRank(a) - eventKindRank(b);
  };
  const eventsByEpisode = Map.groupBy(events, (event) => (event.data as AlarmFact).episode);
  return [...eventsByEpisode.values()].flatMap((episodeEvents) => episodeEvents.toSorted(compareAlarmEvents));
}

export function* splitAlarmDiff({ put, events }: AlarmDiff, partSize: number) {
  const eventsByAlarm = Map.groupBy(events, (event) => (event.data as AlarmFact).alarm.id);
  const alarmIds = [...new Set([...eventsByAlarm.keys(), ...put.keys()])];
  for (let partStart = 0; partStart === 0 || partStart < alarmIds.length; partStart += partSize) {
    const alarmIdsOfPart = alarmIds.slice(partStart, partStart + partSize);
    yield {
      put: alarmIdsOfPart.flatMap((id) => {
        const storedAlarm = put.get(id);
        return storedAlarm === undefined ? [] : [[id, storedAlarm] as const];
      }),
      events: alarmIdsOfPart.flatMap((id) => eventsByAlarm.get(id) ?? []),
      isLast: partStart + partSize >= alarmIds.length,
    };
  }
}

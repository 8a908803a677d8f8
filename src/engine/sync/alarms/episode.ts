import type { Alarm } from "../../../core/model/building.ts";
import type { FormerEpisode, StoredAlarm } from "../stored-documents.ts";
import { alarmEndOrStartMs, isSameTime, isShiftedTime, maxOfNumbers, parseUtcMs, startShiftMs } from "./alarm-times.ts";

/** An episode is one raise and one end of an alarm. This file decides to which episode a record belongs. */

/** Key of the episode: alarm id and time of the trigger, or the last active event when the service states no time. */
export function episodeKey({ id, triggeredAt, lastActiveEvent }: Alarm): string {
  const startMs = parseUtcMs(triggeredAt);
  if (startMs !== null) return `${id}@${new Date(startMs).toISOString()}`;
  if (triggeredAt !== "") return `${id}@${triggeredAt}`;
  return lastActiveEvent === null ? id : `${id}@event-${lastActiveEvent.id}`;
}

function parseEpisodeStart(episode: string, alarmId: string): number | null {
  return parseUtcMs(episode.slice(alarmId.length + 1));
}

export function isResolvedAlarm({ status, triggeredAt, resolvedAt }: Alarm): boolean {
  if (status === "resolved") return true;
  if (status === "active" || resolvedAt === null) return false;
  const [startMs, endMs] = [parseUtcMs(triggeredAt), parseUtcMs(resolvedAt)];
  return startMs === null || endMs === null || endMs >= startMs;
}

/** True for a record with status `resolved` and no end, or another status and an end after its last trigger. */
export function contradictsItself({ status, resolvedAt, triggeredAt, lastActiveEvent }: Alarm): boolean {
  if (status === "resolved" || resolvedAt === null) return status === "resolved" && resolvedAt === null;
  const endMs = parseUtcMs(resolvedAt);
  const startTimesMs = [triggeredAt, lastActiveEvent?.triggeredAt ?? null].map(parseUtcMs);
  return endMs === null || startTimesMs.every((startMs) => startMs === null || endMs >= startMs);
}

/** True when an alarm record contains only its id: PHP services send empty attributes as an empty array. */
export function hasOnlyId({ status, triggeredAt, trigger, resolvedAt, lastActiveEvent }: Alarm): boolean {
  return status === "" && triggeredAt === "" && trigger.id === 0 && resolvedAt === null && lastActiveEvent === null;
}

function fillEmptyAlarmFields(knownAlarm: Alarm, alarm: Alarm): Alarm {
  if (alarm === knownAlarm || hasOnlyId(alarm)) return knownAlarm;
  const lacksStart = alarm.triggeredAt === "" && knownAlarm.triggeredAt !== "";
  const isSameStartTime = lacksStart || alarm.triggeredAt === knownAlarm.triggeredAt;
  const lacksStatus = alarm.status === "" && alarm.resolvedAt === null && knownAlarm.status !== "resolved";
  const lacksSite = alarm.site.id === 0 || (alarm.site.displayName === "" && alarm.site.id === knownAlarm.site.id);
  const lacksTrigger = alarm.trigger.id === 0 && alarm.trigger.displayName === "";
  const lastActiveEvent = alarm.lastActiveEvent ?? (isSameStartTime ? knownAlarm.lastActiveEvent : null);
  const wasFilled = lacksStart || lacksStatus || lacksSite || lacksTrigger || lastActiveEvent !== alarm.lastActiveEvent;
  // Return the same object: a later list that repeats the object then needs no comparison.
  if (!wasFilled) return alarm;
  return {
    ...alarm,
    status: lacksStatus ? knownAlarm.status : alarm.status,
    site: lacksSite ? knownAlarm.site : alarm.site,
    trigger: lacksTrigger ? knownAlarm.trigger : alarm.trigger,
    ...(lacksStart && { triggeredAt: knownAlarm.triggeredAt, triggeredAtRaw: knownAlarm.triggeredAtRaw }),
    lastActiveEvent,
  };
}

/** A record states the stored episode (`same`), a later one (`newer`), or an earlier one or an older state (`past`). */
export type EpisodeRelation = "same" | "newer" | "past";

/** Compares a record with the stored episode by its trigger and event number, otherwise by its start. */
export function relateToEpisode(storedAlarm: StoredAlarm, record: Alarm): EpisodeRelation {
  if (record === storedAlarm.alarm) return "same";
  const alarm = fillEmptyAlarmFields(storedAlarm.alarm, record);
  const activeEventOrder = compareLastActiveEvents(alarm, storedAlarm.alarm);
  if (isSameEpisode(storedAlarm, alarm)) return activeEventOrder === "before" ? "past" : "same";
  const isRecordOfKnownEvent = isSameEvent(storedAlarm.alarm, alarm);
  if (isFormerEpisode(storedAlarm, alarm) && (isResolvedAlarm(alarm) || !isRecordOfKnownEvent)) return "past";
  if (isRecordOfKnownEvent) return "same";
  const [startMs, knownMs] = [parseUtcMs(alarm.triggeredAt), parseUtcMs(storedAlarm.alarm.triggeredAt)];
  if (startMs === null || knownMs === null)
    return ({ after: "newer", before: "past", same: "same", unknown: "newer" } as const)[activeEventOrder];
  if (startMs > knownMs || activeEventOrder === "after") return "newer";
  // The same event with an earlier start is a correction, but an end before the stored start proves another episode.
  const endMs = parseUtcMs(alarm.resolvedAt);
  return activeEventOrder === "same" && (endMs === null || endMs >= knownMs) ? "same" : "past";
}

/** True if the record starts at the episode's first or corrected start, or between them with no newer active event. */
export function isSameEpisode({ episode, alarm: knownAlarm }: StoredAlarm, alarm: Alarm): boolean {
  if (episodeKey(alarm) === episode || episodeKey(alarm) === episodeKey(knownAlarm)) return true;
  const [startMs, knownMs] = [parseUtcMs(alarm.triggeredAt), parseUtcMs(knownAlarm.triggeredAt)];
  if (startMs === null || knownMs === null) return false;
  const earliestStartMs = parseEpisodeStart(episode, knownAlarm.id) ?? knownMs;
  if (isSameTime(startMs, knownMs) || isSameTime(startMs, earliestStartMs)) return true;
  const isBetween = startMs > knownMs && startMs < earliestStartMs;
  return isBetween && compareLastActiveEvents(alarm, knownAlarm) !== "after";
}

function isSameEvent(a: Alarm, b: Alarm): boolean {
  return a.trigger.id === b.trigger.id && compareLastActiveEvents(a, b) === "same";
}

/** True if the record states another start of the same event. Replicas may differ, so callers await a repetition. */
export function hasOtherStartTime({ alarm: knownAlarm }: StoredAlarm, record: Alarm): boolean {
  const alarm = fillEmptyAlarmFields(knownAlarm, record);
  const [startMs, knownMs] = [parseUtcMs(alarm.triggeredAt), parseUtcMs(knownAlarm.triggeredAt)];
  return startMs !== null && knownMs !== null && !isSameTime(startMs, knownMs) && isSameEvent(knownAlarm, alarm);
}

/** True if the record ends before the stored start: the service moved its times back, or the episode is older. */
export function endsBeforeStart(storedAlarm: StoredAlarm, record: Alarm): boolean {
  const [endMs, startMs] = [parseUtcMs(record.resolvedAt), parseUtcMs(storedAlarm.alarm.triggeredAt)];
  return endMs !== null && startMs !== null && endMs < startMs && !isSameEpisode(storedAlarm, record);
}

export function compareLastActiveEvents(a: Alarm, b: Alarm): "before" | "same" | "after" | "unknown" {
  if (a.lastActiveEvent === null || b.lastActiveEvent === null) return "unknown";
  const eventIdDifference = a.lastActiveEvent.id - b.lastActiveEvent.id;
  return eventIdDifference === 0 ? "same" : eventIdDifference > 0 ? "after" : "before";
}

/** True when a listed record is older than the stored alarm, or reopens an ended episode without a later event. */
export function isOldRecord(storedAlarm: StoredAlarm, alarm: Alarm): boolean {
  const episodeRelation = relateToEpisode(storedAlarm, alarm);
  if (episodeRelation !== "same" || storedAlarm.state !== "resolved" || storedAlarm.untold === true)
    return episodeRelation === "past";
  return compareLastActiveEvents(alarm, storedAlarm.alarm) !== "after";
}

export function findLastEnd({ alarm, ended }: StoredAlarm): NonNullable<StoredAlarm["ended"]> {
  return {
    endMs: maxOfNumbers(alarmEndOrStartMs(alarm), ended?.endMs ?? null),
    eventId: maxOfNumbers(alarm.lastActiveEvent?.id ?? null, ended?.eventId ?? null),
  };
}

export function isEmittedAlarmEnd({ ended }: StoredAlarm, record: Alarm): boolean {
  if (ended === undefined) return false;
  if (ended.eventId !== null && (record.lastActiveEvent?.id ?? 0) > ended.eventId) return false;
  const endMs = alarmEndOrStartMs(record);
  return endMs === null || ended.endMs === null || Math.floor(endMs / 1_000) <= Math.floor(ended.endMs / 1_000);
}

/** Maximum former episodes stored per alarm. If an alarm has more within `resolved_overlap`, the oldest are lost. */
const MAX_FORMER_EPISODES = 20;

export function isFormerEpisode({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const episode = episodeKey(record);
  const startMs = parseUtcMs(record.triggeredAt);
  return former.some((formerEpisode) => {
    if (formerEpisode.episode === episode) return true;
    const formerMs = parseEpisodeStart(formerEpisode.episode, record.id);
    return startMs !== null && formerMs !== null && isSameTime(startMs, formerMs);
  });
}

export function mayBeDroppedEpisode({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const startMs = parseUtcMs(record.triggeredAt) ?? Number.NEGATIVE_INFINITY;
  return (
    former.length >= MAX_FORMER_EPISODES &&
    former.every((formerEpisode) => startMs < (parseEpisodeStart(formerEpisode.episode, record.id) ?? startMs + 1))
  );
}

export function addFormerEpisode({ former = [] }: StoredAlarm, episode: FormerEpisode): readonly FormerEpisode[] {
  return [...former, episode].slice(-MAX_FORMER_EPISODES);
}

/** Fills empty fields from the stored alarm. Ignores a later start, because some lists round times. */
export function fillFromStoredAlarm(storedAlarm: StoredAlarm, record: Alarm, acceptsLaterStart = false): Alarm {
  const alarm = fillEmptyAlarmFields(storedAlarm.alarm, record);
  if (acceptsLaterStart || alarm.triggeredAt === storedAlarm.alarm.triggeredAt) return alarm;
  const [startMs, knownMs] = [parseUtcMs(alarm.triggeredAt), parseUtcMs(storedAlarm.alarm.triggeredAt)];
  const lacksStart = startMs === null && relateToEpisode(storedAlarm, alarm) === "same";
  const startsLater =
    startMs !== null && knownMs !== null && startMs > knownMs && isSameEvent(storedAlarm.alarm, alarm);
  if (!lacksStart && !startsLater && !isSameEpisode(storedAlarm, alarm)) return alarm;
  return restoreShiftedTimes(storedAlarm.alarm, alarm);
}

/** Restores the stored start, and each other stored time that differs from the record by the same shift. */
function restoreShiftedTimes(knownAlarm: Alarm, alarm: Alarm): Alarm {
  const shiftMs = startShiftMs(knownAlarm, alarm);
  const keepTime = <T extends string | null>(before: T, now: T) => (isShiftedTime(before, now, shiftMs) ? before : now);
  const { triggeredAt, triggeredAtRaw, lastActiveEvent: event } = knownAlarm;
  const { lastActiveEvent } = alarm;
  const isKnownActiveEvent = event !== null && lastActiveEvent !== null && event.id === lastActiveEvent.id;
  return {
    ...alarm,
    triggeredAt,
    triggeredAtRaw,
    recoveringUntil: keepTime(knownAlarm.recoveringUntil, alarm.recoveringUntil),
    acknowledgedAt: keepTime(knownAlarm.acknowledgedAt, alarm.acknowledgedAt),
    lastActiveEvent: isKnownActiveEvent
      ? { ...lastActiveEvent, triggeredAt: keepTime(event.triggeredAt, lastActiveEvent.triggeredAt) }
      : lastActiveEvent,
  };
}

import type { Alarm } from "../../../core/model/building.ts";
import type { FormerEpisode, StoredAlarm } from "../snapshot.ts";
import { areOneTime, endOf, instant, isSameMoment, later, shiftBetween } from "./times.ts";

/** An episode is one raise and one end of an alarm. This file decides to which episode a record belongs. */

/** Key of the episode: alarm id and time of the trigger, or the last active event when the service states no time. */
export function episodeOf({ id, triggeredAt, lastActiveEvent }: Alarm): string {
  const startMs = instant(triggeredAt);
  if (startMs !== null) return `${id}@${new Date(startMs).toISOString()}`;
  if (triggeredAt !== "") return `${id}@${triggeredAt}`;
  return lastActiveEvent === null ? id : `${id}@event-${lastActiveEvent.id}`;
}

function startOfEpisode(episode: string, alarmId: string): number | null {
  return instant(episode.slice(alarmId.length + 1));
}

/** True for the status `resolved`, or for a time of resolution with an unknown status. `active` is never resolved. */
export function isResolved({ status, triggeredAt, resolvedAt }: Alarm): boolean {
  if (status === "resolved") return true;
  if (status === "active" || resolvedAt === null) return false;
  const [startMs, endMs] = [instant(triggeredAt), instant(resolvedAt)];
  return startMs === null || endMs === null || endMs >= startMs;
}

/** True for a record that is resolved without a time, or has an end after its last trigger and is not resolved. */
export function contradictsItself({ status, resolvedAt, triggeredAt, lastActiveEvent }: Alarm): boolean {
  if (status === "resolved" || resolvedAt === null) return status === "resolved" && resolvedAt === null;
  const endMs = instant(resolvedAt);
  const starts = [triggeredAt, lastActiveEvent?.triggeredAt ?? null].map(instant);
  return endMs === null || starts.every((startMs) => startMs === null || endMs >= startMs);
}

/** True when a record contains only its id: its attributes came as the empty array that PHP makes of an empty object. */
export function hasNoStatus({ status, triggeredAt, trigger, resolvedAt, lastActiveEvent }: Alarm): boolean {
  return status === "" && triggeredAt === "" && trigger.id === 0 && resolvedAt === null && lastActiveEvent === null;
}

function fillEmptyFields(known: Alarm, alarm: Alarm): Alarm {
  if (alarm === known || hasNoStatus(alarm)) return known;
  const lacksStart = alarm.triggeredAt === "" && known.triggeredAt !== "";
  const isSameStart = lacksStart || alarm.triggeredAt === known.triggeredAt;
  const lacksStatus = alarm.status === "" && alarm.resolvedAt === null && known.status !== "resolved";
  const lacksSite = alarm.site.id === 0 || (alarm.site.displayName === "" && alarm.site.id === known.site.id);
  const lacksTrigger = alarm.trigger.id === 0 && alarm.trigger.displayName === "";
  const lastActiveEvent = alarm.lastActiveEvent ?? (isSameStart ? known.lastActiveEvent : null);
  const isFilled = lacksStart || lacksStatus || lacksSite || lacksTrigger || lastActiveEvent !== alarm.lastActiveEvent;
  // The record itself will be stored, and a later list that shows it again needs no comparison.
  if (!isFilled) return alarm;
  return {
    ...alarm,
    status: lacksStatus ? known.status : alarm.status,
    site: lacksSite ? known.site : alarm.site,
    trigger: lacksTrigger ? known.trigger : alarm.trigger,
    ...(lacksStart && { triggeredAt: known.triggeredAt, triggeredAtRaw: known.triggeredAtRaw }),
    lastActiveEvent,
  };
}

/** `same`: a record of the stored episode. `newer`: its episode began later. `past`: it changes nothing. */
export type Relation = "same" | "newer" | "past";

/**
 * A record with the known trigger and event number is of the known episode: a wrong time zone moves all times by an hour.
 * Otherwise the start decides, and if starts are equal or unreadable the event number: numbers only rise.
 */
export function relationOf(known: StoredAlarm, record: Alarm): Relation {
  if (record === known.alarm) return "same";
  const alarm = fillEmptyFields(known.alarm, record);
  const activity = orderOfActivity(alarm, known.alarm);
  if (isSameEpisode(known, alarm)) return activity === "before" ? "past" : "same";
  const isOfKnownEvent = isSameEvent(known.alarm, alarm);
  if (isOfFormerEpisode(known, alarm) && (isResolved(alarm) || !isOfKnownEvent)) return "past";
  if (isOfKnownEvent) return "same";
  const [startMs, knownMs] = [instant(alarm.triggeredAt), instant(known.alarm.triggeredAt)];
  if (startMs === null || knownMs === null)
    return ({ after: "newer", before: "past", same: "same", unknown: "newer" } as const)[activity];
  if (startMs > knownMs || activity === "after") return "newer";
  // The same activity with an earlier time is a corrected time; an end before it belongs to another episode.
  const endMs = instant(alarm.resolvedAt);
  return activity === "same" && (endMs === null || endMs >= knownMs) ? "same" : "past";
}

/** True for the first or present start of the stored episode, or a start between these without a later event. */
export function isSameEpisode({ episode, alarm: known }: StoredAlarm, alarm: Alarm): boolean {
  if (episodeOf(alarm) === episode || episodeOf(alarm) === episodeOf(known)) return true;
  const [startMs, presentMs] = [instant(alarm.triggeredAt), instant(known.triggeredAt)];
  if (startMs === null || presentMs === null) return false;
  const firstMs = startOfEpisode(episode, known.id) ?? presentMs;
  if (areOneTime(startMs, presentMs) || areOneTime(startMs, firstMs)) return true;
  return startMs > presentMs && startMs < firstMs && orderOfActivity(alarm, known) !== "after";
}

function isSameEvent(one: Alarm, other: Alarm): boolean {
  return one.trigger.id === other.trigger.id && orderOfActivity(one, other) === "same";
}

/** True for the known event with another start. A later start counts when shown twice: two replicas may alternate. */
export function hasOtherStart({ alarm: known }: StoredAlarm, record: Alarm): boolean {
  const alarm = fillEmptyFields(known, record);
  const [startMs, presentMs] = [instant(alarm.triggeredAt), instant(known.triggeredAt)];
  return startMs !== null && presentMs !== null && !areOneTime(startMs, presentMs) && isSameEvent(known, alarm);
}

/** True for an end before the stored start: the stored episode with its times moved back, or an older episode. */
export function isOverBefore(known: StoredAlarm, record: Alarm): boolean {
  const [endMs, startMs] = [instant(record.resolvedAt), instant(known.alarm.triggeredAt)];
  return endMs !== null && startMs !== null && endMs < startMs && !isSameEpisode(known, record);
}

export function orderOfActivity(one: Alarm, other: Alarm): "before" | "same" | "after" | "unknown" {
  if (one.lastActiveEvent === null || other.lastActiveEvent === null) return "unknown";
  const order = one.lastActiveEvent.id - other.lastActiveEvent.id;
  return order === 0 ? "same" : order > 0 ? "after" : "before";
}

/** True when a listed record is older than the stored one, or reopens an ended episode without a later event. */
export function isOvertaken(known: StoredAlarm, alarm: Alarm): boolean {
  const relation = relationOf(known, alarm);
  if (relation !== "same" || known.state !== "resolved" || known.untold === true) return relation === "past";
  return orderOfActivity(alarm, known.alarm) !== "after";
}

export function lastEndOf({ alarm, ended }: StoredAlarm): NonNullable<StoredAlarm["ended"]> {
  return {
    endMs: later(endOf(alarm), ended?.endMs ?? null),
    eventId: later(alarm.lastActiveEvent?.id ?? null, ended?.eventId ?? null),
  };
}

export function isEmittedEnd({ ended }: StoredAlarm, record: Alarm): boolean {
  if (ended === undefined) return false;
  if (ended.eventId !== null && (record.lastActiveEvent?.id ?? 0) > ended.eventId) return false;
  const endMs = endOf(record);
  return endMs === null || ended.endMs === null || Math.floor(endMs / 1_000) <= Math.floor(ended.endMs / 1_000);
}

/** Former episodes that are stored per alarm. If it flaps more often within the overlap of the sweeps, older ones are lost. */
const MAX_FORMER = 20;

export function isOfFormerEpisode({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const episode = episodeOf(record);
  const startMs = instant(record.triggeredAt);
  return former.some((one) => {
    const formerMs = startOfEpisode(one.episode, record.id);
    return one.episode === episode || (startMs !== null && formerMs !== null && areOneTime(startMs, formerMs));
  });
}

export function mayBeForgotten({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const startMs = instant(record.triggeredAt) ?? Number.NEGATIVE_INFINITY;
  return (
    former.length >= MAX_FORMER &&
    former.every((one) => startMs < (startOfEpisode(one.episode, record.id) ?? startMs + 1))
  );
}

export function withFormer({ former = [] }: StoredAlarm, episode: FormerEpisode): readonly FormerEpisode[] {
  return [...former, episode].slice(-MAX_FORMER);
}

/** Fills a record from the stored alarm. A later start needs `counts`: some lists cut times to whole seconds. */
export function fillFromStored(known: StoredAlarm, record: Alarm, counts = false): Alarm {
  const alarm = fillEmptyFields(known.alarm, record);
  if (counts || alarm.triggeredAt === known.alarm.triggeredAt) return alarm;
  const [startMs, presentMs] = [instant(alarm.triggeredAt), instant(known.alarm.triggeredAt)];
  const isUnreadable = startMs === null && relationOf(known, alarm) === "same";
  const isLater = startMs !== null && presentMs !== null && startMs > presentMs && isSameEvent(known.alarm, alarm);
  return isUnreadable || isLater || isSameEpisode(known, alarm) ? withTimesOf(known.alarm, alarm) : alarm;
}

/** Replaces the record's start with the stored one, and each other time that moved as much as the start. */
function withTimesOf(known: Alarm, alarm: Alarm): Alarm {
  const shiftMs = shiftBetween(known, alarm);
  const timeOf = <T extends string | null>(before: T, now: T) => (isSameMoment(before, now, shiftMs) ? before : now);
  const { triggeredAt, triggeredAtRaw, lastActiveEvent: event } = known;
  const { lastActiveEvent } = alarm;
  const isKnownEvent = event !== null && lastActiveEvent !== null && event.id === lastActiveEvent.id;
  return {
    ...alarm,
    triggeredAt,
    triggeredAtRaw,
    recoveringUntil: timeOf(known.recoveringUntil, alarm.recoveringUntil),
    acknowledgedAt: timeOf(known.acknowledgedAt, alarm.acknowledgedAt),
    lastActiveEvent: isKnownEvent
      ? { ...lastActiveEvent, triggeredAt: timeOf(event.triggeredAt, lastActiveEvent.triggeredAt) }
      : lastActiveEvent,
  };
}

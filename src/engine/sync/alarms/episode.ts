import type { Alarm } from "../../../core/model/building.ts";
import type { FormerEpisode, StoredAlarm } from "../snapshot.ts";
import { areOneTime, endOf, instant, isSameMoment, later, shiftBetween } from "./times.ts";

/**
 * An episode is one raise and one end. Its key is the alarm's id and the time of its trigger; without a time, the id of the last
 * active event.
 */
export function episodeOf(alarm: Alarm): string {
  const start = instant(alarm.triggeredAt);
  if (start !== null) return `${alarm.id}@${new Date(start).toISOString()}`;
  if (alarm.triggeredAt !== "") return `${alarm.id}@${alarm.triggeredAt}`;
  return alarm.lastActiveEvent === null ? alarm.id : `${alarm.id}@event-${alarm.lastActiveEvent.id}`;
}

/**
 * True when the service states that the alarm is over: status `resolved`, or a time of resolution with an unknown status.
 * `active` with a time of resolution contradicts itself and does not count as resolved.
 */
export function isResolved(alarm: Alarm): boolean {
  if (alarm.status === "resolved") return true;
  if (alarm.status === "active" || alarm.resolvedAt === null) return false;
  const start = instant(alarm.triggeredAt);
  const end = instant(alarm.resolvedAt);
  return start === null || end === null || end >= start;
}

/**
 * True when a record of the *active* list contradicts itself: resolved without a time, or with an end but not resolved. An end
 * before the last trigger belongs to an earlier episode and contradicts nothing.
 */
export function contradictsItself(alarm: Alarm): boolean {
  return alarm.status === "resolved" ? alarm.resolvedAt === null : statesItsEnd(alarm);
}

/** Whether a time of resolution belongs to the present episode, as far as the times can be compared. */
function statesItsEnd(alarm: Alarm): boolean {
  if (alarm.resolvedAt === null) return false;
  const end = instant(alarm.resolvedAt);
  const starts = [alarm.triggeredAt, alarm.lastActiveEvent?.triggeredAt ?? null].map(instant);
  return end === null || starts.every((start) => start === null || end >= start);
}

/** Whether a record says nothing but an id: its attributes came as the empty array that PHP makes of an empty object. */
export function hasNoStatus({ status, triggeredAt, trigger, resolvedAt, lastActiveEvent }: Alarm): boolean {
  return status === "" && triggeredAt === "" && trigger.id === 0 && resolvedAt === null && lastActiveEvent === null;
}

/**
 * The record, and in the places where it says nothing (an object that came empty, no time of its trigger) what was
 * known before: that a thing is not said is not the news that it changed, and no new episode.
 */
function filledFrom(known: Alarm, alarm: Alarm): Alarm {
  // A record that equals the stored one needs no completion.
  if (alarm === known || hasNoStatus(alarm)) return known;
  const unsaidStart = alarm.triggeredAt === "" && known.triggeredAt !== "";
  const sameStart = unsaidStart || alarm.triggeredAt === known.triggeredAt;
  const unsaidStatus = alarm.status === "" && alarm.resolvedAt === null && known.status !== "resolved";
  const status = unsaidStatus ? known.status : alarm.status;
  const site = saidSite(known, alarm);
  const trigger = alarm.trigger.id === 0 && alarm.trigger.displayName === "" ? known.trigger : alarm.trigger;
  const lastActiveEvent = alarm.lastActiveEvent ?? (sameStart ? known.lastActiveEvent : null);
  const isWhole =
    !unsaidStart &&
    !unsaidStatus &&
    site === alarm.site &&
    trigger === alarm.trigger &&
    lastActiveEvent === alarm.lastActiveEvent;
  // Then the record itself is what will be held, and the next list shows it as that.
  if (isWhole) return alarm;
  const start = unsaidStart ? { triggeredAt: known.triggeredAt, triggeredAtRaw: known.triggeredAtRaw } : {};
  return { ...alarm, status, site, trigger, ...start, lastActiveEvent };
}

/** A site without a name is the one that we know, or has none. */
function saidSite(known: Alarm, { site }: Alarm): Alarm["site"] {
  if (site.id === 0) return known.site;
  return site.displayName === "" && site.id === known.site.id ? known.site : site;
}

/**
 * Relation of a record to the stored episode: `same` is that episode, current or ended; `newer` began after it; `past` is older
 * and changes nothing by itself.
 */
export type Relation = "same" | "newer" | "past";

/**
 * A record with the trigger and the event number that are known is of the known episode, whatever its times: a new
 * episode has a new event, while a wrong time zone moves every time by an hour. Otherwise the time of the trigger orders
 * episodes, and where it is equal, runs back or cannot be compared, the number of the last active event does: numbers
 * only rise, while a clock that ran ahead is set right one day.
 */
export function relationOf(known: StoredAlarm, record: Alarm): Relation {
  if (record === known.alarm) return "same";
  const alarm = filledFrom(known.alarm, record);
  const activity = orderOfActivity(alarm, known.alarm);
  if (isSameEpisode(known, alarm)) return activity === "before" ? "past" : "same";
  const isOfKnownEvent = isSameEvent(known.alarm, alarm);
  if (isFormer(known, alarm) && (isResolved(alarm) || !isOfKnownEvent)) return "past";
  if (isOfKnownEvent) return "same";
  const start = instant(alarm.triggeredAt);
  const before = instant(known.alarm.triggeredAt);
  if (start === null || before === null)
    return ({ after: "newer", before: "past", same: "same", unknown: "newer" } as const)[activity];
  if (start > before || activity === "after") return "newer";
  // The same activity with an earlier time is a corrected time; an end before it belongs to another episode.
  const end = instant(alarm.resolvedAt);
  return activity === "same" && (end === null || end >= before) ? "same" : "past";
}

/**
 * Whether the times say that a record is of the held episode: its first time or its present one, at the precision that
 * both records have, or one between the two without a later event.
 */
export function isSameEpisode({ episode, alarm: known }: StoredAlarm, alarm: Alarm): boolean {
  if (episodeOf(alarm) === episode || episodeOf(alarm) === episodeOf(known)) return true;
  const start = instant(alarm.triggeredAt);
  const present = instant(known.triggeredAt);
  if (start === null || present === null) return false;
  const first = startIn(episode, known.id) ?? present;
  if (areOneTime(start, present) || areOneTime(start, first)) return true;
  return start > present && start < first && orderOfActivity(alarm, known) !== "after";
}

/** Whether two records of one alarm name the same trigger and the same last active event. */
function isSameEvent(one: Alarm, other: Alarm): boolean {
  return one.trigger.id === other.trigger.id && orderOfActivity(one, other) === "same";
}

/**
 * Whether a record shows the known event with a start that is not the known one. A start that is earlier than every
 * known one counts at once; any other has to be shown twice in a row (doubts.ts), because two replicas of the service
 * may take turns.
 */
export function hasOtherStart({ alarm: known }: StoredAlarm, record: Alarm): boolean {
  const alarm = filledFrom(known, record);
  const [start, present] = [instant(alarm.triggeredAt), instant(known.triggeredAt)];
  if (start === null || present === null || areOneTime(start, present)) return false;
  return isSameEvent(known, alarm);
}

/**
 * Whether a record is over before the known episode began, by times that are not the known ones: the known episode
 * with its times moved back, or an older one to which the service gives the number of the alarm's latest event.
 */
export function isOverBefore(known: StoredAlarm, record: Alarm): boolean {
  const [end, start] = [instant(record.resolvedAt), instant(known.alarm.triggeredAt)];
  return end !== null && start !== null && end < start && !isSameEpisode(known, record);
}

/** Order of the last activity of two records, by the numbers of their events. */
export function orderOfActivity(one: Alarm, other: Alarm): "before" | "same" | "after" | "unknown" {
  if (one.lastActiveEvent === null || other.lastActiveEvent === null) return "unknown";
  const order = one.lastActiveEvent.id - other.lastActiveEvent.id;
  return order === 0 ? "same" : order > 0 ? "after" : "before";
}

/**
 * True when a record of the active list is overtaken: it is older than the stored one, or shows an ended episode as open without
 * a later event.
 */
export function isOvertaken(known: StoredAlarm, alarm: Alarm): boolean {
  const relation = relationOf(known, alarm);
  if (relation !== "same" || known.state !== "resolved" || known.untold === true) return relation === "past";
  return orderOfActivity(alarm, known.alarm) !== "after";
}

/** End to store, with earlier ones, when the episode has come back. */
export function lastEndOf({ alarm, ended }: StoredAlarm): NonNullable<StoredAlarm["ended"]> {
  return {
    endMs: later(endOf(alarm), ended?.endMs ?? null),
    eventId: later(alarm.lastActiveEvent?.id ?? null, ended?.eventId ?? null),
  };
}

/** True when a record states an end that was emitted before the episode came back. */
export function isEmittedEnd({ ended }: StoredAlarm, record: Alarm): boolean {
  if (ended === undefined) return false;
  const isLaterEvent = later(record.lastActiveEvent?.id ?? null, ended.eventId) !== ended.eventId;
  if (isLaterEvent && ended.eventId !== null) return false;
  const endMs = endOf(record);
  return endMs === null || ended.endMs === null || Math.floor(endMs / 1_000) <= Math.floor(ended.endMs / 1_000);
}

/**
 * How many episodes of one alarm are remembered besides the last: of one that flaps more often within the overlap of the
 * sweeps, what is older than all of them is not told any more.
 */
const FORMER = 20;

/** True when a record belongs to an episode that was emitted before the stored one. */
export function isFormer({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const episode = episodeOf(record);
  const start = instant(record.triggeredAt);
  return former.some((one) => one.episode === episode || isSameTime(one.episode, record.id, start));
}

/** True when a record may belong to an emitted episode that is no longer stored. */
export function isForgotten({ former = [] }: StoredAlarm, record: Alarm): boolean {
  const start = instant(record.triggeredAt) ?? Number.NEGATIVE_INFINITY;
  return former.length >= FORMER && former.every((one) => start < (startIn(one.episode, record.id) ?? start + 1));
}

/** The remembered episodes, and one more. */
export function withFormer({ former = [] }: StoredAlarm, ...more: readonly FormerEpisode[]): readonly FormerEpisode[] {
  return [...former, ...more].slice(-FORMER);
}

function isSameTime(episode: string, id: string, start: number | null): boolean {
  const known = startIn(episode, id);
  return start !== null && known !== null && areOneTime(start, known);
}

/** The time in the name of an episode; null where it has none that can be compared. */
function startIn(episode: string, id: string): number | null {
  return instant(episode.slice(id.length + 1));
}

/**
 * A record, completed with what is held of its alarm where it says nothing. The known start of an episode gives way to
 * an earlier one only, unless another one `counts` (see `hasOtherStart`): what a list cuts to whole seconds is no news.
 */
export function completed(known: StoredAlarm, record: Alarm, counts = false): Alarm {
  const alarm = filledFrom(known.alarm, record);
  if (counts || alarm.triggeredAt === known.alarm.triggeredAt) return alarm;
  const start = instant(alarm.triggeredAt);
  const present = instant(known.alarm.triggeredAt);
  const isUnread = start === null && relationOf(known, alarm) === "same";
  const isLater = start !== null && present !== null && start > present && isSameEvent(known.alarm, alarm);
  return isUnread || isLater || isSameEpisode(known, alarm) ? withTimesOf(known.alarm, alarm) : alarm;
}

/** The record with its start as known, and with each other time as known that was moved by as much as the start. */
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

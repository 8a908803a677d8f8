import type { Alarm } from "../../building.ts";
import type { FormerEpisode, HeldAlarm } from "../snapshot.ts";

/**
 * One episode is one raise and one end. Its key is the alarm's id and the time of its trigger; where the service
 * gives no time, the id of the last active event stands in.
 */
export function episodeOf(alarm: Alarm): string {
  const start = instant(alarm.triggeredAt);
  if (start !== null) return `${alarm.id}@${new Date(start).toISOString()}`;
  if (alarm.triggeredAt !== "") return `${alarm.id}@${alarm.triggeredAt}`;
  return alarm.lastActiveEvent === null ? alarm.id : `${alarm.id}@event-${alarm.lastActiveEvent.id}`;
}

/**
 * Whether the service itself says that it is over: its word `resolved`, or a time of resolution beside a word that
 * the interface does not name. `active` beside a time of resolution contradicts itself and is not read as resolved.
 */
export function isResolved(alarm: Alarm): boolean {
  if (alarm.status === "resolved") return true;
  if (alarm.status === "active" || alarm.resolvedAt === null) return false;
  const start = instant(alarm.triggeredAt);
  const end = instant(alarm.resolvedAt);
  return start === null || end === null || end >= start;
}

/**
 * Whether a record of the list of *active* alarms contradicts itself: resolved, but not since when, or with an end and
 * not resolved. An end from before the alarm was last triggered is the end of another time and contradicts nothing.
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
export function saysNothing({ status, triggeredAt, trigger, resolvedAt, lastActiveEvent }: Alarm): boolean {
  return (
    status === "" && triggeredAt === "" && trigger.id === 0 && resolvedAt === null && lastActiveEvent === null
  );
}

/**
 * The record, and in the places where it says nothing (an object that came empty, no time of its trigger) what was
 * known before: that a thing is not said is not the news that it changed, and no new episode.
 */
function filledFrom(known: Alarm, alarm: Alarm): Alarm {
  // What the list showed as it is held (source.ts, Held) leaves nothing open.
  if (alarm === known || saysNothing(alarm)) return known;
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
 * What a record is to the episode that is held of its alarm: `same` is that episode, as it is now or as it ended;
 * `newer` began after it; `past` is an older one, or the same as it was before, and changes nothing by itself.
 */
export type Relation = "same" | "newer" | "past";

/**
 * The time of the trigger orders episodes, and where it is equal, runs back or cannot be compared, the number of the
 * last active event does: numbers only rise, while a clock that ran ahead is set right one day.
 */
export function relationOf(known: HeldAlarm, record: Alarm): Relation {
  if (record === known.alarm) return "same";
  const alarm = filledFrom(known.alarm, record);
  const activity = orderOfActivity(alarm, known.alarm);
  if (isSameEpisode(known, alarm)) return activity === "before" ? "past" : "same";
  if (isFormer(known, alarm)) return "past";
  const start = instant(alarm.triggeredAt);
  const before = instant(known.alarm.triggeredAt);
  if (start === null || before === null)
    return ({ after: "newer", before: "past", same: "same", unknown: "newer" } as const)[activity];
  if (start > before || activity === "after") return "newer";
  // The same activity with an earlier time is a corrected time; an end from before it is the end of another episode.
  const end = instant(alarm.resolvedAt);
  return activity === "same" && (end === null || end >= before) ? "same" : "past";
}

/**
 * Whether the times say that a record is of the held episode: its first time or its present one, at the precision that
 * both records have, or one between the two.
 */
export function isSameEpisode({ episode, alarm: known }: HeldAlarm, alarm: Alarm): boolean {
  if (episodeOf(alarm) === episode || episodeOf(alarm) === episodeOf(known)) return true;
  const start = instant(alarm.triggeredAt);
  const present = instant(known.triggeredAt);
  if (start === null || present === null) return false;
  const first = startIn(episode, known.id) ?? present;
  return areOneTime(start, present) || areOneTime(start, first) || (start > present && start < first);
}

/** Whether two times are the same where one of them may have been cut to whole seconds. */
function areOneTime(a: number, b: number): boolean {
  const isWhole = a % 1_000 === 0 || b % 1_000 === 0;
  return a === b || (isWhole && Math.floor(a / 1_000) === Math.floor(b / 1_000));
}

/** When a record was last active, beside another one, as far as the numbers of their events say. */
export function orderOfActivity(one: Alarm, other: Alarm): "before" | "same" | "after" | "unknown" {
  if (one.lastActiveEvent === null || other.lastActiveEvent === null) return "unknown";
  const order = one.lastActiveEvent.id - other.lastActiveEvent.id;
  return order === 0 ? "same" : order > 0 ? "after" : "before";
}

/**
 * Whether a record of the list of active alarms is overtaken by what is known: it is from the past, or shows the episode
 * open whose end was told, without a later event that would have opened it again.
 */
export function isOvertaken(known: HeldAlarm, alarm: Alarm): boolean {
  const relation = relationOf(known, alarm);
  if (relation !== "same" || known.state !== "resolved" || known.untold === true) return relation === "past";
  return orderOfActivity(alarm, known.alarm) !== "after";
}

/** What is remembered of an end, and of those before it, once the episode has come back. */
export function lastEndOf({ alarm, ended }: HeldAlarm): NonNullable<HeldAlarm["ended"]> {
  return {
    endMs: later(endOf(alarm), ended?.endMs ?? null),
    eventId: later(alarm.lastActiveEvent?.id ?? null, ended?.eventId ?? null),
  };
}

/** Whether a record states the end, or an earlier one, that was told before the episode came back. */
export function isToldEnd({ ended }: HeldAlarm, record: Alarm): boolean {
  if (ended === undefined) return false;
  const isLaterEvent = later(record.lastActiveEvent?.id ?? null, ended.eventId) !== ended.eventId;
  if (isLaterEvent && ended.eventId !== null) return false;
  const endMs = endOf(record);
  return (
    endMs === null || ended.endMs === null || Math.floor(endMs / 1_000) <= Math.floor(ended.endMs / 1_000)
  );
}

function later(one: number | null, other: number | null): number | null {
  return one === null || other === null ? (one ?? other) : Math.max(one, other);
}

/**
 * How many episodes of one alarm are remembered besides the last: of one that flaps more often within the overlap of the
 * sweeps, what is older than all of them is not told any more.
 */
const FORMER = 20;

/** Whether a record is of an episode that was told before the held one. */
export function isFormer({ former = [] }: HeldAlarm, record: Alarm): boolean {
  const episode = episodeOf(record);
  const start = instant(record.triggeredAt);
  return former.some((one) => one.episode === episode || isSameTime(one.episode, record.id, start));
}

/** Whether a record may be of an episode that began before all that are remembered, and was told. */
export function isForgotten({ former = [] }: HeldAlarm, record: Alarm): boolean {
  const start = instant(record.triggeredAt) ?? Number.NEGATIVE_INFINITY;
  return (
    former.length >= FORMER && former.every((one) => start < (startIn(one.episode, record.id) ?? start + 1))
  );
}

/** The remembered episodes, and one more. */
export function withFormer(
  { former = [] }: HeldAlarm,
  ...more: readonly FormerEpisode[]
): readonly FormerEpisode[] {
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

/** When an alarm was resolved, milliseconds since 1970; a time without an offset is taken for UTC, only for searching. */
export function endOf(alarm: Alarm): number | null {
  const time = alarm.resolvedAt ?? alarm.triggeredAt;
  const known = instant(time) ?? Date.parse(`${time}Z`);
  return Number.isNaN(known) ? null : known;
}

/**
 * A record, completed with what is held of its alarm where it says nothing. The time of an episode's trigger moves only
 * back, to an earlier one: what a list cuts to whole seconds, and what shows a corrected time as it was, is no news.
 */
export function completed(known: HeldAlarm, record: Alarm): Alarm {
  const alarm = filledFrom(known.alarm, record);
  const { triggeredAt, triggeredAtRaw } = known.alarm;
  if (alarm.triggeredAt === triggeredAt) return alarm;
  const isUnread = instant(alarm.triggeredAt) === null && relationOf(known, alarm) === "same";
  return isUnread || isSameEpisode(known, alarm) ? { ...alarm, triggeredAt, triggeredAtRaw } : alarm;
}

/**
 * The latest time of an alarm that is over, milliseconds since 1970: its end, or its beginning where the end is stated as
 * before it. Whoever writes an end an hour or two early (a wrong offset, a device's own clock) does not make it old.
 */
export function lastTimeOf(alarm: Alarm): number | null {
  const end = endOf(alarm);
  return end === null ? null : later(end, instant(alarm.triggeredAt));
}

/** Milliseconds since 1970 of a time in UTC; null for one whose offset is unknown or that is no time. */
export function instant(time: string | null): number | null {
  if (time === null || !time.endsWith("Z")) return null;
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? null : ms;
}

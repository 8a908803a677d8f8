import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import { type AlarmFact, type Event, type EventData, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventIdFacts } from "../../../core/model/event-ids.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { isShiftedTime, parseUtcMs, startShiftMs } from "./alarm-times.ts";
import { addFormerEpisode, compareLastActiveEvents, episodeKey, findLastEnd } from "./episode.ts";

export interface EventContext {
  readonly source: string;
  readonly at: string;
  readonly late: boolean;
  readonly superseded?: true;
  readonly behindGateway: (alarm: Alarm) => string | null;
}

export interface AlarmChange {
  readonly stored: StoredAlarm;
  readonly events: readonly Event[];
}

/** Begins a new episode of an alarm after `storedBefore`, if given. `isInitial`: Plenum did not see it begin. */
export function beginEpisode(
  alarm: Alarm,
  isInitial: boolean,
  context: EventContext,
  storedBefore?: StoredAlarm,
): AlarmChange {
  const formerEpisodes =
    storedBefore &&
    addFormerEpisode(storedBefore, { episode: storedBefore.episode, endMs: findLastEnd(storedBefore).endMs });
  const newAlarm: StoredAlarm = {
    alarm,
    episode: episodeKey(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(formerEpisodes && { former: formerEpisodes }),
  };
  const events = [raisedEvent(newAlarm, isInitial, context)];
  if (alarm.acknowledged && !isInitial) events.push(acknowledgedEvent(newAlarm, context));
  return { stored: newAlarm, events };
}

export function startupEvent(storedAlarm: StoredAlarm, startedAt: string, context: EventContext): Event {
  return raisedEvent(storedAlarm, true, context, ["announced", startedAt]);
}

/** Continues an episode that is active (again). Emits no event if only the alarm's site is visible to the token again. */
export function continueEpisode(storedBefore: StoredAlarm, alarm: Alarm, context: EventContext): AlarmChange {
  const pastEpisodes = storedBefore.former && { former: storedBefore.former };
  if (storedBefore.untold === true) {
    const { stored, events } = beginEpisode(alarm, false, context);
    return { stored: { ...stored, ...pastEpisodes }, events };
  }
  const hadEpisodeEnded = storedBefore.state === "resolved" || storedBefore.state === "vanished";
  const wasAlarmGone = hadEpisodeEnded || storedBefore.state === "out-of-scope";
  const lastEpisodeEnd = storedBefore.state === "resolved" ? findLastEnd(storedBefore) : storedBefore.ended;
  const newAlarm: StoredAlarm = {
    alarm,
    episode: storedBefore.episode,
    state: "active",
    since: wasAlarmGone ? context.at : storedBefore.since,
    misses: 0,
    returns: storedBefore.returns + (wasAlarmGone ? 1 : 0),
    ...(lastEpisodeEnd && { ended: lastEpisodeEnd }),
    ...pastEpisodes,
  };
  const events = alarmChangeEvents(storedBefore.alarm, newAlarm, hadEpisodeEnded, context);
  if (hadEpisodeEnded)
    events.unshift(alarmEvent("alarm-retriggered", newAlarm, context.at, ["after", storedBefore.since], context, {}));
  return { stored: newAlarm, events };
}

export function resolveEpisode(storedBefore: StoredAlarm, alarm: Alarm, context: EventContext): AlarmChange {
  const newAlarm: StoredAlarm = { ...storedBefore, alarm, state: "resolved", since: context.at, misses: 0 };
  const events = isNewAcknowledgement(storedBefore.alarm, alarm) ? [acknowledgedEvent(newAlarm, context)] : [];
  const eventIdParts = [alarm.resolvedAt, newAlarm.returns];
  events.push(alarmEvent("alarm-resolved", newAlarm, eventTime(alarm.resolvedAt, context), eventIdParts, context, {}));
  return { stored: newAlarm, events };
}

export function acknowledgeEndedAlarm(storedBefore: StoredAlarm, alarm: Alarm, context: EventContext) {
  if (!isNewAcknowledgement(storedBefore.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const acknowledgementFields = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const newAlarm: StoredAlarm = { ...storedBefore, alarm: { ...storedBefore.alarm, ...acknowledgementFields } };
  return { stored: newAlarm, events: [acknowledgedEvent(newAlarm, context)] };
}

export function markAlarmVanished(storedBefore: StoredAlarm, context: EventContext): AlarmChange {
  const storedAlarm: StoredAlarm = { ...storedBefore, state: "vanished", since: context.at };
  return {
    stored: storedAlarm,
    events: [alarmEvent("alarm-vanished", storedAlarm, context.at, [storedAlarm.returns], context, {})],
  };
}

export function markAlarmOutOfScope(storedBefore: StoredAlarm, context: EventContext): AlarmChange {
  const storedAlarm: StoredAlarm = { ...storedBefore, state: "out-of-scope", since: context.at, misses: 0 };
  return {
    stored: storedAlarm,
    events: [alarmEvent("alarm-out-of-scope", storedAlarm, context.at, [storedAlarm.returns], context, {})],
  };
}

export function countAlarmAbsence(storedBefore: StoredAlarm, context: EventContext): AlarmChange {
  const since = storedBefore.state === "missing" ? storedBefore.since : context.at;
  const returns = storedBefore.returns + (storedBefore.state === "out-of-scope" ? 1 : 0);
  return { stored: { ...storedBefore, state: "missing", since, misses: storedBefore.misses + 1, returns }, events: [] };
}

export function isOpenAlarm({ state }: StoredAlarm): boolean {
  return state !== "resolved" && state !== "vanished";
}

function alarmChangeEvents(before: Alarm, storedAlarm: StoredAlarm, isReopened: boolean, context: EventContext) {
  const { alarm, returns } = storedAlarm;
  const { lastActiveEvent, recoveringUntil } = alarm;
  const events: Event[] = [];
  const isAlarmRetriggered = lastActiveEvent !== null && compareLastActiveEvents(alarm, before) === "after";
  if (isAlarmRetriggered && !isReopened) {
    const eventIdParts = returns === 0 ? [lastActiveEvent.id] : [lastActiveEvent.id, returns];
    const retriggerTime = eventTime(lastActiveEvent.triggeredAt, context);
    events.push(alarmEvent("alarm-retriggered", storedAlarm, retriggerTime, eventIdParts, context, {}));
  }
  const shiftMs = startShiftMs(before, alarm);
  if (recoveringUntil !== null && !isShiftedTime(before.recoveringUntil, recoveringUntil, shiftMs))
    events.push(alarmEvent("alarm-recovering", storedAlarm, context.at, [recoveringUntil, context.at], context, {}));
  if (isNewAcknowledgement(before, alarm)) events.push(acknowledgedEvent(storedAlarm, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const withdrawalEventIdParts = [before.acknowledgedAt, context.at];
    events.push(alarmEvent("alarm-unacknowledged", storedAlarm, context.at, withdrawalEventIdParts, context, {}));
  }
  const oldFields: Partial<Record<keyof Alarm, unknown>> = {};
  for (const alarmField of COMPARED_ALARM_FIELDS) {
    if (isReopened && alarmField === "status") continue;
    if (!isDeepStrictEqual(alarm[alarmField], before[alarmField])) oldFields[alarmField] = before[alarmField];
  }
  if (recoveringUntil === null && before.recoveringUntil !== null) oldFields.recoveringUntil = before.recoveringUntil;
  if (!isAlarmRetriggered && !isDeepStrictEqual(lastActiveEvent, before.lastActiveEvent))
    oldFields.lastActiveEvent = before.lastActiveEvent;
  if (Object.keys(oldFields).length > 0)
    events.push(alarmEvent("alarm-changed", storedAlarm, context.at, [context.at], context, { before: oldFields }));
  return events;
}

const COMPARED_ALARM_FIELDS = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

/** True if the acknowledgement's person, text or time changed. Ignores a time that moved as much as the start. */
function isNewAcknowledgement(alarmBefore: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const acknowledgementFieldNames = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
  return (
    acknowledgementFieldNames.some((name) => alarm[name] !== alarmBefore[name]) ||
    !isShiftedTime(alarmBefore.acknowledgedAt, alarm.acknowledgedAt, startShiftMs(alarmBefore, alarm))
  );
}

function raisedEvent(
  storedAlarm: StoredAlarm,
  initial: boolean,
  context: EventContext,
  facts: EventIdFacts = [],
): Event {
  const time = eventTime(storedAlarm.alarm.triggeredAt, context);
  return alarmEvent("alarm-raised", storedAlarm, time, facts, context, { initial });
}

function acknowledgedEvent(storedAlarm: StoredAlarm, context: EventContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = storedAlarm.alarm;
  const eventIdParts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return alarmEvent("alarm-acknowledged", storedAlarm, eventTime(acknowledgedAt, context), eventIdParts, context, {});
}

function alarmEvent<K extends Extract<keyof EventData, `alarm-${string}`>>(
  type: K,
  storedAlarm: StoredAlarm,
  time: string,
  facts: EventIdFacts,
  context: EventContext,
  extraData: Omit<EventData[K], keyof AlarmFact>,
): Event {
  const { alarm, episode } = storedAlarm;
  const { late, superseded, source, behindGateway } = context;
  const alarmFacts: AlarmFact = {
    ...{ alarm, episode, late, behindGateway: behindGateway(alarm) },
    ...(superseded && { superseded }),
  };
  const { site, trigger } = alarm;
  return makeEvent({
    ...{ type, source, time, subject: eventSubject("alarm", site.id, alarm.id) },
    ...{ siteId: site.id, priority: trigger.priority },
    data: { ...alarmFacts, ...extraData } as unknown as EventData[K],
    facts: [episode, ...facts],
  });
}

function eventTime(time: string | null, context: EventContext): string {
  return time !== null && parseUtcMs(time) !== null ? time : context.at;
}

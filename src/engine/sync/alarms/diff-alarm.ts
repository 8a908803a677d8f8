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

/** Begins a new episode of an alarm after the stored episode `before`. `initial`: Plenum did not see its beginning. */
export function beginEpisode(alarm: Alarm, initial: boolean, context: EventContext, before?: StoredAlarm): AlarmChange {
  const former = before && addFormerEpisode(before, { episode: before.episode, endMs: findLastEnd(before).endMs });
  const newAlarm: StoredAlarm = {
    alarm,
    episode: episodeKey(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(former && { former }),
  };
  const events = [raisedEvent(newAlarm, initial, context)];
  if (alarm.acknowledged && !initial) events.push(acknowledgedEvent(newAlarm, context));
  return { stored: newAlarm, events };
}

export function startupEvent(stored: StoredAlarm, startedAt: string, context: EventContext): Event {
  return raisedEvent(stored, true, context, ["announced", startedAt]);
}

/** Continues an episode that is active (again). The return of its site into the token's scope emits no event. */
export function continueEpisode(before: StoredAlarm, alarm: Alarm, context: EventContext): AlarmChange {
  const pastEpisodes = before.former && { former: before.former };
  if (before.untold === true) {
    const { stored, events } = beginEpisode(alarm, false, context);
    return { stored: { ...stored, ...pastEpisodes }, events };
  }
  const hadEpisodeEnded = before.state === "resolved" || before.state === "vanished";
  const wasAlarmGone = hadEpisodeEnded || before.state === "out-of-scope";
  const lastEpisodeEnd = before.state === "resolved" ? findLastEnd(before) : before.ended;
  const newAlarm: StoredAlarm = {
    alarm,
    episode: before.episode,
    state: "active",
    since: wasAlarmGone ? context.at : before.since,
    misses: 0,
    returns: before.returns + (wasAlarmGone ? 1 : 0),
    ...(lastEpisodeEnd && { ended: lastEpisodeEnd }),
    ...pastEpisodes,
  };
  const events = alarmChangeEvents(before.alarm, newAlarm, hadEpisodeEnded, context);
  if (hadEpisodeEnded)
    events.unshift(alarmEvent("alarm-retriggered", newAlarm, context.at, ["after", before.since], context, {}));
  return { stored: newAlarm, events };
}

export function resolveEpisode(before: StoredAlarm, alarm: Alarm, context: EventContext): AlarmChange {
  const newAlarm: StoredAlarm = { ...before, alarm, state: "resolved", since: context.at, misses: 0 };
  const events = isNewAcknowledgement(before.alarm, alarm) ? [acknowledgedEvent(newAlarm, context)] : [];
  const eventIdParts = [alarm.resolvedAt, newAlarm.returns];
  events.push(alarmEvent("alarm-resolved", newAlarm, eventTime(alarm.resolvedAt, context), eventIdParts, context, {}));
  return { stored: newAlarm, events };
}

export function acknowledgeEndedAlarm(before: StoredAlarm, alarm: Alarm, context: EventContext): AlarmChange | null {
  if (!isNewAcknowledgement(before.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const acknowledgementFields = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const newAlarm: StoredAlarm = { ...before, alarm: { ...before.alarm, ...acknowledgementFields } };
  return { stored: newAlarm, events: [acknowledgedEvent(newAlarm, context)] };
}

export function markAlarmVanished(before: StoredAlarm, context: EventContext): AlarmChange {
  return buildGoneChange({ ...before, state: "vanished", since: context.at }, "alarm-vanished", context);
}

export function markAlarmOutOfScope(before: StoredAlarm, context: EventContext): AlarmChange {
  return buildGoneChange(
    { ...before, state: "out-of-scope", since: context.at, misses: 0 },
    "alarm-out-of-scope",
    context,
  );
}

function buildGoneChange(
  stored: StoredAlarm,
  type: "alarm-vanished" | "alarm-out-of-scope",
  context: EventContext,
): AlarmChange {
  return { stored, events: [alarmEvent(type, stored, context.at, [stored.returns], context, {})] };
}

export function countAlarmAbsence(before: StoredAlarm, context: EventContext): AlarmChange {
  const since = before.state === "missing" ? before.since : context.at;
  const returns = before.returns + (before.state === "out-of-scope" ? 1 : 0);
  return { stored: { ...before, state: "missing", since, misses: before.misses + 1, returns }, events: [] };
}

export function isOpenAlarm({ state }: StoredAlarm): boolean {
  return state !== "resolved" && state !== "vanished";
}

function alarmChangeEvents(before: Alarm, stored: StoredAlarm, reopened: boolean, context: EventContext): Event[] {
  const { alarm, returns } = stored;
  const { lastActiveEvent: activity, recoveringUntil } = alarm;
  const events: Event[] = [];
  const isAlarmRetriggered = activity !== null && compareLastActiveEvents(alarm, before) === "after";
  if (isAlarmRetriggered && !reopened) {
    const eventIdParts = returns === 0 ? [activity.id] : [activity.id, returns];
    const retriggerTime = eventTime(activity.triggeredAt, context);
    events.push(alarmEvent("alarm-retriggered", stored, retriggerTime, eventIdParts, context, {}));
  }
  if (recoveringUntil !== null && !isShiftedTime(before.recoveringUntil, recoveringUntil, startShiftMs(before, alarm)))
    events.push(alarmEvent("alarm-recovering", stored, context.at, [recoveringUntil, context.at], context, {}));
  if (isNewAcknowledgement(before, alarm)) events.push(acknowledgedEvent(stored, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const withdrawalEventIdParts = [before.acknowledgedAt, context.at];
    events.push(alarmEvent("alarm-unacknowledged", stored, context.at, withdrawalEventIdParts, context, {}));
  }
  const oldFields: Partial<Record<keyof Alarm, unknown>> = {};
  for (const alarmField of COMPARED_ALARM_FIELDS) {
    if (reopened && alarmField === "status") continue;
    if (!isDeepStrictEqual(alarm[alarmField], before[alarmField])) oldFields[alarmField] = before[alarmField];
  }
  if (recoveringUntil === null && before.recoveringUntil !== null) oldFields.recoveringUntil = before.recoveringUntil;
  if (!isAlarmRetriggered && !isDeepStrictEqual(activity, before.lastActiveEvent))
    oldFields.lastActiveEvent = before.lastActiveEvent;
  if (Object.keys(oldFields).length > 0)
    events.push(alarmEvent("alarm-changed", stored, context.at, [context.at], context, { before: oldFields }));
  return events;
}

const COMPARED_ALARM_FIELDS = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

/** True if an acknowledgement's person, text or time changed; a time that moved with the alarm's start did not. */
function isNewAcknowledgement(before: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const acknowledgementFieldNames = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
  return (
    acknowledgementFieldNames.some((name) => alarm[name] !== before[name]) ||
    !isShiftedTime(before.acknowledgedAt, alarm.acknowledgedAt, startShiftMs(before, alarm))
  );
}

function raisedEvent(stored: StoredAlarm, initial: boolean, context: EventContext, facts: EventIdFacts = []): Event {
  return alarmEvent("alarm-raised", stored, eventTime(stored.alarm.triggeredAt, context), facts, context, { initial });
}

function acknowledgedEvent(stored: StoredAlarm, context: EventContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = stored.alarm;
  const eventIdParts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return alarmEvent("alarm-acknowledged", stored, eventTime(acknowledgedAt, context), eventIdParts, context, {});
}

function alarmEvent<K extends Extract<keyof EventData, `alarm-${string}`>>(
  type: K,
  stored: StoredAlarm,
  time: string,
  facts: EventIdFacts,
  context: EventContext,
  more: Omit<EventData[K], keyof AlarmFact>,
): Event {
  const { alarm, episode } = stored;
  const { late, superseded, source, behindGateway } = context;
  const alarmFacts = { alarm, episode, late, ...(superseded && { superseded }), behindGateway: behindGateway(alarm) };
  const { site, trigger } = alarm;
  return makeEvent({
    ...{ type, source, time, subject: eventSubject("alarm", site.id, alarm.id) },
    ...{ siteId: site.id, priority: trigger.priority },
    data: { ...alarmFacts, ...more } as unknown as EventData[K],
    facts: [episode, ...facts],
  });
}

function eventTime(time: string | null, context: EventContext): string {
  return time !== null && parseUtcMs(time) !== null ? time : context.at;
}

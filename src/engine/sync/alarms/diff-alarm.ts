import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import { type AlarmFact, type Event, type EventData, makeEvent, subjectOf } from "../../../core/model/event.ts";
import type { EventFacts } from "../../../core/model/event-ids.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { episodeOf, lastEndOf, orderOfActivity, withFormer } from "./episode.ts";
import { instant, isSameMoment, shiftBetween } from "./times.ts";

export interface AlarmContext {
  readonly source: string;
  readonly at: string;
  readonly late: boolean;
  /** True for an ended episode that was found after a later one of its alarm. */
  readonly superseded?: true;
  /** Returns the offline gateway that explains an alarm; null without evidence of one. */
  readonly behindGateway: (alarm: Alarm) => string | null;
}

export interface Step {
  readonly stored: StoredAlarm;
  readonly events: readonly Event[];
}

/** Begins an episode after the stored one, `before`. `initial`: Plenum did not see the beginning. */
export function beginEpisode(alarm: Alarm, initial: boolean, context: AlarmContext, before?: StoredAlarm): Step {
  const former = before && withFormer(before, { episode: before.episode, endMs: lastEndOf(before).endMs });
  const stored: StoredAlarm = {
    alarm,
    episode: episodeOf(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(former && { former }),
  };
  const events = [raiseEvent(stored, initial, context)];
  if (alarm.acknowledged && !initial) events.push(acknowledgeEvent(stored, context));
  return { stored, events };
}

export function announce(stored: StoredAlarm, startedAt: string, context: AlarmContext): Event {
  return raiseEvent(stored, true, context, ["announced", startedAt]);
}

/** The episode is listed as active. A return after its end is emitted; a return into the token's scope is not. */
export function continueEpisode(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step {
  const former = before.former && { former: before.former };
  if (before.untold === true) {
    const { stored, events } = beginEpisode(alarm, false, context);
    return { stored: { ...stored, ...former }, events };
  }
  const hadEnded = before.state === "resolved" || before.state === "vanished";
  const wasAway = hadEnded || before.state === "out-of-scope";
  const lastEnd = before.state === "resolved" ? lastEndOf(before) : before.ended;
  const stored: StoredAlarm = {
    alarm,
    episode: before.episode,
    state: "active",
    since: wasAway ? context.at : before.since,
    misses: 0,
    returns: before.returns + (wasAway ? 1 : 0),
    ...(lastEnd && { ended: lastEnd }),
    ...former,
  };
  const events = changeEvents(before.alarm, stored, hadEnded, context);
  if (hadEnded)
    events.unshift(alarmEvent("alarm-retriggered", stored, context.at, ["after", before.since], context, {}));
  return { stored, events };
}

export function resolve(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step {
  const stored: StoredAlarm = { ...before, alarm, state: "resolved", since: context.at, misses: 0 };
  const events = isNewAcknowledgement(before.alarm, alarm) ? [acknowledgeEvent(stored, context)] : [];
  const facts = [alarm.resolvedAt, stored.returns];
  events.push(alarmEvent("alarm-resolved", stored, timeOr(alarm.resolvedAt, context), facts, context, {}));
  return { stored, events };
}

export function acknowledgeEnded(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step | null {
  if (!isNewAcknowledgement(before.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const acknowledgement = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const stored: StoredAlarm = { ...before, alarm: { ...before.alarm, ...acknowledgement } };
  return { stored, events: [acknowledgeEvent(stored, context)] };
}

export function vanish(before: StoredAlarm, context: AlarmContext): Step {
  const stored: StoredAlarm = { ...before, state: "vanished", since: context.at };
  return { stored, events: [alarmEvent("alarm-vanished", stored, context.at, [stored.returns], context, {})] };
}

export function leaveScope(before: StoredAlarm, context: AlarmContext): Step {
  const stored: StoredAlarm = { ...before, state: "out-of-scope", since: context.at, misses: 0 };
  return { stored, events: [alarmEvent("alarm-out-of-scope", stored, context.at, [stored.returns], context, {})] };
}

export function countMiss(before: StoredAlarm, context: AlarmContext): Step {
  const since = before.state === "missing" ? before.since : context.at;
  const returns = before.returns + (before.state === "out-of-scope" ? 1 : 0);
  return { stored: { ...before, state: "missing", since, misses: before.misses + 1, returns }, events: [] };
}

export function isOpen({ state }: StoredAlarm): boolean {
  return state !== "resolved" && state !== "vanished";
}

function changeEvents(before: Alarm, stored: StoredAlarm, reopened: boolean, context: AlarmContext): Event[] {
  const { alarm, returns } = stored;
  const { lastActiveEvent: activity, recoveringUntil } = alarm;
  const events: Event[] = [];
  const isRetriggered = activity !== null && orderOfActivity(alarm, before) === "after";
  if (isRetriggered && !reopened) {
    const facts = returns === 0 ? [activity.id] : [activity.id, returns];
    events.push(alarmEvent("alarm-retriggered", stored, timeOr(activity.triggeredAt, context), facts, context, {}));
  }
  if (recoveringUntil !== null && !isSameMoment(before.recoveringUntil, recoveringUntil, shiftBetween(before, alarm)))
    events.push(alarmEvent("alarm-recovering", stored, context.at, [recoveringUntil, context.at], context, {}));
  if (isNewAcknowledgement(before, alarm)) events.push(acknowledgeEvent(stored, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const facts = [before.acknowledgedAt, context.at];
    events.push(alarmEvent("alarm-unacknowledged", stored, context.at, facts, context, {}));
  }
  const different: Partial<Record<keyof Alarm, unknown>> = {};
  for (const name of COMPARED_FIELDS) {
    if (reopened && name === "status") continue;
    if (!isDeepStrictEqual(alarm[name], before[name])) different[name] = before[name];
  }
  if (recoveringUntil === null && before.recoveringUntil !== null) different.recoveringUntil = before.recoveringUntil;
  if (!isRetriggered && !isDeepStrictEqual(activity, before.lastActiveEvent))
    different.lastActiveEvent = before.lastActiveEvent;
  if (Object.keys(different).length > 0)
    events.push(alarmEvent("alarm-changed", stored, context.at, [context.at], context, { before: different }));
  return events;
}

const COMPARED_FIELDS = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

/** True for another person, text or time. A time that moved as much as the alarm's start is the same time, corrected. */
function isNewAcknowledgement(before: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const names = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
  return (
    names.some((name) => alarm[name] !== before[name]) ||
    !isSameMoment(before.acknowledgedAt, alarm.acknowledgedAt, shiftBetween(before, alarm))
  );
}

function raiseEvent(stored: StoredAlarm, initial: boolean, context: AlarmContext, facts: EventFacts = []): Event {
  return alarmEvent("alarm-raised", stored, timeOr(stored.alarm.triggeredAt, context), facts, context, { initial });
}

/** Person, time and text identify an acknowledgement; without a stated time, the time of the poll does. */
function acknowledgeEvent(stored: StoredAlarm, context: AlarmContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = stored.alarm;
  const facts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return alarmEvent("alarm-acknowledged", stored, timeOr(acknowledgedAt, context), facts, context, {});
}

function alarmEvent<K extends Extract<keyof EventData, `alarm-${string}`>>(
  type: K,
  stored: StoredAlarm,
  time: string,
  facts: EventFacts,
  context: AlarmContext,
  more: Omit<EventData[K], keyof AlarmFact>,
): Event {
  const { alarm, episode } = stored;
  const { late, superseded, source, behindGateway } = context;
  const fact = {
    alarm,
    episode,
    late,
    ...(superseded && { superseded }),
    behindGateway: behindGateway(alarm),
  };
  const { site, trigger } = alarm;
  return makeEvent({
    ...{ type, source, time, subject: subjectOf("alarm", site.id, alarm.id) },
    ...{ siteId: site.id, priority: trigger.priority },
    data: { ...fact, ...more } as unknown as EventData[K],
    facts: [episode, ...facts],
  });
}

/** The service's time when its offset is known, otherwise the time of the poll. */
function timeOr(time: string | null, context: AlarmContext): string {
  return time !== null && instant(time) !== null ? time : context.at;
}

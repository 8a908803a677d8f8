import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import { type AlarmFact, type Event, type EventData, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventIdFacts } from "../../../core/model/event-ids.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { isSameMoment, parseUtcMs, startShiftMs } from "./alarm-times.ts";
import { addFormerEpisode, compareActivity, episodeKey, findLastEnd } from "./episode.ts";

export interface DiffContext {
  readonly source: string;
  readonly at: string;
  readonly late: boolean;
  readonly superseded?: true;
  readonly behindGateway: (alarm: Alarm) => string | null;
}

export interface DiffStep {
  readonly stored: StoredAlarm;
  readonly events: readonly Event[];
}

/** Begins a new episode of an alarm after the stored episode `before`. `initial`: Plenum did not see its beginning. */
export function beginEpisode(alarm: Alarm, initial: boolean, context: DiffContext, before?: StoredAlarm): DiffStep {
  const former = before && addFormerEpisode(before, { episode: before.episode, endMs: findLastEnd(before).endMs });
  const newState: StoredAlarm = {
    alarm,
    episode: episodeKey(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(former && { former }),
  };
  const events = [buildRaise(newState, initial, context)];
  if (alarm.acknowledged && !initial) events.push(buildAcknowledgement(newState, context));
  return { stored: newState, events };
}

export function announceAtStart(stored: StoredAlarm, startedAt: string, context: DiffContext): Event {
  return buildRaise(stored, true, context, ["announced", startedAt]);
}

/** Continues an episode listed as active. Emits a return after its end, but no return into the token's scope. */
export function continueEpisode(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep {
  const pastEpisodes = before.former && { former: before.former };
  if (before.untold === true) {
    const { stored, events } = beginEpisode(alarm, false, context);
    return { stored: { ...stored, ...pastEpisodes }, events };
  }
  const hadEpisodeEnded = before.state === "resolved" || before.state === "vanished";
  const wasAlarmGone = hadEpisodeEnded || before.state === "out-of-scope";
  const lastEnd = before.state === "resolved" ? findLastEnd(before) : before.ended;
  const newState: StoredAlarm = {
    alarm,
    episode: before.episode,
    state: "active",
    since: wasAlarmGone ? context.at : before.since,
    misses: 0,
    returns: before.returns + (wasAlarmGone ? 1 : 0),
    ...(lastEnd && { ended: lastEnd }),
    ...pastEpisodes,
  };
  const events = buildChangeEvents(before.alarm, newState, hadEpisodeEnded, context);
  if (hadEpisodeEnded)
    events.unshift(buildEvent("alarm-retriggered", newState, context.at, ["after", before.since], context, {}));
  return { stored: newState, events };
}

export function resolveEpisode(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep {
  const newState: StoredAlarm = { ...before, alarm, state: "resolved", since: context.at, misses: 0 };
  const events = isNewAcknowledgement(before.alarm, alarm) ? [buildAcknowledgement(newState, context)] : [];
  const eventIdParts = [alarm.resolvedAt, newState.returns];
  events.push(buildEvent("alarm-resolved", newState, eventTime(alarm.resolvedAt, context), eventIdParts, context, {}));
  return { stored: newState, events };
}

export function acknowledgeEnded(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep | null {
  if (!isNewAcknowledgement(before.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const acknowledgement = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const newState: StoredAlarm = { ...before, alarm: { ...before.alarm, ...acknowledgement } };
  return { stored: newState, events: [buildAcknowledgement(newState, context)] };
}

export function markVanished(before: StoredAlarm, context: DiffContext): DiffStep {
  return markGone({ ...before, state: "vanished", since: context.at }, "alarm-vanished", context);
}

export function markOutOfScope(before: StoredAlarm, context: DiffContext): DiffStep {
  return markGone({ ...before, state: "out-of-scope", since: context.at, misses: 0 }, "alarm-out-of-scope", context);
}

function markGone(stored: StoredAlarm, type: "alarm-vanished" | "alarm-out-of-scope", context: DiffContext): DiffStep {
  return { stored, events: [buildEvent(type, stored, context.at, [stored.returns], context, {})] };
}

export function countAbsence(before: StoredAlarm, context: DiffContext): DiffStep {
  const since = before.state === "missing" ? before.since : context.at;
  const returns = before.returns + (before.state === "out-of-scope" ? 1 : 0);
  return { stored: { ...before, state: "missing", since, misses: before.misses + 1, returns }, events: [] };
}

export function isOpenAlarm({ state }: StoredAlarm): boolean {
  return state !== "resolved" && state !== "vanished";
}

function buildChangeEvents(before: Alarm, stored: StoredAlarm, reopened: boolean, context: DiffContext): Event[] {
  const { alarm, returns } = stored;
  const { lastActiveEvent: activity, recoveringUntil } = alarm;
  const events: Event[] = [];
  const isRetriggered = activity !== null && compareActivity(alarm, before) === "after";
  if (isRetriggered && !reopened) {
    const eventIdParts = returns === 0 ? [activity.id] : [activity.id, returns];
    const time = eventTime(activity.triggeredAt, context);
    events.push(buildEvent("alarm-retriggered", stored, time, eventIdParts, context, {}));
  }
  if (recoveringUntil !== null && !isSameMoment(before.recoveringUntil, recoveringUntil, startShiftMs(before, alarm)))
    events.push(buildEvent("alarm-recovering", stored, context.at, [recoveringUntil, context.at], context, {}));
  if (isNewAcknowledgement(before, alarm)) events.push(buildAcknowledgement(stored, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const withdrawalFacts = [before.acknowledgedAt, context.at];
    events.push(buildEvent("alarm-unacknowledged", stored, context.at, withdrawalFacts, context, {}));
  }
  const oldValues: Partial<Record<keyof Alarm, unknown>> = {};
  for (const fieldName of COMPARED_ALARM_FIELDS) {
    if (reopened && fieldName === "status") continue;
    if (!isDeepStrictEqual(alarm[fieldName], before[fieldName])) oldValues[fieldName] = before[fieldName];
  }
  if (recoveringUntil === null && before.recoveringUntil !== null) oldValues.recoveringUntil = before.recoveringUntil;
  if (!isRetriggered && !isDeepStrictEqual(activity, before.lastActiveEvent))
    oldValues.lastActiveEvent = before.lastActiveEvent;
  if (Object.keys(oldValues).length > 0)
    events.push(buildEvent("alarm-changed", stored, context.at, [context.at], context, { before: oldValues }));
  return events;
}

const COMPARED_ALARM_FIELDS = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

/** True if an acknowledgement's person, text or time changed; a time that moved with the alarm's start did not. */
function isNewAcknowledgement(before: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const fieldNames = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
  return (
    fieldNames.some((name) => alarm[name] !== before[name]) ||
    !isSameMoment(before.acknowledgedAt, alarm.acknowledgedAt, startShiftMs(before, alarm))
  );
}

function buildRaise(stored: StoredAlarm, initial: boolean, context: DiffContext, facts: EventIdFacts = []): Event {
  return buildEvent("alarm-raised", stored, eventTime(stored.alarm.triggeredAt, context), facts, context, { initial });
}

/** Builds the acknowledgement event, whose id contains the person, the text and the time (or the poll's time). */
function buildAcknowledgement(stored: StoredAlarm, context: DiffContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = stored.alarm;
  const eventIdParts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return buildEvent("alarm-acknowledged", stored, eventTime(acknowledgedAt, context), eventIdParts, context, {});
}

function buildEvent<K extends Extract<keyof EventData, `alarm-${string}`>>(
  type: K,
  stored: StoredAlarm,
  time: string,
  facts: EventIdFacts,
  context: DiffContext,
  more: Omit<EventData[K], keyof AlarmFact>,
): Event {
  const { alarm, episode } = stored;
  const { late, superseded, source, behindGateway } = context;
  const alarmFact = {
    alarm,
    episode,
    late,
    ...(superseded && { superseded }),
    behindGateway: behindGateway(alarm),
  };
  const { site, trigger } = alarm;
  return makeEvent({
    ...{ type, source, time, subject: eventSubject("alarm", site.id, alarm.id) },
    ...{ siteId: site.id, priority: trigger.priority },
    data: { ...alarmFact, ...more } as unknown as EventData[K],
    facts: [episode, ...facts],
  });
}

function eventTime(time: string | null, context: DiffContext): string {
  return time !== null && parseUtcMs(time) !== null ? time : context.at;
}

import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import { type AlarmFact, type Event, type EventData, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventFacts } from "../../../core/model/event-ids.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { addFormerEpisode, compareActivity, episodeKey, findLastEnd } from "./episode.ts";
import { isSameMoment, parseUtcMs, startShiftMs } from "./times.ts";

export interface DiffContext {
  readonly source: string;
  readonly at: string;
  readonly late: boolean;
  /** True for an ended episode that was found after a later episode of the same alarm. */
  readonly superseded?: true;
  /** Returns the offline gateway that explains an alarm, or null if there is none. */
  readonly behindGateway: (alarm: Alarm) => string | null;
}

export interface DiffStep {
  readonly stored: StoredAlarm;
  readonly events: readonly Event[];
}

/** Begins a new episode of an alarm after the stored episode `before`. `initial`: Plenum did not see its beginning. */
export function beginEpisode(alarm: Alarm, initial: boolean, context: DiffContext, before?: StoredAlarm): DiffStep {
  const former = before && addFormerEpisode(before, { episode: before.episode, endMs: findLastEnd(before).endMs });
  const stored: StoredAlarm = {
    alarm,
    episode: episodeKey(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(former && { former }),
  };
  const events = [buildRaise(stored, initial, context)];
  if (alarm.acknowledged && !initial) events.push(buildAcknowledgement(stored, context));
  return { stored, events };
}

export function announceAtStart(stored: StoredAlarm, startedAt: string, context: DiffContext): Event {
  return buildRaise(stored, true, context, ["announced", startedAt]);
}

/** Continues an episode listed as active. Emits a return after its end, but no return into the token's scope. */
export function continueEpisode(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep {
  const former = before.former && { former: before.former };
  if (before.untold === true) {
    const { stored, events } = beginEpisode(alarm, false, context);
    return { stored: { ...stored, ...former }, events };
  }
  const hadEnded = before.state === "resolved" || before.state === "vanished";
  const wasAway = hadEnded || before.state === "out-of-scope";
  const lastEnd = before.state === "resolved" ? findLastEnd(before) : before.ended;
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
  const events = buildChangeEvents(before.alarm, stored, hadEnded, context);
  if (hadEnded)
    events.unshift(buildEvent("alarm-retriggered", stored, context.at, ["after", before.since], context, {}));
  return { stored, events };
}

export function resolveEpisode(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep {
  const stored: StoredAlarm = { ...before, alarm, state: "resolved", since: context.at, misses: 0 };
  const events = isNewAcknowledgement(before.alarm, alarm) ? [buildAcknowledgement(stored, context)] : [];
  const facts = [alarm.resolvedAt, stored.returns];
  events.push(buildEvent("alarm-resolved", stored, eventTime(alarm.resolvedAt, context), facts, context, {}));
  return { stored, events };
}

export function acknowledgeEndedEpisode(before: StoredAlarm, alarm: Alarm, context: DiffContext): DiffStep | null {
  if (!isNewAcknowledgement(before.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const acknowledgement = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const stored: StoredAlarm = { ...before, alarm: { ...before.alarm, ...acknowledgement } };
  return { stored, events: [buildAcknowledgement(stored, context)] };
}

export function markVanished(before: StoredAlarm, context: DiffContext): DiffStep {
  const stored: StoredAlarm = { ...before, state: "vanished", since: context.at };
  return { stored, events: [buildEvent("alarm-vanished", stored, context.at, [stored.returns], context, {})] };
}

export function markOutOfScope(before: StoredAlarm, context: DiffContext): DiffStep {
  const stored: StoredAlarm = { ...before, state: "out-of-scope", since: context.at, misses: 0 };
  return { stored, events: [buildEvent("alarm-out-of-scope", stored, context.at, [stored.returns], context, {})] };
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
    const facts = returns === 0 ? [activity.id] : [activity.id, returns];
    events.push(buildEvent("alarm-retriggered", stored, eventTime(activity.triggeredAt, context), facts, context, {}));
  }
  if (recoveringUntil !== null && !isSameMoment(before.recoveringUntil, recoveringUntil, startShiftMs(before, alarm)))
    events.push(buildEvent("alarm-recovering", stored, context.at, [recoveringUntil, context.at], context, {}));
  if (isNewAcknowledgement(before, alarm)) events.push(buildAcknowledgement(stored, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const facts = [before.acknowledgedAt, context.at];
    events.push(buildEvent("alarm-unacknowledged", stored, context.at, facts, context, {}));
  }
  const different: Partial<Record<keyof Alarm, unknown>> = {};
  for (const name of COMPARED_ALARM_FIELDS) {
    if (reopened && name === "status") continue;
    if (!isDeepStrictEqual(alarm[name], before[name])) different[name] = before[name];
  }
  if (recoveringUntil === null && before.recoveringUntil !== null) different.recoveringUntil = before.recoveringUntil;
  if (!isRetriggered && !isDeepStrictEqual(activity, before.lastActiveEvent))
    different.lastActiveEvent = before.lastActiveEvent;
  if (Object.keys(different).length > 0)
    events.push(buildEvent("alarm-changed", stored, context.at, [context.at], context, { before: different }));
  return events;
}

const COMPARED_ALARM_FIELDS = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

/** True if an acknowledgement's person, text or time changed; a time that moved with the alarm's start did not. */
function isNewAcknowledgement(before: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const names = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
  return (
    names.some((name) => alarm[name] !== before[name]) ||
    !isSameMoment(before.acknowledgedAt, alarm.acknowledgedAt, startShiftMs(before, alarm))
  );
}

function buildRaise(stored: StoredAlarm, initial: boolean, context: DiffContext, facts: EventFacts = []): Event {
  return buildEvent("alarm-raised", stored, eventTime(stored.alarm.triggeredAt, context), facts, context, { initial });
}

/** Builds the acknowledgement event, whose id contains the person, the text and the time (or the poll's time). */
function buildAcknowledgement(stored: StoredAlarm, context: DiffContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = stored.alarm;
  const facts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return buildEvent("alarm-acknowledged", stored, eventTime(acknowledgedAt, context), facts, context, {});
}

function buildEvent<K extends Extract<keyof EventData, `alarm-${string}`>>(
  type: K,
  stored: StoredAlarm,
  time: string,
  facts: EventFacts,
  context: DiffContext,
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
    ...{ type, source, time, subject: eventSubject("alarm", site.id, alarm.id) },
    ...{ siteId: site.id, priority: trigger.priority },
    data: { ...fact, ...more } as unknown as EventData[K],
    facts: [episode, ...facts],
  });
}

/** Returns the service's time if its UTC offset is known, otherwise the time of the poll. */
function eventTime(time: string | null, context: DiffContext): string {
  return time !== null && parseUtcMs(time) !== null ? time : context.at;
}

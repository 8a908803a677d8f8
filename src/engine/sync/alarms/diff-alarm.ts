import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import { type AlarmFact, type Event, type Kind, makeEvent, subjectOf } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { episodeOf, lastEndOf, orderOfActivity, withFormer } from "./episode.ts";
import { instant, isSameMoment, shiftBetween } from "./times.ts";

/** Steps of one alarm: each function returns the new stored alarm and the events of one change. */

export interface AlarmContext {
  /** `/sources/<name>` */
  readonly source: string;
  /** Now, UTC. */
  readonly at: string;
  /** True for what the sweep over resolved alarms finds after the fact. */
  readonly late: boolean;
  /** True for an episode that is over and was found after a later one of its alarm. */
  readonly superseded?: true;
  /** The offline gateway that explains an alarm, where there is evidence of one. */
  readonly behindGateway: (alarm: Alarm) => string | null;
}

export interface Step {
  readonly held: StoredAlarm;
  readonly events: readonly Event[];
}

/** A new episode, and the one that was held `before`. `initial`: it was met, not seen to begin. */
export function begin(alarm: Alarm, initial: boolean, context: AlarmContext, before?: StoredAlarm): Step {
  const held: StoredAlarm = {
    alarm,
    episode: episodeOf(alarm),
    state: "active",
    since: context.at,
    misses: 0,
    returns: 0,
    ...(before === undefined ? {} : { former: formerBy(before) }),
  };
  const events = [raised(held, initial, context)];
  if (alarm.acknowledged && !initial) events.push(acknowledged(held, context));
  return { held, events };
}

/** Episodes to store when another episode of the alarm begins. */
function formerBy(before: StoredAlarm) {
  return withFormer(before, { episode: before.episode, endMs: lastEndOf(before).endMs });
}

/** An active alarm told again, because the configuration wants every start announced; once per start. */
export function announce(held: StoredAlarm, startedAt: string, context: AlarmContext): Event {
  return raised(held, true, context, startedAt);
}

/** The episode is listed as active. Coming back from outside the scope is silent; coming back from its end is not. */
export function goOn(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step {
  const former = before.former === undefined ? {} : { former: before.former };
  if (before.untold === true) {
    const { held, events } = begin(alarm, false, context);
    return { held: { ...held, ...former }, events };
  }
  const ended = before.state === "resolved" || before.state === "vanished";
  const lastEnd = before.state === "resolved" ? lastEndOf(before) : before.ended;
  const away = ended || before.state === "out-of-scope";
  const held: StoredAlarm = {
    alarm,
    episode: before.episode,
    state: "active",
    since: before.state === "active" || before.state === "missing" ? before.since : context.at,
    misses: 0,
    returns: before.returns + (away ? 1 : 0),
    ...(lastEnd === undefined ? {} : { ended: lastEnd }),
    ...former,
  };
  const events = changes(before.alarm, held, ended, context);
  if (ended) events.unshift(fact("alarm-retriggered", held, context.at, ["after", before.since], context));
  return { held, events };
}

/** The service says that the episode is over. */
export function resolve(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step {
  const held: StoredAlarm = { ...before, alarm, state: "resolved", since: context.at, misses: 0 };
  const events: Event[] = [];
  if (isAcknowledgedAnew(before.alarm, alarm)) events.push(acknowledged(held, context));
  const facts = [alarm.resolvedAt, held.returns];
  events.push(fact("alarm-resolved", held, timeOr(alarm.resolvedAt, context), facts, context));
  return { held, events };
}

/** Acknowledged only after its end; null when nothing is new. That an acknowledgement is gone by then is no news. */
export function acknowledgeEnded(before: StoredAlarm, alarm: Alarm, context: AlarmContext): Step | null {
  if (!isAcknowledgedAnew(before.alarm, alarm)) return null;
  const { acknowledgedBy, acknowledgedMessage, acknowledgedAt } = alarm;
  const told = { acknowledged: true, acknowledgedBy, acknowledgedMessage, acknowledgedAt };
  const held: StoredAlarm = { ...before, alarm: { ...before.alarm, ...told } };
  return { held, events: [acknowledged(held, context)] };
}

/** The alarm is absent everywhere, or its id now belongs to another episode. */
export function vanish(before: StoredAlarm, context: AlarmContext): Step {
  const held: StoredAlarm = { ...before, state: "vanished", since: context.at };
  return { held, events: [fact("alarm-vanished", held, context.at, [held.returns], context)] };
}

/** The token does not see its site any more: the picture of it stays as it was. */
export function leaveScope(before: StoredAlarm, context: AlarmContext): Step {
  const held: StoredAlarm = { ...before, state: "out-of-scope", since: context.at, misses: 0 };
  return { held, events: [fact("alarm-out-of-scope", held, context.at, [held.returns], context)] };
}

/** A complete listing did not show it; what that means is not known yet. */
export function miss(before: StoredAlarm, context: AlarmContext): Step {
  const since = before.state === "missing" ? before.since : context.at;
  const returns = before.returns + (before.state === "out-of-scope" ? 1 : 0);
  return { held: { ...before, state: "missing", since, misses: before.misses + 1, returns }, events: [] };
}

/** True when the emitted state of the episode is open. */
export function isOpen(held: StoredAlarm): boolean {
  return held.state !== "resolved" && held.state !== "vanished";
}

function changes(before: Alarm, held: StoredAlarm, reopened: boolean, context: AlarmContext): Event[] {
  const { alarm } = held;
  const events: Event[] = [];
  const activity = alarm.lastActiveEvent;
  const again = activity !== null && orderOfActivity(alarm, before) === "after";
  if (again && !reopened) {
    const facts = held.returns === 0 ? [activity.id] : [activity.id, held.returns];
    events.push(fact("alarm-retriggered", held, timeOr(activity.triggeredAt, context), facts, context));
  }
  const recovering =
    alarm.recoveringUntil !== null &&
    !isSameMoment(before.recoveringUntil, alarm.recoveringUntil, shiftBetween(before, alarm));
  if (recovering) {
    events.push(fact("alarm-recovering", held, context.at, [alarm.recoveringUntil, context.at], context));
  }
  if (isAcknowledgedAnew(before, alarm)) events.push(acknowledged(held, context));
  if (!alarm.acknowledged && before.acknowledged) {
    const facts = [before.acknowledgedAt, context.at];
    events.push(fact("alarm-unacknowledged", held, context.at, facts, context));
  }
  const different: Partial<Record<keyof Alarm, unknown>> = {};
  // The return already states that it is active again.
  for (const name of reopened ? DESCRIPTION.filter((one) => one !== "status") : DESCRIPTION)
    if (!isDeepStrictEqual(alarm[name], before[name])) different[name] = before[name];
  if (alarm.recoveringUntil === null && before.recoveringUntil !== null) {
    different.recoveringUntil = before.recoveringUntil;
  }
  if (!again && !isDeepStrictEqual(activity, before.lastActiveEvent)) {
    different.lastActiveEvent = before.lastActiveEvent;
  }
  if (Object.keys(different).length > 0) {
    events.push(
      makeEvent({
        ...envelope("alarm-changed", held, context.at, [context.at]),
        source: context.source,
        data: { ...factOf(held, context), before: different },
      }),
    );
  }
  return events;
}

/**
 * Whether another person, text or time makes it another acknowledgement. A time that moved by as much as the start of
 * the alarm is the same time, corrected.
 */
function isAcknowledgedAnew(before: Alarm, alarm: Alarm): boolean {
  if (!alarm.acknowledged) return false;
  const { acknowledgedAt } = alarm;
  return (
    ACKNOWLEDGEMENT.some((name) => alarm[name] !== before[name]) ||
    !isSameMoment(before.acknowledgedAt, acknowledgedAt, shiftBetween(before, alarm))
  );
}

const ACKNOWLEDGEMENT = ["acknowledged", "acknowledgedBy", "acknowledgedMessage"] as const;
const DESCRIPTION = ["site", "trigger", "status", "source", "description", "triggeredAt"] as const;

function raised(held: StoredAlarm, initial: boolean, context: AlarmContext, announcedAt?: string): Event {
  return makeEvent({
    ...envelope(
      "alarm-raised",
      held,
      startOf(held.alarm, context),
      announcedAt === undefined ? [] : ["announced", announcedAt],
    ),
    source: context.source,
    data: { ...factOf(held, context), initial },
  });
}

/** Who, what and when make it this acknowledgement; when the service does not say when, it is when we saw it. */
function acknowledged(held: StoredAlarm, context: AlarmContext): Event {
  const { acknowledgedAt, acknowledgedBy, acknowledgedMessage } = held.alarm;
  const facts = [acknowledgedAt ?? context.at, acknowledgedBy, acknowledgedMessage];
  return fact("alarm-acknowledged", held, timeOr(acknowledgedAt, context), facts, context);
}

type PlainKind =
  | "alarm-resolved"
  | "alarm-acknowledged"
  | "alarm-unacknowledged"
  | "alarm-recovering"
  | "alarm-retriggered"
  | "alarm-vanished"
  | "alarm-out-of-scope";

function fact(
  type: PlainKind,
  held: StoredAlarm,
  time: string,
  facts: readonly (string | number | null)[],
  context: AlarmContext,
): Event {
  return makeEvent({
    ...envelope(type, held, time, facts),
    source: context.source,
    data: factOf(held, context),
  });
}

function envelope<K extends Kind>(
  type: K,
  held: StoredAlarm,
  time: string,
  facts: readonly (string | number | null)[],
) {
  const { alarm, episode } = held;
  return {
    type,
    subject: subjectOf("alarm", alarm.site.id, alarm.id),
    time,
    siteId: alarm.site.id,
    priority: alarm.trigger.priority,
    facts: [episode, ...facts],
  };
}

function factOf(held: StoredAlarm, context: AlarmContext): AlarmFact {
  return {
    alarm: held.alarm,
    episode: held.episode,
    late: context.late,
    ...(context.superseded === true ? { superseded: true } : {}),
    behindGateway: context.behindGateway(held.alarm),
  };
}

function startOf(alarm: Alarm, context: AlarmContext): string {
  return timeOr(alarm.triggeredAt, context);
}

/** The service's time when its offset is known, otherwise the time of the request. */
function timeOr(time: string | null, context: AlarmContext): string {
  return time !== null && instant(time) !== null ? time : context.at;
}
